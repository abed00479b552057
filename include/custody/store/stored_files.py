"""Small files as objects of a store, for what reads and writes files of a folder elsewhere: leases, reports of runs.

A path is the URL of an object. Names below a path are those of its objects and of what lies deeper.
"""

from __future__ import annotations

import errno
import re
from builtins import list as list_of
from pathlib import Path

from custody.errors import NotFoundError
from custody.store.base import ObjectStore
from custody.store.conditional_put import put_object
from custody.vfs.base import refusal

# A path keeps one of the two slashes of a URL.
_SCHEME = re.compile(r"([a-z0-9]{2,}):/(?!/)")


class StoredFiles:
    """Objects of a store by their paths. Every method raises StorageError when the store refuses."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._root = Path(store.locate(""))

    def path(self, key: str) -> Path:
        """Return the path of a key, or of a prefix without a `/` at its end."""
        return self._root / key

    def list(self, folder: Path) -> list_of[str]:
        """Return the names of the objects right below a path; one request for a thousand that lie below it."""
        prefix = f"{self._key(folder)}/"
        names = (key.removeprefix(prefix) for key in self._store.keys(prefix))
        return [name for name in names if "/" not in name]

    def folders(self, folder: Path) -> list_of[str]:
        """Return the names right below a path that have something below them."""
        return self._store.folders(f"{self._key(folder)}/")

    def times(self, folder: Path) -> dict[str, int]:
        """Return by name when the objects right below a path were written, ms since the epoch."""
        prefix = f"{self._key(folder)}/"
        infos = ((info.key.removeprefix(prefix), info.modified_ms) for info in self._store.list(prefix))
        return {name: modified_ms for name, modified_ms in infos if "/" not in name}

    def is_directory(self, path: Path) -> bool:
        """Whether anything lies below a path."""
        return next(self._store.keys(f"{self._key(path)}/"), None) is not None

    def make_directory(self, folder: Path) -> None:
        """Do nothing: there are no folders."""

    def read(self, path: Path) -> bytes:
        """Return an object's content."""
        try:
            return self._store.get(self._key(path))
        except NotFoundError as error:
            raise refusal("read", path, errno.ENOENT) from error

    def exists(self, path: Path) -> bool:
        """Whether an object is there."""
        return self._store.head(self._key(path)) is not None

    def modified_ms(self, path: Path) -> int:
        """Return when an object was last written, by the store's clock."""
        info = self._store.head(self._key(path))
        if info is None:
            raise refusal("look at", path, errno.ENOENT)
        return info.modified_ms

    def publish_if_absent(self, path: Path, data: bytes) -> bool:
        """Put an object if its key is free; what is read back decides."""
        return put_object(self._store, self._key(path), data)

    def write_durably(self, path: Path, data: bytes) -> None:
        """Put an object, replacing one of the same key."""
        self._store.put(self._key(path), data)

    def remove(self, path: Path) -> None:
        """Remove an object; an absent one is fine."""
        self._store.delete(self._key(path))

    def _key(self, path: Path) -> str:
        return path.relative_to(self._root).as_posix()


def place_text(path: Path) -> str:
    """Return a path for messages; of an object its URL, of which a path keeps one slash only."""
    return _SCHEME.sub(r"\1://", str(path), count=1) if _SCHEME.match(str(path)) else str(path)
