"""Where a store lies: a folder of this machine, as a path or as `file://`, or the URL of an object store."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from custody.errors import ConfigurationError


def is_local(location: str) -> bool:
    """Whether a location is a folder of this machine."""
    return "://" not in location or location.startswith("file://")


def local_folder(location: str) -> Path:
    """Return the folder of a local location; a relative path stays relative.

    Raises:
        ConfigurationError: it is a URL of another kind, or a `file://` URL of another machine.
    """
    if "://" not in location:
        return Path(location)
    parts = urlsplit(location)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or not parts.path:
        raise ConfigurationError(f"store {location!r}: expected a folder of this machine: a path or file:///folder.")
    return Path(unquote(parts.path))
