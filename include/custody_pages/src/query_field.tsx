// The field for a query, with completion of fields, event types and values.

import { useEffect, useId, useRef, useState, type KeyboardEvent, type ReactNode } from "react";
import { ask } from "./api.ts";
import type { Facets, Fields } from "./documents.ts";
import { completed, completion, type Completion } from "./query.ts";
import { TEXTS } from "./texts.ts";

const SHOWN_MAX = 12;
const PAUSE_MS = 150;

export function QueryField({ initial, fields }: { initial: string; fields: Fields | null }): ReactNode {
  const id = useId();
  const input = useRef<HTMLInputElement>(null);
  const [text, setText] = useState(initial);
  const [at, setAt] = useState<Completion | null>(null);
  const [offers, setOffers] = useState<string[]>([]);
  const [active, setActive] = useState(-1);
  const close = (): void => {
    setAt(null);
    setOffers([]);
    setActive(-1);
  };

  useEffect(() => {
    if (!at || !fields) return;
    const stop = new AbortController();
    const timer = setTimeout(() => {
      offersFor(at, fields, stop.signal).then(
        (values) => {
          if (stop.signal.aborted) return;
          setOffers(values);
          setActive(-1);
        },
        // A query is typed as well without help.
        () => undefined,
      );
    }, PAUSE_MS);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [at?.field, at?.typed, fields]);

  const take = (offer: string): void => {
    const field = input.current!;
    const [next, caret] = completed(text, field.selectionStart ?? text.length, at!, offer);
    setText(next);
    close();
    if (at!.field === null) setAt(completion(next, caret));
    requestAnimationFrame(() => field.setSelectionRange(caret, caret));
    field.focus();
  };
  const pressed = (event: KeyboardEvent): void => {
    if (!offers.length) return;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      const step = event.key === "ArrowDown" ? 1 : -1;
      setActive((active + step + offers.length + (active < 0 && step < 0 ? 1 : 0)) % offers.length);
    } else if (event.key === "Escape") close();
    else if (event.key === "Enter" && active >= 0) take(offers[active]!);
    else return;
    event.preventDefault();
  };

  const isOpen = offers.length > 0;
  return (
    <div className="query">
      <label htmlFor={id}>{TEXTS.search.query}</label>
      <input
        id={id}
        ref={input}
        name="q"
        value={text}
        placeholder={TEXTS.search.hint}
        autoComplete="off"
        spellCheck={false}
        role="combobox"
        aria-autocomplete="list"
        aria-expanded={isOpen}
        aria-controls={`${id}-list`}
        aria-activedescendant={active >= 0 ? `${id}-${active}` : undefined}
        onChange={({ target }) => {
          setText(target.value);
          setAt(completion(target.value, target.selectionStart ?? target.value.length));
        }}
        onKeyDown={pressed}
        onBlur={close}
      />
      <ul id={`${id}-list`} role="listbox" aria-label={TEXTS.search.completions} hidden={!isOpen}>
        {offers.map((offer, number) => (
          <li
            key={offer}
            id={`${id}-${number}`}
            role="option"
            aria-selected={number === active}
            // Before the field loses the focus, which closes the list.
            onMouseDown={(event) => {
              event.preventDefault();
              take(offer);
            }}
          >
            {offer || TEXTS.search.empty}
          </li>
        ))}
      </ul>
    </div>
  );
}

async function offersFor({ field, typed }: Completion, fields: Fields, signal: AbortSignal): Promise<string[]> {
  const names = [...fields.fields, ...fields.attributes.map((name) => `attribute.${name}`)];
  if (field === null) return matching(names, typed).filter((name) => name !== typed);
  if (field === "event_type") return matching(fields.event_types, typed);
  if (!fields.facets.includes(field) || field === "day") return [];
  const query = /^[\w.\-]+$/.test(typed) ? `${field}:${typed}*` : "";
  const { facets } = await ask<Facets>("events/facets", { field, q: query, top: SHOWN_MAX * 4 }, signal);
  return matching(Object.keys(facets[field] ?? {}), typed);
}

function matching(values: string[], typed: string): string[] {
  const start = typed.toLowerCase();
  return values.filter((value) => value.toLowerCase().startsWith(start)).slice(0, SHOWN_MAX);
}
