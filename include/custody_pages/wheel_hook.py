"""Builds the pages when a wheel is made, so that users of it need no Node.

Where they cannot be built, the wheel has none, and a warning says so. `CUSTODY_PAGES=required` makes that an error,
`CUSTODY_PAGES=skip` leaves them out on purpose.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class PagesHook(BuildHookInterface[Any]):  # type: ignore[misc]  # hatchling is there only while a wheel is made
    """Called by hatchling before the files of a wheel are collected."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the pages, unless the project is only linked to, as in the environment of its developers."""
        wanted = os.environ.get("CUSTODY_PAGES", "")
        if wanted not in ("", "required", "skip"):
            raise RuntimeError(f"CUSTODY_PAGES: expected required, skip or nothing, got {wanted!r}.")
        if version == "editable" or wanted == "skip":
            return
        sys.path.insert(0, str(Path(self.root) / "include"))
        try:
            from custody_pages.build import BuildError, build
        finally:
            sys.path.pop(0)
        try:
            build()
        except BuildError as error:
            if wanted == "required":
                raise RuntimeError(f"the pages could not be built (CUSTODY_PAGES=required): {error}") from None
            _warn(_WARNING.format(reason=error))


_WARNING = """
**************************************************************************************
WARNING: this wheel of custody has no pages for browsers, for they could not be built:

{reason}

All else works, and `custody serve --door pages` says that there are none. To have them:
let PyPI and npm's registry be reached (npm_config_registry names another one), and make
the wheel again. CUSTODY_PAGES=required makes this an error, CUSTODY_PAGES=skip means it.
**************************************************************************************
"""


def _warn(text: str) -> None:
    """Write to stderr, and to the terminal where stderr goes elsewhere: pip shows nothing of what a build says."""
    sys.stderr.write(text)
    sys.stderr.flush()
    if not sys.stderr.isatty():
        with contextlib.suppress(OSError), Path("/dev/tty").open("w", encoding="utf-8") as terminal:
            terminal.write(text)
