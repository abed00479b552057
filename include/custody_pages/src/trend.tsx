// How long events waited until they were live, over time, and how the room will do: from the newest transactions.

import { type ReactNode } from "react";
import { ask } from "./api.ts";
import { command } from "./command.ts";
import type { RepositoryStatus, Timeline } from "./documents.ts";
import { Head, SameAnswer, Shown, TableFrame, useAnswer, When } from "./frame.tsx";
import { absolute, bytes, count } from "./moments.ts";
import { daysUntil, middle, paceOf, waitsOf, type Pace, type Wait } from "./pace.ts";
import { TEXTS } from "./texts.ts";

const LOOKED_AT = 500;
const WRITERS_MAX = 20;
const BARS_MAX = 120;
const HEIGHT = 80;
const HOUR_MS = 3_600_000;
const texts = TEXTS.status;

export function Trend({ status }: { status: RepositoryStatus }): ReactNode {
  const writers = status.writers.slice(0, WRITERS_MAX).map(({ writer }) => writer);
  const path = (writer: string): string => `timeline/${encodeURIComponent(writer)}`;
  const [answer, again] = useAnswer(
    async (signal) => (await Promise.all(writers.map((writer) => ask<Timeline>(path(writer), { limit: LOOKED_AT }, signal)))).flatMap(({ items }) => items),
    `${writers.join()} ${status.writers.map(({ revision }) => revision).join()}`,
  );
  return (
    <>
      <Shown answer={answer} again={again}>
        {(items) => (
          <>
            <section aria-label={texts.waits}>
              <h2>{texts.waits}</h2>
              <Waits waits={waitsOf(items)} />
            </section>
            <section aria-label={texts.growth}>
              <h2>{texts.growth}</h2>
              <Growth status={status} pace={paceOf(items, Date.now())} />
            </section>
          </>
        )}
      </Shown>
      {writers[0] && <SameAnswer commandLine={command("catalog log", [], { json: true, writer: writers[0] })} path={path(writers[0])} parameters={{ limit: LOOKED_AT }} />}
    </>
  );
}

function Waits({ waits }: { waits: Wait[] }): ReactNode {
  if (!waits.length) return <p>{texts.noWaits}</p>;
  const seconds = (ms: number): string => texts.inSeconds(ms / 1000);
  const all = waits.map(({ waited_ms }) => waited_ms);
  const most = Math.max(...all, 1);
  const bars = waits.slice(-BARS_MAX);
  const facts: [string, string][] = [
    [texts.newestWait, seconds(all.at(-1)!)],
    [texts.middleWait, seconds(middle(all))],
    [texts.longestWait, seconds(most)],
    [texts.commits, count(waits.length)],
  ];
  return (
    <>
      <p className="quiet">{texts.waitsHint}</p>
      <dl className="facts">{facts.flatMap(([name, value]) => [<dt key={`${name} term`}>{name}</dt>, <dd key={name}>{value}</dd>])}</dl>
      <div className="beside halves">
        <figure className="histogram">
          {/* The table beside it says the same. */}
          <svg viewBox={`0 0 ${bars.length} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label={texts.waits}>
            {bars.map((bar, at) => {
              const height = Math.max(1, (bar.waited_ms / most) * HEIGHT);
              return (
                <rect key={at} className="bar" x={at + 0.04} y={HEIGHT - height} width={0.92} height={height}>
                  <title>{`${absolute(bar.time_ms)}: ${seconds(bar.waited_ms)}, ${TEXTS.search.total(bar.events)}`}</title>
                </rect>
              );
            })}
          </svg>
          <p className="ends">
            <span>{absolute(bars[0]!.time_ms)}</span>
            <span>{absolute(bars.at(-1)!.time_ms)}</span>
          </p>
        </figure>
        <div className="low">
          <TableFrame label={texts.waitsTable}>
            <Head columns={[texts.committed, texts.waitedFor, texts.committedEvents]} />
            <tbody>
              {bars.toReversed().map((bar, at) => (
                <tr key={at}>
                  <th scope="row" className="event_time">
                    <When ms={bar.time_ms} away />
                  </th>
                  <td className="number-cell">{seconds(bar.waited_ms)}</td>
                  <td className="number-cell">{count(bar.events)}</td>
                </tr>
              ))}
            </tbody>
          </TableFrame>
        </div>
      </div>
    </>
  );
}

function Growth({ status, pace }: { status: RepositoryStatus; pace: Pace | null }): ReactNode {
  if (!pace) return <p>{texts.noGrowth}</p>;
  const free = status.disks.flatMap((disk) => (disk.free_bytes === null ? [] : [disk.free_bytes]));
  const { limit_bytes, used_bytes } = status.budget;
  const facts: [string, string][] = [[texts.perDay, bytes(pace.bytes_a_day)]];
  if (free.length) facts.push([texts.diskFull, inDays(daysUntil(Math.min(...free), pace))]);
  if (limit_bytes !== null) facts.push([texts.budgetFull, inDays(daysUntil(limit_bytes - used_bytes, pace))]);
  return (
    <>
      <p className="quiet">{texts.growthHint(spanOf(pace.span_ms))}</p>
      <dl className="facts">{facts.flatMap(([name, value]) => [<dt key={`${name} term`}>{name}</dt>, <dd key={name}>{value}</dd>])}</dl>
    </>
  );
}

function inDays(days: number | null): string {
  return days === null ? texts.never : texts.in(spanOf(days * 24 * HOUR_MS));
}

function spanOf(ms: number): string {
  const hours = Math.floor(ms / HOUR_MS);
  return hours < 48 ? texts.hours(hours) : texts.days(Math.floor(hours / 24));
}
