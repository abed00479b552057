// Where the FlowFiles of a picture stand; a worker computes it, so that the page stays usable.

import ELK from "elkjs/lib/elk-api.js";
import workerUrl from "elkjs/lib/elk-worker.min.js?url";
import type { Drawn } from "./graph.ts";

export const WIDTH = 200;
export const HEIGHT = 74;

export type Places = Map<string, { x: number; y: number }>;

let elk: InstanceType<typeof ELK> | null = null;

let former: Promise<unknown> = Promise.resolve();

/** The places of a picture; nothing where nobody wants it any more once those before it are laid out. */
export function placesOf(drawn: Drawn, isWanted: () => boolean): Promise<Places | null> {
  const next = former.then(() => (isWanted() ? laidOut(drawn) : null));
  former = next.catch(() => undefined);
  return next;
}

async function laidOut({ nodes, edges }: Drawn): Promise<Places> {
  elk ??= new ELK({ workerUrl });
  const laid = await elk.layout({
    id: "lineage",
    layoutOptions: {
      "elk.algorithm": "layered",
      "elk.direction": "RIGHT",
      "elk.layered.spacing.nodeNodeBetweenLayers": "70",
      "elk.spacing.nodeNode": "18",
      // Those that are of one kind stand as the answer has them, for they were made in that order.
      "elk.layered.considerModelOrder.strategy": "NODES_AND_EDGES",
    },
    children: nodes.map(({ uuid }) => ({ id: uuid, width: WIDTH, height: HEIGHT })),
    edges: edges.map(({ from, to }, at) => ({ id: String(at), sources: [from], targets: [to] })),
  });
  return new Map(laid.children!.map(({ id, x, y }) => [id, { x: x!, y: y! }]));
}
