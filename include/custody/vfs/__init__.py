"""Room `vfs`: the one seam for durable effects. What only tests need is imported from its module."""

from custody.vfs.base import FileSystem, Primitives, Space, WritableFile
from custody.vfs.composed import TEMPORARY_SUFFIX, temporary
from custody.vfs.mapped import no_longer_needs, will_need
from custody.vfs.posix import PosixFileSystem

__all__ = [
    "TEMPORARY_SUFFIX",
    "FileSystem",
    "PosixFileSystem",
    "Primitives",
    "Space",
    "WritableFile",
    "no_longer_needs",
    "temporary",
    "will_need",
]
