import assert from "node:assert/strict";
import test from "node:test";
import { barsOfBuckets, barsOfDays, finerThanDays, trimmed } from "./histogram_days.ts";

test("a day becomes quarters of an hour, five days hours, two months half days, more stay days", () => {
  assert.deepEqual(finerThanDays({ "2026-03-02": 7 }), { since: "2026-03-02", until: "2026-03-02", buckets: 96 });
  assert.equal(finerThanDays({ "2026-03-02": 1, "2026-03-06": 1 })?.buckets, 120);
  assert.equal(finerThanDays({ "2026-01-01": 1, "2026-03-01": 1 })?.buckets, 120);
  assert.equal(finerThanDays({ "2026-01-01": 1, "2026-03-02": 1 }), null);
  assert.equal(finerThanDays({ "": 3 }), null);
});

test("no event is in two bars, and a bar names the bounds of its span", () => {
  const bars = barsOfBuckets([
    { first_ms: 0, last_ms: 999, events: 2 },
    { first_ms: 1000, last_ms: 1000, events: 1 },
  ]);
  assert.deepEqual(
    bars.map(({ since, until, count }) => [since, until, count]),
    [
      ["1970-01-01T00:00:00.000Z", "1970-01-01T00:00:00.999Z", 2],
      ["1970-01-01T00:00:01.000Z", "1970-01-01T00:00:01.000Z", 1],
    ],
  );
});

test("bars without events are left out at the ends alone", () => {
  const bar = (count: number) => ({ since: "", until: "", label: "", count });
  assert.deepEqual(
    trimmed([0, 0, 3, 0, 1, 0].map(bar)).map(({ count }) => count),
    [3, 0, 1],
  );
  assert.deepEqual(trimmed([0, 0].map(bar)), []);
});

test("days between those with events have bars, too", () => {
  const bars = barsOfDays({ "2026-03-02": 1, "2026-03-05": 4 });
  assert.deepEqual(
    bars.map((bar) => bar.count),
    [1, 0, 0, 4],
  );
});
