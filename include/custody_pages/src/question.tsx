// The form of a page: what it asks is its address. And the fields that several pages have.

import { useEffect, useState, type ReactNode } from "react";
import { ask } from "./api.ts";
import { ownParameters } from "./address.ts";
import type { Welcome } from "./documents.ts";
import { TEXTS } from "./texts.ts";

const parameters = ownParameters();

/** A form whose fields become the address of this page; empty ones are left out. */
export function Question({ children }: { children: ReactNode }): ReactNode {
  return (
    <search>
      <form
        className="question"
        onSubmit={(event) => {
          event.preventDefault();
          const given = [...new FormData(event.currentTarget)].filter(([, value]) => value !== "");
          location.assign(`?${new URLSearchParams(given as [string, string][])}`);
        }}
      >
        {children}
      </form>
    </search>
  );
}

/** One of the writers that the repository has, or all of them. */
export function WriterField(): ReactNode {
  const chosen = parameters.get("writer") ?? "";
  const [writers, know] = useState(chosen ? [chosen] : []);
  useEffect(() => {
    const stop = new AbortController();
    // What fails is told where the answer stands; the writer of the address stays.
    ask<Welcome>("", {}, stop.signal).then(
      ({ writers: known }) => know(chosen && !known.includes(chosen) ? [chosen, ...known] : known),
      () => undefined,
    );
    return () => stop.abort();
  }, []);
  return (
    <label>
      {TEXTS.writer}
      {/* A list that comes later than the page: its value is that of the address. */}
      <select name="writer" key={writers.join()} defaultValue={chosen}>
        <option value="">{TEXTS.anyWriter}</option>
        {writers.map((one) => (
          <option key={one}>{one}</option>
        ))}
      </select>
    </label>
  );
}

/** The moment that is asked about; empty is now. */
export function AsOfField(): ReactNode {
  return (
    <label title={TEXTS.asOfHint}>
      {TEXTS.asOf}
      <input name="as_of" defaultValue={parameters.get("as_of") ?? ""} size={12} />
    </label>
  );
}

/** What the form does not show, and keeps in the address. */
export function Kept({ names, current = parameters }: { names: readonly string[]; current?: URLSearchParams }): ReactNode {
  return names.flatMap((name) =>
    current.getAll(name).map((value) => <input key={`${name} ${value}`} type="hidden" name={name} value={value} />),
  );
}
