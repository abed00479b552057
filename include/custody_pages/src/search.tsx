// Search: a query, facets, a histogram, and the events that match.

import { useEffect, useState, type ReactNode } from "react";
import { changed, ownParameters, pageAddress, type Parameters, remember, sameMoment } from "./address.ts";
import { ask } from "./api.ts";
import { command } from "./command.ts";
import type { EventPage, Facets, Fields, Histogram as Answered, Listed } from "./documents.ts";
import { Frame, Head, Notices, SameAnswer, SaveButton, Shown, start, Switch, TableFrame, useAnswer, useParameters, When } from "./frame.tsx";
import { Histogram } from "./histogram.tsx";
import { barsOfBuckets, barsOfDays, finerThanDays, trimmed, type Bar } from "./histogram_days.ts";
import { bytes, count } from "./moments.ts";
import { AsOfField, Kept, Question, WriterField } from "./question.tsx";
import { QueryField } from "./query_field.tsx";
import { anywhere, combined } from "./query.ts";
import { COLUMN_TEXTS, TEXTS } from "./texts.ts";

const PAGE_SIZE = 100;
const SHOWN_MAX = 5000;
const FOLLOW_MS = 2000;
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
  return (
    <Frame page="search" title={TEXTS.search.title}>
      <SearchForm fields={known} />
      <ChosenList />
      <Shown answer={page} again={again}>
        {(first) => (
          <>
            <Days />
            <div className="beside">
              <FacetLists fields={known} />
              <Results first={first} fields={known} />
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

function SearchForm({ fields }: { fields: Fields | null }): ReactNode {
  const current = useParameters();
  return (
    <Question>
        <QueryField initial={parameters.get("q") ?? ""} fields={fields} />
        <Kept names={["f", "columns", "facet", "follow"]} current={current} />
        <label>
          {TEXTS.search.since}
          <input name="since" defaultValue={since} size={12} />
        </label>
        <label>
          {TEXTS.search.until}
          <input name="until" defaultValue={until} size={12} />
        </label>
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
  if (since || until) chosen.push([`${since || "…"} – ${until || "…"}`, changed(current, { since: null, until: null })]);
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

function Days(): ReactNode {
  const current = useParameters();
  const [answer] = useAnswer((signal) => barsOf(signal), query);
  if (answer.state !== "there") return <div className="histogram waits" />;
  return <Histogram bars={answer.value} address={(first, last) => changed(current, { since: first, until: last })} />;
}

/** Bars of the chosen time; without one, of all days that have events, cut finer where they are few. */
async function barsOf(signal: AbortSignal): Promise<Bar[]> {
  const spans = async (bounds: Parameters): Promise<Bar[]> =>
    barsOfBuckets((await ask<Answered>("events/histogram", { ...asked, ...bounds }, signal)).buckets);
  if (since) return spans({ since, until, buckets: BARS });
  const { facets: counts } = await ask<Facets>("events/facets", { ...asked, field: "day", top: DAYS_MAX }, signal);
  const days = counts["day"] ?? {};
  const finer = finerThanDays(days);
  return finer ? trimmed(await spans({ ...finer })) : barsOfDays(days);
}

function FacetLists({ fields }: { fields: Fields | null }): ReactNode {
  const current = useParameters();
  const wanted = current.getAll("facet");
  const names = [...FACETS, ...wanted].filter((name, at, all) => all.indexOf(name) === at && fields?.facets.includes(name));
  // One question for all of them: the events that match are looked for once.
  const [answer] = useAnswer(
    async (signal) => (names.length ? ask<Facets>("events/facets", { ...asked, field: names, top: FACET_VALUES }, signal) : null),
    names.join(),
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

function Results({ first, fields }: { first: EventPage; fields: Fields | null }): ReactNode {
  const [items, setItems] = useState(first.items);
  const [next, setNext] = useState(first.next);
  const [total, setTotal] = useState(first.total);
  const [notices, setNotices] = useState(first.notices ?? []);
  const [error, setError] = useState<string | null>(null);
  const [news, setNews] = useState(0);
  const [columns, setColumns] = useState(() => parameters.get("columns")?.split(",").filter(Boolean) ?? COLUMNS);
  const more = async (): Promise<void> => {
    try {
      const page = await ask<EventPage>(next!);
      setItems([...items, ...page.items]);
      setNext(page.next);
      setNotices([...new Set([...notices, ...(page.notices ?? [])])]);
    } catch (failure) {
      setError((failure as Error).message);
    }
  };
  const take = (page: EventPage): void => {
    const known = new Set(items.map(nameOf));
    const added = page.items.filter((item) => !known.has(nameOf(item)));
    setTotal(page.total);
    if (added.length) {
      setNews(news + added.length);
      setItems([...added, ...items].slice(0, SHOWN_MAX));
    }
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
        {!isOldest && !asOf && <Follow take={take} />}
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
        <a href={pageAddress("replay", { q: query, writer, as_of: asOf })}>{TEXTS.search.replay}</a>
      </div>
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

function nameOf({ writer: by, event }: Listed): string {
  return `${by}/${event.event_id}`;
}

function Follow({ take }: { take: (page: EventPage) => void }): ReactNode {
  const [isOn, setOn] = useState(parameters.get("follow") === "true");
  useEffect(() => {
    if (!isOn) return;
    const stop = new AbortController();
    const timer = setInterval(() => {
      if (document.visibilityState === "hidden") return;
      // What fails once is asked for again in a moment.
      ask<EventPage>("events", { ...asked, limit: PAGE_SIZE }, stop.signal).then(take, () => undefined);
    }, FOLLOW_MS);
    return () => {
      clearInterval(timer);
      stop.abort();
    };
  });
  return (
    <Switch name="follow" isOn={isOn} turn={setOn}>
      {TEXTS.search.follow}
    </Switch>
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
