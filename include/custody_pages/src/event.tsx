// One event: what happened, attributes and contents before and after, and where to go on.

import { useState, type ReactNode } from "react";
import { ownParameters, pageAddress, sameMoment } from "./address.ts";
import { ask } from "./api.ts";
import { command, contentsCompared } from "./command.ts";
import { Contents } from "./content.tsx";
import type { EventDocument, OneEvent } from "./documents.ts";
import { Failure, FixedLink, Frame, Head, SameAnswer, SaveButton, Shown, start, Switch, TableFrame, useAnswer, When } from "./frame.tsx";
import { bytes, count } from "./moments.ts";
import { quoted } from "./query.ts";
import { AsOfField, Kept, Question } from "./question.tsx";
import { Replay } from "./replay_plan.tsx";
import { Software } from "./software.tsx";
import { FACT_TEXTS, TEXTS } from "./texts.ts";

const parameters = ownParameters();
const writer = parameters.get("writer") ?? "";
const id = parameters.get("event") ?? "";
const asOf = parameters.get("as_of");
const isWhole = parameters.get("whole") === "true";
const path = `events/${encodeURIComponent(writer)}/${encodeURIComponent(id)}`;
const TIMES = ["event_time", "lineage_start_date", "flowfile_entry_date"];
const SIZES = ["file_size", "previous_file_size"];

function OneEventPage(): ReactNode {
  const [answer, again] = useAnswer((signal) => ask<OneEvent>(path, { as_of: asOf, whole: isWhole }, signal), path);
  if (!writer || !/^\d+$/.test(id))
    return (
      <Frame page="event" title={TEXTS.pages.event}>
        <Failure error={new Error(TEXTS.event.which)} again={() => location.reload()} />
      </Frame>
    );
  return (
    <Frame page="event" title={TEXTS.event.title(writer, id)}>
      <Question>
        <Kept names={["writer", "event", "whole", "changed"]} />
        <AsOfField />
        <button type="submit">{TEXTS.event.show}</button>
      </Question>
      <Shown answer={answer} again={again}>
        {(one) => (
          <>
            <Ways one={one} />
            <Facts event={one.event} />
            <Attributes one={one} />
            <Contents after={one.content} before={one.previous_content} name={`${writer}-${id}`} differenceCommand={contentsCompared(writer, id, asOf)} />
            <Software path={path} asOf={asOf} one={one} />
            <section>
              <h2>{TEXTS.event.replay}</h2>
              <Replay question={{ event_ids: [Number(id)], writer, as_of: asOf }} />
            </section>
          </>
        )}
      </Shown>
      <SameAnswer
        commandLine={command("event", [id], { writer, "as-of": asOf, whole: isWhole })}
        path={path}
        parameters={{ as_of: asOf, whole: isWhole }}
      />
    </Frame>
  );
}

function Ways({ one: { event, attributes, as_of: revisions } }: { one: OneEvent }): ReactNode {
  const run = { dag_id: attributes["airflow.dag_id"], run_id: attributes["airflow.run_id"], task_id: attributes["airflow.task_id"] };
  const number = Number(id);
  const search = (query: string): string => pageAddress("search", { q: query, ...sameMoment() });
  const other = (event_id: number): string => pageAddress("event", { writer, event: event_id, as_of: asOf });
  return (
    <p className="row">
      <a href={pageAddress("lineage", { flowfile: event.flowfile_uuid, ...sameMoment() })}>{TEXTS.event.lineage}</a>
      <a href={search(`flowfile_uuid:${quoted(event.flowfile_uuid)}`)}>{TEXTS.event.ofFlowfile}</a>
      <a href={search(`component_id:${quoted(event.component_id)}`)}>{TEXTS.event.ofComponent}</a>
      {number > 0 && <a href={other(number - 1)}>{TEXTS.event.previousEvent}</a>}
      <a href={other(number + 1)}>{TEXTS.event.nextEvent}</a>
      {!isWhole && <a href={pageAddress("event", { writer, event: id, as_of: asOf, whole: true })}>{TEXTS.event.whole}</a>}
      {run.dag_id && run.run_id && <a href={pageAddress("run", { ...run, ...sameMoment() })}>{TEXTS.event.run}</a>}
      <FixedLink revisions={revisions} />
      <a href={pageAddress("keep", { ids: id, writer })}>{TEXTS.event.keep}</a>
      <SaveButton path={`${path}/nifi`} parameters={{ as_of: asOf }} name={`event-${writer}-${id}.json`}>
        {TEXTS.event.nifi}
      </SaveButton>
    </p>
  );
}

function Facts({ event }: { event: EventDocument }): ReactNode {
  const relatives = [
    ...(event.parent_uuids ?? []).map((uuid) => [TEXTS.event.parent, uuid]),
    ...(event.child_uuids ?? []).map((uuid) => [TEXTS.event.child, uuid]),
  ];
  return (
    <section aria-label={TEXTS.event.facts}>
      <h2>{TEXTS.event.facts}</h2>
      <dl className="facts">
        {Object.entries(FACT_TEXTS).map(([name, text]) => {
          const value = event[name as keyof EventDocument] as string | number | null | undefined;
          if (value === null || value === undefined || (name === "event_duration" && value === -1)) return null;
          return [<dt key={`${name} term`}>{text}</dt>, <dd key={name}>{fact(name, value)}</dd>];
        })}
        {relatives.length > 0 && <dt>{TEXTS.event.relatives}</dt>}
        {relatives.length > 0 && (
          <dd>
            <ul>
              {relatives.slice(0, 100).map(([what, uuid]) => (
                <li key={`${what} ${uuid}`}>
                  {what} <a href={pageAddress("lineage", { flowfile: uuid!, ...sameMoment() })}>{uuid}</a>
                </li>
              ))}
            </ul>
            {relatives.length > 100 && count(relatives.length)}
          </dd>
        )}
      </dl>
    </section>
  );
}

function fact(name: string, value: string | number): ReactNode {
  if (TIMES.includes(name)) return <When ms={Number(value)} away />;
  if (SIZES.includes(name)) return `${bytes(Number(value))} (${count(Number(value))})`;
  return name === "event_duration" ? `${count(Number(value))} ms` : String(value);
}

type Change = "added" | "changed" | "removed" | "same";

interface Row {
  name: string;
  before: string | null;
  after: string | null;
  change: Change;
}

function rowsOf({ event, attributes }: OneEvent): Row[] {
  const before = event.previous_attributes ?? {};
  const names = [...new Set([...Object.keys(before), ...Object.keys(attributes)])].sort();
  return names.map((name) => {
    const [was, is] = [before[name] ?? null, attributes[name] ?? null];
    const change = was === null ? "added" : is === null ? "removed" : was === is ? "same" : "changed";
    return { name, before: was, after: is, change };
  });
}

function Attributes({ one }: { one: OneEvent }): ReactNode {
  const [isChangedOnly, choose] = useState(parameters.get("changed") === "true");
  const rows = rowsOf(one);
  const shown = isChangedOnly ? rows.filter((row) => row.change !== "same") : rows;
  const texts = TEXTS.event;
  return (
    <section aria-label={texts.attributes}>
      <h2>{texts.attributes}</h2>
      <Switch name="changed" isOn={isChangedOnly} turn={choose}>
        {texts.onlyChanged}
      </Switch>
      {shown.length ? (
        <TableFrame label={texts.attributes}>
          <Head columns={[texts.attribute, texts.before, texts.after, texts.change]} />
          <tbody>
            {shown.map((row) => (
              <tr key={row.name} className={row.change}>
                <th scope="row" className="value-text">
                  {row.name}
                </th>
                <td>
                  <Value text={row.before} />
                </td>
                <td>
                  <Value text={row.after} />
                </td>
                <td>{texts[row.change]}</td>
              </tr>
            ))}
          </tbody>
        </TableFrame>
      ) : (
        <p>{rows.length ? texts.noChanges : texts.noAttributes}</p>
      )}
    </section>
  );
}

function Value({ text }: { text: string | null }): ReactNode {
  if (text === null) return <span className="quiet">{TEXTS.event.absent}</span>;
  return <span className="value-text">{text}</span>;
}

start(<OneEventPage />);
