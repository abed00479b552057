// The health of what events and contents lie on: containers and the store, stripes, containers of contents, the scrub.

import { type ReactNode } from "react";
import type { RepositoryStatus } from "./documents.ts";
import { Head, TableFrame, When } from "./frame.tsx";
import { bytes } from "./moments.ts";
import { TEXTS } from "./texts.ts";

const texts = TEXTS.status;
const WELL = ["ok", "new"];

interface Place {
  key: string;
  name: string;
  folder: string;
  state: string;
  free_bytes: number | null;
  total_bytes: number | null;
}

export function Containers({ status }: { status: RepositoryStatus }): ReactNode {
  const disks = status.disks.map((disk) => ({ ...disk, key: disk.folder, name: "" }));
  const stripes = (status.stripes ?? []).map((stripe) => ({ ...stripe, key: stripe.name }));
  const contents = (status.content_containers ?? []).map((one) => ({ ...one, key: `${one.writer} ${one.name}`, name: `${one.writer} ${one.name}` }));
  return (
    <>
      <Places title={texts.disks} places={disks} />
      <Places title={texts.stripes} places={stripes} />
      <Places title={texts.contents} places={contents} />
      {status.scrub && (
        <>
          <h2>{texts.scrub}</h2>
          <p>
            {texts.scrubText(status.scrub.pieces, status.scrub.damaged)}
            {status.scrub.is_behind && <strong> {texts.scrubBehind}</strong>} <When ms={status.scrub.last_run_ms} away />
          </p>
        </>
      )}
    </>
  );
}

function Places({ title, places }: { title: string; places: Place[] }): ReactNode {
  if (!places.length) return null;
  return (
    <>
      <h2>{title}</h2>
      <TableFrame label={title}>
        <Head columns={[texts.folder, texts.name, texts.state, texts.free, texts.total]} />
        <tbody>
          {places.map((place) => (
            <tr key={place.key} className={WELL.includes(place.state) ? "" : "removed"}>
              <th scope="row">{place.folder || "–"}</th>
              <td>{place.name || "–"}</td>
              <td>{place.state}</td>
              <td className="number-cell">{bytes(place.free_bytes)}</td>
              <td className="number-cell">{bytes(place.total_bytes)}</td>
            </tr>
          ))}
        </tbody>
      </TableFrame>
    </>
  );
}
