// When events happened: bars that select a time, each a link, and several by a drag over them.

import { useState, type KeyboardEvent, type PointerEvent, type ReactNode } from "react";
import type { Bar } from "./histogram_days.ts";
import { TEXTS } from "./texts.ts";

const HEIGHT = 80;
const BAR_MIN = 1.5;

export function Histogram({ bars, address }: { bars: Bar[]; address: (since: string, until: string) => string }): ReactNode {
  const [drag, setDrag] = useState<[number, number] | null>(null);
  // The keyboard enters at one bar, and the arrows go on from there.
  const [entry, enter] = useState(0);
  if (!bars.length) return null;
  const moved = (event: KeyboardEvent): void => {
    const steps: Record<string, number> = { ArrowLeft: -1, ArrowRight: 1, Home: -bars.length, End: bars.length };
    const step = steps[event.key];
    if (!step) return;
    event.preventDefault();
    const next = Math.min(bars.length - 1, Math.max(0, entry + step));
    enter(next);
    event.currentTarget.querySelectorAll("a")[next]!.focus();
  };
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
        onKeyDown={moved}
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
            <a key={bar.since} href={address(bar.since, bar.until)} aria-label={text} draggable={false} tabIndex={at === Math.min(entry, bars.length - 1) ? 0 : -1}>
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
