// Contents before and after an event: text, JSON, a picture or hex, read by ranges; and how they differ.

import { diffLines, type Change } from "diff";
import { useEffect, useState, type ReactNode } from "react";
import { piece } from "./api.ts";
import {
  asText,
  DIFFERENCE_MAX,
  firstView,
  HEX_WINDOW,
  hexRows,
  isText,
  pictureType,
  prettyJson,
  TEXT_WINDOW,
  WHOLE_MAX,
  type View,
} from "./bytes_view.ts";
import type { ContentPlace } from "./documents.ts";
import { Head, SaveButton, Shown, useAnswer } from "./frame.tsx";
import { HexDifference, type Sized } from "./hex_difference.tsx";
import { bytes, count } from "./moments.ts";
import { TEXTS } from "./texts.ts";

const HEAD = 1024;
const DIFFERENCE_MS = 1500;
const texts = TEXTS.event;

export function Contents({
  after,
  before,
  name,
  differenceCommand,
}: {
  after: ContentPlace | null;
  before: ContentPlace | null;
  name: string;
  /** What compares both byte by byte. */
  differenceCommand: string;
}): ReactNode {
  const [isCompared, compare] = useState(false);
  return (
    <section aria-label={texts.content}>
      <h2>{texts.content}</h2>
      {!after && !before && <p>{texts.noContent}</p>}
      <div className={before && after ? "beside halves" : ""}>
        {before && <OneContent title={texts.contentBefore} place={before} name={`${name}-before`} />}
        {after && <OneContent title={texts.contentAfter} place={after} name={name} />}
      </div>
      {before?.href && after?.href && (
        <p>
          <button type="button" aria-expanded={isCompared} onClick={() => compare(!isCompared)}>
            {texts.difference}
          </button>
        </p>
      )}
      {isCompared && <Difference before={before!.href!} after={after!.href!} commandLine={differenceCommand} />}
    </section>
  );
}

function OneContent({ title, place, name }: { title: string; place: ContentPlace; name: string }): ReactNode {
  return (
    <section className="content" aria-label={title}>
      <h2>{title}</h2>
      {place.href ? (
        <>
          <p className="row">
            <span>{bytes(place.size)}</span>
            <SaveButton path={place.href} name={name} isLarge>
              {TEXTS.save}
            </SaveButton>
          </p>
          <Viewer href={place.href} title={title} />
        </>
      ) : (
        <p>{texts.contentPlace(place.availability)}</p>
      )}
    </section>
  );
}

function Viewer({ href, title }: { href: string; title: string }): ReactNode {
  const [answer, again] = useAnswer((signal) => piece(href, 0, HEAD, signal), href);
  const [chosen, choose] = useState<View | null>(null);
  return (
    <Shown answer={answer} again={again}>
      {({ data, size }) => {
        if (!size) return <p>{texts.emptyContent}</p>;
        const view = chosen ?? firstView(data);
        return (
          <>
            <div className="row" role="group" aria-label={texts.view}>
              {(Object.keys(texts.views) as View[])
                .filter((one) => one !== "image" || pictureType(data))
                .map((one) => (
                  <button key={one} type="button" aria-pressed={one === view} onClick={() => choose(one)}>
                    {texts.views[one]}
                  </button>
                ))}
            </div>
            {view === "image" ? (
              <Picture href={href} size={size} type={pictureType(data)!} />
            ) : (
              <Window key={view} href={href} view={view} title={title} />
            )}
          </>
        );
      }}
    </Shown>
  );
}

function Window({ href, view, title }: { href: string; view: View; title: string }): ReactNode {
  const length = view === "hex" ? HEX_WINDOW : TEXT_WINDOW;
  const [first, move] = useState(0);
  const [answer, again] = useAnswer((signal) => piece(href, first, length, signal), `${href} ${first} ${length}`);
  return (
    <Shown answer={answer} again={again}>
      {({ data, size }) => (
        <>
          <div className="bytes" role="region" tabIndex={0} aria-label={`${title}: ${texts.views[view]}`}>
            {view === "hex" ? <Hex data={data} start={first} /> : <Text data={data} isJson={view === "json"} />}
          </div>
          {size > length && (
            <p className="row">
              <button type="button" disabled={!first} onClick={() => move(Math.max(0, first - length))}>
                {texts.previous}
              </button>
              <button type="button" disabled={first + length >= size} onClick={() => move(first + length)}>
                {texts.next}
              </button>
              <span className="quiet">{texts.range(count(first), count(first + data.length - 1), count(size))}</span>
            </p>
          )}
        </>
      )}
    </Shown>
  );
}

function Text({ data, isJson }: { data: Uint8Array; isJson: boolean }): ReactNode {
  const text = asText(data);
  const json = isJson ? prettyJson(text) : null;
  return (
    <>
      {isJson && json === null && <p className="quiet">{texts.notJson}</p>}
      <pre>{json ?? text}</pre>
    </>
  );
}

function Hex({ data, start }: { data: Uint8Array; start: number }): ReactNode {
  return (
    <table className="hex">
      <caption className="unseen">{texts.hexTable}</caption>
      <Head columns={[texts.offset, texts.bytes, texts.characters]} />
      <tbody>
        {hexRows(data, start).map((row) => (
          <tr key={row.offset}>
            <th scope="row">{row.offset}</th>
            <td>{row.hex}</td>
            <td>{row.text}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function Picture({ href, size, type }: { href: string; size: number; type: string }): ReactNode {
  const [answer, again] = useAnswer(async (signal) => {
    if (size > WHOLE_MAX) throw new Error(texts.imageLarge(bytes(WHOLE_MAX)));
    return (await piece(href, 0, size, signal)).data;
  }, href);
  return (
    <Shown answer={answer} again={again}>
      {(data) => <BlobPicture data={data} type={type} />}
    </Shown>
  );
}

function BlobPicture({ data, type }: { data: Uint8Array<ArrayBuffer>; type: string }): ReactNode {
  const [address, setAddress] = useState<string | null>(null);
  useEffect(() => {
    const made = URL.createObjectURL(new Blob([data], { type }));
    setAddress(made);
    return () => URL.revokeObjectURL(made);
  }, [data, type]);
  return <div className="bytes">{address && <img src={address} alt={texts.imageAlt} />}</div>;
}

type Compared = { changes: Change[] } | { why: string; both: Sized[] };

/** Lines of text, or bytes where one of the contents is no text, or they are too large or too different. */
async function compared(hrefs: readonly string[], signal: AbortSignal): Promise<Compared> {
  const heads = await Promise.all(hrefs.map((href) => piece(href, 0, HEAD, signal)));
  const both = hrefs.map((href, at) => ({ href, size: heads[at]!.size }));
  if (!heads.every(({ data }) => isText(data))) return { why: texts.notText, both };
  if (both.some(({ size }) => size > DIFFERENCE_MAX)) return { why: texts.differenceLarge(bytes(DIFFERENCE_MAX)), both };
  const whole = await Promise.all(hrefs.map((href) => piece(href, 0, DIFFERENCE_MAX, signal)));
  if (!whole.every(({ data }) => isText(data))) return { why: texts.notText, both };
  const [was, is] = whole.map(({ data }) => asText(data));
  const changes = diffLines(was!, is!, { timeout: DIFFERENCE_MS });
  return changes ? { changes } : { why: texts.differenceSlow, both };
}

function Difference({ before, after, commandLine }: { before: string; after: string; commandLine: string }): ReactNode {
  const [answer, again] = useAnswer((signal) => compared([before, after], signal), `${before} ${after}`);
  return (
    <section aria-label={texts.differenceTitle}>
      <h2>{texts.differenceTitle}</h2>
      <Shown answer={answer} again={again}>
        {(found) =>
          "why" in found ? (
            <>
              <p>{found.why}</p>
              <HexDifference both={found.both} />
              <p>{texts.sameBytes}</p>
              <pre>{commandLine}</pre>
            </>
          ) : (
            <Lines changes={found.changes} />
          )
        }
      </Shown>
    </section>
  );
}

function Lines({ changes }: { changes: readonly Change[] }): ReactNode {
  if (changes.every((change) => !change.added && !change.removed)) return <p>{texts.equalContents}</p>;
  return (
    <div className="bytes difference" role="region" tabIndex={0} aria-label={texts.differenceTitle}>
      {changes.map((change, at) => {
        const [sign, kind] = change.added ? ["+", "plus"] : change.removed ? ["−", "minus"] : [" ", ""];
        const lines = change.value.replace(/\n$/, "").split("\n");
        return (
          <span key={at} className={kind}>
            {lines.map((line) => `${sign} ${line}`).join("\n")}
          </span>
        );
      })}
    </div>
  );
}
