import assert from "node:assert/strict";
import { test } from "node:test";
import { asText, comparedRows, firstDifference, firstView, hexRows, isText, pictureType, prettyJson } from "./bytes_view.ts";

const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);

test("hex rows have sixteen bytes, their offset in the content, and only what can be printed", () => {
  const rows = hexRows(Uint8Array.from({ length: 20 }, (_, at) => at * 13), 4096);
  assert.equal(rows.length, 2);
  assert.deepEqual([rows[0]!.offset, rows[1]!.offset], ["00001000", "00001010"]);
  assert.equal(rows[1]!.hex, "d0 dd ea f7");
  assert.match(rows[0]!.text, /^[\x20-\x7e·]{16}$/);
});

test("JSON gets its structure shown, and no number, key or text changes", () => {
  const text = '{"n":12345678901234567890,"n":1.0,"a":[],"t":"{\\"x\\": [1]}","o":{"b":[1,{}]}}';
  const pretty = prettyJson(text)!;
  assert.equal(pretty.replaceAll(/\n */g, "").replaceAll(": ", ":"), text.replaceAll(": ", ":"));
  assert.match(pretty, /12345678901234567890/);
  assert.match(pretty, /\n {2}"a": \[\],\n/);
  assert.equal(prettyJson('{"a": 1'), null);
  assert.equal(prettyJson("hello"), null);
});

test("pictures are told by their bytes, and HTML is none", () => {
  assert.equal(pictureType(Uint8Array.of(0x89, 0x50, 0x4e, 0x47, 13)), "image/png");
  assert.equal(pictureType(bytes('<?xml version="1.0"?>\n<!-- a --><svg xmlns="x">')), "image/svg+xml");
  assert.equal(pictureType(bytes("<html><svg></svg>")), null);
  assert.equal(pictureType(bytes("RIFF1234WAVE")), null);
});

test("what is shown first follows the bytes; a cut character is still text", () => {
  assert.equal(firstView(bytes('  {"a": 1}')), "json");
  assert.equal(firstView(bytes("<script>alert(1)</script>")), "text");
  assert.equal(firstView(Uint8Array.of(0, 1, 2, 3, 0, 0, 0, 0, 0, 0)), "hex");
  const cut = bytes("größer: 5 €").subarray(0, -1);
  assert.equal(isText(cut), true);
  assert.equal(asText(cut).startsWith("größer"), true);
});

test("rows of two contents mark the bytes that differ, and those that only one of them has", () => {
  const before = Uint8Array.from({ length: 20 }, (_, at) => at);
  const after = Uint8Array.from([...before.subarray(0, 18), 99, 19, 20]);
  const [first, second] = comparedRows(before, after, 4096);
  assert.deepEqual([first!.offset, first!.differing, first!.before.length], ["00001000", 0, 1]);
  assert.equal(second!.offset, "00001010");
  assert.equal(second!.differing, 2);
  assert.deepEqual(second!.before, [
    { text: "10 11", differs: false },
    { text: "12", differs: true },
    { text: "13", differs: false },
  ]);
  assert.deepEqual(second!.after.at(-1), { text: "14", differs: true });
});

test("the first difference is a byte, or the end of the shorter content", () => {
  assert.equal(firstDifference(bytes("abc"), bytes("abX")), 2);
  assert.equal(firstDifference(bytes("ab"), bytes("abX")), 2);
  assert.equal(firstDifference(bytes("abc"), bytes("abc")), null);
  assert.equal(firstDifference(bytes(""), bytes("a")), 0);
});
