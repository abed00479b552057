// Counts of days, and of finer spans, as bars.

import { absolute, iso } from "./moments.ts";
import { instantOf, ofAddress } from "./zone.ts";
import type { HistogramBucket } from "./documents.ts";

export interface Bar {
  /** Bounds as the query language has them, both included. */
  since: string;
  until: string;
  label: string;
  count: number;
}

const DAY_MS = 86_400_000;
const BARS_MAX = 400;
const MINUTE_MS = 60_000;
/** Widths of bars that people count in; each divides a day. */
const WIDTHS_MS = [1, 5, 15, 30, 60, 180, 360, 720].map((minutes) => minutes * MINUTE_MS);
const FINE_BARS_MAX = 120;

/** Whose days are counted. */
export type DaysOf = "reader" | "utc";

/** Days with their counts as bars, those between them too; many days share a bar. */
export function barsOfDays(days: Record<string, number>, of: DaysOf): Bar[] {
  const known = Object.entries(days)
    .map(([day, count]) => [Date.parse(day), count] as const)
    .filter(([day]) => Number.isFinite(day))
    .sort(([one], [other]) => one - other);
  if (!known.length) return [];
  const first = known[0]![0];
  const number = Math.round((known.at(-1)![0] - first) / DAY_MS) + 1;
  const width = Math.ceil(number / BARS_MAX);
  const counts = new Array<number>(Math.ceil(number / width)).fill(0);
  for (const [day, count] of known) counts[Math.floor((day - first) / DAY_MS / width)]! += count;
  const dayText = (offset: number): string => new Date(first + offset * DAY_MS).toISOString().slice(0, 10);
  return counts.map((count, at) => {
    const [since, until] = [dayText(at * width), dayText(Math.min((at + 1) * width, number) - 1)];
    const named = since === until ? since : `${since} – ${until}`;
    return { since: boundOf(since, of), until: boundOf(until, of, true), label: of === "utc" ? `${named} UTC` : named, count };
  });
}

function boundOf(day: string, of: DaysOf, isEnd = false): string {
  return of === "utc" ? ofAddress(day, isEnd) : instantOf(day, isEnd);
}

export interface FineBars {
  /** The first and the last instant, both included: from the beginning of a day on. */
  since: string;
  until: string;
  /** So many spans of the same length. */
  buckets: number;
}

/** How days are cut into finer bars; null where they are so many that a bar is a day or more. */
export function finerThanDays(days: Record<string, number>, of: DaysOf): FineBars | null {
  const known = Object.keys(days)
    .filter((day) => Number.isFinite(Date.parse(day)))
    .sort();
  if (!known.length) return null;
  const since = boundOf(known[0]!, of);
  const first = Date.parse(since);
  const span = Date.parse(boundOf(known.at(-1)!, of, true)) + 1 - first;
  const width = WIDTHS_MS.find((one) => span / one <= FINE_BARS_MAX);
  if (width === undefined) return null;
  // Whole spans: where a clock changed, the last one may go on behind the last day.
  const buckets = Math.ceil(span / width);
  return { since, until: new Date(first + buckets * width - 1).toISOString(), buckets };
}

/** Bars without those at both ends that count nothing. */
export function trimmed(bars: Bar[]): Bar[] {
  const first = bars.findIndex((bar) => bar.count);
  return first < 0 ? [] : bars.slice(first, bars.findLastIndex((bar) => bar.count) + 1);
}

/** Spans with their counts as bars; a bar that is chosen means its span and nothing besides. */
export function barsOfBuckets(buckets: HistogramBucket[]): Bar[] {
  return buckets.map(({ first_ms, last_ms, events }) => ({
    since: iso(first_ms),
    until: iso(last_ms),
    label: first_ms === last_ms ? absolute(first_ms) : `${absolute(first_ms)} – ${absolute(last_ms)}`,
    count: events,
  }));
}
