// Status: writers, what waits, room and disks, queues, quarantine.

import { useEffect, useState, type ReactNode } from "react";
import { ownParameters, pageAddress } from "./address.ts";
import { ask } from "./api.ts";
import { command } from "./command.ts";
import type { Quarantined, RepositoryStatus } from "./documents.ts";
import { Frame, Head, Notices, SameAnswer, Shown, start, Switch, TableFrame, useAnswer, When } from "./frame.tsx";
import { absolute, bytes, count } from "./moments.ts";
import { TEXTS } from "./texts.ts";

const REFRESH_MS = 10_000;
const QUARANTINE_SHOWN = 100;
const texts = TEXTS.status;

function StatusPage(): ReactNode {
  const [answer, again] = useAnswer((signal) => ask<RepositoryStatus>("status", {}, signal), "status");
  const [isOn, setOn] = useState(ownParameters().get("refresh") === "true");
  useEffect(() => {
    if (!isOn) return;
    const timer = setInterval(() => document.visibilityState === "hidden" || again(), REFRESH_MS);
    return () => clearInterval(timer);
  }, [isOn, again]);
  return (
    <Frame page="status" title={texts.title}>
      <Switch name="refresh" isOn={isOn} turn={setOn}>
        {texts.refresh}
      </Switch>
      <Shown answer={answer} again={again}>
        {(status) => (
          <>
            <Notices notices={status.notices} />
            <Tiles status={status} />
            <Writers status={status} />
            <Room status={status} />
            <Queues status={status} />
          </>
        )}
      </Shown>
      <Quarantine />
      <SameAnswer commandLine={command("status", [])} path="status" />
    </Frame>
  );
}

function Tiles({ status }: { status: RepositoryStatus }): ReactNode {
  const sum = (name: "events_live" | "events_waiting" | "events_lost"): number =>
    status.writers.reduce((total, writer) => total + writer[name], 0);
  const lost = sum("events_lost");
  const { used_bytes, limit_bytes } = status.budget;
  const tiles: [string, string, boolean][] = [
    [texts.live, count(sum("events_live")), false],
    [texts.waiting, count(sum("events_waiting")), false],
    [texts.lost, count(lost), lost > 0],
    [texts.quarantined, count(status.quarantined), status.quarantined > 0],
    [texts.used, bytes(used_bytes), limit_bytes !== null && used_bytes > limit_bytes],
    [texts.limit, limit_bytes === null ? texts.noLimit : bytes(limit_bytes), false],
    [texts.slots, texts.slotsTaken(status.slots_taken, status.slots), false],
  ];
  return (
    <>
      <p className="quiet">
        {texts.repository} <code>{status.root}</code> · {texts.looked(absolute(Date.now()))}
      </p>
      <ul className="tiles">
        {tiles.map(([name, value, isWrong]) => (
          <li key={name} className={isWrong ? "wrong" : ""}>
            {name}
            <strong>{value}</strong>
          </li>
        ))}
      </ul>
    </>
  );
}

function Writers({ status }: { status: RepositoryStatus }): ReactNode {
  return (
    <section>
      <h2>{texts.writers}</h2>
      <TableFrame label={texts.writers}>
        <Head
          columns={[TEXTS.writer, texts.held, texts.live, texts.waiting, texts.lost, texts.revision, texts.lastCommit, texts.logs, texts.shards, texts.missing]}
        />
        <tbody>
          {status.writers.map((writer) => (
            <tr key={writer.writer}>
              <th scope="row">
                <a href={pageAddress("proof", { writer: writer.writer })}>{writer.writer}</a>
              </th>
              <td>{writer.is_held ? texts.yes : texts.no}</td>
              <td className="number-cell">{count(writer.events_live)}</td>
              <td className="number-cell">{count(writer.events_waiting)}</td>
              <td className="number-cell">{count(writer.events_lost)}</td>
              <td className="number-cell">{count(writer.revision)}</td>
              <td className="event_time">
                <When ms={writer.last_commit_ms} away />
              </td>
              <td className="number-cell">
                {count(writer.logs)} ({bytes(writer.log_bytes)})
              </td>
              <td className="number-cell">
                {count(writer.shards)} ({bytes(writer.shard_bytes)})
              </td>
              <td>{writer.missing_containers?.join(", ") || "–"}</td>
            </tr>
          ))}
        </tbody>
      </TableFrame>
    </section>
  );
}

function Room({ status }: { status: RepositoryStatus }): ReactNode {
  const kinds = Object.entries(status.budget.kinds).sort(([, one], [, other]) => other - one);
  return (
    <>
      <h2>{texts.pending}</h2>
      <TableFrame label={texts.pending}>
        <Head columns={[texts.kind, texts.number]} />
        <tbody>
          {Object.entries(status.pending).map(([kind, number]) => (
            <tr key={kind}>
              <th scope="row">{texts.pendingKinds[kind] ?? kind}</th>
              <td className="number-cell">{count(number as number)}</td>
            </tr>
          ))}
        </tbody>
      </TableFrame>
      <h2>{texts.room}</h2>
      <TableFrame label={texts.room}>
        <Head columns={[texts.kind, TEXTS.size]} />
        <tbody>
          {kinds.map(([kind, size]) => (
            <tr key={kind}>
              <th scope="row">{kind}</th>
              <td className="number-cell">{bytes(size)}</td>
            </tr>
          ))}
        </tbody>
      </TableFrame>
      <h2>{texts.disks}</h2>
      <TableFrame label={texts.disks}>
        <Head columns={[texts.folder, texts.state, texts.free, texts.total]} />
        <tbody>
          {status.disks.map((disk) => (
            <tr key={disk.folder}>
              <th scope="row">{disk.folder}</th>
              <td>{disk.state}</td>
              <td className="number-cell">{bytes(disk.free_bytes)}</td>
              <td className="number-cell">{bytes(disk.total_bytes)}</td>
            </tr>
          ))}
        </tbody>
      </TableFrame>
    </>
  );
}

function Queues({ status }: { status: RepositoryStatus }): ReactNode {
  if (!status.queues?.length) return null;
  return (
    <>
      <h2>{texts.queues}</h2>
      <TableFrame label={texts.queues}>
        <Head columns={[texts.queue, texts.flowfiles, TEXTS.size, texts.oldest, texts.full, texts.consumer]} />
        <tbody>
          {status.queues.map((queue) => (
            <tr key={queue.connection.name}>
              <th scope="row">{queue.connection.name}</th>
              <td className="number-cell">{count(queue.count)}</td>
              <td className="number-cell">{bytes(queue.content_bytes)}</td>
              <td className="event_time">
                <When ms={queue.oldest_ms} away />
              </td>
              <td>{queue.is_full ? texts.yes : texts.no}</td>
              <td>{queue.connection.consumer ?? "–"}</td>
            </tr>
          ))}
        </tbody>
      </TableFrame>
    </>
  );
}

function Quarantine(): ReactNode {
  const [answer, again] = useAnswer((signal) => ask<Quarantined>("quarantine", { limit: QUARANTINE_SHOWN }, signal), "quarantine");
  return (
    <section>
      <h2>{texts.quarantine}</h2>
      <Shown answer={answer} again={again}>
        {({ items, total }) =>
          items.length ? (
            <>
              <p className="quiet">{texts.quarantineShown(items.length, total)}</p>
              <TableFrame label={texts.quarantine}>
                <Head columns={[texts.key, texts.received, texts.code, texts.message, texts.file, TEXTS.size]} />
                <tbody>
                  {items.map((entry) => (
                    <tr key={entry.key}>
                      <th scope="row">
                        <code>{entry.key}</code>
                      </th>
                      <td className="event_time">
                        <When ms={entry.received_ms} />
                      </td>
                      <td>{entry.code}</td>
                      <td>{entry.message}</td>
                      <td>{entry.file}</td>
                      <td className="file_size">{bytes(entry.size_bytes)}</td>
                    </tr>
                  ))}
                </tbody>
              </TableFrame>
              <pre>{command("quarantine resubmit", [items[0]!.key])}</pre>
            </>
          ) : (
            <p>{texts.quarantineEmpty}</p>
          )
        }
      </Shown>
    </section>
  );
}

start(<StatusPage />);
