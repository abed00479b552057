import assert from "node:assert/strict";
import { test } from "node:test";
import { boundText, instantOf, ofAddress, offsetText, typedOf, zoneName } from "./zone.ts";

/** Node takes another zone over as soon as it is set. */
function within(zone: string, look: () => void): void {
  const former = process.env["TZ"];
  process.env["TZ"] = zone;
  try {
    look();
  } finally {
    if (former === undefined) delete process.env["TZ"];
    else process.env["TZ"] = former;
  }
}

test("a typed day is the reader's, from its first to its last millisecond", () => {
  within("Asia/Kolkata", () => {
    assert.equal(instantOf("2026-03-01", false), "2026-02-28T18:30:00.000Z");
    assert.equal(instantOf("2026-03-01", true), "2026-03-01T18:29:59.999Z");
    assert.equal(instantOf(" 2026-03-01 09:30 ", false), "2026-03-01T04:00:00.000Z");
    assert.equal(instantOf("2026-03-01T09:30", true), "2026-03-01T04:00:59.999Z");
    assert.equal(instantOf("2026-03-01 09:30:07", true), "2026-03-01T04:00:07.999Z");
    assert.equal(instantOf("2026-03-01 09:30:07.5", true), "2026-03-01T04:00:07.500Z");
    assert.equal(offsetText(0), "UTC+05:30");
    assert.match(zoneName(), /^Asia\//);
  });
  within("UTC", () => assert.equal(offsetText(0), "UTC"));
});

test("a day of a changed clock has 23 or 25 hours", () => {
  within("America/St_Johns", () => {
    const hours = (day: string): number => (Date.parse(instantOf(day, true)) + 1 - Date.parse(instantOf(day, false))) / 3_600_000;
    assert.deepEqual(["2026-03-07", "2026-03-08", "2026-11-01", "2026-11-02"].map(hours), [24, 23, 25, 24]);
    assert.equal(instantOf("2026-03-08", false), "2026-03-08T03:30:00.000Z");
    assert.equal(instantOf("2026-03-08", true), "2026-03-09T02:29:59.999Z");
    assert.equal(offsetText(Date.parse("2026-01-01")), "UTC−03:30");
    assert.equal(offsetText(Date.parse("2026-07-01")), "UTC−02:30");
  });
});

test("today and yesterday are days of the reader", () => {
  within("Asia/Kolkata", () => {
    const now = Date.parse("2026-03-01T20:00:00Z");
    assert.equal(instantOf("today", false, now), "2026-03-01T18:30:00.000Z");
    assert.equal(instantOf("Yesterday", true, now), "2026-03-01T18:29:59.999Z");
  });
});

test("what has a zone, counts from now, or is no time stays as it is", () => {
  within("Asia/Kolkata", () => {
    for (const text of ["2026-03-01T09:30:00Z", "2026-03-01T09:30:00+02:00", "3 hours ago", "17", "main:17", "1772409600000", "", "2026-02-30", "2026-13-01", "2026-03-01 24:00", "march"])
      assert.equal(instantOf(text, false), text);
  });
});

test("an instant is shown as it would be typed, and typed again means the same", () => {
  for (const zone of ["UTC", "Asia/Kolkata", "America/St_Johns"])
    within(zone, () => {
      for (const typed of ["2026-03-01", "2026-03-08", "2026-11-01", "2026-03-01 09:30", "2026-03-01 09:30:07", "2026-03-01 09:30:07.250", "0099-01-01"])
        for (const isEnd of [false, true]) {
          const instant = instantOf(typed, isEnd);
          assert.equal(instantOf(typedOf(instant, isEnd), isEnd), instant);
          if (typed.length < 20 || !isEnd) assert.equal(typedOf(instant, isEnd), typed);
        }
      // The second 01:30 of that night.
      const second = "2026-11-01T05:00:00.000Z";
      assert.equal(instantOf(typedOf(second, false), false), second);
      assert.equal(typedOf("3 hours ago", false), "3 hours ago");
    });
});

test("a bound of an address is of UTC where it has no zone, and is shown in the reader's", () => {
  within("Asia/Kolkata", () => {
    assert.equal(ofAddress("2026-03-01", true), "2026-03-01T23:59:59.999Z");
    assert.equal(ofAddress("2026-03-01T09:30", true), "2026-03-01T09:30:00.000Z");
    assert.equal(boundText("2026-03-01", false), "2026-03-01 05:30");
    assert.equal(boundText("2026-02-28T18:30:00.000Z", false), "2026-03-01");
    assert.equal(boundText("3 hours ago", false), "3 hours ago");
    assert.equal(boundText("17", true), "17");
    assert.equal(boundText("main:17,w2:3", true), "main:17,w2:3");
    assert.equal(boundText("march", false), "march (UTC)");
  });
});
