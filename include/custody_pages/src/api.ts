// Questions to the API, which lies beside the pages, whatever both are mounted at.

import { queryText, type Parameters } from "./address.ts";
import type { ProblemDocument } from "./documents.ts";
import { TEXTS } from "./texts.ts";

const TOKEN = "custody-token";

export class ApiError extends Error {
  readonly status: number;
  readonly kind: string;

  constructor(status: number, kind: string, message: string) {
    super(message);
    this.status = status;
    this.kind = kind;
  }
}

export const base = new URL("../api/v1/", document.baseURI);

export function addressOf(path: string, parameters: Parameters = {}): string {
  const query = queryText(parameters);
  return new URL(query ? `${path}?${query}` : path, base).href;
}

/** The token that the reader typed in, for this tab alone; Airflow's pages need none. */
export function token(): string | null {
  return sessionStorage.getItem(TOKEN);
}

export function keepToken(value: string | null): void {
  if (value) sessionStorage.setItem(TOKEN, value);
  else sessionStorage.removeItem(TOKEN);
}

export async function ask<T>(path: string, parameters: Parameters = {}, signal?: AbortSignal): Promise<T> {
  return (await (await answered(addressOf(path, parameters), {}, signal)).json()) as T;
}

/** Begin or end something: the answer says how far it is. */
export async function order<T>(method: "POST" | "DELETE", path: string, body?: unknown, parameters: Parameters = {}): Promise<T> {
  const sent = body === undefined ? {} : { body: JSON.stringify(body) };
  const headers: Record<string, string> = body === undefined ? {} : { "Content-Type": "application/json" };
  return (await (await answered(addressOf(path, parameters), headers, undefined, { method, ...sent })).json()) as T;
}

/** Ask what is sent as a body. Numbers come as they are written: JavaScript's own would round those of 64 bits. */
export async function askByBody<T>(path: string, body: unknown, signal?: AbortSignal): Promise<T> {
  const sent = { method: "POST", body: JSON.stringify(body) };
  const answer = await answered(addressOf(path), { "Content-Type": "application/json" }, signal, sent);
  return exact(await answer.text()) as T;
}

/** JSON whose numbers are kept as texts, where the browser gives them as they are written. */
export function exact(text: string): unknown {
  const asWritten = (_: string, value: unknown, context?: { source?: string }): unknown =>
    typeof value === "number" && context?.source !== undefined && String(value) !== context.source ? context.source : value;
  return JSON.parse(text, asWritten as (key: string, value: unknown) => unknown);
}

export interface Piece {
  data: Uint8Array<ArrayBuffer>;
  /** Bytes of the whole content. */
  size: number;
}

/** Bytes from `start` on, at most `length`. */
export async function piece(path: string, start: number, length: number, signal?: AbortSignal): Promise<Piece> {
  const range = { Range: `bytes=${start}-${start + length - 1}` };
  let answer: Response;
  try {
    answer = await answered(addressOf(path), range, signal);
  } catch (error) {
    // An empty content has no first byte.
    if (error instanceof ApiError && error.status === 416) return { data: new Uint8Array(), size: start };
    throw error;
  }
  const data = new Uint8Array(await answer.arrayBuffer());
  const size = Number(/\/(\d+)$/.exec(answer.headers.get("Content-Range") ?? "")?.[1] ?? data.length);
  return { data, size };
}

/**
 * Save an answer as a file. What may be large goes to the disk as it comes; where a token is needed it is held in memory
 * first, for a link does not bring the token.
 */
export async function save(path: string, parameters: Parameters, name: string, isLarge: boolean): Promise<void> {
  const address = addressOf(path, parameters);
  const link = document.createElement("a");
  link.download = name;
  if (isLarge && token() === null) {
    link.href = address;
    link.click();
    return;
  }
  link.href = URL.createObjectURL(await (await answered(address, {})).blob());
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

/** Save the answer to a question that is sent as a body; return what its headers say. */
export async function saveByBody(path: string, body: unknown, name: string): Promise<Headers> {
  const sent = { method: "POST", body: JSON.stringify(body) };
  const answer = await answered(addressOf(path), { "Content-Type": "application/json" }, undefined, sent);
  const link = document.createElement("a");
  link.download = name;
  link.href = URL.createObjectURL(await answer.blob());
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  return answer.headers;
}

async function answered(
  address: string,
  headers: Record<string, string>,
  signal?: AbortSignal,
  more: RequestInit = {},
): Promise<Response> {
  const known = token();
  const all = known ? { ...headers, Authorization: `Bearer ${known}` } : headers;
  let answer: Response;
  try {
    answer = await fetch(address, { headers: all, credentials: "same-origin", ...more, ...(signal ? { signal } : {}) });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError(0, "unreachable", TEXTS.unreachable);
  }
  if (!answer.ok) throw await problemOf(answer);
  return answer;
}

async function problemOf(answer: Response): Promise<ApiError> {
  let document: Partial<ProblemDocument> & { error?: string; message?: string } = {};
  try {
    document = await answer.json();
  } catch {
    // A proxy's own page: its status is all that is known.
  }
  const detail = document.detail ?? document.message ?? answer.statusText;
  return new ApiError(answer.status, document.kind ?? document.error ?? "unknown", detail || TEXTS.failed(answer.status));
}
