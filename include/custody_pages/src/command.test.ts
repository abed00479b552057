import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";
import { changed, queryText } from "./address.ts";
import { command, curl, word, contentsCompared } from "./command.ts";

const HOSTILE = ["'", '"', "$(id)", "${HOME}", "`id`", "a b", "\\", "!", "a\nb", "*", "~", "", "--help", "ü", "\u202e"];

test("a shell takes every word literally", () => {
  for (const text of HOSTILE) {
    const shown = execFileSync("sh", ["-c", `printf %s ${word(text)}`], { encoding: "utf8" });
    assert.equal(shown, text);
  }
});

test("options without a value are left out, words that look like options stand behind dashes", () => {
  assert.equal(command("search", ["a b"], { limit: 5, oldest: true, writer: null, "as-of": "" }), "custody search --limit 5 --oldest 'a b'");
  assert.equal(command("lineage", ["-x"]), "custody lineage -- -x");
  assert.equal(command("search", [], { oldest: false }), "custody search");
});

test("a token is named and not written", () => {
  assert.equal(curl("http://h/api?q=a&b=1", true), `curl -H "Authorization: Bearer $CUSTODY_TOKEN" 'http://h/api?q=a&b=1'`);
});

test("a question that is sent is what the page sends, whatever is in it", () => {
  for (const text of HOSTILE) {
    const line = curl("http://h/sql", false, { query: text });
    const sent = execFileSync("sh", ["-c", `curl() { printf %s "$4"; }; ${line}`], { encoding: "utf8" });
    assert.deepEqual(JSON.parse(sent), { query: text });
  }
});

test("an address keeps what it is not asked to change", () => {
  const current = new URLSearchParams("q=a%26b&f=x:1&f=y:2");
  assert.equal(changed(current, { f: ["x:1"] }), "?q=a%26b&f=x%3A1");
  assert.equal(changed(current, { q: null, f: [] }), "?");
  assert.equal(queryText({ a: false, b: true, c: 0, d: undefined, e: ["1", "2"] }), "b=true&c=0&e=1&e=2");
});

test("two contents are compared by a standard tool", () => {
  assert.equal(
    contentsCompared("it's", "42", "7"),
    `cmp -l <(custody content get --previous --writer 'it'\\''s' --as-of 7 42) <(custody content get --writer 'it'\\''s' --as-of 7 42)`,
  );
});
