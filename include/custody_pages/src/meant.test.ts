import assert from "node:assert/strict";
import { test } from "node:test";
import { meantBy, optionsOf } from "./meant.ts";

test("no condition is no selection: it would mean every event", () => {
  for (const text of ["", "writer=main", "ids=", "ids=x,-1", "attribute=novalue", "attribute==x", "flowfile=", "since="])
    assert.equal(meantBy(new URLSearchParams(text)), null, text);
});

test("conditions are taken as they stand, values with their equal signs", () => {
  const meant = meantBy(new URLSearchParams("ids=1,%202&flowfile=a&attribute=a%3Db%3Dc&attribute=%24%7Bx%7D%3D&since=2026-03-01&writer=main"));
  assert.deepEqual(meant, {
    event_ids: [1, 2],
    flowfile_uuids: ["a"],
    attributes: { a: "b=c", "${x}": "" },
    since: "2026-03-01",
    writer: "main",
  });
});

test("the command has what a shell takes literally", () => {
  assert.equal(
    optionsOf({ event_ids: [7], attributes: { a: "it's $(x)" }, since: "2026-03-01T00:00:00Z", writer: "main" }),
    `--event-id 7 --attribute 'a=it'\\''s $(x)' --from 1772323200000 --writer main`,
  );
});
