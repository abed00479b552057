// Two contents byte by byte, read by ranges: those that differ are marked, and the next ones are looked for.

import { useEffect, useRef, useState, type ReactNode } from "react";
import { piece } from "./api.ts";
import { COMPARED_WINDOW, comparedRows, firstDifference, SCANNED_MAX, SCANNED_PIECE, type Run } from "./bytes_view.ts";
import { Head, Shown, useAnswer } from "./frame.tsx";
import { bytes, count } from "./moments.ts";
import { TEXTS } from "./texts.ts";

const texts = TEXTS.event;

/** A content: its address and its size in bytes. */
export interface Sized {
  href: string;
  size: number;
}

export function HexDifference({ both }: { both: readonly Sized[] }): ReactNode {
  const [first, move] = useState(0);
  const size = Math.max(...both.map((one) => one.size));
  const [answer, again] = useAnswer(
    (signal) => pieces(both, first, COMPARED_WINDOW, signal),
    `${both.map(({ href }) => href).join(" ")} ${first}`,
  );
  const search = useSearch(both, size, (at) => move(at - (at % COMPARED_WINDOW)));
  const last = Math.min(first + COMPARED_WINDOW, size) - 1;
  return (
    <>
      <Shown answer={answer} again={again}>
        {([before, after]) => {
          const rows = comparedRows(before!, after!, first);
          const differing = rows.reduce((sum, row) => sum + row.differing, 0);
          return (
            <>
              <p role="status">{texts.differing(differing, count(first), count(last), count(size))}</p>
              <div className="bytes" role="region" tabIndex={0} aria-label={texts.differingTable}>
                <table className="hex">
                  <caption className="unseen">{texts.differingTable}</caption>
                  <Head columns={[texts.offset, texts.contentBefore, texts.contentAfter, texts.differingBytes]} />
                  <tbody>
                    {rows.map((row) => (
                      <tr key={row.offset}>
                        <th scope="row">{row.offset}</th>
                        <td>
                          <Bytes runs={row.before} />
                        </td>
                        <td>
                          <Bytes runs={row.after} />
                        </td>
                        <td>{row.differing || ""}</td>
                      </tr>
                    ))}
                  </tbody>
                </table>
              </div>
            </>
          );
        }}
      </Shown>
      <p className="row">
        <button type="button" disabled={!first} onClick={() => move(Math.max(0, first - COMPARED_WINDOW))}>
          {texts.previous}
        </button>
        <button type="button" disabled={last + 1 >= size} onClick={() => move(first + COMPARED_WINDOW)}>
          {texts.next}
        </button>
        <button type="button" disabled={search.isBusy || last + 1 >= size} onClick={() => search.begin(last + 1)}>
          {texts.nextDifference}
        </button>
        <span role="status">{search.said}</span>
      </p>
    </>
  );
}

/** The bytes of each content from an offset on; none of one that ends before, which a server would refuse. */
function pieces(both: readonly Sized[], start: number, length: number, signal: AbortSignal): Promise<Uint8Array[]> {
  return Promise.all(
    both.map(async ({ href, size }) => (start < size ? (await piece(href, start, length, signal)).data : new Uint8Array())),
  );
}

function Bytes({ runs }: { runs: readonly Run[] }): ReactNode {
  return runs.map(({ text, differs }, at) => (
    <span key={at}>
      {at > 0 && " "}
      {differs ? <mark>{text}</mark> : text}
    </span>
  ));
}

interface Search {
  isBusy: boolean;
  said: string;
  begin(from: number): void;
}

/** Looks for the next bytes that differ, as far as one search goes; the next one goes on from there. */
function useSearch(both: readonly Sized[], size: number, find: (at: number) => void): Search {
  const [state, setState] = useState<{ isBusy: boolean; said: string; reached: number }>({ isBusy: false, said: "", reached: 0 });
  const running = useRef<AbortController | null>(null);
  useEffect(() => () => running.current?.abort(), []);
  const look = async (from: number, signal: AbortSignal): Promise<void> => {
    const end = Math.min(from + SCANNED_MAX, size);
    for (let at = from; at < end; at += SCANNED_PIECE) {
      const [before, after] = await pieces(both, at, SCANNED_PIECE, signal);
      const found = firstDifference(before!, after!);
      if (found !== null) {
        setState({ isBusy: false, said: texts.foundAt(count(at + found)), reached: 0 });
        find(at + found);
        return;
      }
    }
    const said = end < size ? texts.noneWithin(bytes(SCANNED_MAX), count(end)) : texts.noneBehind;
    setState({ isBusy: false, said, reached: end < size ? end : 0 });
  };
  return {
    isBusy: state.isBusy,
    said: state.said,
    begin: (from) => {
      const one = (running.current = new AbortController());
      setState({ ...state, isBusy: true, said: texts.lookingFor });
      look(Math.max(from, state.reached), one.signal).catch((error: Error) => {
        if (!one.signal.aborted) setState({ isBusy: false, said: error.message, reached: 0 });
      });
    },
  };
}
