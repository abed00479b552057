// Lineage: what led to FlowFiles and what came of them, as a table and as a picture of the nearest ones.

import { lazy, Suspense, useDeferredValue, useEffect, useMemo, useState, type ReactNode } from "react";
import { ownParameters, pageAddress, type Parameters, remember, sameMoment } from "./address.ts";
import { ApiError, ask, askByBody } from "./api.ts";
import { command } from "./command.ts";
import type { EventPage, LineageDocument, LineageNode } from "./documents.ts";
import { Frame, Head, Notices, SameAnswer, SaveButton, Shown, start, Switch, TableFrame, useAnswer, When } from "./frame.tsx";
import { behindOf, byDistance, drawn, edgesOf, endsOf, hasFailed, momentsOf, NODES_MAX, titleOf, upTo, way, type Edge } from "./graph.ts";
import { absolute, iso } from "./moments.ts";
import { anywhere } from "./query.ts";
import { AsOfField, Question, WriterField } from "./question.tsx";
import { TEXTS } from "./texts.ts";

// The table does not wait for the code of the picture.
const Picture = lazy(() => import("./picture.tsx"));
const EXPORTS = { svg: "SVG", json: "JSON", dot: "DOT", graphml: "GraphML", openlineage: "OpenLineage" };
const EVENTS_SHOWN = 6;
/** Rows of the table that are there at once, and by which it grows. */
const ROWS = 300;
const ENDS = 5;
/** So many FlowFiles with a bound are counted, by so many events. */
const COUNTED = 100;
const EVENTS_COUNTED = 1000;
const REMEMBERED_AFTER_MS = 300;
const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;
const texts = TEXTS.lineage;

const parameters = ownParameters();
// One field takes both, as `custody lineage` does.
const what = parameters.getAll("what").filter(Boolean);
const flowfiles = [...parameters.getAll("flowfile"), ...what.filter((one) => UUID.test(one))];
const identifiers = [...parameters.getAll("identifier"), ...what.filter((one) => !UUID.test(one))];
const depth = parameters.get("depth") ?? "1";
const writer = parameters.get("writer");
const asOf = parameters.get("as_of");
const asked: Parameters = {
  flowfile: flowfiles,
  identifier: identifiers,
  depth: depth === "all" ? 1000 : depth,
  writer,
  as_of: asOf,
};
const own = (changes: Parameters): string =>
  pageAddress("lineage", { flowfile: flowfiles, identifier: identifiers, depth, writer, as_of: asOf, ...changes });

function LineagePage(): ReactNode {
  const hasRoot = flowfiles.length + identifiers.length > 0;
  const first = flowfiles[0] ?? identifiers[0] ?? "";
  return (
    <Frame page="lineage" title={texts.title}>
      <Question>
          <label className="grows">
            {texts.what}
            <input name="what" defaultValue={first} size={40} required />
          </label>
          <label>
            {texts.depth}
            <select name="depth" defaultValue={depth}>
              {["1", "2", "3", "5", "10"].map((number) => (
                <option key={number}>{number}</option>
              ))}
              <option value="all">{texts.allDepths}</option>
            </select>
          </label>
          <WriterField />
          <AsOfField />
          <button type="submit" className="main">
            {texts.show}
          </button>
      </Question>
      {hasRoot ? <Answered first={first} /> : <p>{texts.which}</p>}
    </Frame>
  );
}

function Answered({ first }: { first: string }): ReactNode {
  const [answer, again] = useAnswer((signal) => ask<LineageDocument>("lineage", asked, signal), "lineage");
  const wider = anywhere(first);
  const isUnknown = answer.state === "failed" && answer.error instanceof ApiError && answer.error.status === 404;
  return (
    <>
      {isUnknown ? (
        <div className="nothing">
          <p>{texts.nothing}</p>
          {wider && <a href={pageAddress("search", { q: wider, ...sameMoment() })}>{texts.asName(first)}</a>}
        </div>
      ) : (
        <Shown answer={answer} again={again}>
          {(lineage) => (lineage.nodes.length ? <Views lineage={lineage} /> : <p>{texts.nothing}</p>)}
        </Shown>
      )}
      <SameAnswer
        commandLine={command("lineage", [first], { depth: depth === "all" ? null : depth, writer, "as-of": asOf })}
        path="lineage"
        parameters={asked}
      />
    </>
  );
}

function Views({ lineage }: { lineage: LineageDocument }): ReactNode {
  const roots = flowfiles.length ? flowfiles : Object.values(lineage.identifiers).flat();
  const [chosen, choose] = useState<string | null>(parameters.get("chosen"));
  const moments = useMemo(() => momentsOf(lineage.nodes), [lineage]);
  const [until, bound] = useUntil(moments);
  // The slider moves at once; what it shows follows as fast as it can.
  const shownUntil = useDeferredValue(until);
  const [isFailedOnly, failedOnly] = useState(parameters.get("failed") === "true");
  const [rows, allow] = useState(ROWS);
  const edges = useMemo(() => edgesOf(lineage.nodes), [lineage]);
  const nodes = useMemo(
    () => upTo(lineage.nodes, shownUntil, roots).filter((node) => !isFailedOnly || hasFailed(node) || roots.includes(node.uuid)),
    [lineage, shownUntil, isFailedOnly],
  );
  const names = new Map(lineage.nodes.map((node) => [node.uuid, titleOf(node)]));
  const picture = useMemo(() => drawn({ ...lineage, nodes }, roots), [nodes]);
  // The table begins with what the picture has.
  const inOrder = useMemo(() => byDistance(nodes, edges, roots), [nodes]);
  const onWay = chosen && roots[0] ? way(edges, roots[0], chosen) : [];
  const pick = (uuid: string): void => {
    choose(uuid);
    remember({ chosen: uuid });
  };
  const behind = Object.keys(lineage.frontier).length;
  const counts = useBehind(lineage, edges, roots);
  return (
    <>
      <Notices notices={lineage.notices} />
      <p role="status">
        <strong>{texts.summary(lineage.nodes.length, lineage.events)}</strong>. {behind > 0 && texts.more(behind)}{" "}
        {picture.left > 0 && texts.left(picture.left, NODES_MAX)}
      </p>
      <div className="row">
        {moments.length > 1 && <TimeSlider moments={moments} until={until} bound={bound} />}
        <Switch name="failed" isOn={isFailedOnly} turn={failedOnly}>
          {texts.failures}
        </Switch>
        <div className="row" role="group" aria-label={texts.export}>
          {Object.entries(EXPORTS).map(([format, name]) => (
            <SaveButton key={format} path="lineage/export" parameters={{ ...asked, format }} name={`lineage.${format}`}>
              {name}
            </SaveButton>
          ))}
        </div>
      </div>
      <Ends nodes={nodes} names={names} isCut={behind > 0} pick={pick} />
      <section aria-label={texts.picture}>
        <Suspense fallback={<p className="picture">{texts.drawing}</p>}>
          <Picture drawn={picture} roots={roots} chosen={chosen} onWay={onWay} choose={pick} />
        </Suspense>
      </section>
      <TableFrame label={texts.tableCaption}>
        <Head columns={[texts.flowfile, texts.events, texts.first, texts.last, texts.parents, texts.children, texts.bound]} />
        <tbody>
          {inOrder.slice(0, rows).map((node) => (
            <NodeRow key={node.uuid} node={node} names={names} isChosen={node.uuid === chosen} isRoot={roots.includes(node.uuid)} onWay={onWay} more={counts.get(node.uuid)} pick={pick} />
          ))}
        </tbody>
      </TableFrame>
      {nodes.length > rows && (
        <p className="row">
          <span className="quiet">{TEXTS.search.shown(rows, nodes.length)}</span>
          <button type="button" onClick={() => allow(rows + ROWS)}>
            {texts.moreRows}
          </button>
        </p>
      )}
    </>
  );
}

function Ends({ nodes, names, isCut, pick }: { nodes: LineageNode[]; names: Map<string, string>; isCut: boolean; pick: (uuid: string) => void }): ReactNode {
  const ends = endsOf(nodes);
  const [rows, allow] = useState(ENDS);
  return (
    <section aria-label={texts.ends}>
      <h2>{texts.ends}</h2>
      {ends.length ? (
        <ul>
          {ends.slice(0, rows).map((end) => (
            <li key={`${end.isSource} ${end.uri}`}>
              {end.isSource ? texts.cameFrom : texts.wentTo}{" "}
              <a href={pageAddress("event", { writer: end.writer, event: end.event_id, as_of: asOf })}>{end.uri}</a>{" "}
              <span className="quiet">
                <When ms={end.event_time} />
              </span>{" "}
              <button type="button" onClick={() => pick(end.uuid)}>
                {names.get(end.uuid)}
              </button>
            </li>
          ))}
        </ul>
      ) : (
        <p>{texts.noEnds}</p>
      )}
      <p className="row">
        {ends.length > rows && (
          <button type="button" onClick={() => allow(rows + ROWS)}>
            {TEXTS.search.shown(rows, ends.length)}
          </button>
        )}
        {isCut && texts.moreEnds} {isCut && depth !== "all" && <a href={own({ depth: "all" })}>{texts.whole}</a>}
      </p>
    </section>
  );
}

/** A step for each moment at which something happened: the next step shows what came next, however long that took. */
function TimeSlider({ moments, until, bound }: { moments: number[]; until: number | null; bound: (until: number | null) => void }): ReactNode {
  const last = moments.length - 1;
  const at = until === null ? last : Math.max(0, moments.findLastIndex((one) => one <= until));
  const when = absolute(moments[at]!);
  return (
    <label>
      {texts.time} {when}{" "}
      <input
        type="range"
        min={0}
        max={last}
        value={at}
        aria-valuetext={texts.timeSpoken(when, at + 1, moments.length)}
        onChange={({ target }) => bound(Number(target.value) >= last ? null : moments[Number(target.value)]!)}
      />
    </label>
  );
}

/** Until when events are shown, all of them without a time; remembered in the address. */
function useUntil(moments: number[]): [number | null, (until: number | null) => void] {
  const [until, bound] = useState(() => {
    const kept = Date.parse(parameters.get("until") ?? "");
    return moments.length && kept < moments.at(-1)! ? kept : null;
  });
  useEffect(() => {
    // Not at each step of a slider that is dragged: a browser bounds how often an address changes.
    const timer = setTimeout(() => remember({ until: until === null ? null : iso(until) }), REMEMBERED_AFTER_MS);
    return () => clearTimeout(timer);
  }, [until]);
  return [until, bound];
}

/** How many events each of the nearest FlowFiles has behind a bound; nothing where there are too many to be counted at once. */
function useBehind(lineage: LineageDocument, edges: Edge[], roots: string[]): Map<string, number> {
  const [counts, setCounts] = useState<Map<string, number>>(new Map());
  useEffect(() => {
    const cut = byDistance(lineage.nodes, edges, roots).filter((node) => node.cut).slice(0, COUNTED);
    if (!cut.length) return;
    const stop = new AbortController();
    const query = { or: cut.map(({ uuid }) => ({ field: "flowfile_uuid", equals: uuid })) };
    const question = { query, limit: EVENTS_COUNTED, ...(writer && { writer }), ...(asOf && { as_of: asOf }) };
    askByBody<EventPage>("events/search", question, stop.signal).then(
      ({ total, items }) => total <= EVENTS_COUNTED && setCounts(behindOf(cut, items)),
      // The links lead there as well without a number.
      () => undefined,
    );
    return () => stop.abort();
  }, [lineage]);
  return counts;
}

function NodeRow({
  node,
  names,
  isChosen,
  isRoot,
  onWay,
  more,
  pick,
}: {
  node: LineageNode;
  names: Map<string, string>;
  isChosen: boolean;
  isRoot: boolean;
  onWay: string[];
  more: number | undefined;
  pick: (uuid: string) => void;
}): ReactNode {
  const isOnWay = onWay.includes(node.uuid);
  return (
    <tr id={`row-${node.uuid}`} className={isOnWay || isChosen ? "chosen-row" : ""}>
      <th scope="row">
        <button type="button" aria-pressed={isChosen} onClick={() => pick(node.uuid)}>
          {names.get(node.uuid)}
        </button>{" "}
        <code className="quiet">{node.uuid}</code>
        {isRoot && <span className="quiet"> ({texts.start})</span>}
        {isOnWay && <span className="unseen"> {texts.way}</span>}
        {node.kind !== "FLOWFILE" && <span className="quiet"> ({texts.unknown})</span>}{" "}
        {!isRoot && <a href={own({ flowfile: [node.uuid], identifier: [] })}>{texts.centre}</a>}
      </th>
      <td>
        <Events node={node} />
      </td>
      <td className="event_time">
        <When ms={node.events[0]?.event.event_time} />
      </td>
      <td className="event_time">
        <When ms={node.events.at(-1)?.event.event_time} />
      </td>
      <td>
        <Relatives uuids={node.parents} names={names} />
      </td>
      <td>
        <Relatives uuids={node.children} names={names} />
      </td>
      <td>
        {node.cut && (
          <>
            {texts.bounds[node.cut] ?? node.cut} <a href={own({ flowfile: [...flowfiles, node.uuid] })}>{texts.expand(more)}</a>
          </>
        )}
      </td>
    </tr>
  );
}

function Events({ node }: { node: LineageNode }): ReactNode {
  const shown = node.events.slice(0, EVENTS_SHOWN);
  return (
    <>
      {shown.map(({ writer: by, event }, at) => (
        <span key={`${by}/${event.event_id}`}>
          {at > 0 && ", "}
          <a href={pageAddress("event", { writer: by, event: event.event_id, as_of: asOf })}>{event.event_type}</a>
        </span>
      ))}
      {node.events.length > shown.length && (
        <>
          {" … "}
          <a href={pageAddress("search", { q: `flowfile_uuid:"${node.uuid}"`, ...sameMoment() })}>{node.events.length}</a>
        </>
      )}
    </>
  );
}

function Relatives({ uuids, names }: { uuids: string[]; names: Map<string, string> }): ReactNode {
  return uuids.slice(0, EVENTS_SHOWN).map((uuid, at) => (
    <span key={uuid}>
      {at > 0 && ", "}
      {names.has(uuid) ? <a href={`#row-${uuid}`}>{names.get(uuid)}</a> : <code>{uuid.slice(0, 8)}</code>}
      {at === EVENTS_SHOWN - 1 && uuids.length > EVENTS_SHOWN && ` … ${uuids.length}`}
    </span>
  ));
}

start(<LineagePage />);
