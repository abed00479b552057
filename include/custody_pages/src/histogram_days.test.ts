import assert from "node:assert/strict";
import test from "node:test";
import { barsOfBuckets, barsOfDays, finerThanDays, trimmed } from "./histogram_days.ts";
import { instantOf } from "./zone.ts";

test("a day becomes quarters of an hour, five days hours, two months half days, more stay days", () => {
  const day = { since: "2026-03-02T00:00:00.000Z", until: "2026-03-02T23:59:59.999Z", buckets: 96 };
  assert.deepEqual(finerThanDays({ "2026-03-02": 7 }, "utc"), day);
  assert.equal(finerThanDays({ "2026-03-02": 1, "2026-03-06": 1 }, "utc")?.buckets, 120);
  assert.equal(finerThanDays({ "2026-01-01": 1, "2026-03-01": 1 }, "utc")?.buckets, 120);
  assert.equal(finerThanDays({ "2026-01-01": 1, "2026-03-02": 1 }, "utc"), null);
  assert.equal(finerThanDays({ "": 3 }, "utc"), null);
});

test("bars of the reader's days begin where these do, and are as wide where a clock changed", () => {
  const former = process.env["TZ"];
  process.env["TZ"] = "America/St_Johns";
  try {
    const [bar] = barsOfDays({ "2026-03-08": 1 }, "reader");
    assert.deepEqual([bar!.since, bar!.until, bar!.label], ["2026-03-08T03:30:00.000Z", "2026-03-09T02:29:59.999Z", "2026-03-08"]);
    assert.equal(barsOfDays({ "2026-03-08": 1 }, "utc")[0]!.label, "2026-03-08 UTC");
    // 23 hours in quarters; 47 hours in spans of half an hour.
    assert.equal(finerThanDays({ "2026-03-08": 1 }, "reader")?.buckets, 92);
    const two = finerThanDays({ "2026-03-07": 1, "2026-03-08": 1 }, "reader")!;
    assert.deepEqual([two.since, two.until, two.buckets], ["2026-03-07T03:30:00.000Z", "2026-03-09T02:29:59.999Z", 94]);
  } finally {
    if (former === undefined) delete process.env["TZ"];
    else process.env["TZ"] = former;
  }
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
  const bars = barsOfDays({ "2026-03-02": 1, "2026-03-05": 4 }, "utc");
  assert.deepEqual(
    bars.map((bar) => bar.count),
    [1, 0, 0, 4],
  );
});

test("days without events have bars, and many days share one", () => {
  const bars = barsOfDays({ "2026-03-03": 2, "2026-03-01": 1 }, "reader");
  assert.deepEqual(bars.map(({ label, count }) => [label, count]), [["2026-03-01", 1], ["2026-03-02", 0], ["2026-03-03", 2]]);
  const years = barsOfDays({ "2016-01-01": 3, "2026-01-01": 4 }, "reader");
  assert.equal(years.length <= 400, true);
  assert.equal(years.reduce((sum, bar) => sum + bar.count, 0), 7);
  assert.equal(years.at(-1)!.until, instantOf("2026-01-01", true));
  assert.deepEqual(barsOfDays({}, "reader"), []);
});
