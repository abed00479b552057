// Run: what is known of a run of a DAG, or of one of its tasks, and what it read and wrote.

import { type ReactNode } from "react";
import { ownParameters, pageAddress, sameMoment } from "./address.ts";
import { ask } from "./api.ts";
import { command } from "./command.ts";
import type { DagRun, DagRuns, RunAsset } from "./documents.ts";
import { Frame, Head, Notices, SameAnswer, Shown, start, TableFrame, useAnswer, When } from "./frame.tsx";
import { AsOfField, Question, WriterField } from "./question.tsx";
import { TEXTS } from "./texts.ts";

const RUNS_SHOWN = 20;
const texts = TEXTS.run;
const parameters = ownParameters();
const dag = parameters.get("dag_id") ?? "";
const run = parameters.get("run_id") ?? "";
const task = parameters.get("task_id") ?? "";
// Airflow says -1 of a task that is not mapped, as its events do, or nothing that is a number.
const mapIndex = parameters.get("map_index") ?? "";
const writer = parameters.get("writer");
const asOf = parameters.get("as_of");
const asked = {
  dag_id: dag,
  run_id: run,
  task_id: task,
  map_index: task && /^-?\d+$/.test(mapIndex) ? mapIndex : "",
  writer,
  as_of: asOf,
};
const showing = command("airflow-runs show", [dag, run], { task, "map-index": asked.map_index, writer, "as-of": asOf });
const listing = command("airflow-runs list", dag ? [dag] : [], { limit: RUNS_SHOWN, writer, "as-of": asOf });

function RunPage(): ReactNode {
  return (
    <Frame page="run" title={dag && run ? texts.heading(dag, run) : texts.title}>
      <Question>
          <label>
            {texts.dag}
            <input name="dag_id" defaultValue={dag} required />
          </label>
          <label>
            {texts.run}
            <input name="run_id" defaultValue={run} size={40} required />
          </label>
          <label>
            {texts.taskId}
            <input name="task_id" defaultValue={task} />
          </label>
          <WriterField />
          <AsOfField />
          <button type="submit" className="main">
            {texts.show}
          </button>
      </Question>
      {dag && run ? (
        <Answered />
      ) : (
        <>
          <p>{texts.which}</p>
          <Newest />
        </>
      )}
      {!task && (
        <SameAnswer
          of={TEXTS.same.dagRuns}
          commandLine={listing}
          path="dag-runs"
          parameters={{ dag_id: dag, limit: RUNS_SHOWN, writer, as_of: asOf }}
        />
      )}
    </Frame>
  );
}

function Answered(): ReactNode {
  const [answer, again] = useAnswer((signal) => ask<DagRun>("dag-run", asked, signal), "run");
  return (
    <>
      {task && <p>{texts.task(task)}</p>}
      <Shown answer={answer} again={again}>
        {(known) => (
          <>
            <Notices notices={known.notices} />
            {known.is_cut && <p className="notices">{texts.cut(known.events.length)}</p>}
            {known.events.length ? <Told run={known} /> : <p>{texts.nothing}</p>}
          </>
        )}
      </Shown>
      {!task && <Newest />}
      <SameAnswer commandLine={showing} path="dag-run" parameters={asked} />
    </>
  );
}

function Told({ run: { wrote, read, events } }: { run: DagRun }): ReactNode {
  return (
    <>
      <section>
        <h2>{texts.wrote}</h2>
        {wrote.length ? <Written assets={wrote} /> : <p>{texts.nothingWritten}</p>}
      </section>
      <section>
        <h2>{texts.read}</h2>
        {read.length ? (
          <ul>
            {read.map(({ flowfile_uuid, name }) => (
              <li key={flowfile_uuid}>
                <a href={pageAddress("lineage", { flowfile: flowfile_uuid, ...sameMoment() })}>{name ?? flowfile_uuid}</a>
              </li>
            ))}
          </ul>
        ) : (
          <p>{texts.nothingRead}</p>
        )}
      </section>
      <section>
        <h2>{texts.events}</h2>
        <TableFrame label={texts.events}>
          <Head columns={[TEXTS.id, TEXTS.time, TEXTS.type, TEXTS.component, texts.state, TEXTS.pages.lineage]} />
          <tbody>
            {events.map((event) => (
              <tr key={`${event.writer}/${event.event_id}`}>
                <th scope="row">
                  <a href={pageAddress("event", { writer: event.writer, event: event.event_id, as_of: asOf })}>{event.event_id}</a>
                </th>
                <td className="event_time">
                  <When ms={event.time_ms} />
                </td>
                <td>{event.event_type}</td>
                <td>{event.component}</td>
                <td>{event.state}</td>
                <td>
                  <a href={pageAddress("lineage", { flowfile: event.flowfile_uuid, ...sameMoment() })}>
                    <code>{event.flowfile_uuid.slice(0, 8)}</code>
                  </a>
                </td>
              </tr>
            ))}
          </tbody>
        </TableFrame>
      </section>
    </>
  );
}

function Written({ assets }: { assets: RunAsset[] }): ReactNode {
  return (
    <TableFrame label={texts.wrote}>
      <Head columns={[texts.where, TEXTS.component, TEXTS.time, TEXTS.id]} />
      <tbody>
        {assets.map((asset) => (
          <tr key={`${asset.writer}/${asset.event_id}`}>
            <th scope="row">
              <a href={pageAddress("lineage", { flowfile: asset.flowfile_uuid, ...sameMoment() })}>{asset.name ?? asset.flowfile_uuid}</a>
            </th>
            <td>{asset.component}</td>
            <td className="event_time">
              <When ms={asset.time_ms} />
            </td>
            <td>
              <a href={pageAddress("event", { writer: asset.writer, event: asset.event_id, as_of: asOf })}>{asset.event_id}</a>
            </td>
          </tr>
        ))}
      </tbody>
    </TableFrame>
  );
}

/** The newest runs: of the same DAG, to go on from one to the next, or of all, for who has none to name. */
function Newest(): ReactNode {
  const [answer, again] = useAnswer((signal) => ask<DagRuns>("dag-runs", { dag_id: dag, limit: RUNS_SHOWN, writer, as_of: asOf }, signal), "runs");
  const title = dag ? texts.others(dag) : texts.newest;
  return (
    <section>
      <h2>{title}</h2>
      <Shown answer={answer} again={again}>
        {({ items, notices }) => (
          <>
            <Notices notices={notices} />
            {items.length ? (
              <TableFrame label={title}>
                <Head columns={[texts.run, texts.dag, texts.state, texts.started, texts.ended]} />
                <tbody>
                  {items.map((one) => (
                    <tr key={`${one.dag_id} ${one.run_id}`}>
                      <th scope="row">
                        <a
                          href={pageAddress("run", { dag_id: one.dag_id, run_id: one.run_id, writer, as_of: asOf })}
                          aria-current={one.run_id === run ? "true" : undefined}
                        >
                          {one.run_id}
                        </a>
                      </th>
                      <td>{one.dag_id}</td>
                      <td>{one.state ?? "–"}</td>
                      <td className="event_time">
                        <When ms={one.started_ms} away />
                      </td>
                      <td className="event_time">
                        <When ms={one.ended_ms} />
                      </td>
                    </tr>
                  ))}
                </tbody>
              </TableFrame>
            ) : (
              <p>{texts.noRuns}</p>
            )}
          </>
        )}
      </Shown>
    </section>
  );
}

start(<RunPage />);
