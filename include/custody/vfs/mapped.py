"""What the system is told about a mapped file."""

from __future__ import annotations

import mmap


def will_need(view: memoryview, start: int, length: int) -> None:
    """Ask for a part of a file that was mapped by `FileSystem.view`, in one go, and for nothing around it.

    Without that, a look at one page reads as much around it as the disk is set to read ahead: some megabytes, on
    machines of a cloud. What is in memory already costs nothing. A view that is not mapped is left alone.
    """
    mapped = view.obj
    if isinstance(mapped, mmap.mmap) and hasattr(mapped, "madvise") and start < len(view):
        begin = start - start % mmap.PAGESIZE
        mapped.madvise(mmap.MADV_WILLNEED, begin, start + length - begin)


def no_longer_needs(view: memoryview) -> None:
    """Let go of the pages of a mapped file: they stay in the system's cache, and no longer count as the process's own.

    The view may be used again; what is looked at comes back, from the cache if it can. One that is not mapped is left
    alone.
    """
    mapped = view.obj
    if isinstance(mapped, mmap.mmap) and hasattr(mapped, "madvise"):
        mapped.madvise(mmap.MADV_DONTNEED)
