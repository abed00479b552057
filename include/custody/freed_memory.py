"""Memory that was freed and stays with the process, where a process makes large arrays again and again."""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_MAPPED_FROM = 32 << 20
"""Arrays of this size come from the system each time; smaller ones come from what was freed before."""
_KEPT_BYTES_MAX = 64 << 20
"""So much of what was freed stays with the process, of each of its heaps."""


def keep_freed_memory() -> None:
    """Let glibc keep what an answer, or a batch of events, freed for the next one.

    A search makes arrays of megabytes, frees them, and makes them again for the next question; an ingest does so for
    each batch. glibc gives such memory back to the system each time, and the system has to clear and map it anew: half
    of what a search took that looks at many documents. These are the bounds that glibc itself ends at once an array of
    32 MiB was freed.

    It holds for all of the process, so only a program that is the process calls it: a server, the command, or a job.
    """
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):  # another C library, which has no such bounds
        return
    set_option(_M_MMAP_THRESHOLD, _MAPPED_FROM)
    set_option(_M_TRIM_THRESHOLD, _KEPT_BYTES_MAX)
