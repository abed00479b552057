// Which events are to be held or forgotten: the conditions of an address, as the API and the command line take them.

import { word } from "./command.ts";

export interface Meant {
  event_ids?: number[];
  flowfile_uuids?: string[];
  attributes?: Record<string, string>;
  since?: string;
  until?: string;
  writer?: string;
}

/** The conditions of an address; null where none is given, for that would mean every event. */
export function meantBy(parameters: URLSearchParams): Meant | null {
  const ids = (parameters.get("ids") ?? "").split(",").map((id) => id.trim()).filter((id) => /^\d{1,18}$/.test(id));
  const flowfiles = parameters.getAll("flowfile").filter(Boolean);
  const pairs = parameters.getAll("attribute").filter((pair) => pair.indexOf("=") > 0);
  const [since, until, writer] = ["since", "until", "writer"].map((name) => parameters.get(name) ?? "");
  const meant: Meant = {
    ...(ids.length && { event_ids: ids.map(Number) }),
    ...(flowfiles.length && { flowfile_uuids: flowfiles }),
    ...(pairs.length && {
      attributes: Object.fromEntries(pairs.map((pair) => [pair.slice(0, pair.indexOf("=")), pair.slice(pair.indexOf("=") + 1)])),
    }),
    ...(since && { since }),
    ...(until && { until }),
  };
  if (!Object.keys(meant).length) return null;
  return writer ? { ...meant, writer } : meant;
}

/** The options of `custody forget` and `custody hold add` for them; times in ms, which it takes. */
export function optionsOf(meant: Meant): string {
  const options = [
    ...(meant.event_ids ?? []).map((id) => ["--event-id", String(id)]),
    ...(meant.flowfile_uuids ?? []).map((uuid) => ["--flowfile", uuid]),
    ...Object.entries(meant.attributes ?? {}).map(([name, value]) => ["--attribute", `${name}=${value}`]),
    ...(meant.since ? [["--from", milliseconds(meant.since)]] : []),
    ...(meant.until ? [["--to", milliseconds(meant.until)]] : []),
    ...(meant.writer ? [["--writer", meant.writer]] : []),
  ];
  return options.map(([option, value]) => `${option} ${word(value!)}`).join(" ");
}

function milliseconds(text: string): string {
  const ms = Date.parse(text);
  return Number.isNaN(ms) ? text : String(ms);
}
