// How times are shown: exact, or how long ago. The choice is kept by the browser, for all pages.

import { useSyncExternalStore } from "react";

export type TimeStyle = "exact" | "ago";

interface Times {
  style: TimeStyle;
  /** What "ago" counts from. */
  now: number;
}

const KEPT = "custody-times";
const TICK_MS = 20_000;
const listeners = new Set<() => void>();
let times: Times = { style: localStorage.getItem(KEPT) === "ago" ? "ago" : "exact", now: Date.now() };

function tell(next: Times): void {
  times = next;
  for (const listener of listeners) listener();
}

// What says how long ago something was grows old by itself.
setInterval(() => {
  if (times.style === "ago" && document.visibilityState !== "hidden") tell({ ...times, now: Date.now() });
}, TICK_MS);

export function chooseTimes(style: TimeStyle): void {
  if (style === "exact") localStorage.removeItem(KEPT);
  else localStorage.setItem(KEPT, style);
  tell({ style, now: Date.now() });
}

export function useTimes(): Times {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => times,
  );
}
