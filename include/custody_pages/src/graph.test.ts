import assert from "node:assert/strict";
import { test } from "node:test";
import type { EventDocument, LineageDocument, LineageNode } from "./documents.ts";
import { behindOf, countOf, drawn, edgesOf, endsOf, foldedWith, momentsOf, NODES_MAX, titleOf, upTo, way } from "./graph.ts";
import { bytes, relative } from "./moments.ts";

const node = (uuid: string, children: string[] = [], parents: string[] = []): LineageNode => ({
  uuid,
  kind: "FLOWFILE",
  events: [],
  parents,
  children,
});
const lineage = (nodes: LineageNode[]): LineageDocument => ({
  as_of: {},
  starts: [],
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

test("behind a bound are the events that the lineage does not show, of all that they mention", () => {
  const bounded = happened({ event_id: 3, flowfile_uuid: "a" });
  const cut = [{ ...bounded, uuid: "a" }, node("dataset"), node("none")];
  const found = [3, 4, 9].map((event_id) => ({ writer: "main", event: { ...bounded.events[0]!.event, event_id } }));
  found.push({ writer: "main", event: { ...bounded.events[0]!.event, event_id: 10, flowfile_uuid: "run", parent_uuids: ["dataset", "dataset"] } });
  assert.deepEqual(
    [...behindOf(cut, cut, found, true)],
    [["a", { events: 2, isAll: true }], ["dataset", { events: 1, isAll: true }], ["none", { events: 0, isAll: true }]],
  );
});

test("a number on an expander says where it is not all", () => {
  assert.equal(countOf({ events: 12, isAll: true }), "+12");
  assert.equal(countOf({ events: 100, isAll: true }), "+100");
  assert.equal(countOf({ events: 101, isAll: true }), "100+");
  assert.equal(countOf({ events: 12, isAll: false }), "12+");
  assert.equal(countOf({ events: 4000, isAll: false }), "100+");
  assert.equal(countOf({ events: 0, isAll: false }), "+");
  assert.equal(countOf(undefined), "+");
});

test("what was expanded behind an expansion is folded with it, unless another way leads there", () => {
  const edges = edgesOf([node("root", ["a", "b"]), node("a", ["c"]), node("b", ["d"]), node("c", ["e"]), node("d", ["e"]), node("e")]);
  assert.deepEqual(foldedWith(edges, ["root"], ["a", "c", "e"], "a"), ["c", "e"]);
  assert.deepEqual(foldedWith(edges.filter(({ from }) => from !== "d"), ["root"], ["a", "c", "e", "b"], "a"), ["b"]);
  assert.deepEqual(foldedWith(edges, ["root"], ["a"], "a"), []);
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

test("a FlowFile is called by its file, else by the beginning of its uuid", () => {
  assert.equal(titleOf(happened({ updated_attributes: { filename: "orders.csv" } })), "orders.csv");
  assert.equal(titleOf(happened({})), "a1b2c3d4");
});

test("a run and a dataset are called by their own names, and never by the file name of an event", () => {
  const told = { updated_attributes: { filename: "orders.csv" } };
  assert.equal(titleOf({ ...happened(told), kind: "RUN", name: "clean orders", namespace: "shop" }), "clean orders");
  assert.equal(titleOf({ ...happened(told), kind: "DATASET", name: "orders", version: "7" }), "orders@7");
  assert.equal(titleOf({ ...happened(told), kind: "RUN" }), "a1b2c3d4");
});

test("up to a time a FlowFile has failed only if it had failed by then", () => {
  const late = happened({ event_time: 9 });
  late.events.push({ ...happened({ event_time: 12 }).events[0]!, failed: true });
  const until = (time: number): (boolean | undefined)[] => upTo([{ ...late, failed: true }], time, []).map(({ failed }) => failed);
  assert.deepEqual([until(9), until(12)], [[false], [true]]);
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
