// Events that came since a page was read, without a hole between them and those that are known.

import type { EventPage, Listed } from "./documents.ts";

/** So many events are shown at most, and so many new ones are looked for at once. */
export const SHOWN_MAX = 5000;

export interface Seen {
  items: Listed[];
  /** How many events matched. */
  total: number;
  /** Where the events behind the last of `items` are; null where there are none. */
  next: string | null;
  notices: readonly string[];
}

export interface News extends Seen {
  /** So many of `items` are new. */
  added: number;
  /** More came at once than are looked for: none of `items` was known before, and what lies between is left out. */
  isAnew: boolean;
}

export function nameOf({ writer, event }: Listed): string {
  return `${writer}/${event.event_id}`;
}

/**
 * The list `seen` with what came since. `ask` answers with the newest page, or with the one at an address.
 *
 * Pages are followed until one has an event that is known, with as many new ones before it as the total grew by. Where
 * the total says that there are more, a slow writer's lie between what was known: then the whole list is read again.
 */
export async function newsSince(seen: Seen, ask: (address: string | null) => Promise<EventPage>): Promise<News> {
  const places = new Map(seen.items.map((item, place) => [nameOf(item), place]));
  const read: Listed[] = [];
  const notices = new Set(seen.notices);
  let page = await ask(null);
  const { total } = page;
  let lost = 0;
  // How many were read up to the last known one, how many of these were new, and its place.
  let [until, fresh, place] = [0, 0, -1];
  for (;;) {
    for (const item of page.items) {
      read.push(item);
      const known = places.get(nameOf(item));
      if (known === undefined) continue;
      fresh += read.length - 1 - until;
      [until, place] = [read.length, known];
    }
    for (const notice of page.notices ?? []) notices.add(notice);
    lost += page.lost;
    const found = { total, notices: [...notices] };
    if (place >= 0 && fresh + lost >= total - seen.total) {
      const items = [...read.slice(0, until), ...seen.items.slice(place + 1)].slice(0, SHOWN_MAX);
      return { ...found, items, next: seen.next, added: fresh, isAnew: false };
    }
    const isEnd = !page.next || (place >= 0 && place === seen.items.length - 1);
    if (isEnd || read.length >= SHOWN_MAX) {
      // Without a known one among them, all are new.
      const added = place < 0 ? read.length : fresh;
      return { ...found, items: read, next: page.next, added, isAnew: place < 0 && !isEnd };
    }
    page = await ask(page.next);
  }
}
