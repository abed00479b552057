// How long events waited and how the room grows, from what the catalogs' transactions say.

import type { TransactionSummary } from "./documents.ts";

const DAY_MS = 86_400_000;
/** Less time than this says nothing of a pace. */
const SPAN_MIN_MS = 3_600_000;

export interface Wait {
  time_ms: number;
  waited_ms: number;
  events: number;
}

/** How long events had waited at each commit that says so, the oldest first. */
export function waitsOf(items: readonly TransactionSummary[]): Wait[] {
  return items
    .filter((item) => item.events_added > 0 && item.waited_ms != null)
    .map((item) => ({ time_ms: item.commit_time_ms, waited_ms: item.waited_ms!, events: item.events_added }))
    .sort((one, other) => one.time_ms - other.time_ms);
}

/** The value below which half of some lie. */
export function middle(numbers: readonly number[]): number {
  const sorted = [...numbers].sort((one, other) => one - other);
  return sorted[Math.floor((sorted.length - 1) / 2)] ?? 0;
}

export interface Pace {
  span_ms: number;
  bytes_a_day: number;
}

/** How much room new events took a day, until now; null where that is too short a time. What replaces files is none. */
export function paceOf(items: readonly TransactionSummary[], now_ms: number): Pace | null {
  const added = items.filter((item) => item.bytes_added > 0 && item.events_added > 0 && item.removed === 0);
  const first = Math.min(...added.map((item) => item.commit_time_ms));
  const span_ms = now_ms - first;
  if (!added.length || span_ms < SPAN_MIN_MS) return null;
  const bytes = added.reduce((sum, item) => sum + item.bytes_added, 0);
  return { span_ms, bytes_a_day: (bytes / span_ms) * DAY_MS };
}

/** Days until some room is taken; null where it is not at this pace. */
export function daysUntil(room_bytes: number, pace: Pace): number | null {
  const days = Math.max(room_bytes, 0) / pace.bytes_a_day;
  return Number.isFinite(days) && days < 36_500 ? days : null;
}
