// Bytes of contents as text or hex, and what they look like.

export const HEX_WINDOW = 4096;
export const TEXT_WINDOW = 65_536;
export const WHOLE_MAX = 8 << 20;
export const DIFFERENCE_MAX = 256 << 10;
export const COMPARED_WINDOW = 2048;
export const SCANNED_PIECE = 256 << 10;
export const SCANNED_MAX = 16 << 20;

export interface HexRow {
  offset: string;
  hex: string;
  text: string;
}

export function hexRows(data: Uint8Array, start: number): HexRow[] {
  const rows: HexRow[] = [];
  for (let at = 0; at < data.length; at += 16) {
    const row = [...data.subarray(at, at + 16)];
    rows.push({
      offset: (start + at).toString(16).padStart(8, "0"),
      hex: row.map((byte) => byte.toString(16).padStart(2, "0")).join(" "),
      text: row.map((byte) => (byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : "·")).join(""),
    });
  }
  return rows;
}

/** Bytes that are alike in whether they differ from those of the other content. */
export interface Run {
  text: string;
  differs: boolean;
}

export interface ComparedRow {
  offset: string;
  before: Run[];
  after: Run[];
  /** How many of its bytes differ; one that only one of the contents has differs. */
  differing: number;
}

/** Sixteen bytes a row of both contents, from the same offset on. */
export function comparedRows(before: Uint8Array, after: Uint8Array, start: number): ComparedRow[] {
  const rows: ComparedRow[] = [];
  for (let at = 0; at < Math.max(before.length, after.length); at += 16) {
    const [was, is] = [before.subarray(at, at + 16), after.subarray(at, at + 16)];
    const differs = Array.from({ length: Math.max(was.length, is.length) }, (_, place) => was[place] !== is[place]);
    rows.push({
      offset: (start + at).toString(16).padStart(8, "0"),
      before: runs(was, differs),
      after: runs(is, differs),
      differing: differs.filter(Boolean).length,
    });
  }
  return rows;
}

function runs(row: Uint8Array, differs: readonly boolean[]): Run[] {
  const found: Run[] = [];
  row.forEach((byte, at) => {
    const hex = byte.toString(16).padStart(2, "0");
    const last = found.at(-1);
    if (last && last.differs === differs[at]) last.text += ` ${hex}`;
    else found.push({ text: hex, differs: differs[at]! });
  });
  return found;
}

/** Where two pieces differ first; the shorter one ends there. Null if they are the same. */
export function firstDifference(before: Uint8Array, after: Uint8Array): number | null {
  const common = Math.min(before.length, after.length);
  for (let at = 0; at < common; at++) if (before[at] !== after[at]) return at;
  return before.length === after.length ? null : common;
}

/** UTF-8; a range that cuts a character has a replacement sign there. */
export function asText(data: Uint8Array): string {
  return new TextDecoder("utf-8").decode(data);
}

export function isText(data: Uint8Array): boolean {
  // A cut range may end, or begin, within a character of at most four bytes.
  const text = asText(data).slice(3, -3);
  return !/[\u0000-\u0008\u000e-\u001f\ufffd]/.test(text);
}

const MAGIC: [string, number[]][] = [
  ["image/png", [0x89, 0x50, 0x4e, 0x47]],
  ["image/jpeg", [0xff, 0xd8, 0xff]],
  ["image/gif", [0x47, 0x49, 0x46, 0x38]],
  ["image/bmp", [0x42, 0x4d]],
  ["image/webp", [0x52, 0x49, 0x46, 0x46]],
];

/** The type of a picture that a browser draws; null for everything else. As a picture, SVG runs no script. */
export function pictureType(head: Uint8Array): string | null {
  for (const [type, magic] of MAGIC)
    if (magic.every((byte, at) => head[at] === byte) && (type !== "image/webp" || asText(head.subarray(8, 12)) === "WEBP"))
      return type;
  return /^\s*(<\?xml[^>]*>\s*)?(<!--[\s\S]*?-->\s*)*<svg[\s>]/.test(asText(head.subarray(0, 1024))) ? "image/svg+xml" : null;
}

export type View = "text" | "json" | "image" | "hex";

export function firstView(head: Uint8Array): View {
  if (pictureType(head)) return "image";
  if (!isText(head)) return "hex";
  return /^\s*[[{]/.test(asText(head)) ? "json" : "text";
}

/** JSON with its structure shown; null where it is none. Numbers stay as they are written. */
export function prettyJson(text: string): string | null {
  try {
    JSON.parse(text);
  } catch {
    return null;
  }
  return indented(text);
}

// JSON.stringify would round numbers beyond 53 bits, and drop repeated keys: only blanks are changed.
function indented(text: string): string {
  const out: string[] = [];
  let depth = 0;
  const line = (): void => void out.push("\n", "  ".repeat(depth));
  const tokens = text.match(/"(?:[^"\\]|\\.)*"|[[\]{},:]|[^\s[\]{},:"]+/g) ?? [];
  tokens.forEach((token, at) => {
    const next = tokens[at + 1];
    if (token === "{" || token === "[") {
      out.push(token);
      if (next === "}" || next === "]") return;
      depth += 1;
      line();
    } else if (token === "}" || token === "]") {
      const before = tokens[at - 1];
      if (before !== "{" && before !== "[") {
        depth -= 1;
        line();
      }
      out.push(token);
    } else if (token === ",") {
      out.push(token);
      line();
    } else out.push(token === ":" ? ": " : token);
  });
  return out.join("");
}
