"""A file that a catalog lists, as another process finds it: where it lies, its length and its digests, and no catalog.

Of an object store it names the store and the place there, so that a machine without any folder of the repository reads
the file by ranges, or by a copy of its own. Of a folder it is the path on a disk that both machines see.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from custody.catalog.data_files import DataFiles
from custody.catalog.transaction_pb2 import AddFile
from custody.config import Settings
from custody.format.names import TOC_SUFFIX
from custody.store import open_store
from custody.vfs import FileSystem


@dataclass(frozen=True, slots=True)
class FileReference:
    """A Parquet file of a catalog with what lies beside it; small, and the same on every machine."""

    path: str
    """Its path in the catalog where it lies in an object store; else its path on the disk."""
    size: int
    sha256: bytes
    beside_sha256: bytes
    store: str = ""
    """The URL of the object store; empty where the store is a folder."""
    home: str = ""
    """What the keys of the catalog's files begin with there."""
    beside_suffix: str = TOC_SUFFIX

    def __str__(self) -> str:
        return f"{self.store}/{self.home}{self.path}" if self.store else self.path

    @classmethod
    def of(cls, files: DataFiles, file: AddFile) -> FileReference:
        """Return the reference of a file that a state of the catalog lists; an object store is not asked.

        Raises:
            StripeMissingError: the file lies on a stripe that is not there.
        """
        size, digests = file.size_bytes, (file.sha256, file.toc_sha256)
        if files.copies is None:
            return cls(str(files.path(file.path)), size, *digests, beside_suffix=files.beside_suffix)
        place = files.place(file.path)
        # The store of the writer, which may be another one than the repository's.
        store = str(place).removesuffix(f"/{place.key}")
        return cls(file.path, size, *digests, store, place.key.removesuffix(file.path), files.beside_suffix)

    def files(self, settings: Settings, fs: FileSystem) -> DataFiles | None:
        """Return what reads the file here, with copies and pieces in the work folder of some settings.

        None where the store is a folder: then `path` is the file.

        Raises:
            ConfigurationError: this machine's environment does not fit the store.
        """
        if not self.store:
            return None
        # Imported here: files of a folder have no copies.
        from custody.store.local_copies import LocalCopies

        store = open_store(self.store, fs, settings.root)
        files = DataFiles(store, self.home)
        files.beside_suffix = self.beside_suffix
        files.copies = LocalCopies(fs, store, settings.store, settings.repository.work_copies_bytes_max)
        files.digest_of = {self.path: self.sha256, files.beside(self.path): self.beside_sha256}.get
        return files

    def where(self, files: DataFiles | None) -> Path:
        """Return the file's path on this machine, or that of its copy; `files` is what `files` gave."""
        return Path(self.path) if files is None else files.where(self.path)
