// Proof: the transactions of each writer's catalog, holds, and what the next retention would let go.

import { useState, type ReactNode } from "react";
import { ownParameters, pageAddress } from "./address.ts";
import { ask, order } from "./api.ts";
import { command } from "./command.ts";
import type { CatalogChain, CatalogDifference, Job, RetentionPlan, Timeline, TransactionSummary, Welcome } from "./documents.ts";
import { Deeds, eventsOf, ReasonOf } from "./deeds.tsx";
import { Frame, Head, Notices, SameAnswer, Shown, start, TableFrame, useAnswer, When } from "./frame.tsx";
import { AttestationList } from "./attestations.tsx";
import { HoldList } from "./holds.tsx";
import { JobState, numberOf, useJob } from "./job.tsx";
import { bytes, count } from "./moments.ts";
import { useMay } from "./replay_plan.tsx";
import { Question } from "./question.tsx";
import { TEXTS } from "./texts.ts";
import { ofAddress, typedOf } from "./zone.ts";

const texts = TEXTS.proof;
const parameters = ownParameters();
const named = parameters.get("writer");
const before = parameters.get("before");
const former = parameters.get("former");
const later = parameters.get("later");
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
              {writer && former && <DifferenceOf writer={writer} former={former} />}
              <Deeds writers={named ? [named] : writers} />
              <AttestationList />
              <HoldList />
              <p>
                <a href={pageAddress("keep")}>{texts.keepLink}</a>
              </p>
              {writer && <TimelineOf writer={writer} />}
              <Retention />
            </>
          );
        }}
      </Shown>
    </Frame>
  );
}

function DifferenceOf({ writer, former }: { writer: string; former: string }): ReactNode {
  const path = `timeline/${encodeURIComponent(writer)}/difference`;
  const [answer, again] = useAnswer((signal) => ask<CatalogDifference>(path, { former, later }, signal), path);
  return (
    <section aria-label={texts.difference}>
      <h2>{texts.difference}</h2>
      <DifferenceForm writer={writer} />
      <Shown answer={answer} again={again}>
        {(difference) => (
          <>
            <p>{texts.between(difference.writer, difference.former, difference.later)}</p>
            <Changes difference={difference} />
          </>
        )}
      </Shown>
      <SameAnswer
        commandLine={command("catalog diff", later ? [former, later] : [former], { writer })}
        path={path}
        parameters={{ former, later }}
      />
    </section>
  );
}

function DifferenceForm({ writer }: { writer: string }): ReactNode {
  return (
    <Question>
      <input type="hidden" name="writer" value={writer} />
      <label>
        {texts.former}
        <input name="former" defaultValue={typedOf(ofAddress(former ?? "", true), true)} size={20} required />
      </label>
      <label>
        {texts.later}
        <input name="later" defaultValue={typedOf(ofAddress(later ?? "", true), true)} size={20} />
      </label>
      <button type="submit">{texts.compare}</button>
    </Question>
  );
}

/** What became live and ceased to be, and what was forgotten, held, lost and mended; kinds without entries are left out. */
function Changes({ difference: { entries, sizes } }: { difference: CatalogDifference }): ReactNode {
  const logs = [...entries.added.map((log) => ["+", log] as const), ...entries.removed.map((log) => ["−", log] as const)];
  const shards = [
    ...entries.shards_added.map((shard) => ["+", shard] as const),
    ...entries.shards_removed.map((shard) => ["−", shard] as const),
  ];
  const reasons = (["tombstones", "holds", "losses"] as const).flatMap((kind) => [
    ...entries[`${kind}_added`].map((one) => [kind, "+", one] as const),
    ...entries[`${kind}_removed`].map((one) => [kind, "−", one] as const),
  ]);
  const repairs = entries.repairs ?? [];
  const all = Object.values(sizes).reduce((sum, one) => sum + one, 0);
  if (!all) return <p>{texts.noDifference}</p>;
  return (
    <>
      {reasons.length > 0 && (
        <TableFrame label={texts.reasons}>
          <Head columns={[texts.change, texts.kind, texts.name, texts.reason, texts.who, texts.since, texts.eventsIn]} />
          <tbody>
            {reasons.map(([kind, sign, one]) => (
              <tr key={`${kind} ${sign} ${one.name}`} className={sign === "+" ? "added" : "removed"}>
                <td>{sign}</td>
                <td>{texts.kinds[kind]}</td>
                <th scope="row">{one.name}</th>
                <td>{one.reason}</td>
                <td>{one.who ?? "–"}</td>
                <td className="event_time">
                  <When ms={one.created_ms} away />
                </td>
                <td className="number-cell">{one.events === null ? texts.byCondition : count(one.events)}</td>
              </tr>
            ))}
          </tbody>
        </TableFrame>
      )}
      {repairs.length > 0 && (
        <TableFrame label={texts.repairTable}>
          <Head columns={[texts.happened, texts.name, texts.reason, texts.who, texts.eventsIn]} />
          <tbody>
            {repairs.map((one, at) => (
              <tr key={at}>
                <td>{texts.deedKinds[one.kind] ?? one.kind}</td>
                <th scope="row">{one.name}</th>
                <td>
                  <ReasonOf reason={one} />
                </td>
                <td>{one.who ?? "–"}</td>
                <td className="number-cell">{eventsOf(one)}</td>
              </tr>
            ))}
          </tbody>
        </TableFrame>
      )}
      {logs.length > 0 && (
        <TableFrame label={texts.logs}>
          <Head columns={[texts.change, texts.log, texts.eventsIn, texts.ids, TEXTS.size, texts.sha256]} />
          <tbody>
            {logs.map(([sign, log]) => (
              <tr key={`${sign} ${log.path}`} className={sign === "+" ? "added" : "removed"}>
                <td>{sign}</td>
                <th scope="row">{log.path}</th>
                <td className="number-cell">{count(log.events)}</td>
                <td className="number-cell">
                  {log.first_event_id} – {log.last_event_id}
                </td>
                <td className="file_size">{bytes(log.size_bytes)}</td>
                <td>
                  <code>{log.sha256}</code>
                </td>
              </tr>
            ))}
          </tbody>
        </TableFrame>
      )}
      {shards.length > 0 && (
        <TableFrame label={texts.shardTable}>
          <Head columns={[texts.change, texts.name, texts.eventsIn, TEXTS.size]} />
          <tbody>
            {shards.map(([sign, shard]) => (
              <tr key={`${sign} ${shard.name}`} className={sign === "+" ? "added" : "removed"}>
                <td>{sign}</td>
                <th scope="row">{shard.name}</th>
                <td className="number-cell">{count(shard.documents)}</td>
                <td className="file_size">{bytes(shard.size_bytes)}</td>
              </tr>
            ))}
          </tbody>
        </TableFrame>
      )}
      {logs.length + shards.length + reasons.length + repairs.length < all && <p className="quiet">{texts.cut(all)}</p>}
    </>
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
      <Chain key={writer} writer={writer} />
      <SameAnswer commandLine={command("catalog log", [], { to: before ? Number(before) - 1 : null, writer })} path={path} parameters={{ limit: PAGE_SIZE, before }} />
    </section>
  );
}

/** The digest of the newest transaction, and whether all before it are those that were committed; asked for by a button. */
function Chain({ writer }: { writer: string }): ReactNode {
  const path = `timeline/${encodeURIComponent(writer)}/chain`;
  const [isAsked, setAsked] = useState(false);
  return (
    <section>
      <h3>{texts.chain}</h3>
      {isAsked ? (
        <Checked path={path} />
      ) : (
        <p>
          <button type="button" onClick={() => setAsked(true)}>
            {texts.checkChain}
          </button>{" "}
          <span className="quiet">{texts.chainHint}</span>
        </p>
      )}
      <SameAnswer of={texts.chain} commandLine={command("catalog verify", [], { writer })} path={path} />
    </section>
  );
}

function Checked({ path }: { path: string }): ReactNode {
  const [answer, again] = useAnswer((signal) => ask<CatalogChain>(path, {}, signal), path);
  return (
    <Shown answer={answer} again={again}>
      {({ revision, digest, revisions, defects, notices }) => (
        <>
          <Notices notices={[...defects, ...notices]} />
          {revision !== null && !defects.length && (
            <p role="status">
              <strong>{texts.verified(revision, revisions)}</strong> {texts.ownDigest} <code>{digest}</code>
            </p>
          )}
        </>
      )}
    </Shown>
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
          columns={[texts.revision, texts.committed, texts.events, texts.files, texts.shards, texts.removed, texts.other, texts.digest, texts.asOf, texts.what]}
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
      <td>{(item.reasons?.length ? item.reasons.map(({ kind }) => texts.deedKinds[kind] ?? kind) : item.other).join(", ") || "–"}</td>
      <td>
        <code>{item.previous_digest}</code>
      </td>
      <td>
        <a href={pageAddress("search", { writer, as_of: item.revision })} aria-label={`${texts.asOf}: ${item.revision}`}>
          {texts.asOf}
        </a>
      </td>
      <td>
        {item.revision > 0 && (
          <a
            href={pageAddress("proof", { writer, former: item.revision - 1, later: item.revision })}
            aria-label={`${texts.what}: ${item.revision}`}
          >
            {texts.what}
          </a>
        )}
      </td>
    </tr>
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
            {plan.hiding.length > 0 && (
              <ul>
                {plan.hiding.map(({ rule }) => (
                  <li key={rule}>{texts.hides(rule)}</li>
                ))}
              </ul>
            )}
            <Expire plan={plan} />
            {plan.held.length > 0 && (
              <TableFrame label={texts.heldLogs}>
                <Head columns={[texts.log, TEXTS.writer, texts.kept, TEXTS.size]} />
                <tbody>
                  {plan.held.map((log) => (
                    <tr key={`${log.writer} ${log.path}`}>
                      <th scope="row">{log.path}</th>
                      <td>{log.writer}</td>
                      <td>{log.holds.join(", ")}</td>
                      <td className="file_size">{bytes(log.bytes)}</td>
                    </tr>
                  ))}
                </tbody>
              </TableFrame>
            )}
          </>
        )}
      </Shown>
      <SameAnswer commandLine={command("retention plan", [])} path="retention/plan" />
    </section>
  );
}

function Expire({ plan }: { plan: RetentionPlan }): ReactNode {
  const may = useMay("manage");
  const running = useJob("retention");
  const [typed, type] = useState("");
  const events = plan.expiring.reduce((all, log) => all + log.events, 0);
  if (!plan.expiring.length && !plan.hiding.length && !running.job) return null;
  if (may !== true)
    return (
      may === false && (
        <>
          <p>{texts.mayNotExpire}</p>
          <pre>{command("retention apply", [])}</pre>
        </>
      )
    );
  return (
    <>
      <form
        className="consent"
        onSubmit={(event) => {
          event.preventDefault();
          running.begin(() => order<Job>("POST", "retention/runs", { events }));
        }}
      >
        <label>
          {texts.expireNumber(String(events))}
          <input value={typed} onChange={({ target }) => type(target.value)} inputMode="numeric" autoComplete="off" size={10} required />
        </label>
        <button type="submit" className="main" disabled={typed.trim() !== String(events) || running.isBusy}>
          {texts.expire}
        </button>
        <span className="quiet">{texts.expireHint}</span>
      </form>
      <JobState followed={running} />
      {running.job?.state === "succeeded" && (
        <p role="status">
          <strong>{texts.expired(numberOf(running.job, "events"))}</strong>
        </p>
      )}
    </>
  );
}

start(<ProofPage />);
