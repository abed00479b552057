// Lineage: what led to FlowFiles and what came of them, as a table and as a picture of the nearest ones.

import { lazy, Suspense, useDeferredValue, useEffect, useLayoutEffect, useMemo, useRef, useState, type ReactNode } from "react";
import { changed, ownParameters, pageAddress, type Parameters, queryText, remember, sameMoment } from "./address.ts";
import { ApiError, ask, askByBody } from "./api.ts";
import { command } from "./command.ts";
import type { EventPage, LineageDocument, LineageNode } from "./documents.ts";
import { Expander, type Expansion } from "./expander.tsx";
import { FixedLink, Frame, Head, Notices, SameAnswer, SaveButton, Shown, start, Switch, TableFrame, useAnswer, When } from "./frame.tsx";
import { behindOf, byDistance, drawn, edgesOf, endsOf, foldedWith, momentsOf, NODES_MAX, titleOf, upTo, way, type Behind, type Edge } from "./graph.ts";
import { absolute, iso } from "./moments.ts";
import { anywhere } from "./query.ts";
import { AsOfField, Question, WriterField } from "./question.tsx";
import { TEXTS } from "./texts.ts";

// The table does not wait for the code of the picture.
const Picture = lazy(() => import("./picture.tsx"));
const EXPORTS = {
  svg: "SVG",
  json: "JSON",
  dot: "DOT",
  graphml: "GraphML",
  "csv-nodes": "CSV of nodes",
  "csv-edges": "CSV of edges",
  openlineage: "OpenLineage",
};
const EVENTS_SHOWN = 6;
/** Rows of the table that are there at once, and by which it grows. */
const ROWS = 300;
const ENDS = 5;
/** So many nodes with a bound are counted at once, of the nearest that the picture has, by so many events. */
const COUNTED = 50;
const EVENTS_COUNTED = 1000;
/** So many questions are asked to count them. */
const COUNTS_MAX = 40;
/** As many events as a lineage may have by the API. */
const EVENTS_MAX = 6000;
const REMEMBERED_AFTER_MS = 300;
const texts = TEXTS.lineage;

const parameters = ownParameters();
/** Where a lineage begins, by the kinds of the API and in its order; `what` is a name of any kind. */
const STARTS = ["what", "identifier", "event", "run", "dataset", "flowfile"] as const;
const starts = Object.fromEntries(STARTS.map((kind) => [kind, parameters.getAll(kind).filter(Boolean)])) as Record<(typeof STARTS)[number], string[]>;
/** The same as words of the command. */
const words = STARTS.flatMap((kind) => starts[kind].map((name) => (kind === "what" ? name : `${kind}=${name}`)));
const firstName = STARTS.flatMap((kind) => starts[kind])[0] ?? "";
const depth = parameters.get("depth") ?? "1";
const generations = depth === "all" ? 1000 : depth;
const given = parameters.get("direction");
const direction = given === "up" || given === "down" ? given : "both";
const writer = parameters.get("writer");
const asOf = parameters.get("as_of");
/** Another start with the same bounds. */
const startAt = (uuid: string): string =>
  pageAddress("lineage", { flowfile: [uuid], depth, direction: direction === "both" ? null : direction, writer, as_of: asOf });

function LineagePage(): ReactNode {
  const shown = words[0]?.startsWith("flowfile=") ? firstName : (words[0] ?? "");
  return (
    <Frame page="lineage" title={texts.title}>
      <Question>
          <label className="grows">
            {texts.what}
            <input name="what" defaultValue={shown} size={40} required />
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
          <label>
            {texts.direction}
            <select name="direction" defaultValue={direction === "both" ? "" : direction}>
              <option value="">{texts.directions.both}</option>
              <option value="up">{texts.directions.up}</option>
              <option value="down">{texts.directions.down}</option>
            </select>
          </label>
          <WriterField />
          <AsOfField />
          <button type="submit" className="main">
            {texts.show}
          </button>
      </Question>
      {words.length ? <Answered /> : <p>{texts.which}</p>}
    </Frame>
  );
}

function Answered(): ReactNode {
  const [expanded, expand] = useState(parameters.getAll("expanded").filter(Boolean));
  const [anchor, hold] = useState<string | null>(null);
  const [isFailedOnly, failedOnly] = useState(parameters.get("failed") === "true");
  const asked: Parameters = {
    ...starts,
    flowfile: [...starts.flowfile, ...expanded],
    depth: generations,
    direction: direction === "both" ? null : direction,
    failed: isFailedOnly,
    events_max: EVENTS_MAX,
    writer,
    as_of: asOf,
  };
  const key = queryText(asked);
  const [answer, again] = useAnswer((signal) => ask<LineageDocument>("lineage", asked, signal), key);
  const wider = anywhere(firstName);
  const isUnknown = answer.state === "failed" && answer.error instanceof ApiError && answer.error.status === 404;
  const turn = (next: string[], about: string): void => {
    hold(about);
    expand(next);
    remember({ expanded: next });
  };
  return (
    <>
      {isUnknown ? (
        <div className="nothing">
          <p>{texts.nothing}</p>
          {wider && <a href={pageAddress("search", { q: wider, ...sameMoment() })}>{texts.asName(firstName)}</a>}
        </div>
      ) : (
        <Shown answer={answer} again={again}>
          {(lineage) =>
            lineage.nodes.length ? (
              <Views
                lineage={lineage}
                asked={asked}
                expanded={expanded}
                turn={turn}
                anchor={anchor}
                isFailedOnly={isFailedOnly}
                failedOnly={(isOn) => {
                  hold(null);
                  failedOnly(isOn);
                }}
              />
            ) : (
              <p>{texts.nothing}</p>
            )
          }
        </Shown>
      )}
      <SameAnswer
        commandLine={command("lineage", [...words, ...expanded.map((uuid) => `flowfile=${uuid}`)], {
          depth: generations,
          direction: direction === "both" ? null : direction,
          failed: isFailedOnly,
          events: EVENTS_MAX,
          "only-writer": writer,
          "as-of": asOf,
        })}
        path="lineage"
        parameters={asked}
      />
    </>
  );
}

function Views({
  lineage,
  asked,
  expanded,
  turn,
  anchor,
  isFailedOnly,
  failedOnly,
}: {
  lineage: LineageDocument;
  asked: Parameters;
  expanded: string[];
  turn: (expanded: string[], about: string) => void;
  anchor: string | null;
  isFailedOnly: boolean;
  failedOnly: (isOn: boolean) => void;
}): ReactNode {
  // What was expanded is a start for the API; here it is none.
  const roots = useMemo(() => {
    const own = lineage.starts.filter((uuid) => !expanded.includes(uuid) || starts.flowfile.includes(uuid));
    return own.length ? own : lineage.starts;
  }, [lineage]);
  const [chosen, choose] = useState<string | null>(parameters.get("chosen"));
  const moments = useMemo(() => momentsOf(lineage.nodes), [lineage]);
  const [until, bound] = useUntil(moments);
  // The slider moves at once; what it shows follows as fast as it can.
  const shownUntil = useDeferredValue(until);
  const [rows, allow] = useState(ROWS);
  const edges = useMemo(() => edgesOf(lineage.nodes), [lineage]);
  const nodes = useMemo(() => upTo(lineage.nodes, shownUntil, roots), [lineage, shownUntil]);
  const names = new Map(lineage.nodes.map((node) => [node.uuid, titleOf(node)]));
  const picture = useMemo(() => drawn({ ...lineage, nodes }, roots), [nodes]);
  // The table begins with what the picture has.
  const inOrder = useMemo(() => byDistance(nodes, edges, roots), [nodes]);
  const onWay = chosen && roots[0] ? way(edges, roots[0], chosen) : [];
  const pick = (uuid: string): void => {
    choose(uuid);
    remember({ chosen: uuid });
  };
  const counts = useBehind(lineage, edges, roots);
  const behind = Object.keys(lineage.frontier).filter((uuid) => !(counts.get(uuid)?.isAll && counts.get(uuid)?.events === 0)).length;
  const keepPlace = useKeptPlace(lineage, counts);
  const expansionOf = (node: LineageNode): Expansion => ({
    isExpanded: expanded.includes(node.uuid),
    behind: counts.get(node.uuid),
    turn: (uuid, isExpanded, pressed) => {
      keepPlace(pressed);
      turn(isExpanded ? [...expanded, uuid] : foldedWith(edges, roots, expanded, uuid), uuid);
    },
  });
  const hasOthers = lineage.nodes.some(({ kind }) => !["FLOWFILE", "UNKNOWN"].includes(kind));
  return (
    <>
      <Notices notices={lineage.notices} />
      <p role="status">
        <strong>{texts.summary(lineage.nodes.length, lineage.events, hasOthers)}</strong>. {behind > 0 && texts.more(behind)}{" "}
        {picture.left > 0 && texts.left(picture.left, NODES_MAX)} {until !== null && texts.sliderNote}
      </p>
      <div className="row">
        {moments.length > 1 && <TimeSlider moments={moments} until={until} bound={bound} />}
        <Switch name="failed" isOn={isFailedOnly} turn={failedOnly}>
          {texts.failures}
        </Switch>
        <div className="row" role="group" aria-label={texts.export}>
          {Object.entries(EXPORTS).map(([format, name]) => (
            <SaveButton
              key={format}
              path="lineage/export"
              parameters={{ ...asked, format, until: until === null ? null : iso(until) }}
              name={format.startsWith("csv-") ? `lineage-${format.slice(4)}.csv` : `lineage.${format}`}
            >
              {name}
            </SaveButton>
          ))}
        </div>
        <span className="quiet">{texts.exportNote}</span>
        <FixedLink revisions={lineage.as_of} />
      </div>
      <Ends nodes={nodes} names={names} isCut={behind > 0} pick={pick} />
      <section aria-label={texts.picture}>
        <Suspense fallback={<p className="picture">{texts.drawing}</p>}>
          <Picture drawn={picture} roots={roots} chosen={chosen} onWay={onWay} faded={isFailedOnly} anchor={anchor} expansionOf={expansionOf} choose={pick} />
        </Suspense>
      </section>
      <TableFrame label={texts.tableCaption}>
        <Head columns={[texts.flowfile, texts.kind, texts.events, texts.first, texts.last, texts.parents, texts.children, texts.bound]} />
        <tbody>
          {inOrder.slice(0, rows).map((node) => (
            <NodeRow
              key={node.uuid}
              node={node}
              names={names}
              isChosen={node.uuid === chosen}
              isRoot={roots.includes(node.uuid)}
              isFailedOnly={isFailedOnly}
              onWay={onWay}
              expansion={expansionOf(node)}
              pick={pick}
            />
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
        {isCut && texts.moreEnds} {isCut && depth !== "all" && <a href={changed(ownParameters(), { depth: "all" })}>{texts.whole}</a>}
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

/** What a reader does next ends the keeping of a place. */
const NEXT_DEEDS = ["pointerdown", "keydown", "wheel", "touchmove"] as const;

/** Keeps the row or the picture with what was pressed where it is on the screen, when answers or counts make what is above longer or shorter. */
function useKeptPlace(...after: unknown[]): (pressed: Element) => void {
  const kept = useRef<{ place: Element; top: number } | null>(null);
  useLayoutEffect(() => {
    const { place, top } = kept.current ?? {};
    if (place?.isConnected && top !== undefined) scrollBy(0, place.getBoundingClientRect().top - top);
  }, after);
  useEffect(() => {
    const release = (): void => {
      kept.current = null;
    };
    for (const deed of NEXT_DEEDS) addEventListener(deed, release, { capture: true, passive: true });
    return () => {
      for (const deed of NEXT_DEEDS) removeEventListener(deed, release, { capture: true });
    };
  }, []);
  return (pressed) => {
    const place = pressed.closest("tr, section") ?? pressed;
    kept.current = { place, top: place.getBoundingClientRect().top };
  };
}

/** What each of the nearest nodes has behind a bound: as many halves of them are asked for as it takes to count each. */
function useBehind(lineage: LineageDocument, edges: Edge[], roots: string[]): Map<string, Behind> {
  const [counts, setCounts] = useState<Map<string, Behind>>(new Map());
  useEffect(() => {
    const cut = byDistance(lineage.nodes, edges, roots).slice(0, NODES_MAX).filter((node) => node.cut);
    const stop = new AbortController();
    // Until it is counted again, a number stays: a button does not change its text twice.
    setCounts((before) => new Map(cut.flatMap(({ uuid }) => (before.has(uuid) ? [[uuid, before.get(uuid)!]] : []))));
    countBehind(lineage.nodes, cut, stop.signal, (found) => setCounts((before) => new Map([...before, ...found]))).catch(
      // The buttons show more as well without a number.
      () => undefined,
    );
    return () => stop.abort();
  }, [lineage]);
  return counts;
}

async function countBehind(nodes: LineageNode[], cut: LineageNode[], signal: AbortSignal, tell: (found: Map<string, Behind>) => void): Promise<void> {
  const waiting: LineageNode[][] = [];
  for (let at = 0; at < cut.length; at += COUNTED) waiting.push(cut.slice(at, at + COUNTED));
  for (let asked = 0; waiting.length && asked < COUNTS_MAX; asked++) {
    const some = waiting.shift()!;
    const query = { or: some.map(({ uuid }) => ({ field: "flowfile_uuid", equals: uuid })) };
    const question = { query, limit: EVENTS_COUNTED, ...(writer && { writer }), ...(asOf && { as_of: asOf }) };
    const { total, items } = await askByBody<EventPage>("events/search", question, signal);
    if (signal.aborted) return;
    const isAll = total <= EVENTS_COUNTED;
    tell(behindOf(nodes, some, items, isAll));
    // One with very many would hide what the others have.
    if (!isAll && some.length > 1) waiting.push(some.slice(0, some.length >> 1), some.slice(some.length >> 1));
  }
}

function NodeRow({
  node,
  names,
  isChosen,
  isRoot,
  isFailedOnly,
  onWay,
  expansion,
  pick,
}: {
  node: LineageNode;
  names: Map<string, string>;
  isChosen: boolean;
  isRoot: boolean;
  isFailedOnly: boolean;
  onWay: string[];
  expansion: Expansion;
  pick: (uuid: string) => void;
}): ReactNode {
  const isOnWay = onWay.includes(node.uuid);
  const isFaint = isFailedOnly && !node.failed && !isRoot;
  return (
    <tr id={`row-${node.uuid}`} className={isOnWay || isChosen ? "chosen-row" : isFaint ? "faint-row" : ""}>
      <th scope="row">
        <button type="button" aria-pressed={isChosen} onClick={() => pick(node.uuid)}>
          {names.get(node.uuid)}
        </button>{" "}
        {node.namespace && <span className="quiet">{node.namespace}</span>} <code className="quiet">{node.uuid}</code>
        {isRoot && <span className="quiet"> ({texts.start})</span>}
        {isOnWay && <span className="unseen"> {texts.way}</span>}
        {node.kind === "UNKNOWN" && <span className="quiet"> ({texts.unknown})</span>}
        {node.failed && <strong> {texts.failedMark}</strong>}
        {isFaint && <span className="quiet"> ({texts.onWayToFailure})</span>}{" "}
        {!isRoot && <a href={startAt(node.uuid)}>{texts.centre}</a>}
      </th>
      <td>{texts.kinds[node.kind] ?? node.kind}</td>
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
        {node.cut && (texts.bounds[node.cut] ?? node.cut)} <Expander node={node} expansion={expansion} />
      </td>
    </tr>
  );
}

function Events({ node }: { node: LineageNode }): ReactNode {
  const shown = node.events.slice(0, EVENTS_SHOWN);
  return (
    <>
      {shown.map(({ writer: by, event, failed }, at) => (
        <span key={`${by}/${event.event_id}`}>
          {at > 0 && ", "}
          <a href={pageAddress("event", { writer: by, event: event.event_id, as_of: asOf })}>{event.event_type}</a>
          {failed && ` (${texts.failed})`}
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
