"""Where contents lie: the store's folder, further disks, and the store that they are handed over to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ContentStore:
    """The store's folder, and the folders of the containers of contents that do not lie in it, by name."""

    folder: Path
    elsewhere: Mapping[str, Path] = field(default_factory=dict)
    location: str | None = None
    """The repository's store, as its setting says: contents may have been handed over to it. None for no such one."""
    root: Path = Path()
    """The folder of the repository, in which a relative location lies."""
    can_put_if_absent: bool = True
    copies_bytes_max: int = 0
    """So much room local copies may take."""
    multipart_bytes: int = 64 << 20
    """Larger objects go in parts."""
