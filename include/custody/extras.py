"""Packages that a part of custody needs and the plain installation leaves out: the extras of its metadata."""

from __future__ import annotations

import re
from importlib import metadata

_REQUIREMENT = re.compile(r"(?P<package>[^;]+?)\s*;.*\bextra == [\"'](?P<extra>[^\"']+)[\"']")


def install_command(extra: str) -> str:
    """Return the shell command that installs the packages of an extra into this Python.

    It names the packages and not `custody[extra]`: custody itself may come from a checkout, a wheel or an image.
    """
    try:
        lines = metadata.requires("custody") or []
    except metadata.PackageNotFoundError:
        lines = []
    found = [match["package"] for match in map(_REQUIREMENT.match, lines) if match and match["extra"] == extra]
    return f"pip install {' '.join(repr(package) for package in found)}" if found else f"pip install '.[{extra}]'"
