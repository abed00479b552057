// Counts of days as bars.

export interface Bar {
  /** Bounds as the query language has them, both included. */
  since: string;
  until: string;
  label: string;
  count: number;
}

const DAY_MS = 86_400_000;
const BARS_MAX = 400;

/** Days with their counts as bars, those between them too; many days share a bar. */
export function barsOfDays(days: Record<string, number>): Bar[] {
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
    return { since, until, label: since === until ? since : `${since} – ${until}`, count };
  });
}
