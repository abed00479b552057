// Hold and forget: events are chosen by conditions; what would be forgotten is counted first, and consent is its number.

import { useState, type ReactNode } from "react";
import { ownParameters, pageAddress } from "./address.ts";
import { order } from "./api.ts";
import { command, word } from "./command.ts";
import type { Hold, Job } from "./documents.ts";
import { Failure, Frame, Head, Notices, SameAnswer, start, TableFrame } from "./frame.tsx";
import { JobState, numberOf, useJob } from "./job.tsx";
import { meantBy, optionsOf, type Meant } from "./meant.ts";
import { count } from "./moments.ts";
import { Question, TimeField, WriterField } from "./question.tsx";
import { useMay } from "./replay_plan.tsx";
import { TEXTS } from "./texts.ts";

const texts = TEXTS.keep;
const parameters = ownParameters();
const meant = meantBy(parameters);

function KeepPage(): ReactNode {
  const may = useMay("manage");
  const options = meant ? ` ${optionsOf(meant)}` : "";
  return (
    <Frame page="keep" title={texts.title}>
      <p>{texts.intro}</p>
      <Conditions />
      {!meant && <p>{texts.which}</p>}
      {may === false && <p>{texts.mayNot}</p>}
      {meant && may && <Forget meant={meant} />}
      {meant && may && <HoldForm meant={meant} />}
      {meant && may === false && <pre>{`${command("forget", [])}${options} --reason …`}</pre>}
      <p>
        <a href={pageAddress("proof")}>{TEXTS.proof.holds}</a>
      </p>
      <SameAnswer commandLine={`${command("forget", [], { "dry-run": true })}${options} --reason …`} path="forget-plans" body={meant ?? {}} />
    </Frame>
  );
}

function Conditions(): ReactNode {
  const attributes = parameters.getAll("attribute").filter(Boolean);
  return (
    <Question>
      <label>
        {texts.ids}
        <input name="ids" defaultValue={parameters.get("ids") ?? ""} size={16} />
      </label>
      <WriterField />
      <label className="grows">
        {texts.flowfile}
        <input name="flowfile" defaultValue={parameters.get("flowfile") ?? ""} size={30} />
      </label>
      {[...attributes, ""].map((pair, at) => (
        <label key={at}>
          {texts.attribute}
          <input name="attribute" defaultValue={pair} size={20} />
        </label>
      ))}
      <TimeField name="since" label={TEXTS.search.since} />
      <TimeField name="until" label={TEXTS.search.until} />
      <button type="submit" className="main">
        {texts.choose}
      </button>
    </Question>
  );
}

function Forget({ meant: chosen }: { meant: Meant }): ReactNode {
  const planning = useJob("plan");
  const { job } = planning;
  return (
    <section aria-label={texts.forget}>
      <h2>{texts.forget}</h2>
      <p className="row">
        <button type="button" disabled={planning.isBusy} onClick={() => planning.begin(() => order<Job>("POST", "forget-plans", chosen))}>
          {texts.plan}
        </button>
        <span className="quiet">{texts.planHint}</span>
      </p>
      <JobState followed={planning} />
      {!planning.isBusy && job?.state === "succeeded" && <Plan key={job.id} plan={job} />}
    </section>
  );
}

function Plan({ plan }: { plan: Job }): ReactNode {
  const running = useJob("forgetting");
  const [typed, type] = useState("");
  const [reason, say] = useState("");
  const events = numberOf(plan, "events");
  const writers = Object.entries((plan.result?.["writers"] ?? {}) as Record<string, number>);
  const held = Object.entries((plan.result?.["held"] ?? {}) as Record<string, number>);
  const isRun = plan.result?.["run"] === true || running.job?.state === "succeeded";
  const agrees = typed.trim() === String(events) && reason.trim() !== "";
  return (
    <>
      <p role="status">
        <strong>{events ? texts.planned(events) : texts.nothing}</strong>
      </p>
      <Notices notices={plan.result?.["notices"] as string[] | undefined} />
      {writers.length > 1 && (
        <TableFrame label={texts.byWriter}>
          <Head columns={[TEXTS.writer, TEXTS.proof.eventsIn]} />
          <tbody>
            {writers.map(([writer, number]) => (
              <tr key={writer}>
                <th scope="row">{writer}</th>
                <td className="number-cell">{count(number)}</td>
              </tr>
            ))}
          </tbody>
        </TableFrame>
      )}
      {held.length > 0 && (
        <ul>
          {held.map(([name, number]) => (
            <li key={name}>{texts.held(name, number)}</li>
          ))}
        </ul>
      )}
      {isRun && !running.job && <p>{texts.wasRun}</p>}
      {events > 0 && !isRun && (
        <form
          className="consent"
          onSubmit={(event) => {
            event.preventDefault();
            const path = `forget-plans/${encodeURIComponent(plan.id)}/runs`;
            running.begin(() => order<Job>("POST", path, { events: Number(typed), reason }));
          }}
        >
          <label>
            {texts.reason}
            <input value={reason} onChange={({ target }) => say(target.value)} size={40} required />
          </label>
          <label>
            {texts.number(String(events))}
            <input value={typed} onChange={({ target }) => type(target.value)} inputMode="numeric" autoComplete="off" size={10} required />
          </label>
          <button type="submit" className="main" disabled={!agrees || running.isBusy}>
            {texts.act(events)}
          </button>
        </form>
      )}
      <JobState followed={running} />
      {running.job?.state === "succeeded" && (
        <p role="status">
          <strong>{texts.done(numberOf(running.job, "events"))}</strong>
        </p>
      )}
    </>
  );
}

function HoldForm({ meant: chosen }: { meant: Meant }): ReactNode {
  const [name, call] = useState("");
  const [reason, say] = useState("");
  const [types, choose] = useState("");
  const [hold, setHold] = useState<Hold | null>(null);
  const [error, setError] = useState<Error | null>(null);
  const event_types = types.split(",").map((one) => one.trim()).filter(Boolean);
  const line = `${command("hold add", [])} ${word(name || "NAME")} ${optionsOf(chosen)} --reason ${word(reason || "…")}`;
  return (
    <section aria-label={texts.hold}>
      <h2>{texts.hold}</h2>
      <p className="quiet">{texts.holdHint}</p>
      <form
        className="consent"
        onSubmit={(event) => {
          event.preventDefault();
          setError(null);
          order<Hold>("POST", "holds", { ...chosen, name, reason, event_types }).then(setHold, (failure: unknown) => setError(failure as Error));
        }}
      >
        <label>
          {texts.name}
          <input value={name} onChange={({ target }) => call(target.value)} size={20} maxLength={200} required />
        </label>
        <label>
          {texts.reason}
          <input value={reason} onChange={({ target }) => say(target.value)} size={40} required />
        </label>
        <label>
          {texts.types}
          <input value={types} onChange={({ target }) => choose(target.value)} size={20} />
        </label>
        <button type="submit" className="main">
          {texts.holdAct}
        </button>
      </form>
      {error && <Failure error={error} again={() => setError(null)} />}
      {hold && (
        <p role="status">
          <strong>{texts.holds(hold.name)}</strong>
        </p>
      )}
      <pre>{line}</pre>
    </section>
  );
}

start(<KeepPage />);
