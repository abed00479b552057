// Where the content of an event is in software, by the published tables; asked for by a button, for all bytes are read.

import { useState, type ReactNode } from "react";
import { ask } from "./api.ts";
import { command } from "./command.ts";
import type { OneEvent, SoftwarePlaces } from "./documents.ts";
import { Head, SameAnswer, Shown, TableFrame, useAnswer, When } from "./frame.tsx";
import { TEXTS } from "./texts.ts";

const PLACES_SHOWN = 20;
const texts = TEXTS.event;

export function Software({ path, asOf, one }: { path: string; asOf: string | null; one: OneEvent }): ReactNode {
  const [previous, look] = useState<boolean | null>(null);
  if (!one.content?.href && !one.previous_content?.href) return null;
  return (
    <section aria-label={texts.software}>
      <h2>{texts.software}</h2>
      <p className="row">
        {one.content?.href && (
          <button type="button" onClick={() => look(false)}>
            {texts.softwareAsk}
          </button>
        )}
        {one.previous_content?.href && (
          <button type="button" onClick={() => look(true)}>
            {texts.softwareBefore}
          </button>
        )}
        <span className="quiet">{texts.softwareHint}</span>
      </p>
      {previous !== null && <Places key={String(previous)} path={`${path}/software`} asOf={asOf} previous={previous} one={one} />}
    </section>
  );
}

function Places({ path, asOf, previous, one }: { path: string; asOf: string | null; previous: boolean; one: OneEvent }): ReactNode {
  const question = { previous, limit: PLACES_SHOWN, as_of: asOf };
  const [answer, again] = useAnswer((signal) => ask<SoftwarePlaces>(path, question, signal), path);
  return (
    <>
      <Shown answer={answer} again={again}>
        {(places) =>
          places.items.length ? (
            <>
              <TableFrame label={texts.software}>
                <Head columns={[texts.anchor, TEXTS.time, texts.path, texts.origin]} />
                <tbody>
                  {places.items.map((place) => (
                    <tr key={`${place.anchor} ${place.path}`}>
                      <th scope="row">
                        <code>{place.anchor}</code>
                      </th>
                      <td className="event_time">
                        <When ms={place.author_date * 1000} />
                      </td>
                      <td>{place.path}</td>
                      <td>{place.origin ?? "–"}</td>
                    </tr>
                  ))}
                </tbody>
              </TableFrame>
              {!places.is_complete && <p className="quiet">{texts.softwareMore}</p>}
            </>
          ) : (
            <p>{places.is_published ? texts.softwareUnknown(places.swhid) : texts.softwareUnpublished}</p>
          )
        }
      </Shown>
      <SameAnswer
        commandLine={command("content where", [String(one.event.event_id)], { writer: one.writer, previous, limit: PLACES_SHOWN })}
        path={path}
        parameters={question}
      />
    </>
  );
}
