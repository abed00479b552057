// Long work that a page begins: how far it is, its end, and a way to end it before.

import { useCallback, useEffect, useRef, useState, type ReactNode } from "react";
import { ownParameters, remember } from "./address.ts";
import { ask, order } from "./api.ts";
import type { Job } from "./documents.ts";
import { Failure } from "./frame.tsx";
import { count } from "./moments.ts";
import { TEXTS } from "./texts.ts";

/** Seconds that one question waits for the end: the server answers as soon as it is there. */
const WAIT_SECONDS = 10;
const ENDED = ["succeeded", "failed", "cancelled", "lost"];
const texts = TEXTS.job;

export interface Followed {
  job: Job | null;
  error: Error | null;
  /** Whether it is begun, or goes on. */
  isBusy: boolean;
  begin: (ordered: () => Promise<Job>) => void;
  cancel: () => void;
}

/** A job that is begun here, or that the address names; it is followed to its end, and its name is kept in the address. */
export function useJob(parameter: string, onEnd: (job: Job) => void = () => undefined): Followed {
  const [job, setJob] = useState<Job | null>(null);
  const [error, setError] = useState<Error | null>(null);
  const [id, setId] = useState<string | null>(() => ownParameters().get(parameter));
  const [isBusy, setBusy] = useState(id !== null);
  const latest = useRef(onEnd);
  latest.current = onEnd;
  useEffect(() => {
    if (id === null) return;
    const stop = new AbortController();
    const follow = async (): Promise<void> => {
      for (;;) {
        const now = await ask<Job>(`jobs/${encodeURIComponent(id)}`, { wait: WAIT_SECONDS }, stop.signal);
        if (stop.signal.aborted) return;
        setJob(now);
        if (ENDED.includes(now.state)) {
          setBusy(false);
          latest.current(now);
          return;
        }
      }
    };
    follow().catch((failure: unknown) => {
      if (stop.signal.aborted) return;
      setError(failure as Error);
      setBusy(false);
    });
    return () => stop.abort();
  }, [id]);
  const begin = useCallback(
    (ordered: () => Promise<Job>): void => {
      setError(null);
      setJob(null);
      setBusy(true);
      ordered().then(
        (begun) => {
          remember({ [parameter]: begun.id });
          setJob(begun);
          setId(begun.id);
        },
        (failure: unknown) => {
          setError(failure as Error);
          setBusy(false);
        },
      );
    },
    [parameter],
  );
  const cancel = useCallback((): void => {
    if (id) order<Job>("DELETE", `jobs/${encodeURIComponent(id)}`).then(setJob, (failure: unknown) => setError(failure as Error));
  }, [id]);
  return { job, error, isBusy, begin, cancel };
}

/** How far a job is; of one that has ended, why it did not come to its end. */
export function JobState({ followed: { job, error, isBusy, cancel } }: { followed: Followed }): ReactNode {
  return (
    <>
      {error && <Failure error={error} again={() => location.reload()} />}
      {isBusy && (
        <p className="row" role="status">
          <span>
            {job ? (texts.states[job.state] ?? job.state) : texts.sent} {job?.done ? texts.progress(job.done, job.total ?? null, job.unit ?? "") : ""}
          </span>
          {job?.total ? <progress aria-label={texts.label} max={job.total} value={job.done ?? 0} /> : null}
          {job && (
            <button type="button" onClick={cancel}>
              {texts.cancel}
            </button>
          )}
        </p>
      )}
      {!isBusy && job?.problem && (
        <div className="failure" role="alert">
          <strong>{job.problem.title}</strong>
          <pre>{job.problem.detail}</pre>
        </div>
      )}
    </>
  );
}

/**
 * A button that asks once more before it does something, and says what. While it is off it keeps the focus: a button that is
 * disabled loses it, and who works by keys would be at the top of the page once more.
 */
export function Consent({ label, question, agree, act, isOff = false }: {
  label: string;
  question: string;
  agree: string;
  act: () => void;
  isOff?: boolean;
}): ReactNode {
  const dialog = useRef<HTMLDialogElement>(null);
  return (
    <>
      <button type="button" className="main" aria-disabled={isOff} onClick={() => isOff || dialog.current!.showModal()}>
        {label}
      </button>
      <dialog ref={dialog} aria-label={label}>
        <p>{question}</p>
        <div className="row">
          <button
            type="button"
            className="main"
            onClick={() => {
              dialog.current!.close();
              act();
            }}
          >
            {agree}
          </button>
          <button type="button" onClick={() => dialog.current!.close()}>
            {texts.no}
          </button>
        </div>
      </dialog>
    </>
  );
}

/** A number of a job's result; 0 where there is none. */
export function numberOf(job: Job | null, name: string): number {
  const value = job?.result?.[name];
  return typeof value === "number" ? value : 0;
}

export function numbers(rows: [string, number][]): ReactNode {
  return (
    <dl className="facts">
      {rows.flatMap(([name, value]) => [<dt key={`${name} term`}>{name}</dt>, <dd key={name}>{count(value)}</dd>])}
    </dl>
  );
}
