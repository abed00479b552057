import assert from "node:assert/strict";
import { test } from "node:test";
import type { TransactionSummary } from "./documents.ts";
import { daysUntil, middle, paceOf, waitsOf } from "./pace.ts";

const HOUR = 3_600_000;

function commit(hour: number, changes: Partial<TransactionSummary> = {}): TransactionSummary {
  return {
    revision: hour,
    commit_time_ms: hour * HOUR,
    uuid: "",
    previous_digest: "",
    files_added: 1,
    events_added: 10,
    shards_added: 1,
    removed: 0,
    other: [],
    bytes_added: 100,
    ...changes,
  };
}

test("waits are those of commits with events that say so, the oldest first", () => {
  const items = [commit(3, { waited_ms: 7 }), commit(2, { waited_ms: null }), commit(1, { waited_ms: 0 }), commit(0, { waited_ms: 5, events_added: 0 })];
  assert.deepEqual(waitsOf(items).map(({ time_ms, waited_ms }) => [time_ms, waited_ms]), [[HOUR, 0], [3 * HOUR, 7]]);
});

test("half of all values lie at the middle or below", () => {
  assert.equal(middle([]), 0);
  assert.equal(middle([9]), 9);
  assert.equal(middle([9, 1, 5]), 5);
  assert.equal(middle([4, 1]), 1);
});

test("the pace is of new events alone: a compaction writes others again", () => {
  const items = [commit(0), commit(12), commit(6, { removed: 2, bytes_added: 10_000 }), commit(7, { events_added: 0, bytes_added: 9 })];
  assert.deepEqual(paceOf(items, 24 * HOUR), { span_ms: 24 * HOUR, bytes_a_day: 200 });
  assert.equal(paceOf(items, HOUR / 2), null);
  assert.equal(paceOf([], 24 * HOUR), null);
});

test("what is full already is full today, and what never fills has no day", () => {
  const pace = { span_ms: 1, bytes_a_day: 100 };
  assert.equal(daysUntil(1000, pace), 10);
  assert.equal(daysUntil(-5, pace), 0);
  assert.equal(daysUntil(1e12, pace), null);
  assert.equal(daysUntil(10, { span_ms: 1, bytes_a_day: 0 }), null);
});
