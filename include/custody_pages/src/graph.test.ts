import assert from "node:assert/strict";
import { test } from "node:test";
import type { EventDocument, LineageDocument, LineageNode } from "./documents.ts";
import { behindOf, drawn, edgesOf, endsOf, hasFailed, momentsOf, NODES_MAX, titleOf, upTo, way } from "./graph.ts";
import { bytes, relative } from "./moments.ts";

const node = (uuid: string, children: string[] = [], parents: string[] = []): LineageNode => ({
  uuid,
  kind: "FLOWFILE",
  events: [],
  parents,
  children,
});
const lineage = (nodes: LineageNode[]): LineageDocument => ({
  nodes,
  events: 0,
  is_complete: true,
  frontier: {},
  identifiers: {},
  unknown_events: [],
});
const happened = (changes: Partial<EventDocument>): LineageNode => ({
  ...node("a1b2c3d4-0000"),
  events: [{ writer: "main", event: { event_type: "ROUTE", event_time: 5, component_id: "c", component_type: "t", flowfile_uuid: "a", file_size: 0, ...changes } }],
});

test("behind a bound are the events that the lineage does not show", () => {
  const bounded = happened({ event_id: 3, flowfile_uuid: "a" });
  const found = [3, 4, 9].map((event_id) => ({ writer: "main", event: { ...bounded.events[0]!.event, event_id } }));
  assert.deepEqual([...behindOf([bounded], found)], [["a", 2]]);
});

test("an edge that both ends name is one, and one to what is not there is none", () => {
  const nodes = [node("a", ["b", "x"]), node("b", [], ["a"])];
  assert.deepEqual(edgesOf(nodes), [{ from: "a", to: "b" }]);
});

test("of a large lineage the nearest FlowFiles are drawn, and all that is left is counted", () => {
  const chain = Array.from({ length: 5000 }, (_, at) => node(`n${at}`, at < 4999 ? [`n${at + 1}`] : []));
  const picture = drawn(lineage(chain), ["n2500"]);
  assert.equal(picture.nodes.length, NODES_MAX);
  assert.equal(picture.left, 5000 - NODES_MAX);
  const numbers = picture.nodes.map(({ uuid }) => Math.abs(Number(uuid.slice(1)) - 2500));
  assert.equal(Math.max(...numbers), NODES_MAX / 2);
  assert.equal(picture.edges.length, NODES_MAX - 1);
});

test("the way to a FlowFile is a shortest one, in either direction", () => {
  const edges = edgesOf([node("a", ["b"]), node("b", ["c", "d"]), node("c", ["e"]), node("d"), node("e"), node("z")]);
  assert.deepEqual(way(edges, "a", "e"), ["a", "b", "c", "e"]);
  assert.deepEqual(way(edges, "d", "e"), ["d", "b", "c", "e"]);
  assert.deepEqual(way(edges, "a", "a"), ["a"]);
  assert.deepEqual(way(edges, "a", "z"), []);
});

test("failures are told by relationship, details and states, not by any text", () => {
  assert.equal(hasFailed(happened({ relationship: "failure" })), true);
  assert.equal(hasFailed(happened({ details: "Connection error" })), true);
  assert.equal(hasFailed(happened({ updated_attributes: { "airflow.state": "failed" } })), true);
  assert.equal(hasFailed(happened({ updated_attributes: { filename: "error.log" }, relationship: "success" })), false);
});

test("a FlowFile is called by its file, else by the beginning of its uuid", () => {
  assert.equal(titleOf(happened({ updated_attributes: { filename: "orders.csv" } })), "orders.csv");
  assert.equal(titleOf(happened({})), "a1b2c3d4");
});

test("the moments are the times of all events, each once", () => {
  assert.deepEqual(momentsOf([happened({ event_time: 9 }), happened({}), happened({ event_time: 9 }), node("x")]), [5, 9]);
  assert.deepEqual(momentsOf([node("x")]), []);
});

test("up to a time a lineage has the events until then, and the FlowFiles that they are of or name", () => {
  const root = { ...happened({ event_time: 5 }), uuid: "root" };
  root.events.push(happened({ event_time: 7, event_type: "FORK", child_uuids: ["child", "unseen"] }).events[0]!);
  const nodes = [root, { ...happened({ event_time: 9 }), uuid: "child" }, node("unseen"), { ...happened({ event_time: 8 }), uuid: "other" }];
  const shown = (until: number | null): [string, number][] => upTo(nodes, until, ["root"]).map(({ uuid, events }) => [uuid, events.length]);
  assert.deepEqual(shown(4), [["root", 0]]);
  assert.deepEqual(shown(5), [["root", 1]]);
  assert.deepEqual(shown(7), [["root", 2], ["child", 0], ["unseen", 0]]);
  assert.deepEqual(shown(8), [["root", 2], ["child", 0], ["unseen", 0], ["other", 1]]);
  assert.equal(upTo(nodes, null, ["root"]), nodes);
});

test("sizes and times are said in the largest unit that fits", () => {
  assert.deepEqual([bytes(0), bytes(1023), bytes(1536), bytes(null)], ["0 B", "1023 B", "1.5 KiB", "–"]);
  assert.equal(relative(0, 3 * 3_600_000), "3 hours ago");
  assert.equal(relative(86_400_000, 0), "tomorrow");
});

test("places are named once each, by their newest event, and those that it went to stand first", () => {
  const nodes = [
    happened({ event_type: "RECEIVE", transit_uri: "kafka://orders", event_id: 1, event_time: 1 }),
    happened({ event_type: "SEND", transit_uri: "hdfs://a", event_id: 2, event_time: 2 }),
    happened({ event_type: "SEND", transit_uri: "hdfs://b", event_id: 3, event_time: 9 }),
    happened({ event_type: "SEND", transit_uri: "hdfs://a", event_id: 4, event_time: 4 }),
    happened({ event_type: "SEND", event_id: 5, event_time: 5 }),
  ];
  assert.deepEqual(
    endsOf(nodes).map(({ uri, isSource, event_id }) => [uri, isSource, event_id]),
    [["hdfs://b", false, 3], ["hdfs://a", false, 4], ["kafka://orders", true, 1]],
  );
});
