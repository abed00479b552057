// Holds: what each keeps, by whom and why; how many events that are, and its end.

import { useState, type ReactNode } from "react";
import { ask, order } from "./api.ts";
import { command } from "./command.ts";
import type { Hold, Holds, Job, Released } from "./documents.ts";
import { Failure, Head, SameAnswer, Shown, TableFrame, useAnswer, When } from "./frame.tsx";
import { JobState, numberOf, useJob } from "./job.tsx";
import { iso } from "./moments.ts";
import { useMay } from "./replay_plan.tsx";
import { TEXTS } from "./texts.ts";

const texts = TEXTS.proof;

export function HoldList(): ReactNode {
  const [answer, again] = useAnswer((signal) => ask<Holds>("holds", {}, signal), "holds");
  const may = useMay("manage");
  return (
    <section aria-label={texts.holds}>
      <h2>{texts.holds}</h2>
      <Shown answer={answer} again={again}>
        {({ items }) =>
          items.length ? (
            <>
              <TableFrame label={texts.holds}>
                <Head columns={[texts.name, texts.means, texts.reason, texts.who, texts.since, TEXTS.writer]} />
                <tbody>
                  {items.map((hold) => (
                    <tr key={`${hold.name} ${hold.writers.join()}`}>
                      <th scope="row">{hold.name}</th>
                      <td>{meaningOf(hold).join("; ")}</td>
                      <td>{hold.reason}</td>
                      <td>{hold.who}</td>
                      <td className="event_time">
                        <When ms={hold.created_ms} away />
                      </td>
                      <td>{hold.writers.join(", ") || TEXTS.all}</td>
                    </tr>
                  ))}
                </tbody>
              </TableFrame>
              {may && [...new Set(items.map((hold) => hold.name))].map((name) => <OneHold key={name} name={name} onEnd={again} />)}
            </>
          ) : (
            <p>{texts.noHolds}</p>
          )
        }
      </Shown>
      <SameAnswer commandLine={command("hold list", [])} path="holds" />
    </section>
  );
}

/** What a hold means, in words. */
function meaningOf(hold: Hold): string[] {
  const said = texts.conditions;
  return [
    ...(hold.event_ids?.length ? [said.ids(hold.event_ids.join(", "))] : []),
    ...(hold.flowfile_uuids?.length ? [said.uuids(hold.flowfile_uuids.join(", "))] : []),
    ...(hold.event_types?.length ? [said.types(hold.event_types.join(", "))] : []),
    ...Object.entries(hold.attributes ?? {}).map(([name, value]) => `${name}=${value}`),
    ...(hold.to_ms ? [said.times(iso(hold.from_ms ?? 0), iso(hold.to_ms))] : []),
  ];
}

function OneHold({ name, onEnd }: { name: string; onEnd: () => void }): ReactNode {
  const counting = useJob(`count-${name}`);
  const [reason, say] = useState("");
  const [error, setError] = useState<Error | null>(null);
  const { job } = counting;
  return (
    <details>
      <summary>{name}</summary>
      <p className="row">
        <button
          type="button"
          disabled={counting.isBusy}
          onClick={() => counting.begin(() => order<Job>("POST", "hold-counts", { name }))}
        >
          {texts.countOf(name)}
        </button>
        {!counting.isBusy && job?.state === "succeeded" && <span role="status">{texts.counted(numberOf(job, "events"))}</span>}
      </p>
      <JobState followed={counting} />
      <form
        className="consent"
        onSubmit={(event) => {
          event.preventDefault();
          setError(null);
          order<Released>("POST", "hold-releases", { name, reason }).then(onEnd, (failure: unknown) => setError(failure as Error));
        }}
      >
        <p>{texts.releaseQuestion(name)}</p>
        <label>
          {TEXTS.keep.reason}
          <input value={reason} onChange={({ target }) => say(target.value)} size={40} required />
        </label>
        <button type="submit" className="main">
          {texts.releaseOf(name)}
        </button>
      </form>
      {error && <Failure error={error} again={() => setError(null)} />}
    </details>
  );
}
