// Who forgot, held and released what, what expired and what was lost, and why: of all writers, the newest first.

import { type ReactNode } from "react";
import { changed, ownParameters } from "./address.ts";
import { ask } from "./api.ts";
import { command } from "./command.ts";
import type { StatedReason, Timeline } from "./documents.ts";
import { Head, Notices, SameAnswer, Shown, TableFrame, useAnswer, When } from "./frame.tsx";
import { count } from "./moments.ts";
import { TEXTS } from "./texts.ts";

const texts = TEXTS.proof;
const WRITERS_MAX = 20;
const SHOWN_MAX = 200;
const OF_THE_CATALOG = new Set(["repaired", "rebuilt"]);
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
                      <td>{reason.reason ?? "–"}</td>
                      <td className="number-cell">{OF_THE_CATALOG.has(reason.kind) ? "–" : reason.events == null ? texts.byCondition : count(reason.events)}</td>
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
