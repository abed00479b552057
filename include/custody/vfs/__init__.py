"""Room `vfs`: the one seam for durable effects."""

from custody.vfs.base import FileSystem, WritableFile
from custody.vfs.posix import PosixFileSystem

__all__ = ["FileSystem", "PosixFileSystem", "WritableFile"]
