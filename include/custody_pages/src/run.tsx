// Run: what is known of a run of a DAG, or of one of its tasks, and what it read and wrote, with the contents.

import { useEffect, useRef, useState, type ReactNode } from "react";
import { ownParameters, pageAddress, remember, sameMoment } from "./address.ts";
import { ask } from "./api.ts";
import { command, contentsCompared } from "./command.ts";
import { Contents } from "./content.tsx";
import { NewestRuns } from "./dag_runs.tsx";
import type { AssetContent, DagRun, RunAsset } from "./documents.ts";
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
          <NewestRuns title={texts.newest} limit={RUNS_SHOWN} writer={writer} asOf={asOf} />
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
      {!task && <NewestRuns title={texts.others(dag)} dag={dag} run={run} limit={RUNS_SHOWN} writer={writer} asOf={asOf} />}
      <SameAnswer commandLine={showing} path="dag-run" parameters={asked} />
    </>
  );
}

function Told({ run: { wrote, read, events } }: { run: DagRun }): ReactNode {
  const [opened, open] = useState(() => parameters.get("contents"));
  const show = (key: string | null): void => {
    open(key);
    remember({ contents: key });
  };
  const both: [string, RunAsset[], string, string][] = [
    ["wrote", wrote, texts.wrote, texts.nothingWritten],
    ["read", read, texts.read, texts.nothingRead],
  ];
  return (
    <>
      {both.map(([side, assets, title, none]) => (
        <section key={side}>
          <h2>{title}</h2>
          {assets.length ? <Assets side={side} assets={assets} title={title} opened={opened} show={show} /> : <p>{none}</p>}
        </section>
      ))}
      {(wrote.length > 0 || read.length > 0) && <p className="quiet">{texts.contentsHint}</p>}
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

function Assets({ side, assets, title, opened, show }: {
  side: string;
  assets: RunAsset[];
  title: string;
  opened: string | null;
  show: (key: string | null) => void;
}): ReactNode {
  const [wasAsked, setAsked] = useState(false);
  const keyOf = (asset: RunAsset): string => `${side} ${asset.flowfile_uuid} ${asset.event_id}`;
  const chosen = assets.find((asset) => keyOf(asset) === opened && asset.contents?.length);
  const isWritten = side === "wrote";
  return (
    <>
      <TableFrame label={title}>
        <Head columns={[texts.where, ...(isWritten ? [TEXTS.component, TEXTS.time] : [texts.writtenAt]), TEXTS.id, texts.contents]} />
        <tbody>
          {assets.map((asset) => (
            <tr key={keyOf(asset)} className={asset === chosen ? "chosen-row" : ""}>
              <th scope="row">
                <a href={pageAddress("lineage", { flowfile: asset.flowfile_uuid, ...sameMoment() })}>{asset.name ?? asset.flowfile_uuid}</a>
              </th>
              {isWritten && <td>{asset.component}</td>}
              <td className="event_time">
                <When ms={asset.time_ms} />
              </td>
              <td>
                {asset.event_id === null ? "–" : <a href={pageAddress("event", { writer: asset.writer, event: asset.event_id, as_of: asOf })}>{asset.event_id}</a>}
              </td>
              <td>
                {asset.contents?.length ? (
                  <button
                    type="button"
                    id={`${side}-${asset.flowfile_uuid}-${asset.event_id}`}
                    aria-expanded={asset === chosen}
                    onClick={() => {
                      setAsked(true);
                      show(asset === chosen ? null : keyOf(asset));
                    }}
                  >
                    {texts.showContents(asset.contents.length)}
                  </button>
                ) : (
                  <span className="quiet">{asset.contents || asset.name === null ? texts.noContents : texts.notLooked}</span>
                )}
              </td>
            </tr>
          ))}
        </tbody>
      </TableFrame>
      {chosen && (
        <AssetContents
          key={keyOf(chosen)}
          asset={chosen}
          takesFocus={wasAsked}
          close={() => {
            show(null);
            document.getElementById(`${side}-${chosen.flowfile_uuid}-${chosen.event_id}`)?.focus();
          }}
        />
      )}
    </>
  );
}

/** What lay in an asset, by the events that tell of it; the first is shown at once. */
function AssetContents({ asset, takesFocus, close }: { asset: RunAsset; takesFocus: boolean; close: () => void }): ReactNode {
  const section = useRef<HTMLElement>(null);
  useEffect(() => {
    if (takesFocus) section.current?.focus();
  }, [takesFocus]);
  const title = texts.contentsOf(asset.name ?? asset.flowfile_uuid);
  return (
    <section className="content" aria-label={title} tabIndex={-1} ref={section}>
      <h2>{title}</h2>
      {asset.contents!.map((one, at) => (
        <OneAssetContent key={`${one.writer}/${one.event_id}`} one={one} isFirst={at === 0} />
      ))}
      <button type="button" onClick={close}>
        {texts.close}
      </button>
    </section>
  );
}

function OneAssetContent({ one, isFirst }: { one: AssetContent; isFirst: boolean }): ReactNode {
  const [isOpen, setOpen] = useState(isFirst);
  return (
    <details open={isOpen} onToggle={({ currentTarget }) => setOpen(currentTarget.open)}>
      <summary>
        {one.event_type} <span className="value-text">{one.name}</span> · {one.component} · <When ms={one.time_ms} away />
      </summary>
      <p>
        <a href={pageAddress("event", { writer: one.writer, event: one.event_id, as_of: asOf })}>{texts.ofEvent(one.writer, one.event_id)}</a>
      </p>
      {isOpen && <Contents after={one.content} before={one.previous_content} name={`${one.writer}-${one.event_id}`} differenceCommand={contentsCompared(one.writer, String(one.event_id), asOf)} />}
    </details>
  );
}

start(<RunPage />);
