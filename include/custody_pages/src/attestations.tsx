// Attestations: signed heads of the catalogs that are kept, and what each proves of the catalog as it is now.

import { type ReactNode } from "react";
import { pageAddress } from "./address.ts";
import { ask } from "./api.ts";
import { command } from "./command.ts";
import type { Attestations } from "./documents.ts";
import { Head, SameAnswer, Shown, TableFrame, useAnswer, When } from "./frame.tsx";
import { TEXTS } from "./texts.ts";

const texts = TEXTS.proof;

export function AttestationList(): ReactNode {
  const [answer, again] = useAnswer((signal) => ask<Attestations>("attestations", {}, signal), "attestations");
  return (
    <section aria-label={texts.attestations}>
      <h2>{texts.attestations}</h2>
      <Shown answer={answer} again={again}>
        {({ items }) =>
          items.length ? (
            <TableFrame label={texts.attestations}>
              <Head columns={[texts.file, texts.state, TEXTS.writer, texts.revision, texts.attested, texts.said, texts.publicKey]} />
              <tbody>
                {items.map((one) => (
                  <tr key={one.file}>
                    <th scope="row">{one.file}</th>
                    <td>{texts.states[one.state] ?? one.state}</td>
                    <td>{one.writer ?? "–"}</td>
                    <td className="number-cell">
                      {one.writer != null && one.revision != null && one.state === "proven" ? (
                        <a href={pageAddress("search", { writer: one.writer, as_of: one.revision })}>{one.revision}</a>
                      ) : (
                        (one.revision ?? "–")
                      )}
                    </td>
                    <td className="event_time">{one.attested_ms == null ? "–" : <When ms={one.attested_ms} away />}</td>
                    <td>{one.said.join("; ")}</td>
                    <td>
                      <code>{one.public_key ?? "–"}</code>
                    </td>
                  </tr>
                ))}
              </tbody>
            </TableFrame>
          ) : (
            <p>{texts.noAttestations}</p>
          )
        }
      </Shown>
      <SameAnswer commandLine={command("catalog attestations", [])} path="attestations" />
    </section>
  );
}
