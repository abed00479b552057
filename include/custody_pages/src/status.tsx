// Status: writers, what waits, room and disks, queues, quarantine with another try, long work, runs of DAGs and of steps.

import { useCallback, useEffect, useState, type ReactNode } from "react";
import { ownParameters, pageAddress } from "./address.ts";
import { ask, order } from "./api.ts";
import { command } from "./command.ts";
import { Containers } from "./containers.tsx";
import { NewestRuns } from "./dag_runs.tsx";
import type { Job, JobList, OneRun, Quarantined, RepositoryStatus, RunList, RunOverview } from "./documents.ts";
import { Frame, Head, Notices, SameAnswer, Shown, start, Switch, TableFrame, useAnswer, When } from "./frame.tsx";
import { Consent, JobState, numberOf, numbers, useJob } from "./job.tsx";
import { absolute, bytes, count } from "./moments.ts";
import { useMay } from "./replay_plan.tsx";
import { TEXTS } from "./texts.ts";
import { Trend } from "./trend.tsx";

const REFRESH_MS = 10_000;
const FORMATS = ["nifi", "nifi-rest", "nifi-avro", "openlineage", "ngsi", "custody"];
const QUARANTINE_SHOWN = 100;
const RUNS_SHOWN = 20;
const DAG_RUNS_SHOWN = 10;
const texts = TEXTS.status;

function StatusPage(): ReactNode {
  const [isOn, setOn] = useState(ownParameters().get("refresh") === "true");
  // Every part asks once more in each round. What the page begins is in the list of long work as soon as it has ended.
  const [round, setRound] = useState(0);
  const look = useCallback(() => setRound((now) => now + 1), []);
  const [answer, again] = useAnswer((signal) => ask<RepositoryStatus>("status", {}, signal), `status ${round}`);
  useEffect(() => {
    if (!isOn) return;
    const timer = setInterval(() => document.visibilityState === "hidden" || look(), REFRESH_MS);
    return () => clearInterval(timer);
  }, [isOn, look]);
  return (
    <Frame page="status" title={texts.title}>
      <Switch name="refresh" isOn={isOn} turn={setOn}>
        {texts.refresh}
      </Switch>
      <Shown answer={answer} again={again}>
        {(status) => (
          <>
            <Notices notices={status.notices} />
            <Tiles status={status} />
            <Writers status={status} />
            <Trend status={status} />
            <Room status={status} />
            <Queues status={status} />
          </>
        )}
      </Shown>
      <NewestRuns title={texts.dagRuns} limit={DAG_RUNS_SHOWN} round={round} />
      <Quarantine round={round} onEnd={look} />
      <Jobs round={round} />
      <Runs round={round} />
      <SameAnswer commandLine={command("status", [])} path="status" />
      <SameAnswer of={TEXTS.same.quarantine} commandLine={command("quarantine list", [])} path="quarantine" parameters={{ limit: QUARANTINE_SHOWN }} />
      <SameAnswer of={TEXTS.same.jobs} commandLine={command("jobs", [], { limit: RUNS_SHOWN })} path="jobs" parameters={{ limit: RUNS_SHOWN }} />
      <SameAnswer of={TEXTS.same.runs} commandLine={command("runs", [], { limit: RUNS_SHOWN })} path="runs" parameters={{ limit: RUNS_SHOWN }} />
    </Frame>
  );
}

function Tiles({ status }: { status: RepositoryStatus }): ReactNode {
  const sum = (name: "events_live" | "events_waiting" | "events_lost"): number =>
    status.writers.reduce((total, writer) => total + writer[name], 0);
  const lost = sum("events_lost");
  const { used_bytes, limit_bytes } = status.budget;
  const tiles: [string, string, boolean][] = [
    [texts.live, count(sum("events_live")), false],
    [texts.waiting, count(sum("events_waiting")), false],
    [texts.lost, count(lost), lost > 0],
    [texts.quarantined, count(status.quarantined), status.quarantined > 0],
    [texts.used, bytes(used_bytes), limit_bytes !== null && used_bytes > limit_bytes],
    [texts.limit, limit_bytes === null ? texts.noLimit : bytes(limit_bytes), false],
    [texts.slots, texts.slotsTaken(status.slots_taken, status.slots), false],
  ];
  return (
    <>
      <p className="quiet">
        {texts.repository} <code>{status.root}</code> · {texts.looked(absolute(Date.now()))}
      </p>
      <ul className="tiles">
        {tiles.map(([name, value, isWrong]) => (
          <li key={name} className={isWrong ? "wrong" : ""}>
            {name}
            <strong>{value}</strong>
          </li>
        ))}
      </ul>
    </>
  );
}

function Writers({ status }: { status: RepositoryStatus }): ReactNode {
  const here = new Map((status.contents_not_handed_over ?? []).map((one) => [one.writer, texts.contentsHereText(one.claims, bytes(one.bytes))]));
  return (
    <section>
      <h2>{texts.writers}</h2>
      <TableFrame label={texts.writers}>
        <Head
          columns={[
            TEXTS.writer,
            texts.held,
            texts.live,
            texts.waiting,
            texts.journalsWaiting,
            texts.lag,
            texts.lost,
            texts.revision,
            texts.lastCommit,
            texts.logs,
            texts.shards,
            texts.journalsOfOthers,
            texts.contentsHere,
            texts.missing,
          ]}
        />
        <tbody>
          {status.writers.map((writer) => (
            <tr key={writer.writer}>
              <th scope="row">
                <a href={pageAddress("proof", { writer: writer.writer })}>{writer.writer}</a>
              </th>
              <td>{writer.is_held ? texts.yes : texts.no}</td>
              <td className="number-cell">{count(writer.events_live)}</td>
              <td className="number-cell">{count(writer.events_waiting)}</td>
              <td className="number-cell">{count(writer.journals_waiting ?? 0)}</td>
              <td className="event_time">{writer.waiting_since_ms == null ? texts.noLag : <When ms={writer.waiting_since_ms} away />}</td>
              <td className="number-cell">{count(writer.events_lost)}</td>
              <td className="number-cell">{count(writer.revision)}</td>
              <td className="event_time">
                <When ms={writer.last_commit_ms} away />
              </td>
              <td className="number-cell">
                {count(writer.logs)} ({bytes(writer.log_bytes)})
              </td>
              <td className="number-cell">
                {count(writer.shards)} ({bytes(writer.shard_bytes)})
              </td>
              <td className={writer.journals_of_others ? "number-cell wrong" : "number-cell"}>{count(writer.journals_of_others ?? 0)}</td>
              <td className="number-cell">{here.has(writer.writer) ? here.get(writer.writer) : "–"}</td>
              <td>{writer.missing_containers?.join(", ") || "–"}</td>
            </tr>
          ))}
        </tbody>
      </TableFrame>
    </section>
  );
}

function Room({ status }: { status: RepositoryStatus }): ReactNode {
  const kinds = Object.entries(status.budget.kinds).sort(([, one], [, other]) => other - one);
  return (
    <>
      <h2>{texts.pending}</h2>
      <TableFrame label={texts.pending}>
        <Head columns={[texts.kind, texts.number]} />
        <tbody>
          {Object.entries(status.pending).map(([kind, number]) => (
            <tr key={kind}>
              <th scope="row">{texts.pendingKinds[kind] ?? kind}</th>
              <td className="number-cell">{count(number as number)}</td>
            </tr>
          ))}
        </tbody>
      </TableFrame>
      <h2>{texts.room}</h2>
      <TableFrame label={texts.room}>
        <Head columns={[texts.kind, TEXTS.size]} />
        <tbody>
          {kinds.map(([kind, size]) => (
            <tr key={kind}>
              <th scope="row">{kind}</th>
              <td className="number-cell">{bytes(size)}</td>
            </tr>
          ))}
        </tbody>
      </TableFrame>
      <Containers status={status} />
    </>
  );
}

function Queues({ status }: { status: RepositoryStatus }): ReactNode {
  if (!status.queues?.length) return null;
  return (
    <>
      <h2>{texts.queues}</h2>
      <TableFrame label={texts.queues}>
        <Head columns={[texts.queue, texts.flowfiles, TEXTS.size, texts.oldest, texts.full, texts.consumer]} />
        <tbody>
          {status.queues.map((queue) => (
            <tr key={queue.connection.name}>
              <th scope="row">{queue.connection.name}</th>
              <td className="number-cell">{count(queue.count)}</td>
              <td className="number-cell">{bytes(queue.content_bytes)}</td>
              <td className="event_time">
                <When ms={queue.oldest_ms} away />
              </td>
              <td>{queue.is_full ? texts.yes : texts.no}</td>
              <td>{queue.connection.consumer ?? "–"}</td>
            </tr>
          ))}
        </tbody>
      </TableFrame>
    </>
  );
}

function Quarantine({ round, onEnd }: { round: number; onEnd: () => void }): ReactNode {
  const [answer, again] = useAnswer((signal) => ask<Quarantined>("quarantine", { limit: QUARANTINE_SHOWN }, signal), `quarantine ${round}`);
  const may = useMay("manage");
  const [chosen, choose] = useState<ReadonlySet<string>>(new Set());
  const [format, setFormat] = useState("");
  const trying = useJob("resubmit", () => {
    choose(new Set());
    onEnd();
  });
  const turn = (key: string, isOn: boolean): void => {
    const next = new Set(chosen);
    if (isOn) next.add(key);
    else next.delete(key);
    choose(next);
  };
  const retry = (body: object): void => trying.begin(() => order<Job>("POST", "quarantine/resubmissions", { ...body, ...(format && { format }) }));
  return (
    <section>
      <h2>{texts.quarantine}</h2>
      <Shown answer={answer} again={again}>
        {({ items, total }) =>
          items.length ? (
            <>
              <p className="quiet">{texts.quarantineShown(items.length, total)}</p>
              <TableFrame label={texts.quarantine}>
                <Head columns={[texts.key, texts.received, texts.code, texts.message, texts.file, TEXTS.size]} />
                <tbody>
                  {items.map((entry) => (
                    <tr key={entry.key}>
                      <th scope="row">
                        <label className="check">
                          {may && (
                            <input type="checkbox" checked={chosen.has(entry.key)} onChange={({ target }) => turn(entry.key, target.checked)} />
                          )}{" "}
                          <code>{entry.key}</code>
                        </label>
                      </th>
                      <td className="event_time">
                        <When ms={entry.received_ms} />
                      </td>
                      <td>{entry.code}</td>
                      <td>{entry.message}</td>
                      <td>{entry.file}</td>
                      <td className="file_size">{bytes(entry.size_bytes)}</td>
                    </tr>
                  ))}
                </tbody>
              </TableFrame>
              {may ? (
                <p className="row">
                  <label>
                    {texts.readAs}{" "}
                    <select value={format} onChange={({ target }) => setFormat(target.value)}>
                      <option value="">{texts.asTheyWere}</option>
                      {FORMATS.map((one) => (
                        <option key={one}>{one}</option>
                      ))}
                    </select>
                  </label>
                  <Consent
                    label={texts.retry(chosen.size)}
                    question={texts.retryQuestion(chosen.size)}
                    agree={texts.retry(chosen.size)}
                    isOff={!chosen.size || trying.isBusy}
                    act={() => retry({ keys: [...chosen] })}
                  />
                  <Consent
                    label={texts.retryAll(total)}
                    question={texts.retryQuestion(total)}
                    agree={texts.retryAll(total)}
                    isOff={trying.isBusy}
                    act={() => retry({ everything: true })}
                  />
                  <Consent
                    label={texts.remove(chosen.size)}
                    question={texts.removeQuestion(chosen.size)}
                    agree={texts.remove(chosen.size)}
                    isOff={!chosen.size || trying.isBusy}
                    act={() => trying.begin(() => order<Job>("POST", "quarantine/removals", { keys: [...chosen], pieces: chosen.size }))}
                  />
                </p>
              ) : (
                <p>{texts.mayNotRetry}</p>
              )}
              <pre>{command("quarantine resubmit", chosen.size ? [...chosen] : [items[0]!.key], { format })}</pre>
            </>
          ) : (
            <p>{texts.quarantineEmpty}</p>
          )
        }
      </Shown>
      <JobState followed={trying} />
      {!trying.isBusy && trying.job?.result && (
        <section aria-label={texts.outcome} role="status">
          {numbers(trying.job.kind === "quarantine-removal" ? [[texts.removed, numberOf(trying.job, "removed")]] : [
            [texts.stored, numberOf(trying.job, "stored")],
            [texts.repeated, numberOf(trying.job, "repeated")],
            [texts.rejected, numberOf(trying.job, "rejected")],
            [texts.leftToSink, numberOf(trying.job, "left_to_sink")],
          ])}
        </section>
      )}
    </section>
  );
}

function Runs({ round }: { round: number }): ReactNode {
  const [answer, again] = useAnswer((signal) => ask<RunList>("runs", { limit: RUNS_SHOWN }, signal), `runs ${round}`);
  return (
    <section>
      <h2>{texts.runs}</h2>
      <Shown answer={answer} again={again}>
        {({ items, total, notices }) => (
          <>
            <Notices notices={notices} />
            {items.length ? (
              <>
                <p className="quiet">{texts.runsShown(items.length, total)}</p>
                {items.map((run) => (
                  <RunDetails key={run.run} run={run} round={round} />
                ))}
              </>
            ) : (
              <p>{texts.noRuns}</p>
            )}
          </>
        )}
      </Shown>
    </section>
  );
}

function RunDetails({ run, round }: { run: RunOverview; round: number }): ReactNode {
  const [isOpen, setOpen] = useState(false);
  return (
    <details onToggle={({ currentTarget }) => setOpen(currentTarget.open)}>
      <summary>
        <When ms={run.last_ms} away /> <code>{run.run}</code> {texts.ofRun(run.steps.length, run.events, run.seconds)}
        {run.failed > 0 && <strong> {texts.failed(run.failed)}</strong>}
      </summary>
      {isOpen && <Steps run={run.run} round={round} />}
    </details>
  );
}

function Steps({ run, round }: { run: string; round: number }): ReactNode {
  const path = `runs/${encodeURIComponent(run)}`;
  const [answer, again] = useAnswer((signal) => ask<OneRun>(path, {}, signal), `${path} ${round}`);
  return (
    <Shown answer={answer} again={again}>
      {({ steps }) => (
        <TableFrame label={texts.stepsOf(run)}>
          <Head columns={[texts.step, texts.units, TEXTS.search.table, texts.seconds, texts.errors]} />
          <tbody>
            {steps.map((step) => (
              <tr key={step.step}>
                <th scope="row">{step.step}</th>
                <td className="number-cell">{count(step.units)}</td>
                <td className="number-cell">{count(step.events)}</td>
                <td className="number-cell">{count(step.seconds)}</td>
                <td>
                  {step.details.flatMap((unit) => (unit.error ? [`${unit.unit}: ${unit.error}`] : [])).join("; ") || "–"}
                </td>
              </tr>
            ))}
          </tbody>
        </TableFrame>
      )}
    </Shown>
  );
}

function Jobs({ round }: { round: number }): ReactNode {
  const [answer, again] = useAnswer((signal) => ask<JobList>("jobs", { limit: RUNS_SHOWN }, signal), `jobs ${round}`);
  return (
    <section>
      <h2>{texts.jobs}</h2>
      <Shown answer={answer} again={again}>
        {({ items }) =>
          items.length ? (
            <TableFrame label={texts.jobs}>
              <Head columns={[texts.begun, texts.kind, texts.subject, texts.by, texts.state, texts.message]} />
              <tbody>
                {items.map((job) => (
                  <tr key={job.id}>
                    <th scope="row" className="event_time">
                      <When ms={job.created_ms} away />
                    </th>
                    <td>{texts.jobKinds[job.kind] ?? job.kind}</td>
                    <td>
                      <JobSubject job={job} />
                    </td>
                    <td>{job.user}</td>
                    <td>{TEXTS.job.states[job.state] ?? job.state}</td>
                    <td>{job.problem?.detail ?? "–"}</td>
                  </tr>
                ))}
              </tbody>
            </TableFrame>
          ) : (
            <p>{texts.noJobs}</p>
          )
        }
      </Shown>
    </section>
  );
}

function JobSubject({ job }: { job: Job }): ReactNode {
  const plan = job.kind === "replay" ? job.subject : job.result?.["plan"];
  if (typeof plan !== "string") return <code>{job.subject || TEXTS.all}</code>;
  const run = job.kind === "replay" ? job.id : null;
  return <a href={pageAddress("replay", { plan, job: run })}>{job.subject || TEXTS.all}</a>;
}

start(<StatusPage />);
