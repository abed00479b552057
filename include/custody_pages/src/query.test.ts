import assert from "node:assert/strict";
import { test } from "node:test";
import { anywhere, combined, completed, completion, quoted, written } from "./query.ts";

const NONE = { query: "", facets: [] as [string, string][], since: "", until: "" };

test("an empty choice finds all, a query alone stays as it is typed", () => {
  assert.equal(combined(NONE), "");
  assert.equal(combined({ ...NONE, query: "  a OR b " }), "a OR b");
  assert.equal(combined({ ...NONE, query: "*" }), "");
});

test("values of a field are alternatives, fields and times are all wanted", () => {
  const facets: [string, string][] = [["event_type", "SEND"], ["source_node", "n1"], ["event_type", "FORK"]];
  const query = combined({ query: "a OR b", facets, since: "2026-03-01", until: "3 days ago" });
  assert.equal(
    query,
    '(a OR b) AND (event_type:"SEND" OR event_type:"FORK") AND source_node:"n1" AND event_time:[2026-03-01 TO "3 days ago"]',
  );
  assert.equal(combined({ ...NONE, since: "-2h" }), "event_time:[-2h TO]");
  assert.equal(combined({ ...NONE, until: "now" }), "event_time:[TO now]");
});

test("a value cannot leave its quotes", () => {
  assert.equal(quoted('a" OR *'), '"a"" OR *"');
  assert.equal(written("PutHDFS"), "PutHDFS");
  for (const value of ["two words", "AND", "a:b", "*", "", '"', "-x"]) assert.equal(written(value), quoted(value));
});

test("fields and values are completed at the caret, nothing within quotes", () => {
  assert.deepEqual(completion("event_ty", 8), { start: 0, typed: "event_ty", field: null });
  assert.deepEqual(completion("a AND event_type:SE", 19), { start: 17, typed: "SE", field: "event_type" });
  assert.deepEqual(completion("(NOT comp", 9), { start: 5, typed: "comp", field: null });
  assert.deepEqual(completion("event_type:", 11), { start: 11, typed: "", field: "event_type" });
  assert.equal(completion('details:"two wo', 15), null);
  assert.equal(completion("a ", 2), null);
});

test("what is completed stands where the caret was, and the rest stays", () => {
  const at = completion("ev AND x", 2)!;
  assert.deepEqual(completed("ev AND x", 2, at, "event_type"), ["event_type:AND x", 11]);
  const value = completion("event_type:S", 12)!;
  assert.deepEqual(completed("event_type:S", 12, value, "SEND"), ["event_type:SEND ", 16]);
});

test("words are looked for anywhere in names, and nothing else is", () => {
  assert.equal(anywhere(" 45226 "), "filename:*45226* OR transit_uri:*45226*");
  assert.equal(anywhere("filename:order-45226"), "filename:*order-45226* OR transit_uri:*order-45226*");
  assert.equal(anywhere("order #45226"), "(filename:*order* OR transit_uri:*order*) AND (filename:*45226* OR transit_uri:*45226*)");
  for (const text of ["", "a", "this or that", "a word", "one two three four five six seven", "event_type:SEND", "a*", '"quoted"', "(a)", "a:b"]) assert.equal(anywhere(text), null, text);
});
