// Times and sizes as people read them, in the reader's own zone.

import { offsetText } from "./zone.ts";

const ABSOLUTE = new Intl.DateTimeFormat("en-GB", {
  year: "numeric",
  month: "short",
  day: "2-digit",
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  fractionalSecondDigits: 3,
});
const RELATIVE = new Intl.RelativeTimeFormat("en", { numeric: "auto" });
const STEPS: [Intl.RelativeTimeFormatUnit, number][] = [
  ["second", 1000],
  ["minute", 60_000],
  ["hour", 3_600_000],
  ["day", 86_400_000],
  ["month", 2_629_800_000],
  ["year", 31_557_600_000],
];
const TIME_MAX = 8.64e15;

/** A time; with its offset where that is another one than now. The number itself where no calendar has it. */
export function absolute(ms: number): string {
  if (Math.abs(ms) > TIME_MAX) return String(ms);
  const offset = offsetText(ms);
  return offset === offsetText(Date.now()) ? ABSOLUTE.format(ms) : `${ABSOLUTE.format(ms)} ${offset}`;
}

export function relative(ms: number, now: number): string {
  const away = ms - now;
  const [unit, size] = STEPS.findLast(([, step]) => Math.abs(away) >= step) ?? STEPS[0]!;
  return RELATIVE.format(Math.trunc(away / size), unit);
}

export function iso(ms: number): string {
  return Math.abs(ms) <= TIME_MAX ? new Date(ms).toISOString() : String(ms);
}

export function bytes(size: number | null | undefined): string {
  if (size === null || size === undefined) return "–";
  let unit = 0;
  let shown = size;
  while (shown >= 1024 && unit < 5) {
    shown /= 1024;
    unit += 1;
  }
  return unit ? `${shown.toFixed(1)} ${"KMGTP"[unit - 1]}iB` : `${size} B`;
}

export function count(number: number): string {
  return number.toLocaleString("en-GB");
}
