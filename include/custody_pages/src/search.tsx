// Search: a query, facets, a histogram, and the events that match.

import { useCallback, useEffect, useRef, useState, type ReactNode } from "react";
import { changed, ownParameters, pageAddress, type Parameters, remember, sameMoment } from "./address.ts";
import { ApiError, ask } from "./api.ts";
import { command } from "./command.ts";
import type { EventPage, Facets, Fields, Histogram as Answered, Listed } from "./documents.ts";
import { FixedLink, Frame, Head, Notices, SameAnswer, SaveButton, Shown, start, Switch, TableFrame, useAnswer, useParameters, When } from "./frame.tsx";
import { Histogram } from "./histogram.tsx";
import { barsOfBuckets, barsOfDays, finerThanDays, trimmed, type Bar, type DaysOf } from "./histogram_days.ts";
import { bytes, count } from "./moments.ts";
import { AsOfField, Kept, Question, TimeField, WriterField } from "./question.tsx";
import { QueryField } from "./query_field.tsx";
import { anywhere, combined } from "./query.ts";
import { nameOf, newsSince, SHOWN_MAX, type News, type Seen } from "./tail.ts";
import { COLUMN_TEXTS, TEXTS } from "./texts.ts";
import { boundText, zoneName } from "./zone.ts";

const PAGE_SIZE = 100;
/** From one answer to the next question. */
const FOLLOW_MS = 2000;
/** Facets and bars look at every event that matches: they come less often. */
const SUMMARY_MS = 15_000;
const COLUMNS = ["event_time", "event_type", "component_name", "filename", "file_size", "flowfile_uuid"];
const FACETS = ["event_type", "component_name", "component_type", "source_node"];
const FACET_VALUES = 12;
const DAYS_MAX = 10_000;
/** Bars of a time that was chosen. */
const BARS = 60;
const EXPORTS = { ndjson: "NDJSON", csv: "CSV", arrow: "Arrow" };

const parameters = ownParameters();
const facets = parameters.getAll("f").map((pair): [string, string] => {
  const at = pair.indexOf(":");
  return [pair.slice(0, at), pair.slice(at + 1)];
});
const since = parameters.get("since") ?? "";
const until = parameters.get("until") ?? "";
const query = combined({ query: parameters.get("q") ?? "", facets, since, until });
const writer = parameters.get("writer");
const asOf = parameters.get("as_of");
const isOldest = parameters.get("oldest_first") === "true";
const asked: Parameters = { q: query, writer, as_of: asOf };
const pageAsked: Parameters = { ...asked, oldest_first: isOldest };

function Search(): ReactNode {
  const [fields] = useAnswer((signal) => ask<Fields>("fields", {}, signal), "fields");
  const known = fields.state === "there" ? fields.value : null;
  const [page, again] = useAnswer((signal) => ask<EventPage>("events", { ...pageAsked, limit: PAGE_SIZE }, signal), query);
  const [round, summarizeSoon] = useRounds(SUMMARY_MS);
  return (
    <Frame page="search" title={TEXTS.search.title}>
      <SearchForm fields={known} />
      <ChosenList />
      <Shown answer={page} again={again}>
        {(first) => (
          <>
            <Days round={round} />
            <div className="beside">
              <FacetLists fields={known} round={round} />
              <Results first={first} fields={known} onNews={summarizeSoon} />
            </div>
          </>
        )}
      </Shown>
      <Ways />
      <SameAnswer
        commandLine={command("search", query ? [query] : [], { limit: PAGE_SIZE, oldest: isOldest, writer, "as-of": asOf })}
        path="events"
        parameters={{ ...pageAsked, limit: PAGE_SIZE }}
      />
    </Frame>
  );
}

/** A number that grows some time after it was asked to, once for all that asked meanwhile. */
function useRounds(ms: number): [number, () => void] {
  const [round, setRound] = useState(0);
  const timer = useRef<ReturnType<typeof setTimeout> | null>(null);
  const soon = useCallback(() => {
    timer.current ??= setTimeout(() => {
      timer.current = null;
      setRound((now) => now + 1);
    }, ms);
  }, [ms]);
  return [round, soon];
}

function SearchForm({ fields }: { fields: Fields | null }): ReactNode {
  const current = useParameters();
  return (
    <Question>
        <QueryField initial={parameters.get("q") ?? ""} fields={fields} />
        <Kept names={["f", "columns", "facet", "follow"]} current={current} />
        <TimeField name="since" label={TEXTS.search.since} />
        <TimeField name="until" label={TEXTS.search.until} />
        <label>
          {TEXTS.search.order}
          <select name="oldest_first" defaultValue={isOldest ? "true" : ""}>
            <option value="">{TEXTS.search.newest}</option>
            <option value="true">{TEXTS.search.oldest}</option>
          </select>
        </label>
        <WriterField />
        <AsOfField />
        <button type="submit" className="main">
          {TEXTS.search.submit}
        </button>
    </Question>
  );
}

/** For who has a question, and does not know the pages yet. */
function Ways(): ReactNode {
  const moment = sameMoment();
  const pages = {
    search: pageAddress("lineage", moment),
    changes: pageAddress("search", { q: "event_type:CONTENT_MODIFIED", ...moment }),
    run: pageAddress("run", moment),
    proof: pageAddress("proof"),
  };
  return (
    <details>
      <summary>{TEXTS.search.where}</summary>
      <ul>
        {TEXTS.search.ways.map(([question, way, page]) => (
          <li key={question}>
            <a href={pages[page]}>{question}</a> {way}
          </li>
        ))}
      </ul>
    </details>
  );
}

function ChosenList(): ReactNode {
  const current = useParameters();
  const chosen: [string, string][] = facets.map(([field, value], at) => [
    `${field} ${value || TEXTS.search.empty}`,
    changed(current, { f: parameters.getAll("f").filter((_, other) => other !== at) }),
  ]);
  const bound = (text: string, isEnd: boolean): string => (text ? boundText(text, isEnd) : "…");
  if (since || until) chosen.push([`${bound(since, false)} – ${bound(until, true)}`, changed(current, { since: null, until: null })]);
  if (!chosen.length) return null;
  return (
    <section aria-label={TEXTS.search.chosen}>
      <ul className="chips">
        {chosen.map(([text, without]) => (
          <li key={without}>
            <a href={without} aria-label={TEXTS.search.remove(text)}>
              {text} <span aria-hidden="true">✕</span>
            </a>
          </li>
        ))}
      </ul>
    </section>
  );
}

function Days({ round }: { round: number }): ReactNode {
  const current = useParameters();
  const [answer] = useAnswer((signal) => barsOf(signal), String(round));
  if (answer.state !== "there") return <div className="histogram waits" />;
  const { bars, same } = answer.value;
  return (
    <>
      <Histogram bars={bars} address={(first, last) => changed(current, { since: first, until: last })} />
      {bars.length > 0 && <SameAnswer of={TEXTS.same.bars} {...same} />}
    </>
  );
}

interface Counted {
  bars: Bar[];
  /** The command and the request that count the same. */
  same: { commandLine: string; path: string; parameters: Parameters };
}

/** A command that counts what matches. */
function counting(options: Record<string, string | number | string[]>): string {
  return command("search", query ? [query] : [], { ...options, writer, "as-of": asOf });
}

/** Bars of the chosen time; without one, of all days that have events, cut finer where they are few. */
async function barsOf(signal: AbortSignal): Promise<Counted> {
  const spans = async (bounds: { since: string; until: string; buckets: number }): Promise<Counted> => {
    const parameters = { ...asked, ...bounds };
    const { buckets } = await ask<Answered>("events/histogram", parameters, signal);
    return { bars: barsOfBuckets(buckets), same: { commandLine: counting(bounds), path: "events/histogram", parameters } };
  };
  if (since) return spans({ since, until, buckets: BARS });
  const [days, of] = await daysOf(signal);
  const finer = finerThanDays(days, of);
  if (!finer) {
    const zone = of === "reader" ? zoneName() : "UTC";
    const parameters = { ...asked, field: "day", top: DAYS_MAX, zone };
    const commandLine = counting({ facet: "day", top: DAYS_MAX, zone });
    return { bars: barsOfDays(days, of), same: { commandLine, path: "events/facets", parameters } };
  }
  const counted = await spans(finer);
  return { ...counted, bars: trimmed(counted.bars) };
}

/** How many events each day has: a day of the reader, or of UTC where the server does not know the reader's zone. */
async function daysOf(signal: AbortSignal): Promise<[Record<string, number>, DaysOf]> {
  const question = { ...asked, field: "day", top: DAYS_MAX };
  const counted = async (zone: string): Promise<Record<string, number>> =>
    (await ask<Facets>("events/facets", { ...question, zone }, signal)).facets["day"] ?? {};
  try {
    return [await counted(zoneName()), "reader"];
  } catch (error) {
    if (!(error instanceof ApiError) || error.status !== 400) throw error;
    return [await counted("UTC"), "utc"];
  }
}

function FacetLists({ fields, round }: { fields: Fields | null; round: number }): ReactNode {
  const current = useParameters();
  const wanted = current.getAll("facet");
  const names = [...FACETS, ...wanted].filter((name, at, all) => all.indexOf(name) === at && fields?.facets.includes(name));
  // One question for all of them: the events that match are looked for once.
  const [answer] = useAnswer(
    async (signal) => (names.length ? ask<Facets>("events/facets", { ...asked, field: names, top: FACET_VALUES }, signal) : null),
    `${names.join()} ${round}`,
  );
  const counts = answer.state === "there" ? answer.value?.facets : undefined;
  const others = fields?.facets.filter((name) => name !== "day" && !names.includes(name)) ?? [];
  return (
    <aside aria-label={TEXTS.search.facets}>
      <details open={matchMedia("(min-width: 60rem)").matches}>
        <summary>{TEXTS.search.facets}</summary>
        {answer.state === "failed" && <p className="quiet">{answer.error.message}</p>}
        {names.map((name) => (
          <FacetList key={name} field={name} counts={counts?.[name] ?? {}} />
        ))}
        {others.length > 0 && (
          <details>
            <summary>{TEXTS.search.moreFacets}</summary>
            <ul>
              {others.map((name) => (
                <li key={name}>
                  <a href={changed(current, { facet: [...wanted, name] })}>{name}</a>
                </li>
              ))}
            </ul>
          </details>
        )}
        {names.length > 0 && (
          <SameAnswer
            of={TEXTS.same.values}
            commandLine={counting({ facet: names, top: FACET_VALUES })}
            path="events/facets"
            parameters={{ ...asked, field: names, top: FACET_VALUES }}
          />
        )}
      </details>
    </aside>
  );
}

function FacetList({ field, counts }: { field: string; counts: Record<string, number> }): ReactNode {
  const current = useParameters();
  const values = Object.entries(counts);
  if (!values.length) return null;
  const chosen = current.getAll("f");
  return (
    <section aria-label={TEXTS.search.values(field)}>
      <h2>{COLUMN_TEXTS[field] ?? field}</h2>
      <ul className="values">
        {values.map(([value, number]) => {
          const pair = `${field}:${value}`;
          // Case never matters in a query, and the facets give their values in lower case.
          const isSame = (one: string): boolean => one.toLowerCase() === pair.toLowerCase();
          const isChosen = chosen.some(isSame);
          const next = isChosen ? chosen.filter((one) => !isSame(one)) : [...chosen, pair];
          return (
            <li key={value}>
              {value ? (
                <a
                  href={changed(current, { f: next })}
                  className={isChosen ? "chosen" : ""}
                >
                  <span className="unseen">{isChosen ? TEXTS.search.remove(field) : TEXTS.search.only(field)} </span>
                  <span className="value">{value}</span> <span className="number">{count(number)}</span>
                </a>
              ) : (
                <span>
                  <span className="value quiet">{TEXTS.search.empty}</span> <span className="number">{count(number)}</span>
                </span>
              )}
            </li>
          );
        })}
      </ul>
    </section>
  );
}

function Results({ first, fields, onNews }: { first: EventPage; fields: Fields | null; onNews: () => void }): ReactNode {
  const [{ seen, news, isAnew }, see] = useState({
    seen: { items: first.items, total: first.total, next: first.next, notices: first.notices ?? [] } as Seen,
    news: 0,
    isAnew: false,
  });
  const { items, total, next, notices } = seen;
  const [error, setError] = useState<string | null>(null);
  const [columns, setColumns] = useState(() => parameters.get("columns")?.split(",").filter(Boolean) ?? COLUMNS);
  const more = async (): Promise<void> => {
    try {
      const page = await ask<EventPage>(next!);
      const added = {
        items: [...items, ...page.items],
        total,
        next: page.next,
        notices: [...new Set([...notices, ...(page.notices ?? [])])],
      };
      // Where new ones came meanwhile, the list is another one.
      see((now) => (now.seen === seen ? { ...now, seen: added } : now));
      setError(null);
    } catch (failure) {
      setError((failure as Error).message);
    }
  };
  const take = (found: News, of: Seen): void => {
    // Where more were added at the end meanwhile, the next look finds the new ones again.
    see((now) => (now.seen === of ? { seen: found, news: now.news + found.added, isAnew: now.isAnew || found.isAnew } : now));
    if (found.added) onNews();
  };
  const wider = anywhere(parameters.get("q") ?? "");
  return (
    <section className="results" aria-label={TEXTS.search.table}>
      <Notices notices={notices} />
      <div className="above">
        <p role="status">
          <strong>{TEXTS.search.total(total)}</strong>
          {news > 0 && <span> · {TEXTS.search.followed(news)}</span>}
        </p>
        {!isOldest && !asOf && <Follow seen={seen} take={take} />}
        <ColumnChoice fields={fields} columns={columns} choose={setColumns} />
        <details>
          <summary>{TEXTS.search.export}</summary>
          <div className="row">
            {Object.entries(EXPORTS).map(([format, name]) => (
              <SaveButton key={format} path="events/export" parameters={{ ...asked, format }} name={`events.${format}`} isLarge>
                {name}
              </SaveButton>
            ))}
          </div>
        </details>
        <FixedLink revisions={first.as_of} />
        <a href={pageAddress("replay", { q: query, writer, as_of: asOf })}>{TEXTS.search.replay}</a>
      </div>
      {isAnew && (
        <p className="notices" role="status">
          {TEXTS.search.anew(SHOWN_MAX)}
        </p>
      )}
      {first.lost > 0 && <p className="notices">{TEXTS.search.lost(first.lost)}</p>}
      {items.length ? (
        <>
          <EventTable items={items} columns={columns} />
          <div className="row">
            <p className="quiet">{TEXTS.search.shown(items.length, total)}</p>
            {next && items.length < SHOWN_MAX && (
              <button type="button" onClick={() => void more()}>
                {TEXTS.search.more}
              </button>
            )}
            {error && <p role="alert">{error}</p>}
          </div>
        </>
      ) : (
        <div className="nothing">
          <p>
            <strong>{TEXTS.search.nothing}</strong> {TEXTS.search.nothingHint}
          </p>
          {wider && (
            <p>
              <a href={pageAddress("search", { q: wider, writer, as_of: asOf })}>{TEXTS.search.wider(parameters.get("q")!.trim())}</a>
            </p>
          )}
          <a href={pageAddress("search")}>{TEXTS.search.everything}</a>
        </div>
      )}
    </section>
  );
}

function Follow({ seen, take }: { seen: Seen; take: (news: News, of: Seen) => void }): ReactNode {
  const [isOn, setOn] = useState(parameters.get("follow") === "true");
  const [failure, setFailure] = useState<string | null>(null);
  const latest = useRef({ seen, take });
  latest.current = { seen, take };
  useEffect(() => {
    if (!isOn) return;
    const stop = new AbortController();
    let timer: ReturnType<typeof setTimeout>;
    // The next question only after the answer: slow answers would overtake each other.
    const look = async (): Promise<void> => {
      if (document.visibilityState !== "hidden") {
        const of = latest.current.seen;
        try {
          const asking = (address: string | null): Promise<EventPage> =>
            address === null
              ? ask<EventPage>("events", { ...asked, limit: PAGE_SIZE }, stop.signal)
              : ask<EventPage>(address, {}, stop.signal);
          const found = await newsSince(of, asking);
          if (stop.signal.aborted) return;
          latest.current.take(found, of);
          setFailure(null);
        } catch (error) {
          if (stop.signal.aborted) return;
          setFailure((error as Error).message);
        }
      }
      timer = setTimeout(() => void look(), FOLLOW_MS);
    };
    timer = setTimeout(() => void look(), FOLLOW_MS);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [isOn]);
  return (
    <span>
      <Switch name="follow" isOn={isOn} turn={setOn}>
        {TEXTS.search.follow}
      </Switch>
      {isOn && failure && <span role="alert">{TEXTS.search.followFails(failure)}</span>}
    </span>
  );
}

function ColumnChoice({
  fields,
  columns,
  choose,
}: {
  fields: Fields | null;
  columns: string[];
  choose: (columns: string[]) => void;
}): ReactNode {
  const all = [...Object.keys(COLUMN_TEXTS), ...(fields?.attributes.map((name) => `attribute.${name}`) ?? [])];
  return (
    <details>
      <summary>{TEXTS.search.columns}</summary>
      <fieldset>
        <legend className="unseen">{TEXTS.search.columns}</legend>
        {all.map((column) => (
          <label key={column} className="check">
            <input
              type="checkbox"
              checked={columns.includes(column)}
              onChange={({ target }) => {
                const next = all.filter((one) => (one === column ? target.checked : columns.includes(one)));
                choose(next);
                remember({ columns: next.join() === COLUMNS.join() ? null : next.join() });
              }}
            />{" "}
            {COLUMN_TEXTS[column] ?? column}
          </label>
        ))}
      </fieldset>
    </details>
  );
}

function EventTable({ items, columns }: { items: Listed[]; columns: string[] }): ReactNode {
  return (
    <TableFrame label={TEXTS.search.table}>
      <Head columns={[TEXTS.id, ...columns.filter((one) => one !== "event_id").map((one) => COLUMN_TEXTS[one] ?? one)]} />
      <tbody>
        {items.map((item) => (
          <tr key={nameOf(item)}>
            <th scope="row">
              <a href={pageAddress("event", { writer: item.writer, event: item.event.event_id, as_of: asOf })}>
                {item.event.event_id}
              </a>
            </th>
            {columns
              .filter((one) => one !== "event_id")
              .map((column) => (
                <td key={column} className={column}>
                  <Cell item={item} column={column} />
                </td>
              ))}
          </tr>
        ))}
      </tbody>
    </TableFrame>
  );
}

function Cell({ item: { writer: by, event }, column }: { item: Listed; column: string }): ReactNode {
  switch (column) {
    case "event_time":
      return <When ms={event.event_time} />;
    case "file_size":
      return bytes(event.file_size);
    case "writer":
      return by;
    case "component_name":
      return event.component_name ?? event.component_id;
    case "flowfile_uuid":
      return (
        <a href={pageAddress("lineage", { flowfile: event.flowfile_uuid, ...sameMoment() })} aria-label={`${TEXTS.pages.lineage} ${event.flowfile_uuid}`}>
          <code>{event.flowfile_uuid.slice(0, 8)}</code>
        </a>
      );
    case "filename":
      return attribute(event, "filename");
    default: {
      if (column.startsWith("attribute.")) return attribute(event, column.slice("attribute.".length));
      const value = event[column as keyof typeof event];
      return typeof value === "string" || typeof value === "number" ? String(value) : null;
    }
  }
}

/** The value after the event, as far as a listing tells it. */
function attribute({ updated_attributes, previous_attributes }: Listed["event"], name: string): string | null {
  return (updated_attributes && name in updated_attributes ? updated_attributes[name] : previous_attributes?.[name]) ?? null;
}

start(<Search />);
