"""Where contents lie: the store's folder, and further disks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ContentStore:
    """The store's folder, and the folders of the containers of contents that do not lie in it, by name."""

    folder: Path
    elsewhere: Mapping[str, Path] = field(default_factory=dict)
