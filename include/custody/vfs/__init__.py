"""Room `vfs`: the one seam for durable effects. Fakes for tests are imported from their own modules."""

from custody.vfs.base import FileSystem, Primitives, Space, WritableFile
from custody.vfs.composed import TEMPORARY_SUFFIX, temporary
from custody.vfs.mapped import look_here_and_there, no_longer_needs, rfind, will_need
from custody.vfs.posix import PosixFileSystem

__all__ = [
    "TEMPORARY_SUFFIX",
    "FileSystem",
    "PosixFileSystem",
    "Primitives",
    "Space",
    "WritableFile",
    "look_here_and_there",
    "no_longer_needs",
    "rfind",
    "temporary",
    "will_need",
]
