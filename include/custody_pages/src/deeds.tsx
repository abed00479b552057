// Who forgot, held, released and mended what, what expired and what was lost, and why: of all writers, the newest first.

import { type ReactNode } from "react";
import { changed, ownParameters } from "./address.ts";
import { ask } from "./api.ts";
import { command } from "./command.ts";
import type { StatedReason, StatedRepair, Timeline } from "./documents.ts";
import { Head, Notices, SameAnswer, Shown, TableFrame, useAnswer, When } from "./frame.tsx";
import { count } from "./moments.ts";
import { TEXTS } from "./texts.ts";

const texts = TEXTS.proof;
const WRITERS_MAX = 20;
const SHOWN_MAX = 200;
const WITHOUT_EVENTS = new Set(["repaired", "rebuilt", "repair-finished"]);
const OFFSETS_MAX = 10;
const SPANS: [string, string][] = [
  [texts.week, texts.weekQuery],
  [texts.month, texts.monthQuery],
  [texts.always, "all"],
];

interface Deed {
  writer: string;
  revision: number;
  time_ms: number;
  reason: StatedReason;
}

export function Deeds({ writers }: { writers: readonly string[] }): ReactNode {
  const parameters = ownParameters();
  const chosen = parameters.get("deeds") ?? texts.weekQuery;
  const since = chosen === "all" ? null : chosen;
  const asked = writers.slice(0, WRITERS_MAX);
  const path = (writer: string): string => `timeline/${encodeURIComponent(writer)}`;
  const question = { limit: SHOWN_MAX, reasons: true, since };
  const [answer, again] = useAnswer(
    async (signal) => {
      const pages = await Promise.all(asked.map((writer) => ask<Timeline>(path(writer), question, signal)));
      const deeds = pages.flatMap(({ writer, items }) =>
        items.flatMap(({ revision, commit_time_ms, reasons }) =>
          (reasons ?? []).map((reason): Deed => ({ writer, revision, time_ms: commit_time_ms, reason })),
        ),
      );
      return { deeds: deeds.sort((one, other) => other.time_ms - one.time_ms), isCut: pages.some(({ next }) => next !== null) };
    },
    `${asked.join()} ${chosen}`,
  );
  return (
    <section aria-label={texts.deeds}>
      <h2>{texts.deeds}</h2>
      <ul className="chips">
        {SPANS.map(([text, span]) => (
          <li key={span}>
            <a href={changed(parameters, { deeds: span })} aria-current={span === chosen ? "true" : undefined}>
              {text}
            </a>
          </li>
        ))}
      </ul>
      <Shown answer={answer} again={again}>
        {({ deeds, isCut }) => (
          <>
            {deeds.length ? (
              <TableFrame label={texts.deeds}>
                <Head columns={[texts.when, texts.happened, texts.who, texts.reason, texts.eventsIn, texts.name, TEXTS.writer, texts.revision]} />
                <tbody>
                  {deeds.slice(0, SHOWN_MAX).map(({ writer, revision, time_ms, reason }, at) => (
                    <tr key={`${writer} ${revision} ${at}`}>
                      <th scope="row" className="event_time">
                        <When ms={time_ms} away />
                      </th>
                      <td>{texts.deedKinds[reason.kind] ?? reason.kind}</td>
                      <td>{reason.who ?? "–"}</td>
                      <td>
                        <ReasonOf reason={reason} />
                      </td>
                      <td className="number-cell">{eventsOf(reason)}</td>
                      <td>{reason.name}</td>
                      <td>{writer}</td>
                      <td className="number-cell">{revision}</td>
                    </tr>
                  ))}
                </tbody>
              </TableFrame>
            ) : (
              <p>{texts.noDeeds}</p>
            )}
            {(isCut || deeds.length > SHOWN_MAX) && <Notices notices={[texts.cutDeeds]} />}
          </>
        )}
      </Shown>
      {asked[0] && (
        <SameAnswer
          commandLine={command("catalog log", [], { reasons: true, from: since, writer: asked[0] })}
          path={path(asked[0])}
          parameters={question}
        />
      )}
    </section>
  );
}

/** Why something was done, and of a repair what it found. */
export function ReasonOf({ reason: { reason, repair } }: { reason: StatedReason }): ReactNode {
  return (
    <>
      {reason ?? "–"}
      {repair && <Found repair={repair} />}
    </>
  );
}

export function eventsOf({ kind, events, repair }: StatedReason): string {
  if (events != null) return count(events);
  return repair || WITHOUT_EVENTS.has(kind) ? "–" : texts.byCondition;
}

/** What a repair found: which bytes were expected, which lay there, where they were damaged, and whose events are lost. */
function Found({ repair: { expected_sha256, found_sha256, offsets = [], lost = [] } }: { repair: StatedRepair }): ReactNode {
  const rows: [string, string][] = [
    ...(offsets.length ? [[texts.damagedAt, listed(offsets.map(String))] as [string, string]] : []),
    ...(lost.length ? [[texts.lostIds, listed(lost.map(({ first_event_id, last_event_id }) => `${first_event_id} – ${last_event_id}`))] as [string, string]] : []),
    ...(expected_sha256 ? [[texts.expectedSha256, expected_sha256] as [string, string]] : []),
    ...(found_sha256 ? [[texts.foundSha256, found_sha256] as [string, string]] : []),
  ];
  if (!rows.length) return null;
  return (
    <details>
      <summary>{texts.found}</summary>
      <dl>
        {rows.map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>
              <code>{value}</code>
            </dd>
          </div>
        ))}
      </dl>
    </details>
  );
}

function listed(values: readonly string[]): string {
  return values.slice(0, OFFSETS_MAX).join(", ") + (values.length > OFFSETS_MAX ? " …" : "");
}
