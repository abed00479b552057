// Run: what is known of a run of a DAG, or of one of its tasks, and what it read and wrote.

import { type ReactNode } from "react";
import { ownParameters, pageAddress } from "./address.ts";
import { ask } from "./api.ts";
import { command } from "./command.ts";
import type { EventPage, Listed } from "./documents.ts";
import { Frame, Head, Notices, Question, SameAnswer, Shown, start, TableFrame, useAnswer, When } from "./frame.tsx";
import { quoted } from "./query.ts";
import { TEXTS } from "./texts.ts";

const EVENTS_MAX = 1000;
const texts = TEXTS.run;
const parameters = ownParameters();
const dag = parameters.get("dag_id") ?? "";
const run = parameters.get("run_id") ?? "";
const task = parameters.get("task_id") ?? "";
// Airflow says -1 of a task that is not mapped, as its events do.
const mapIndex = parameters.get("map_index") ?? "";
const query = runQuery();

/** Airflow's listener names each event after its run, and after its task where it is one of a task. */
function runQuery(): string {
  if (task) return `component_id:${quoted(`${dag}.${task}`)} AND filename:${quoted(`${run}/${task}`)}`;
  // A pattern has no quotes: any sign stands for one that it cannot have.
  const pattern = `${run.replaceAll(/[^\w.:+\-]/g, "?")}/*`;
  return `process_group_id:${quoted(dag)} AND (filename:${quoted(run)} OR filename:${pattern})`;
}

function isOfRun({ event }: Listed): boolean {
  const known = event.updated_attributes ?? {};
  const index = known["airflow.map_index"];
  return known["airflow.run_id"] === run && (!task || !mapIndex || index === undefined || index === mapIndex);
}

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
          <button type="submit" className="main">
            {texts.show}
          </button>
      </Question>
      {dag && run ? <Answered /> : <p>{texts.which}</p>}
    </Frame>
  );
}

function Answered(): ReactNode {
  const [answer, again] = useAnswer((signal) => events(signal), query);
  return (
    <>
      {task && <p>{texts.task(task)}</p>}
      <Shown answer={answer} again={again}>
        {([items, notices]) => (
          <>
            <Notices notices={notices} />
            {items.length ? <Told items={items} /> : <p>{texts.nothing}</p>}
          </>
        )}
      </Shown>
      <SameAnswer commandLine={command("search", [query], { oldest: true })} path="events" parameters={{ q: query, oldest_first: true }} />
    </>
  );
}

const PARENTS_MAX = 50;

async function events(signal: AbortSignal): Promise<[Listed[], readonly string[]]> {
  const page = await ask<EventPage>("events", { q: query, oldest_first: true, limit: EVENTS_MAX }, signal);
  return [page.items.filter(isOfRun), page.notices ?? []];
}

function Told({ items }: { items: Listed[] }): ReactNode {
  const wrote = items.filter(({ event }) => event.event_type === "SEND");
  const own = new Set(items.filter(({ event }) => event.event_type === "CREATE").map(({ event }) => event.flowfile_uuid));
  const read = [...new Set(items.flatMap(({ event }) => event.parent_uuids ?? []))].filter((uuid) => !own.has(uuid));
  return (
    <>
      <section>
        <h2>{texts.wrote}</h2>
        {wrote.length ? <Written items={wrote} /> : <p>{texts.nothingWritten}</p>}
      </section>
      <section>
        <h2>{texts.read}</h2>
        {read.length ? (
          <ul>
            {read.slice(0, PARENTS_MAX).map((uuid) => (
              <Read key={uuid} uuid={uuid} />
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
            {items.map(({ writer, event }) => (
              <tr key={`${writer}/${event.event_id}`}>
                <th scope="row">
                  <a href={pageAddress("event", { writer, event: event.event_id })}>{event.event_id}</a>
                </th>
                <td className="event_time">
                  <When ms={event.event_time} />
                </td>
                <td>{event.event_type}</td>
                <td>{event.component_name}</td>
                <td>{event.updated_attributes?.["airflow.state"]}</td>
                <td>
                  <a href={pageAddress("lineage", { flowfile: event.flowfile_uuid })}>
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

function Written({ items }: { items: Listed[] }): ReactNode {
  return (
    <TableFrame label={texts.wrote}>
      <Head columns={[texts.where, TEXTS.component, TEXTS.time, TEXTS.id]} />
      <tbody>
        {items.map(({ writer, event }) => (
          <tr key={`${writer}/${event.event_id}`}>
            <th scope="row">
              <a href={pageAddress("lineage", { flowfile: event.flowfile_uuid })}>{event.transit_uri ?? event.flowfile_uuid}</a>
            </th>
            <td>{event.component_name}</td>
            <td className="event_time">
              <When ms={event.event_time} />
            </td>
            <td>
              <a href={pageAddress("event", { writer, event: event.event_id })}>{event.event_id}</a>
            </td>
          </tr>
        ))}
      </tbody>
    </TableFrame>
  );
}

/** What was read has a name where something that wrote it said one. */
function Read({ uuid }: { uuid: string }): ReactNode {
  const [answer] = useAnswer(
    (signal) => ask<EventPage>("events", { q: `flowfile_uuid:${quoted(uuid)} AND transit_uri:*`, limit: 1 }, signal),
    uuid,
  );
  const name = answer.state === "there" ? answer.value.items[0]?.event.transit_uri : null;
  return (
    <li>
      <a href={pageAddress("lineage", { flowfile: uuid })}>{name ?? uuid}</a>
    </li>
  );
}

start(<RunPage />);
