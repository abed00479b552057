// Replay: a plan that says what can be sent again and why others cannot, then its run.

import { useState, type ReactNode } from "react";
import { ownParameters, pageAddress, remember } from "./address.ts";
import { ask, order } from "./api.ts";
import { command } from "./command.ts";
import type { Job, PlanOverview, RefusedReplay, Welcome } from "./documents.ts";
import { Head, Notices, SameAnswer, Shown, TableFrame, useAnswer, When } from "./frame.tsx";
import { Consent, JobState, numberOf, numbers, useJob } from "./job.tsx";
import { bytes, count } from "./moments.ts";
import { TEXTS } from "./texts.ts";

const REFUSED_SHOWN = 200;
const texts = TEXTS.replay;

export interface ReplayQuestion {
  query?: string;
  event_ids?: number[];
  writer: string | null;
  as_of: string | null;
}

/** Whether this reader may begin something; null as long as that is not known. */
export function useMay(scope: string): boolean | null {
  const [welcome] = useAnswer((signal) => ask<Welcome>("", {}, signal), "welcome");
  return welcome.state === "there" ? welcome.value.can.includes(scope) : null;
}

/** The plan for some events, made when the reader wants it; its name is kept in the address. */
export function Replay({ question }: { question: ReplayQuestion }): ReactNode {
  const may = useMay("replay");
  const [plan, setPlan] = useState(() => ownParameters().get("plan"));
  const planning = useJob("planning", (job: Job) => {
    const name = job.result?.["plan"];
    if (typeof name !== "string") return;
    remember({ plan: name, planning: null });
    setPlan(name);
  });
  // It keeps the focus while it is off.
  const isOff = planning.isBusy || may === null;
  const [id] = question.event_ids ?? [];
  const commandLine = command("replay plan", question.query === undefined ? [] : [question.query], {
    event: id,
    writer: question.writer,
    "as-of": question.as_of,
  });
  if (may === false)
    return (
      <>
        <p>{texts.mayNot}</p>
        <pre>{commandLine}</pre>
      </>
    );
  return (
    <>
      <p>{texts.intro}</p>
      <p className="row">
        <button type="button" aria-disabled={isOff} onClick={() => isOff || planning.begin(() => order<Job>("POST", "replay-plans", question))}>
          {plan ? texts.planAgain : texts.plan}
        </button>
        <span className="quiet">{texts.planHint}</span>
      </p>
      <JobState followed={planning} />
      {plan && <Plan key={plan} name={plan} />}
      {plan ? (
        <SameAnswer commandLine={commandLine} path={`replay-plans/${plan}`} />
      ) : (
        <SameAnswer commandLine={commandLine} path="replay-plans" body={question} />
      )}
    </>
  );
}

function Plan({ name }: { name: string }): ReactNode {
  const path = `replay-plans/${encodeURIComponent(name)}`;
  const [answer, again] = useAnswer((signal) => ask<PlanOverview>(path, {}, signal), path);
  return (
    <section aria-label={texts.planTitle}>
      <h2>{texts.planTitle}</h2>
      <Shown answer={answer} again={again}>
        {(plan) => (
          <>
            <Notices notices={plan.notices} />
            <dl className="facts">
              <dt>{texts.can}</dt>
              <dd>
                {texts.events(plan.events)}, {bytes(plan.bytes)}
              </dd>
              <dt>{texts.cannot}</dt>
              <dd>{texts.events(Object.values(plan.refused_by_code).reduce((sum, one) => sum + one, 0))}</dd>
              <dt>{texts.made}</dt>
              <dd>
                <When ms={plan.made_ms} away />
              </dd>
              <dt>{texts.revisions}</dt>
              <dd>
                {Object.entries(plan.revisions)
                  .map(([writer, revision]) => `${writer} ${revision}`)
                  .join(", ")}
              </dd>
            </dl>
            <Queues queues={plan.queues} />
            <Refused refused={plan.refused} byCode={plan.refused_by_code} />
            {plan.events > 0 && <Run path={path} events={plan.events} size={plan.bytes} />}
          </>
        )}
      </Shown>
    </section>
  );
}

function Queues({ queues }: { queues: Record<string, number> }): ReactNode {
  const rows = Object.entries(queues);
  if (!rows.length) return null;
  return (
    <TableFrame label={texts.queues}>
      <Head columns={[texts.queue, texts.flowfiles]} />
      <tbody>
        {rows.map(([queue, number]) => (
          <tr key={queue}>
            <th scope="row">{queue}</th>
            <td className="number-cell">{count(number)}</td>
          </tr>
        ))}
      </tbody>
    </TableFrame>
  );
}

function Refused({ refused, byCode }: { refused: RefusedReplay[]; byCode: Record<string, number> }): ReactNode {
  if (!refused.length) return null;
  return (
    <>
      <h3>{texts.reasons}</h3>
      <ul>
        {Object.entries(byCode).map(([code, number]) => (
          <li key={code}>
            <code>{code}</code> {texts.events(number)}
          </li>
        ))}
      </ul>
      <RefusedTable label={texts.refused} refused={refused} />
    </>
  );
}

export function RefusedTable({ label, refused }: { label: string; refused: RefusedReplay[] }): ReactNode {
  return (
    <>
      <TableFrame label={label}>
        <Head columns={[TEXTS.id, texts.code, texts.why]} />
        <tbody>
          {refused.slice(0, REFUSED_SHOWN).map((one) => (
            <tr key={`${one.writer}/${one.event_id}`}>
              <th scope="row">
                <a href={pageAddress("event", { writer: one.writer, event: one.event_id })}>
                  {one.writer}/{one.event_id}
                </a>
              </th>
              <td>
                <code>{one.code}</code>
              </td>
              <td>{one.message}</td>
            </tr>
          ))}
        </tbody>
      </TableFrame>
      {refused.length > REFUSED_SHOWN && <p className="quiet">{TEXTS.search.shown(REFUSED_SHOWN, refused.length)}</p>}
    </>
  );
}

function Run({ path, events, size }: { path: string; events: number; size: number }): ReactNode {
  const running = useJob("job");
  const [skips, setSkips] = useState(false);
  const { job } = running;
  const skipped = (job?.result?.["skipped"] ?? []) as RefusedReplay[];
  return (
    <>
      <h3>{texts.run}</h3>
      <label className="check">
        <input type="checkbox" checked={skips} onChange={({ target }) => setSkips(target.checked)} /> {texts.skipChanged}
      </label>
      <Consent
        label={texts.send(events)}
        question={texts.question(events, bytes(size))}
        agree={texts.send(events)}
        isOff={running.isBusy}
        act={() => running.begin(() => order<Job>("POST", `${path}/runs`, { skip_changed: skips }))}
      />
      <JobState followed={running} />
      {!running.isBusy && job?.result && (
        <section aria-label={texts.outcome} role="status">
          {numbers([
            [texts.sent, numberOf(job, "replayed")],
            [texts.before, numberOf(job, "done_before")],
            [texts.skipped, skipped.length],
          ])}
          {skipped.length > 0 && <RefusedTable label={texts.skipped} refused={skipped} />}
        </section>
      )}
    </>
  );
}
