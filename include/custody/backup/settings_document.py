"""The text of `custody.toml` as a document: without secrets, and with other places."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from custody.config.sections import is_secret

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class PublicSettings:
    """Settings without secrets, and the names of those that were removed."""

    document: dict[str, Any]
    removed: list[str]


def without_secrets(document: Mapping[str, Any], prefix: str = "") -> PublicSettings:
    """Return settings without the values of secrets; paths of files with secrets stay."""
    kept: dict[str, Any] = {}
    removed: list[str] = []
    for name, value in document.items():
        if isinstance(value, dict):
            inner = without_secrets(value, f"{prefix}{name}.")
            kept[name] = inner.document
            removed += inner.removed
        elif isinstance(value, str) and is_secret(name) and not name.endswith("_file"):
            removed.append(f"{prefix}{name}")
        else:
            kept[name] = value
    return PublicSettings(kept, removed)


def toml_text(document: Mapping[str, Any]) -> str:
    """Return a document of tables and plain values as TOML."""
    return "\n".join(_lines(document, ())) + "\n"


def _lines(table: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    plain = {name: value for name, value in table.items() if not isinstance(value, dict)}
    if path and (plain or not table):
        yield f"[{'.'.join(map(_key, path))}]"
    for name, value in plain.items():
        yield f"{_key(name)} = {_value(value)}"
    if plain:
        yield ""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _lines(value, (*path, name))


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else json.dumps(name)


def _value(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        # A string of JSON is one of TOML, but for a character that TOML wants escaped.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key(name)} = {_value(item)}" for name, item in value.items()) + "}"
    return str(value)
