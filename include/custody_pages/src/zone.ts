// Times that people type and read, in the zone of whoever reads. Addresses and the API have UTC.

const PLAIN = /^(\d{4})-(\d{2})-(\d{2})(?:[T ](\d{2}):(\d{2})(?::(\d{2})(?:[.,](\d{1,3}))?)?)?$/;
const DAY_WORDS: Record<string, number> = { today: 0, yesterday: -1, tomorrow: 1 };
const EXACT = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z$/;

/** The reader's zone, as the IANA database names it. */
export function zoneName(): string {
  return new Intl.DateTimeFormat().resolvedOptions().timeZone;
}

/** How far the reader's zone is from UTC at a time, such as `UTC+05:30`. */
export function offsetText(ms: number): string {
  const minutes = -new Date(ms).getTimezoneOffset();
  if (!minutes) return "UTC";
  const [hours, rest] = [Math.floor(Math.abs(minutes) / 60), Math.abs(minutes) % 60];
  return `UTC${minutes < 0 ? "−" : "+"}${two(hours)}:${two(rest)}`;
}

/**
 * What is typed, as an instant of UTC: the first one that it means, or with `isEnd` the last. A day is the reader's day.
 * What says its zone, a number, a revision, and English such as `3 hours ago` stay as they are.
 */
export function instantOf(typed: string, isEnd: boolean, now: number = Date.now()): string {
  const text = typed.trim();
  const away = DAY_WORDS[text.toLowerCase()];
  if (away !== undefined) {
    const today = new Date(now);
    return ofDay(today.getFullYear(), today.getMonth(), today.getDate() + away, isEnd);
  }
  const [, year, month, day, hour, minute, second, part] = PLAIN.exec(text) ?? [];
  if (year === undefined) return text;
  const [y, m, d] = [Number(year), Number(month) - 1, Number(day)];
  // A date that no calendar has is refused by the server, as it was typed.
  const date = new Date(2000, 0, 1);
  date.setFullYear(y, m, d);
  if (date.getMonth() !== m || date.getDate() !== d) return text;
  if (hour === undefined) return ofDay(y, m, d, isEnd);
  if (Number(hour) > 23 || Number(minute) > 59 || Number(second ?? 0) > 59) return text;
  const width = second === undefined ? 60_000 : part === undefined ? 1000 : 1;
  const first = local(y, m, d, Number(hour), Number(minute), Number(second ?? 0), Number((part ?? "").padEnd(3, "0")));
  return new Date(isEnd ? first + width - 1 : first).toISOString();
}

/** An instant of an address as somebody would type it here; other texts as they are. */
export function typedOf(instant: string, isEnd: boolean): string {
  if (!EXACT.test(instant)) return instant;
  const date = new Date(instant);
  const day = `${String(date.getFullYear()).padStart(4, "0")}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  const minute = `${day} ${two(date.getHours())}:${two(date.getMinutes())}`;
  const second = `${minute}:${two(date.getSeconds())}`;
  const whole = `${second}.${String(date.getMilliseconds()).padStart(3, "0")}`;
  // The shortest that means the same; of an hour that the clock shows twice the second one has none.
  return [day, minute, second, whole].find((text) => instantOf(text, isEnd) === instant) ?? instant;
}

/** A time of an address, where one without a zone is of UTC, as an instant: its first one, or with `isEnd` its last. */
export function ofAddress(text: string, isEnd: boolean): string {
  const [, year, month, day, hour, minute, second, part] = PLAIN.exec(text) ?? [];
  if (year === undefined) return text;
  const time = `${hour ?? "00"}:${minute ?? "00"}:${second ?? "00"}.${(part ?? "").padEnd(3, "0")}`;
  const first = Date.parse(`${year}-${month}-${day}T${time}Z`);
  if (Number.isNaN(first)) return text;
  return new Date(isEnd && hour === undefined ? first + 86_399_999 : first).toISOString();
}

/** A bound of an address for people: in their zone, or with the zone that it has. */
export function boundText(text: string, isEnd: boolean): string {
  const instant = ofAddress(text, isEnd);
  if (EXACT.test(instant)) return typedOf(instant, isEnd);
  return /Z$|[+-]\d\d:?\d\d$|^\d+$|:\d+(,|$)| ago$/.test(text) ? text : `${text} (UTC)`;
}

function ofDay(year: number, month: number, day: number, isEnd: boolean): string {
  // A day of a changed clock is shorter or longer: its end is where the next one begins.
  const ms = isEnd ? local(year, month, day + 1, 0, 0, 0, 0) - 1 : local(year, month, day, 0, 0, 0, 0);
  return new Date(ms).toISOString();
}

/** Years below 100 are years, and not those of the last century. */
function local(year: number, month: number, day: number, ...time: [number, number, number, number]): number {
  const date = new Date(2000, 0, 1, ...time);
  date.setFullYear(year, month, day);
  date.setHours(...time);
  return date.getTime();
}

function two(number: number): string {
  return String(number).padStart(2, "0");
}
