// The state of a page is its address: whoever has the address sees the same.

export type Page = "search" | "event" | "lineage" | "run" | "replay" | "status" | "proof" | "keep" | "sql";
export type Parameters = Record<string, string | number | boolean | null | undefined | string[]>;

/** The address of a page with parameters; those without a value are left out. */
export function pageAddress(page: Page, parameters: Parameters = {}): string {
  const query = queryText(parameters);
  return `${page}.html${query && `?${query}`}`;
}

export function queryText(parameters: Parameters): string {
  const known = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (Array.isArray(value)) for (const one of value) known.append(name, one);
    else if (value === true) known.set(name, "true");
    else if (value !== false && value !== null && value !== undefined && value !== "") known.set(name, String(value));
  }
  return known.toString();
}

/** The parameters of this page, read once. */
export function ownParameters(): URLSearchParams {
  return new URLSearchParams(location.search);
}

/** What leads to another page of the same moment: a revision is one of a writer, so the writer goes along with it. */
export function sameMoment(current: URLSearchParams = ownParameters()): Parameters {
  const moment = current.get("as_of");
  return { as_of: moment, writer: /^\d+$/.test(moment ?? "") ? current.get("writer") : null };
}

/** Another address of this page, with some parameters changed; null and "" take one away. */
export function changed(current: URLSearchParams, changes: Parameters): string {
  const next = new URLSearchParams(current);
  for (const name of Object.keys(changes)) next.delete(name);
  const added = queryText(changes);
  const all = [next.toString(), added].filter(Boolean).join("&");
  return all ? `?${all}` : "?";
}

/** Remember a small change in the address without a new entry of the history. */
export function remember(changes: Parameters): void {
  history.replaceState(null, "", changed(ownParameters(), changes));
  dispatchEvent(new Event(REMEMBERED));
}

/** Sent to the window when the address changed, so that links can take it over. */
export const REMEMBERED = "remembered";
