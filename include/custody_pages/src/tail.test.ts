import assert from "node:assert/strict";
import { test } from "node:test";
import type { EventPage, Listed } from "./documents.ts";
import { nameOf, newsSince, SHOWN_MAX, type Seen } from "./tail.ts";

const PAGE = 100;

function listed(writer: string, id: number): Listed {
  return { writer, event: { event_id: id } } as Listed;
}

/** Answers pages of a list; `asked` counts them. */
function server(all: Listed[], lost = 0): { ask: (address: string | null) => Promise<EventPage>; asked: () => number } {
  let asked = 0;
  return {
    asked: () => asked,
    ask: async (address) => {
      asked += 1;
      const from = Number(address ?? 0);
      const items = all.slice(from, from + PAGE);
      return { as_of: {}, total: all.length + lost, items, next: from + PAGE < all.length ? String(from + PAGE) : null, lost: address ? 0 : lost };
    },
  };
}

function down(writer: string, from: number, to: number): Listed[] {
  return Array.from({ length: from - to + 1 }, (_, at) => listed(writer, from - at));
}

function seenOf(all: Listed[], shown = PAGE): Seen {
  return { items: all.slice(0, shown), total: all.length, next: all.length > shown ? String(shown) : null, notices: [] };
}

test("a burst of more than a page leaves no hole", async () => {
  const before = down("main", 999, 0);
  const { ask, asked } = server(down("main", 1349, 0));
  const news = await newsSince(seenOf(before), ask);
  assert.equal(news.added, 350);
  assert.deepEqual(news.items.map(nameOf), down("main", 1349, 900).map(nameOf));
  assert.equal(news.next, "100");
  assert.equal(news.isAnew, false);
  assert.equal(asked(), 4);
});

test("nothing new costs one question", async () => {
  const all = down("main", 999, 0);
  const { ask, asked } = server(all);
  const news = await newsSince(seenOf(all, 300), ask);
  assert.equal(news.added, 0);
  assert.deepEqual(news.items, all.slice(0, 300));
  assert.equal(asked(), 1);
});

test("what a slow writer adds between known events is found, and what it adds behind them can be reached", async () => {
  const before = down("fast", 999, 0);
  const among = [...before.slice(0, 150), listed("slow", 7), ...before.slice(150)];
  const { ask, asked } = server(among);
  const news = await newsSince(seenOf(before, 300), ask);
  assert.equal(news.added, 1);
  assert.deepEqual(news.items.slice(0, 200), among.slice(0, 200));
  assert.equal(asked(), 2);
  const behind = [...before.slice(0, 500), listed("slow", 7), ...before.slice(500)];
  const later = await newsSince(seenOf(before, 300), server(behind).ask);
  assert.equal(later.added, 0);
  assert.equal(later.total, 1001);
  // Read anew: the place behind it knows of the new event.
  assert.deepEqual(later.items, before.slice(0, 300));
  assert.equal(later.next, "300");
});

test("more than the bound begins the list anew and says so", async () => {
  const { ask, asked } = server(down("main", 99 + SHOWN_MAX + 20, 0));
  const news = await newsSince(seenOf(down("main", 99, 0)), ask);
  assert.equal(news.isAnew, true);
  assert.equal(news.items.length, SHOWN_MAX);
  assert.equal(news.next, String(SHOWN_MAX));
  assert.equal(asked(), SHOWN_MAX / PAGE);
});

test("the first events of an empty list, and events that were forgotten meanwhile", async () => {
  const first = await newsSince(seenOf([]), server(down("main", 149, 0)).ask);
  assert.deepEqual([first.added, first.items.length, first.isAnew], [150, 150, false]);
  const before = down("main", 99, 0);
  const after = [...down("main", 104, 100), ...before.slice(10)];
  const news = await newsSince(seenOf(before), server(after).ask);
  assert.deepEqual(news.items.map(nameOf), after.map(nameOf));
  assert.equal(news.added, 5);
});

test("events that cannot be read are looked for once", async () => {
  const before = down("main", 999, 0);
  const { ask, asked } = server(down("main", 1002, 0), 2);
  const news = await newsSince(seenOf(before), ask);
  assert.equal(news.added, 3);
  assert.equal(asked(), 1);
});
