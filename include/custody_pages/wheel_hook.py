"""Builds the pages when a wheel is made, so that users of it need no Node.

`CUSTODY_PAGES=required` makes it an error that they cannot be built, `CUSTODY_PAGES=skip` leaves them out.
"""

from __future__ import annotations

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
        if version == "editable" or wanted == "skip":
            return
        sys.path.insert(0, str(Path(self.root) / "include"))
        try:
            from custody_pages.build import main
        finally:
            sys.path.pop(0)
        if main([] if wanted == "required" else ["--if-possible"]) != 0:
            raise RuntimeError("the pages could not be built (CUSTODY_PAGES=required); the lines above say why")
