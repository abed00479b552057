// SQL: one SELECT over events, logs and transactions, its rows as a table. The question stands in the address.

import { useRef, useState, type ReactNode } from "react";
import { ownParameters, pageAddress } from "./address.ts";
import { askByBody, saveByBody } from "./api.ts";
import { command } from "./command.ts";
import type { SqlRows } from "./documents.ts";
import { Frame, Head, Notices, SameAnswer, Shown, start, TableFrame, useAnswer } from "./frame.tsx";
import { AsOfField, Question, WriterField } from "./question.tsx";
import { TEXTS } from "./texts.ts";

const texts = TEXTS.sql;
const parameters = ownParameters();
const query = parameters.get("query") ?? "";
const writer = parameters.get("writer");
const asOf = parameters.get("as_of");
const ROWS = 200;
const ROWS_MAX = 10_000;
const SECONDS = 10;
const SECONDS_MAX = 60;
/** Of rows that are saved, and not shown. */
const SAVED_ROWS_MAX = 100_000;
const FORMS = [
  ["csv", "CSV"],
  ["ndjson", "JSON lines"],
  ["arrow", "Arrow"],
] as const;
const CHARACTERS_SHOWN = 2_000;
const question = {
  query,
  limit: Number(parameters.get("limit") ?? ROWS),
  seconds: Number(parameters.get("seconds") ?? SECONDS),
  ...(writer && { writer }),
  ...(asOf && { as_of: asOf }),
};

function SqlPage(): ReactNode {
  return (
    <Frame page="sql" title={texts.title}>
      <p>{texts.intro}</p>
      <Asking />
      {query && <Rows />}
      <Tables />
      <Samples />
      <SameAnswer
        commandLine={command("sql", [query || "select …"], { limit: question.limit, timeout: `${question.seconds}s`, writer, "as-of": asOf })}
        path="sql"
        body={question}
      />
    </Frame>
  );
}

function Asking(): ReactNode {
  const field = useRef<HTMLTextAreaElement>(null);
  return (
    <Question>
      <label className="whole">
        {texts.query}
        <textarea
          ref={field}
          name="query"
          defaultValue={query}
          rows={Math.min(12, Math.max(3, query.split("\n").length))}
          maxLength={8000}
          spellCheck={false}
          required
          onKeyDown={(event) => {
            if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
            event.preventDefault();
            field.current?.form?.requestSubmit();
          }}
        />
      </label>
      <label>
        {texts.rows}
        <input name="limit" type="number" min={1} max={ROWS_MAX} defaultValue={question.limit} required />
      </label>
      <label>
        {texts.seconds}
        <input name="seconds" type="number" min={1} max={SECONDS_MAX} defaultValue={question.seconds} required />
      </label>
      <WriterField />
      <AsOfField />
      <button type="submit" className="main">
        {texts.submit}
      </button>
      <span className="quiet">{texts.keys}</span>
    </Question>
  );
}

function Rows(): ReactNode {
  const [answer, again] = useAnswer((signal) => inTurn(() => askByBody<SqlRows>("sql", question, signal)), "sql");
  return (
    <section aria-label={texts.table}>
      <Shown answer={answer} again={again}>
        {(found) => (
          <>
            <Notices notices={found.notices} />
            <p className="row">
              <strong role="status">{texts.found(found.rows.length, found.is_cut)}</strong>
              <button type="button" onClick={() => saveRows(found)}>
                {texts.save}
              </button>
              {FORMS.map(([format, name]) => (
                <SaveMore key={format} format={format} name={name} />
              ))}
            </p>
            <TableFrame label={texts.table}>
              <thead>
                <tr>
                  {found.columns.map((column, at) => (
                    <th key={at} scope="col">
                      {column} <span className="quiet">{found.types[at]}</span>
                    </th>
                  ))}
                </tr>
              </thead>
              <tbody>
                {found.rows.map((row, number) => (
                  <tr key={number}>
                    {row.map((value, at) => (
                      <td key={at} className={isNumber(found.types[at]!) ? "number-cell" : "value-text"}>
                        <Value value={value} />
                      </td>
                    ))}
                  </tr>
                ))}
              </tbody>
            </TableFrame>
          </>
        )}
      </Shown>
    </section>
  );
}

function Value({ value }: { value: unknown }): ReactNode {
  if (value === null) return <span className="quiet">{texts.none}</span>;
  const text = typeof value === "string" ? value : typeof value === "object" ? JSON.stringify(value) : String(value);
  if (text.length <= CHARACTERS_SHOWN) return text;
  return (
    <>
      {text.slice(0, CHARACTERS_SHOWN)}
      <span className="quiet">{texts.cutValue(text.length)}</span>
    </>
  );
}

function isNumber(type: string): boolean {
  return /^(u?int|float|double|decimal|halffloat)/.test(type);
}

/** The rows as they are shown: a list of objects would lose columns of one name. */
/** As many rows as the API gives in this form: more than are shown. */
function SaveMore({ format, name }: { format: string; name: string }): ReactNode {
  const [said, say] = useState<string | null>(null);
  return (
    <>
      <button
        type="button"
        onClick={() => {
          say(null);
          saveByBody("sql", { ...question, format, limit: SAVED_ROWS_MAX }, `rows.${format}`).then(
            (headers) => headers.get("Custody-Is-Cut") === "true" && say(texts.savedCut(SAVED_ROWS_MAX)),
            (failure: Error) => say(failure.message),
          );
        }}
      >
        {texts.saveAs(name)}
      </button>
      {said && <span role="alert">{said}</span>}
    </>
  );
}

function saveRows({ columns, types, rows }: SqlRows): void {
  const link = document.createElement("a");
  link.download = "rows.json";
  link.href = URL.createObjectURL(new Blob([JSON.stringify({ columns, types, rows }, null, 1)], { type: "application/json" }));
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

function Tables(): ReactNode {
  return (
    <section>
      <h2>{texts.tables}</h2>
      {Object.entries(texts.about).map(([table, about]) => (
        <Table key={table} table={table} about={about} />
      ))}
    </section>
  );
}

function Table({ table, about }: { table: string; about: string }): ReactNode {
  const [isOpen, open] = useState(false);
  return (
    <details onToggle={({ currentTarget }) => open(currentTarget.open)}>
      <summary>
        <code>{table}</code>: {about}
      </summary>
      {isOpen && <Columns table={table} />}
    </details>
  );
}

let latest: Promise<unknown> = Promise.resolve();

/** Ask after what was asked before: a server answers two questions in SQL at once. */
function inTurn<T>(question: () => Promise<T>): Promise<T> {
  const next = latest.then(question, question);
  latest = next;
  return next;
}

function Columns({ table }: { table: string }): ReactNode {
  const describing = { query: `select * from ${table} limit 0`, limit: 1 };
  const [answer, again] = useAnswer((signal) => inTurn(() => askByBody<SqlRows>("sql", describing, signal)), table);
  return (
    <Shown answer={answer} again={again}>
      {({ columns, types }) => (
        <TableFrame label={texts.columnsOf(table)}>
          <Head columns={[texts.column, TEXTS.type]} />
          <tbody>
            {columns.map((column, at) => (
              <tr key={column}>
                <th scope="row">
                  <code>{column}</code>
                </th>
                <td>{types[at]}</td>
              </tr>
            ))}
          </tbody>
        </TableFrame>
      )}
    </Shown>
  );
}

function Samples(): ReactNode {
  return (
    <section>
      <h2>{texts.examples}</h2>
      <ul>
        {texts.samples.map(([name, sample]) => (
          <li key={name}>
            <a href={pageAddress("sql", { query: sample!, writer, as_of: asOf })}>{name}</a>
          </li>
        ))}
      </ul>
    </section>
  );
}

start(<SqlPage />);
