// Queries as text: what is chosen by facets and times becomes one query, and a query that is typed is completed.

export interface Chosen {
  query: string;
  /** Values by field, as the facets name them. */
  facets: [string, string][];
  /** Times as the query language has them; empty where there is no bound. */
  since: string;
  until: string;
}

/** A text as one value of the query language. */
export function quoted(value: string): string {
  return `"${value.replaceAll('"', '""')}"`;
}

/** The one query that says all that is chosen: values of one field are alternatives, fields are all wanted. */
export function combined({ query, facets, since, until }: Chosen): string {
  const typed = query.trim();
  const fields = new Map<string, string[]>();
  for (const [field, value] of facets) fields.set(field, [...(fields.get(field) ?? []), `${field}:${quoted(value)}`]);
  const parts = [...fields.values()].map((some) => (some.length === 1 ? some[0]! : `(${some.join(" OR ")})`));
  if (since || until) {
    const ends = [since && timeText(since), "TO", until && timeText(until)].filter(Boolean);
    parts.push(`event_time:[${ends.join(" ")}]`);
  }
  if (!typed || typed === "*") return parts.join(" AND ");
  return [parts.length ? `(${typed})` : typed, ...parts].join(" AND ");
}

const WORDS_MAX = 6;

/** A query for names that have all words anywhere in them; null where more than words was typed. */
export function anywhere(typed: string): string | null {
  const words = typed.trim().replace(/^filename:/, "").split(/\s+/).map((word) => word.replace(/^#/, ""));
  const areWords = words.every((word) => /^[\p{L}\p{N}._-]{2,100}$/u.test(word) && !/^(and|or|not|to)$/i.test(word));
  if (!areWords || words.length > WORDS_MAX) return null;
  const named = words.map((word) => `filename:*${word}* OR transit_uri:*${word}*`);
  return words.length === 1 ? named[0]! : named.map((one) => `(${one})`).join(" AND ");
}

function timeText(text: string): string {
  return /\s/.test(text) ? quoted(text) : text;
}

export interface Completion {
  /** Where in the text the completed part begins. */
  start: number;
  /** What stands there up to the caret. */
  typed: string;
  /** Null for the name of a field, else the field whose value it is. */
  field: string | null;
}

/** What stands before the caret and can be completed; null within quotes. */
export function completion(text: string, caret: number): Completion | null {
  const before = text.slice(0, caret);
  if ((before.match(/"/g) ?? []).length % 2) return null;
  const value = /(?:^|[\s(])([A-Za-z_][\w.\-]*):([^\s()":]*)$/.exec(before);
  if (value) return { start: caret - value[2]!.length, typed: value[2]!, field: value[1]! };
  const name = /(?:^|[\s(])([A-Za-z_][\w.\-]*)$/.exec(before);
  return name ? { start: caret - name[1]!.length, typed: name[1]!, field: null } : null;
}

/** A value as it is written behind a field: quoted only where it has to be. */
export function written(value: string): string {
  return /^[A-Za-z0-9_][\w.\-/]*$/.test(value) && !/^(and|or|not|to)$/i.test(value) ? value : quoted(value);
}

/** The text with a part replaced, and where the caret then stands. */
export function completed(text: string, caret: number, at: Completion, by: string): [string, number] {
  const insert = at.field === null ? `${by}:` : `${written(by)} `;
  return [text.slice(0, at.start) + insert + text.slice(caret).trimStart(), at.start + insert.length];
}
