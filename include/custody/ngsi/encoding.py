"""How names from outside become names of folders, files and tables.

The old encoding writes `_` for what is no letter, digit, point or minus. The new one keeps everything except `=`, `/`
and what looks like its own escapes, and joins with `xffff`. Both keep the slashes of a path as levels.

Beyond NGSIToHDFS: HDFS takes no `:` in a name, and no component `.` or `..`, so the new encoding writes `x003a` and
`x002e`; the old one writes `_` for them. A NUL is `x0000`, which no file system takes.
"""

from __future__ import annotations

import re

_OLD = re.compile(r"[^A-Za-z0-9.\-]")
_OLD_PATH = re.compile(r"[^A-Za-z0-9.\-/]")
_LOOKS_ESCAPED = re.compile(r"x(?=[0-9A-Fa-f]{4})")
_DOTS = re.compile(r"(?:^|(?<=/))(\.{1,2})(?=/|$)")
_NOT_ALPHANUMERIC = re.compile(r"[^A-Za-z0-9]")
_NEW = {"=": "xffff", ":": "x003a", "\0": "x0000"}
CONCATENATOR = "="
"""Joins id and type before they are encoded; brokers allow none in either."""


def encode(name: str, *, is_new: bool) -> str:
    """Return one component: a service, or a destination."""
    if not is_new:
        return _dots(_OLD.sub("_", name), "_")
    return _dots(_encode_new(name).replace("/", "x002f"), "x002e")


def encode_path(path: str, *, is_new: bool) -> str:
    """Return a path whose slashes stay."""
    return _dots(_encode_new(path), "x002e") if is_new else _dots(_OLD_PATH.sub("_", path), "_")


def encode_table(name: str) -> str:
    """Return a name for Hive: `_` for what is no letter or digit, lower case."""
    return _NOT_ALPHANUMERIC.sub("_", name).lower()


def _encode_new(text: str) -> str:
    text = _LOOKS_ESCAPED.sub("xx", text)
    for character, escape in _NEW.items():
        text = text.replace(character, escape)
    return text


def _dots(text: str, escape: str) -> str:
    return _DOTS.sub(lambda found: escape * len(found[1]), text)
