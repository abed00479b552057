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

/** Events behind a bound, of which there may be more than were counted. */
export interface Behind {
  events: number;
  isAll: boolean;
}

/** More than so many events of a FlowFile are no number that anybody wants to know. */
const SAID_MAX = 100;

/** A number on an expander: `+12`; `12+` where there may be more, `100+` from there on; `+` where nothing was counted. */
export function countOf(behind: Behind | undefined): string {
  if (!behind || (behind.events === 0 && !behind.isAll)) return "+";
  if (behind.events > SAID_MAX) return `${SAID_MAX}+`;
  return behind.isAll ? `+${behind.events}` : `${behind.events}+`;
}

/** How many events mention each of some FlowFiles, and are not in the lineage: of those that were found. */
export function behindOf(nodes: LineageNode[], cut: LineageNode[], found: Listed[], isAll: boolean): Map<string, Behind> {
  const shown = new Set(nodes.flatMap(({ events }) => events.map(({ writer, event }) => `${writer}/${event.event_id}`)));
  const counts = new Map(cut.map(({ uuid }) => [uuid, { events: 0, isAll }]));
  for (const { writer, event } of found) {
    if (shown.has(`${writer}/${event.event_id}`)) continue;
    for (const uuid of new Set([event.flowfile_uuid, ...(event.parent_uuids ?? []), ...(event.child_uuids ?? [])])) {
      const count = counts.get(uuid);
      if (count) count.events += 1;
    }
  }
  return counts;
}

/** The expansions that are left when one is taken back: those that a way leads to that does not go through it. */
export function foldedWith(edges: Edge[], roots: string[], expanded: string[], uuid: string): string[] {
  const near = neighbours(edges.filter(({ from, to }) => from !== uuid && to !== uuid));
  const reached = new Set(roots.filter((one) => one !== uuid));
  for (const one of reached) for (const other of near.get(one) ?? []) reached.add(other);
  return expanded.filter((one) => one !== uuid && reached.has(one));
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
    return { ...node, events, failed: events.some(({ failed }) => failed) };
  });
  return then.filter(({ uuid, events }) => events.length || named.has(uuid));
}

/** Kinds that have a name of their own; of another node the newest file name is it. */
const NAMED = ["RUN", "JOB", "DATASET"];

/** What people know a node by: its name or newest filename. */
export function titleOf(node: LineageNode): string {
  if (node.name) return node.version ? `${node.name}@${node.version}` : node.name;
  for (const { event } of NAMED.includes(node.kind) ? [] : node.events.toReversed()) {
    const name = event.updated_attributes?.["filename"] ?? event.previous_attributes?.["filename"];
    if (name) return name;
  }
  return node.uuid.slice(0, 8);
}
