// The form of a page: what it asks is its address. And the fields that several pages have.

import { useEffect, useState, type ReactNode } from "react";
import { ask } from "./api.ts";
import { ownParameters } from "./address.ts";
import type { Welcome } from "./documents.ts";
import { TEXTS } from "./texts.ts";
import { instantOf, ofAddress, typedOf } from "./zone.ts";

const parameters = ownParameters();
/** Fields for times, and whether the last instant of what is typed is meant. */
const TIMES: Record<string, boolean> = { since: false, until: true, as_of: true, former: true, later: true };

/** A form whose fields become the address of this page; empty ones are left out, and times are of the reader's zone. */
export function Question({ children }: { children: ReactNode }): ReactNode {
  return (
    <search>
      <form
        className="question"
        onSubmit={(event) => {
          event.preventDefault();
          const fields = [...new FormData(event.currentTarget)] as [string, string][];
          const given = fields.filter(([, value]) => value !== "");
          const meant = given.map(([name, value]) => [name, name in TIMES ? instantOf(value, TIMES[name]!) : value]);
          location.assign(`?${new URLSearchParams(meant)}`);
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

/** A time, shown as it would be typed in the reader's zone. */
export function TimeField({ name, label, hint = TEXTS.timeHint }: { name: string; label: string; hint?: string }): ReactNode {
  const isEnd = TIMES[name] ?? false;
  return (
    <label title={hint}>
      {label}
      <input name={name} defaultValue={typedOf(ofAddress(parameters.get(name) ?? "", isEnd), isEnd)} size={14} />
    </label>
  );
}

/** The moment that is asked about; empty is now. */
export function AsOfField(): ReactNode {
  return <TimeField name="as_of" label={TEXTS.asOf} hint={TEXTS.asOfHint} />;
}

/** What the form does not show, and keeps in the address. */
export function Kept({ names, current = parameters }: { names: readonly string[]; current?: URLSearchParams }): ReactNode {
  return names.flatMap((name) =>
    current.getAll(name).map((value) => <input key={`${name} ${value}`} type="hidden" name={name} value={value} />),
  );
}
