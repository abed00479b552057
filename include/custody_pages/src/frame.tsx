// What all pages share: the frame with navigation and colours, answers that load or fail, and small parts.

import { StrictMode, useCallback, useEffect, useId, useRef, useState, type ReactNode } from "react";
import { createRoot } from "react-dom/client";
import { changed, ownParameters, pageAddress, remember, REMEMBERED, sameMoment, type Page } from "./address.ts";
import { ApiError, addressOf, ask, keepToken, save, token } from "./api.ts";
import { curl } from "./command.ts";
import { absolute, iso, relative } from "./moments.ts";
import { TEXTS } from "./texts.ts";
import { chooseTimes, useTimes, type TimeStyle } from "./times.ts";
import { boundText, offsetText, zoneName } from "./zone.ts";
import type { Parameters } from "./address.ts";
import type { Welcome } from "./documents.ts";
import "./style.css";

const NAVIGATION: Page[] = ["search", "lineage", "run", "sql", "status", "proof"];
/** Pages that can be asked about an earlier moment. */
const OF_MOMENTS: Page[] = ["search", "event", "lineage", "run", "replay", "sql"];
/** Pages on which a writer narrows what is shown; elsewhere it names whose event or timeline is looked at. */
const OF_WRITERS: Page[] = ["search", "lineage", "run", "sql"];
const THEME = "custody-theme";
type Theme = keyof typeof TEXTS.themes;

export function start(page: ReactNode): void {
  applyTheme(theme());
  createRoot(document.getElementById("page")!).render(<StrictMode>{page}</StrictMode>);
}

function theme(): Theme {
  const kept = localStorage.getItem(THEME);
  return kept === "light" || kept === "dark" ? kept : "auto";
}

function applyTheme(chosen: Theme): void {
  document.documentElement.dataset["theme"] = chosen === "auto" ? (frameTheme() ?? "auto") : chosen;
}

/** The colours of the page around this one, where it is of the same origin and says them. */
function frameTheme(): Theme | null {
  try {
    if (window.parent === window) return null;
    const { className, dataset } = window.parent.document.documentElement;
    const said = `${className} ${dataset["theme"] ?? ""}`;
    return /\bdark\b/.test(said) ? "dark" : /\blight\b/.test(said) ? "light" : null;
  } catch {
    return null;
  }
}

export function Frame({ page, title, children }: { page: Page; title: string; children: ReactNode }): ReactNode {
  useEffect(() => {
    document.title = `${title} · ${TEXTS.product}`;
  }, [title]);
  const parameters = ownParameters();
  const carried = (to: Page): Parameters =>
    OF_MOMENTS.includes(to) ? { ...sameMoment(parameters), ...(OF_WRITERS.includes(page) && { writer: parameters.get("writer") }) } : {};
  return (
    <>
      <a className="skip" href="#content">
        {TEXTS.skip}
      </a>
      <header>
        <span className="product">{TEXTS.product}</span>
        <nav aria-label={TEXTS.navigation}>
          {NAVIGATION.map((one) => (
            <a key={one} href={pageAddress(one, carried(one))} aria-current={one === page ? "page" : undefined}>
              {TEXTS.pages[one]}
            </a>
          ))}
        </nav>
        <TimeChoice />
        <ThemeChoice />
      </header>
      <main id="content" tabIndex={-1}>
        <h1>{title}</h1>
        <Away />
        {OF_MOMENTS.includes(page) && <Past />}
        {children}
      </main>
    </>
  );
}

/** What is away or of an earlier moment, on every page: whatever it shows is made of what is left. */
function Away(): ReactNode {
  const [answer] = useAnswer((signal) => ask<Welcome>("", {}, signal), "away");
  return answer.state === "there" ? <Notices notices={answer.value.notices} /> : null;
}

/** That the page shows an earlier moment, and the way back to now. */
function Past(): ReactNode {
  const current = useParameters();
  const moment = current.get("as_of");
  if (!moment) return null;
  return (
    <p className="notices">
      {TEXTS.past(boundText(moment, true))} <a href={changed(current, { as_of: null })}>{TEXTS.now}</a>
    </p>
  );
}

/** Whose times the page shows, and how. */
function TimeChoice(): ReactNode {
  const { style } = useTimes();
  return (
    <label className="theme">
      {TEXTS.times}{" "}
      <select value={style} onChange={({ target }) => chooseTimes(target.value as TimeStyle)}>
        {Object.entries(TEXTS.timeStyles).map(([name, text]) => (
          <option key={name} value={name}>
            {text}
          </option>
        ))}
      </select>{" "}
      <span className="zone">{TEXTS.zone(zoneName(), offsetText(Date.now()))}</span>
    </label>
  );
}

function ThemeChoice(): ReactNode {
  const [chosen, choose] = useState(theme);
  return (
    <label className="theme">
      {TEXTS.theme}{" "}
      <select
        value={chosen}
        onChange={({ target }) => {
          const next = target.value as Theme;
          if (next === "auto") localStorage.removeItem(THEME);
          else localStorage.setItem(THEME, next);
          choose(next);
          applyTheme(next);
        }}
      >
        {Object.entries(TEXTS.themes).map(([name, text]) => (
          <option key={name} value={name}>
            {text}
          </option>
        ))}
      </select>
    </label>
  );
}

/** The parameters of this page as they are now. */
export function useParameters(): URLSearchParams {
  const [parameters, setParameters] = useState(ownParameters);
  useEffect(() => {
    const take = (): void => setParameters(ownParameters());
    addEventListener(REMEMBERED, take);
    return () => removeEventListener(REMEMBERED, take);
  }, []);
  return parameters;
}

export type Answer<T> = { state: "loading" } | { state: "there"; value: T } | { state: "failed"; error: Error };

/** What `load` answers, asked for once for each `key`; and how it is asked for again. */
export function useAnswer<T>(load: (signal: AbortSignal) => Promise<T>, key: string): [Answer<T>, () => void] {
  const [answer, setAnswer] = useState<Answer<T>>({ state: "loading" });
  const [round, setRound] = useState(0);
  const latest = useRef(load);
  latest.current = load;
  useEffect(() => {
    const stop = new AbortController();
    latest.current(stop.signal).then(
      (value) => stop.signal.aborted || setAnswer({ state: "there", value }),
      (error: unknown) => stop.signal.aborted || setAnswer({ state: "failed", error: error as Error }),
    );
    return () => stop.abort();
  }, [key, round]);
  const again = useCallback(() => setRound((now) => now + 1), []);
  return [answer, again];
}

/** The value of an answer, or what is shown until it is there. */
export function Shown<T>({
  answer,
  again,
  children,
}: {
  answer: Answer<T>;
  again: () => void;
  children: (value: T) => ReactNode;
}): ReactNode {
  if (answer.state === "loading")
    return (
      <p className="loading" role="status">
        {TEXTS.loading}
      </p>
    );
  if (answer.state === "failed") return <Failure error={answer.error} again={again} />;
  return children(answer.value);
}

export function Failure({ error, again }: { error: Error; again: () => void }): ReactNode {
  const status = error instanceof ApiError ? error.status : -1;
  if (status === 401) return <TokenForm again={again} />;
  const message = status === 403 ? TEXTS.forbidden(error.message) : error.message;
  return (
    <div className="failure" role="alert">
      <h2>{TEXTS.problem}</h2>
      <pre>{message}</pre>
      <button type="button" onClick={again}>
        {TEXTS.retry}
      </button>
      {status === 403 && token() && (
        <button
          type="button"
          onClick={() => {
            keepToken(null);
            again();
          }}
        >
          {TEXTS.token.forget}
        </button>
      )}
    </div>
  );
}

function TokenForm({ again }: { again: () => void }): ReactNode {
  const id = useId();
  return (
    <form
      className="failure"
      onSubmit={(event) => {
        event.preventDefault();
        keepToken(String(new FormData(event.currentTarget).get("token")).trim());
        again();
      }}
    >
      <h2>{TEXTS.token.title}</h2>
      <p>{TEXTS.token.why}</p>
      <p>{TEXTS.token.airflow}</p>
      <label htmlFor={id}>{TEXTS.token.label}</label>
      <input id={id} name="token" type="password" autoComplete="off" required />
      <button type="submit">{TEXTS.token.use}</button>
    </form>
  );
}

export function Notices({ notices }: { notices: readonly string[] | undefined }): ReactNode {
  if (!notices?.length) return null;
  return (
    <section className="notices" aria-label={TEXTS.notices}>
      <ul>
        {notices.map((notice, at) => (
          <li key={at}>{notice}</li>
        ))}
      </ul>
    </section>
  );
}

/** A time in the reader's zone, or how long ago it is; the other one, and UTC, where the pointer rests. */
export function When({ ms, away = false }: { ms: number | null | undefined; away?: boolean }): ReactNode {
  const { style, now } = useTimes();
  if (ms === null || ms === undefined) return "–";
  const ago = relative(ms, now);
  if (style === "ago")
    return (
      <time dateTime={iso(ms)} title={`${absolute(ms)} · ${iso(ms)}`}>
        {ago}
      </time>
    );
  return (
    <time dateTime={iso(ms)} title={`${ago} · ${iso(ms)}`}>
      {absolute(ms)}
      {away && <span className="quiet"> ({ago})</span>}
    </time>
  );
}

/** A table that scrolls by itself where the page is narrow. */
export function TableFrame({ label, children }: { label: string; children: ReactNode }): ReactNode {
  return (
    <div className="scrolls" role="region" aria-label={label} tabIndex={0}>
      <table>
        <caption className="unseen">{label}</caption>
        {children}
      </table>
    </div>
  );
}

export function Head({ columns }: { columns: readonly string[] }): ReactNode {
  return (
    <thead>
      <tr>
        {columns.map((column) => (
          <th key={column} scope="col">
            {column}
          </th>
        ))}
      </tr>
    </thead>
  );
}

/** A box to check whose state is remembered in the address, under a name. */
export function Switch({
  name,
  isOn,
  turn,
  children,
}: {
  name: string;
  isOn: boolean;
  turn: (isOn: boolean) => void;
  children: ReactNode;
}): ReactNode {
  return (
    <label className="check">
      <input
        type="checkbox"
        checked={isOn}
        onChange={({ target }) => {
          turn(target.checked);
          remember({ [name]: target.checked });
        }}
      />{" "}
      {children}
    </label>
  );
}

export function SaveButton({
  path,
  parameters = {},
  name,
  isLarge = false,
  children,
}: {
  path: string;
  parameters?: Parameters;
  name: string;
  isLarge?: boolean;
  children: ReactNode;
}): ReactNode {
  const [error, setError] = useState<string | null>(null);
  return (
    <>
      <button
        type="button"
        onClick={() => {
          setError(null);
          save(path, parameters, name, isLarge).catch((failure: Error) => setError(failure.message));
        }}
      >
        {children}
      </button>
      {error && <span role="alert">{error}</span>}
    </>
  );
}

/** A link to this page as of the revisions that its answer is made of. */
export function FixedLink({ revisions }: { revisions: Readonly<Record<string, number>> }): ReactNode {
  const current = useParameters();
  const moment = Object.entries(revisions)
    .map(([writer, revision]) => `${writer}:${revision}`)
    .join();
  if (!moment || current.get("as_of") === moment) return null;
  return (
    <a href={changed(current, { as_of: moment, follow: null })} title={TEXTS.same.fixedHint}>
      {TEXTS.same.fixed}
    </a>
  );
}

/** The command and the request that give the answer of a page, or of a part of it. */
export function SameAnswer({
  of,
  commandLine,
  path,
  parameters = {},
  body,
}: {
  /** What part it is; the page as a whole without it. */
  of?: string;
  commandLine: string;
  path: string;
  parameters?: Parameters;
  /** What is sent, where the question is too long for an address. */
  body?: unknown;
}): ReactNode {
  return (
    <details className="same">
      <summary>{of ? TEXTS.same.of(of) : TEXTS.same.title}</summary>
      <Copied label={of ? TEXTS.same.commandOf(of) : TEXTS.same.command} text={commandLine} />
      <Copied label={of ? TEXTS.same.apiOf(of) : TEXTS.same.api} text={curl(addressOf(path, parameters), token() !== null, body)} />
      {!of && <Copied label={TEXTS.same.link} text={location.href} />}
    </details>
  );
}

function Copied({ label, text }: { label: string; text: string }): ReactNode {
  const id = useId();
  const [done, setDone] = useState(false);
  return (
    <div className="copied">
      <label htmlFor={id}>{label}</label>
      <input id={id} readOnly value={text} onFocus={({ target }) => target.select()} />
      <button
        type="button"
        onClick={() => {
          // Without permission, as in some frames, the text is there to be copied by hand.
          const field = document.getElementById(id) as HTMLInputElement;
          field.select();
          navigator.clipboard?.writeText(text).then(
            () => setDone(true),
            () => undefined,
          );
        }}
      >
        {done ? TEXTS.copied : TEXTS.copy}
      </button>
    </div>
  );
}
