"""Swap files: FlowFiles of one queue on disk, by priority, in blocks that come back one at a time."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from custody.errors import CorruptionError, NotFoundError
from custody.flowfile_repository.records import (
    KIND_FLOWFILES,
    SWAP_PREAMBLE,
    FileHeader,
    SwapBlock,
    SwapFile,
    SwapSummary,
    Waiting,
    decode_flowfiles,
    encode_flowfiles,
    encode_summary,
    head,
    read_head,
)
from custody.flowfile_repository.state import claim_text
from custody.format.framing import whole_record
from custody.vfs import FileSystem, temporary

BLOCK_FLOWFILES = 500
"""So many come back at once: of each swap file, one block is in memory at a time where priorities mix."""
SUFFIX = ".swap"


def write_swap(
    fs: FileSystem, folder: Path, repository: str, queue: str, items: Sequence[Waiting], now_ms: int
) -> SwapFile:
    """Write FlowFiles of a queue, least first, to a new swap file.

    Durability: on return the file survives power loss. Until the log tells of it, it is a leftover.
    """
    name = f"{now_ms:013d}-{uuid.uuid4()}{SUFFIX}"
    path = folder / name
    blocks: list[SwapBlock] = []
    partial = temporary(path)
    with fs.create(partial) as file:
        file.write(head(SWAP_PREAMBLE, FileHeader(repository=repository, created_ms=now_ms)))
        for start in range(0, len(items), BLOCK_FLOWFILES):
            chunk = list(items[start : start + BLOCK_FLOWFILES])
            claims = Counter(filter(None, (claim_text(item.flowfile) for item in chunk)))
            length = sum(item.flowfile.size for item in chunk)
            oldest = min(item.queued_ms for item in chunk)
            blocks.append(SwapBlock(file.tell(), chunk[0].order, len(chunk), length, dict(claims), oldest))
            file.write(encode_flowfiles(chunk))
        swap = SwapFile(name, queue, tuple(blocks))
        # The log has the same index; this one lets a person, or a repair, read the file by itself.
        file.write(encode_summary(SwapSummary(swap=swap)))
        file.sync()
    fs.rename(partial, path)
    fs.sync_directory(folder)
    return swap


def read_swap_block(fs: FileSystem, folder: Path, swap: SwapFile, number: int) -> list[Waiting]:
    """Return the FlowFiles of one block.

    Raises:
        CorruptionError: the block is not what was written; file and offset are named.
        NotFoundError: the file is gone: all of it came back, and a snapshot holds that.
    """
    path = folder / swap.name
    block = swap.blocks[number]
    if not fs.exists(path):
        raise NotFoundError(f"{path}: the swap file of the queue {swap.queue!r} is gone. Restore it from a backup.")
    data = fs.view(path)
    read_head(data, path, SWAP_PREAMBLE, "swap file")
    record = whole_record(data, block.offset)
    if record is not None and record.kind == KIND_FLOWFILES:
        flowfiles = decode_flowfiles(record.payload, path, block.offset)
        if len(flowfiles) == block.count:
            return flowfiles
    raise CorruptionError(
        f"{path} @{block.offset}: expected {block.count} FlowFiles of the queue {swap.queue!r}, got other bytes. "
        "Restore the file from a backup."
    )


def clear_swaps(fs: FileSystem, folder: Path, needed: set[str]) -> list[str]:
    """Remove swap files that neither state nor log needs, and what broken writes left; return their names."""
    removed = [name for name in fs.list(folder) if name not in needed and SUFFIX in name]
    for name in removed:
        fs.remove(folder / name)
    if removed:
        fs.sync_directory(folder)
    return removed
