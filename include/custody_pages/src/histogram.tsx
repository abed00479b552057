// When events happened: bars that select a time, each a link, and several by a drag over them.

import { useState, type PointerEvent, type ReactNode } from "react";
import { TEXTS } from "./texts.ts";

export interface Bar {
  /** Bounds as the query language has them, both included. */
  since: string;
  until: string;
  label: string;
  count: number;
}

const HEIGHT = 80;
const BAR_MIN = 1.5;

export function Histogram({ bars, address }: { bars: Bar[]; address: (since: string, until: string) => string }): ReactNode {
  const [drag, setDrag] = useState<[number, number] | null>(null);
  if (!bars.length) return null;
  const most = Math.max(...bars.map((bar) => bar.count));
  const barAt = (event: PointerEvent): number => {
    const { left, width } = event.currentTarget.getBoundingClientRect();
    return Math.min(bars.length - 1, Math.max(0, Math.floor(((event.clientX - left) / width) * bars.length)));
  };
  const [first, last] = drag ? [Math.min(...drag), Math.max(...drag)] : [-1, -1];
  return (
    <figure className="histogram">
      <figcaption>
        {TEXTS.search.histogram} <span className="quiet">{TEXTS.search.histogramHint}</span>
      </figcaption>
      <svg
        viewBox={`0 0 ${bars.length} ${HEIGHT}`}
        preserveAspectRatio="none"
        role="group"
        aria-label={TEXTS.search.histogram}
        onPointerDown={(event) => setDrag([barAt(event), barAt(event)])}
        onPointerMove={(event) => drag && event.buttons === 1 && setDrag([drag[0], barAt(event)])}
        onPointerLeave={() => setDrag(null)}
        onPointerUp={() => {
          if (drag && first !== last) location.assign(address(bars[first]!.since, bars[last]!.until));
          setDrag(null);
        }}
      >
        {bars.map((bar, at) => {
          const height = bar.count && Math.max(BAR_MIN, (bar.count / most) * HEIGHT);
          const text = TEXTS.search.bar(bar.label, bar.count);
          return (
            <a key={bar.since} href={address(bar.since, bar.until)} aria-label={text} draggable={false}>
              <title>{text}</title>
              <rect className="back" x={at} width={1} height={HEIGHT} />
              <rect className={at >= first && at <= last ? "bar chosen" : "bar"} x={at + 0.04} y={HEIGHT - height} width={0.92} height={height} />
            </a>
          );
        })}
      </svg>
      <p className="ends">
        <span>{bars[0]!.label}</span>
        <span>{bars.at(-1)!.label}</span>
      </p>
    </figure>
  );
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
