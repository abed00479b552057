// The command line that gives the same answer as a page.

/** A word as a POSIX shell takes it literally. */
export function word(text: string): string {
  return /^[A-Za-z0-9_./:=@%+,-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}

type Value = string | number | boolean | null | undefined | readonly string[];

/** A command with the options that have a value; words that begin with a dash stand behind `--`. */
export function command(name: string, words: string[], options: Record<string, Value> = {}): string {
  const given: string[] = [];
  for (const [option, value] of Object.entries(options)) {
    if (value === true) given.push(`--${option}`);
    else if (Array.isArray(value)) for (const one of value as readonly string[]) given.push(`--${option}`, word(one));
    else if (value !== false && value !== null && value !== undefined && value !== "")
      given.push(`--${option}`, word(String(value)));
  }
  const dash = words.some((one) => one.startsWith("-")) ? ["--"] : [];
  return ["custody", name, ...given, ...dash, ...words.map(word)].join(" ");
}

/**
 * The bytes in which the contents before and after an event differ, by a standard tool: cmp counts them from 1 and writes
 * them octal. The process substitution is that of bash, zsh and ksh.
 */
export function contentsCompared(writer: string, id: string, asOf: string | null): string {
  const content = (previous: boolean): string => command("content get", [id], { previous, writer, "as-of": asOf });
  return `cmp -l <(${content(true)}) <(${content(false)})`;
}

/** The same question by curl; the token is named, not written. */
export function curl(address: string, hasToken: boolean, body?: unknown): string {
  const token = hasToken ? `-H "Authorization: Bearer $CUSTODY_TOKEN" ` : "";
  const sent = body === undefined ? "" : `-H 'Content-Type: application/json' -d ${word(JSON.stringify(body))} `;
  return `curl ${token}${sent}${word(address)}`;
}
