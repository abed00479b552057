"""Room `vfs`: the one seam for durable effects. Fakes for tests are imported from their own modules."""

from custody.vfs.base import FileSystem, PartialFile, Primitives, Space, WritableFile, bytes_on_disk
from custody.vfs.durable import TEMPORARY_SUFFIX, temporary
from custody.vfs.file_marks import Marks
from custody.vfs.mapped import advise_random_access, prefetch_pages, release_pages, rfind
from custody.vfs.posix import PosixFileSystem, note_use, room_of, write_durably

__all__ = [
    "TEMPORARY_SUFFIX",
    "FileSystem",
    "Marks",
    "PartialFile",
    "PosixFileSystem",
    "Primitives",
    "Space",
    "WritableFile",
    "advise_random_access",
    "bytes_on_disk",
    "note_use",
    "prefetch_pages",
    "release_pages",
    "rfind",
    "room_of",
    "temporary",
    "write_durably",
]
