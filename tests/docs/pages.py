"""The documentation as data: its pages, their tables, their fenced examples, their links."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
_FENCE = re.compile(r"<!-- example: ([\w-]+) -->\n+```\w*\n(.*?)```", re.DOTALL)
_LINK = re.compile(r"(?<!!)\[[^\]]+\]\(([^)\s]+)\)")
_CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
_NOT_OURS = {"node_modules", "repository", "logs", "build", "dist", "__pycache__"}


def pages() -> Iterator[Path]:
    """Yield every Markdown file of the project."""
    for path in sorted(ROOT.rglob("*.md")):
        parts = path.relative_to(ROOT).parts
        if not any(part.startswith(".") or part in _NOT_OURS for part in parts):
            yield path


def read(name: str) -> str:
    """Return a page of docs/."""
    return (DOCS / name).read_text(encoding="utf-8")


def tables(text: str) -> Iterator[list[list[str]]]:
    """Yield the tables of a page: rows of cells, the heading first; code marks are dropped, `\\|` is a bar."""
    rows: list[list[str]] = []
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            cells = re.split(r"(?<!\\)\|", line.strip().strip("|"))
            rows.append([cell.strip().replace("\\|", "|").replace("`", "") for cell in cells])
        elif rows:
            yield [row for row in rows if not all(re.fullmatch(r":?-+:?", cell) for cell in row)]
            rows = []


def table(text: str, heading: str) -> list[list[str]]:
    """Return the rows of the one table whose heading begins like this, such as `field | number`."""
    wanted = [cell.strip() for cell in heading.split("|")]
    matching = [rows for rows in tables(text) if rows[0][: len(wanted)] == wanted]
    if len(matching) != 1:
        raise LookupError(f"expected one table that begins with {heading!r}, got {len(matching)}")
    return matching[0][1:]


def section(text: str, heading: str) -> str:
    """Return what stands under a heading, up to the next heading of its level or a higher one."""
    level = len(heading) - len(heading.lstrip("#"))
    start = text.index(f"\n{heading}\n") + len(heading) + 2
    end = re.compile(rf"^#{{1,{level}}} ", re.MULTILINE).search(text, start)
    return text[start : end.start() if end else len(text)]


def examples(text: str) -> dict[str, str]:
    """Return the marked fenced examples of a page by name."""
    return dict(_FENCE.findall(text))


def hex_bytes(example: str) -> bytes:
    """Return the bytes of a hex example: pairs of digits, then two spaces and what they mean."""
    digits = [re.split(r"\s{2,}", line.strip())[0] for line in example.splitlines()]
    return bytes.fromhex(" ".join(digits))


def links(text: str) -> list[str]:
    """Return the targets of a page's relative links."""
    return [link for link in _LINK.findall(_CODE.sub("", text)) if not re.match(r"[a-z]+:|#", link)]
