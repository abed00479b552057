// Proof: the transactions of each writer's catalog, holds, and what the next retention would let go.

import { useState, type ReactNode } from "react";
import { ownParameters, pageAddress } from "./address.ts";
import { ask } from "./api.ts";
import { command } from "./command.ts";
import type { Holds, RetentionPlan, Timeline, TransactionSummary, Welcome } from "./documents.ts";
import { Frame, Head, SameAnswer, Shown, start, TableFrame, useAnswer, When } from "./frame.tsx";
import { bytes, count } from "./moments.ts";
import { TEXTS } from "./texts.ts";

const texts = TEXTS.proof;
const parameters = ownParameters();
const named = parameters.get("writer");
const before = parameters.get("before");
const PAGE_SIZE = 100;

function ProofPage(): ReactNode {
  const [answer, again] = useAnswer((signal) => ask<Welcome>("", {}, signal), "welcome");
  return (
    <Frame page="proof" title={texts.title}>
      <p>{texts.intro}</p>
      <Shown answer={answer} again={again}>
        {({ writers }) => {
          const writer = named ?? writers[0];
          return (
            <>
              {writers.length > 1 && (
                <ul className="chips">
                  {writers.map((one) => (
                    <li key={one}>
                      <a href={pageAddress("proof", { writer: one })} aria-current={one === writer ? "true" : undefined}>
                        {one}
                      </a>
                    </li>
                  ))}
                </ul>
              )}
              {writer && <TimelineOf writer={writer} />}
              <HoldList />
              <Retention />
            </>
          );
        }}
      </Shown>
    </Frame>
  );
}

function TimelineOf({ writer }: { writer: string }): ReactNode {
  const path = `timeline/${encodeURIComponent(writer)}`;
  const [answer, again] = useAnswer((signal) => ask<Timeline>(path, { limit: PAGE_SIZE, before }, signal), path);
  return (
    <section>
      <h2>{texts.timeline(writer)}</h2>
      <Shown answer={answer} again={again}>
        {(timeline) => (timeline.items.length ? <Transactions key={writer} timeline={timeline} /> : <p>{texts.nothing}</p>)}
      </Shown>
      <SameAnswer commandLine={command("catalog log", [], { writer })} path={path} parameters={{ limit: PAGE_SIZE, before }} />
    </section>
  );
}

function Transactions({ timeline }: { timeline: Timeline }): ReactNode {
  const [items, setItems] = useState(timeline.items);
  const [next, setNext] = useState(timeline.next);
  const [error, setError] = useState<string | null>(null);
  const more = async (): Promise<void> => {
    try {
      const page = await ask<Timeline>(next!);
      setItems([...items, ...page.items]);
      setNext(page.next);
    } catch (failure) {
      setError((failure as Error).message);
    }
  };
  return (
    <>
      <TableFrame label={texts.timeline(timeline.writer)}>
        <Head
          columns={[texts.revision, texts.committed, texts.events, texts.files, texts.shards, texts.removed, texts.other, texts.digest, texts.asOf]}
        />
        <tbody>
          {items.map((item) => (
            <Transaction key={item.revision} item={item} writer={timeline.writer} />
          ))}
        </tbody>
      </TableFrame>
      {next && (
        <button type="button" onClick={() => void more()}>
          {texts.earlier}
        </button>
      )}
      {error && <p role="alert">{error}</p>}
    </>
  );
}

function Transaction({ item, writer }: { item: TransactionSummary; writer: string }): ReactNode {
  return (
    <tr>
      <th scope="row">{item.revision}</th>
      <td className="event_time">
        <When ms={item.commit_time_ms} away />
      </td>
      <td className="number-cell">{count(item.events_added)}</td>
      <td className="number-cell">{count(item.files_added)}</td>
      <td className="number-cell">{count(item.shards_added)}</td>
      <td className="number-cell">{count(item.removed)}</td>
      <td>{item.other.join(", ") || "–"}</td>
      <td>
        <code>{item.previous_digest}</code>
      </td>
      <td>
        <a href={pageAddress("search", { writer, as_of: item.revision })} aria-label={`${texts.asOf}: ${item.revision}`}>
          {texts.asOf}
        </a>
      </td>
    </tr>
  );
}

function HoldList(): ReactNode {
  const [answer, again] = useAnswer((signal) => ask<Holds>("holds", {}, signal), "holds");
  return (
    <section>
      <h2>{texts.holds}</h2>
      <Shown answer={answer} again={again}>
        {({ items }) =>
          items.length ? (
            <TableFrame label={texts.holds}>
              <Head columns={[texts.name, texts.reason, texts.who, texts.since, TEXTS.writer]} />
              <tbody>
                {items.map((hold) => (
                  <tr key={hold.name}>
                    <th scope="row">{hold.name}</th>
                    <td>{hold.reason}</td>
                    <td>{hold.who}</td>
                    <td className="event_time">
                      <When ms={hold.created_ms} away />
                    </td>
                    <td>{hold.writers.join(", ") || TEXTS.all}</td>
                  </tr>
                ))}
              </tbody>
            </TableFrame>
          ) : (
            <p>{texts.noHolds}</p>
          )
        }
      </Shown>
    </section>
  );
}

function Retention(): ReactNode {
  const [answer, again] = useAnswer((signal) => ask<RetentionPlan>("retention/plan", {}, signal), "retention");
  return (
    <section>
      <h2>{texts.retention}</h2>
      <Shown answer={answer} again={again}>
        {(plan) => (
          <>
            {plan.problem && <p className="notices">{plan.problem}</p>}
            <p>{texts.after(bytes(plan.used_bytes), bytes(plan.after_bytes))}</p>
            {plan.expiring.length ? (
              <TableFrame label={texts.retention}>
                <Head columns={[texts.log, TEXTS.writer, texts.why, texts.eventsIn, TEXTS.size]} />
                <tbody>
                  {plan.expiring.map((log) => (
                    <tr key={`${log.writer} ${log.path}`}>
                      <th scope="row">{log.path}</th>
                      <td>{log.writer}</td>
                      <td>{log.why}</td>
                      <td className="number-cell">{count(log.events)}</td>
                      <td className="file_size">{bytes(log.bytes)}</td>
                    </tr>
                  ))}
                </tbody>
              </TableFrame>
            ) : (
              <p>{texts.noRetention}</p>
            )}
          </>
        )}
      </Shown>
    </section>
  );
}

start(<ProofPage />);
