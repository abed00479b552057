"""Mapped files, and the advice that the operating system gets about them.

A file that is mapped by Python keeps a descriptor for as long as it is mapped, so that a process can map no more files
than it may open, of which there are often 1,024 and sometimes 64. A file that Arrow maps keeps none.
"""

from __future__ import annotations

import ctypes
import mmap
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

if TYPE_CHECKING:
    import pyarrow as pa

# Python's own madvise belongs to its mappings, which keep a descriptor each; libc's takes the address of Arrow's.
_LIBC = ctypes.CDLL(None)
_RFIND_BYTES = 1 << 20
# By identity, so that only mappings of files get advice: MADV_DONTNEED on any other memory would lose its content.
_MAPPED: WeakValueDictionary[int, pa.Buffer] = WeakValueDictionary()


def map_file(path: Path) -> memoryview:
    """Map a file: only the pages that are accessed are read, and no descriptor stays open.

    The mapping ends with the last reference to it, or to what was made of it.
    """
    try:
        str(path).encode()
    except UnicodeEncodeError:  # Arrow takes names in UTF-8 only
        return memoryview(path.read_bytes())
    # Imported when a file is mapped: producers that only write load no Arrow.
    import pyarrow as pa

    with pa.memory_map(str(path), "r") as file:
        size = file.size()
        if size == 0:
            return memoryview(b"")  # nothing cannot be mapped
        first = file.read_buffer(1)  # a larger one would be read ahead as a whole
    # Arrow has mapped the whole file, of which `first` shows one byte; as the base it keeps the mapping alive.
    whole = pa.foreign_buffer(first.address, size, base=first)
    _MAPPED[id(whole)] = whole
    return memoryview(whole).cast("B")


def prefetch_pages(view: memoryview, start: int, length: int) -> None:
    """Ask for a part of a file that was mapped by `FileSystem.view`, in one go, and for nothing around it.

    Without that, access to one page reads as much around it as the disk is set to read ahead: some megabytes, on
    cloud machines. Pages in memory already cost nothing. A view that is not mapped is left alone.
    """
    if start < len(view):
        # The system takes advice for whole pages only; the mapping itself begins at one.
        begin = start - start % mmap.PAGESIZE
        _advise(view, "MADV_WILLNEED", begin, min(start + length, len(view)) - begin)


def release_pages(view: memoryview) -> None:
    """Let go of the pages of a mapped file: they stay in the system's cache, and no longer count as the process's own.

    The view may be used again; pages that are accessed come back, from the cache if they are there. A view that is
    not mapped is left alone.
    """
    _advise(view, "MADV_DONTNEED")


def advise_random_access(view: memoryview) -> None:
    """Turn off read-ahead for a mapped file, which may cost megabytes for each place that is accessed."""
    _advise(view, "MADV_RANDOM")


def rfind(view: memoryview, needle: bytes, end: int | None = None) -> int:
    """Return where the last occurrence of some bytes before `end` begins, or -1; reads in small pieces."""
    stop = len(view) if end is None else end
    while stop > 0:
        start = max(stop - _RFIND_BYTES, 0)
        place = bytes(view[start:stop]).rfind(needle)
        if place >= 0:
            return start + place
        if start == 0:
            break
        # The pieces overlap by one byte less than is wanted: an occurrence may lie across their border.
        stop = start + len(needle) - 1
    return -1


def _advise(view: memoryview, name: str, start: int = 0, length: int | None = None) -> None:
    """Advise the system about a part of a mapped file, from the start of a page; does nothing where it cannot."""
    advice, mapped = getattr(mmap, name, None), _mapped(view)
    if advice is not None and mapped is not None:
        size = mapped.size if length is None else length
        _LIBC.madvise(ctypes.c_void_p(mapped.address + start), ctypes.c_size_t(size), advice)


def _mapped(view: memoryview) -> pa.Buffer | None:
    buffer = _MAPPED.get(id(view.obj))
    # An id can be given out again, so the object itself is compared.
    return buffer if view.obj is buffer else None
