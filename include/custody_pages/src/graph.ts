// What of a lineage is drawn: the nearest FlowFiles first, at most NODES_MAX, and the way from one to another.

import type { LineageDocument, LineageNode, Listed } from "./documents.ts";

export const NODES_MAX = 300;

export interface Edge {
  from: string;
  to: string;
}

export interface Drawn {
  nodes: LineageNode[];
  edges: Edge[];
  /** FlowFiles of the answer that are only in the table. */
  left: number;
}

/** All edges between FlowFiles of the answer, each once, whichever end names it. */
export function edgesOf(nodes: LineageNode[]): Edge[] {
  const known = new Set(nodes.map((node) => node.uuid));
  const edges = new Map<string, Edge>();
  const add = (from: string, to: string): void => {
    if (known.has(from) && known.has(to)) edges.set(`${from}\n${to}`, { from, to });
  };
  for (const node of nodes) {
    for (const child of node.children) add(node.uuid, child);
    for (const parent of node.parents) add(parent, node.uuid);
  }
  return [...edges.values()];
}

/** How many events each FlowFile has that the lineage does not: of those that some were found of. */
export function behindOf(cut: LineageNode[], found: Listed[]): Map<string, number> {
  const shown = new Set(cut.flatMap(({ events }) => events.map(({ writer, event }) => `${writer}/${event.event_id}`)));
  const counts = new Map<string, number>();
  for (const { writer, event } of found) {
    if (shown.has(`${writer}/${event.event_id}`)) continue;
    counts.set(event.flowfile_uuid, (counts.get(event.flowfile_uuid) ?? 0) + 1);
  }
  return counts;
}

/** The nodes in order of their distance from the roots; those that no root leads to stand last. */
export function byDistance(nodes: LineageNode[], edges: Edge[], roots: string[]): LineageNode[] {
  const near = neighbours(edges);
  const byName = new Map(nodes.map((node) => [node.uuid, node]));
  const order = new Set(roots.filter((uuid) => byName.has(uuid)));
  // A set gives its elements in the order in which they came, those too that are added meanwhile.
  for (const uuid of order) for (const other of near.get(uuid) ?? []) if (byName.has(other)) order.add(other);
  for (const node of nodes) order.add(node.uuid);
  return [...order].map((uuid) => byName.get(uuid)!);
}

export interface End {
  uri: string;
  /** Whether it came from there, and did not go there. */
  isSource: boolean;
  uuid: string;
  writer: string;
  event_id: number;
  event_time: number;
}

const SOURCES = ["RECEIVE", "FETCH", "CREATE"];

/** The places outside that events name, each once with its newest event: first those that it went to, the newest first. */
export function endsOf(nodes: readonly LineageNode[]): End[] {
  const ends = new Map<string, End>();
  for (const { uuid, events } of nodes)
    for (const { writer, event } of events) {
      if (!event.transit_uri || event.event_id === undefined) continue;
      const isSource = SOURCES.includes(event.event_type);
      const key = `${isSource} ${event.transit_uri}`;
      const known = ends.get(key);
      if (known && known.event_time >= event.event_time) continue;
      ends.set(key, { uri: event.transit_uri, isSource, uuid, writer, event_id: event.event_id, event_time: event.event_time });
    }
  return [...ends.values()].sort((one, other) => Number(one.isSource) - Number(other.isSource) || other.event_time - one.event_time);
}

function neighbours(edges: Edge[]): Map<string, string[]> {
  const near = new Map<string, string[]>();
  const add = (from: string, to: string): void => {
    const others = near.get(from);
    if (others) others.push(to);
    else near.set(from, [to]);
  };
  for (const { from, to } of edges) {
    add(from, to);
    add(to, from);
  }
  return near;
}

export function drawn(lineage: LineageDocument, roots: string[], nodesMax = NODES_MAX): Drawn {
  const all = edgesOf(lineage.nodes);
  const nodes = byDistance(lineage.nodes, all, roots).slice(0, nodesMax);
  const shown = new Set(nodes.map((node) => node.uuid));
  return {
    nodes,
    edges: all.filter(({ from, to }) => shown.has(from) && shown.has(to)),
    left: lineage.nodes.length - nodes.length,
  };
}

/** The FlowFiles on a shortest way between two, both included; empty where there is none. */
export function way(edges: Edge[], from: string, to: string): string[] {
  const near = neighbours(edges);
  const came = new Map<string, string | null>([[from, null]]);
  let wave = [from];
  while (wave.length && !came.has(to)) {
    const next: string[] = [];
    for (const uuid of wave)
      for (const other of near.get(uuid) ?? [])
        if (!came.has(other)) {
          came.set(other, uuid);
          next.push(other);
        }
    wave = next;
  }
  if (!came.has(to)) return [];
  const path: string[] = [];
  for (let at: string | null = to; at !== null; at = came.get(at) ?? null) path.unshift(at);
  return path;
}

/** The times at which something happened, each once, the earliest first. */
export function momentsOf(nodes: readonly LineageNode[]): number[] {
  return [...new Set(nodes.flatMap(({ events }) => events.map(({ event }) => event.event_time)))].sort((one, other) => one - other);
}

/** A lineage as far as it had come at a time: its events until then, and the FlowFiles that they are of or name. */
export function upTo(nodes: LineageNode[], until: number | null, roots: string[]): LineageNode[] {
  if (until === null) return nodes;
  const named = new Set(roots);
  const then = nodes.map((node) => {
    const events = node.events.filter(({ event }) => event.event_time <= until);
    for (const { event } of events)
      for (const uuid of [...(event.parent_uuids ?? []), ...(event.child_uuids ?? [])]) named.add(uuid);
    return { ...node, events };
  });
  return then.filter(({ uuid, events }) => events.length || named.has(uuid));
}

/** The name that people know a FlowFile by: its newest filename, or what it is said to be elsewhere. */
export function titleOf(node: LineageNode): string {
  for (const { event } of node.events.toReversed()) {
    const name = event.updated_attributes?.["filename"] ?? event.previous_attributes?.["filename"];
    if (name) return name;
  }
  return node.uuid.slice(0, 8);
}

const FAILED = /\b(fail|failed|failure|error|retry|denied|rejected)\b/i;

/** Whether an event of a FlowFile says that something failed: by its relationship, its details or a state. */
export function hasFailed(node: LineageNode): boolean {
  return node.events.some(({ event }) => {
    const states = Object.entries(event.updated_attributes ?? {}).filter(([name]) => /state|status|event_?type/i.test(name));
    return [event.relationship, event.details, ...states.map(([, value]) => value)].some((text) => text && FAILED.test(text));
  });
}
