// The newest runs of Airflow's DAGs, or of one of them, with their states.

import { type ReactNode } from "react";
import { pageAddress } from "./address.ts";
import { ask } from "./api.ts";
import type { DagRuns } from "./documents.ts";
import { Head, Notices, Shown, TableFrame, useAnswer, When } from "./frame.tsx";
import { TEXTS } from "./texts.ts";

const texts = TEXTS.run;

/** `run` is the one that is looked at; a new `round` asks once more. */
export function NewestRuns({ title, dag = "", run = "", limit, writer = null, asOf = null, round = 0 }: {
  title: string;
  dag?: string;
  run?: string;
  limit: number;
  writer?: string | null;
  asOf?: string | null;
  round?: number;
}): ReactNode {
  const [answer, again] = useAnswer((signal) => ask<DagRuns>("dag-runs", { dag_id: dag, limit, writer, as_of: asOf }, signal), `runs ${round}`);
  return (
    <section>
      <h2>{title}</h2>
      <Shown answer={answer} again={again}>
        {({ items, notices }) => (
          <>
            <Notices notices={notices} />
            {items.length ? (
              <TableFrame label={title}>
                <Head columns={[texts.run, texts.dag, texts.state, texts.started, texts.ended]} />
                <tbody>
                  {items.map((one) => (
                    <tr key={`${one.dag_id} ${one.run_id}`}>
                      <th scope="row">
                        <a
                          href={pageAddress("run", { dag_id: one.dag_id, run_id: one.run_id, writer, as_of: asOf })}
                          aria-current={run !== "" && one.run_id === run ? "true" : undefined}
                        >
                          {one.run_id}
                        </a>
                      </th>
                      <td>{one.dag_id}</td>
                      <td>{one.state ?? "–"}</td>
                      <td className="event_time">
                        <When ms={one.started_ms} away />
                      </td>
                      <td className="event_time">
                        <When ms={one.ended_ms} />
                      </td>
                    </tr>
                  ))}
                </tbody>
              </TableFrame>
            ) : (
              <p>{texts.noRuns}</p>
            )}
          </>
        )}
      </Shown>
    </section>
  );
}
