"""A file of filters as version 1 has it: made again byte for byte, asked as its shards, its numbers spelled out."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from custody.format.framing import MARK
from custody.format.names import filters_name
from custody.index import FilterFile, OpenShard, ShardFilter, shard_filter, write_filter_file
from custody.index.filter_file import MAGIC
from custody.vfs import PosixFileSystem
from tests.golden.make_golden import FILTERED, HERE, PACKED

FS = PosixFileSystem()
GOLDEN = HERE / "shard-filters" / filters_name(0)
NAMES = ("1772359100000-00000000000000000000", "1772359100000-00000000000000006000")
BOUNDS = ((0, 5999, 1_772_359_100_000, 1_772_359_200_000), (6000, 6002, 1_772_359_200_000, 1_772_359_300_000))


def of_golden_shards() -> list[ShardFilter]:
    """The filters of a packed shard, and of one that Whoosh opens, under names of their own."""
    shards: Sequence[Path] = (HERE / PACKED, HERE / FILTERED)
    return [
        replace(shard_filter(OpenShard(FS, path), bounds), name=name)
        for path, bounds, name in zip(shards, BOUNDS, NAMES, strict=True)
    ]


def test_the_golden_file_is_made_again_byte_for_byte(tmp_path: Path) -> None:
    write_filter_file(FS, tmp_path / "again", of_golden_shards())
    assert (tmp_path / "again").read_bytes() == GOLDEN.read_bytes()


def test_the_golden_file_says_what_its_shards_say() -> None:
    file, shards = FilterFile(FS, GOLDEN), of_golden_shards()
    file.require_all()
    assert file.names == NAMES
    assert file.bounds.tolist() == [[*bounds] for bounds in BOUNDS]
    assert [found.counts for found in file.filters(NAMES)] == [shard.counts for shard in shards]
    for found, shard in zip(file.filters(NAMES), shards, strict=True):
        assert len(found.blocks) > 0
        assert (found.blocks == shard.blocks).all()
        assert (found.kind, found.digest) == (shard.kind, shard.digest)
    assert dict(file.counts("event_type", "route", (0, 1)))[NAMES[0]] > 0


def test_the_numbers_of_the_format() -> None:
    data = GOLDEN.read_bytes()
    assert MAGIC == b"CUSTFLT\x01"
    length, magic = struct.unpack("<Q8s", data[-16:])
    assert magic == MAGIC
    assert length % 16384 == 0
    assert data[length : length + 4] == MARK
    # Kinds of the three records, each behind mark, length and checksum.
    kinds, place = [], length
    while place < len(data) - 16:
        kinds.append(data[place + 12])
        place += 13 + int.from_bytes(data[place + 4 : place + 8], "little")
    assert kinds == [1, 2, 3]
    blocks = sum(len(shard.blocks) for shard in of_golden_shards())
    assert length - 16384 < 32 * blocks <= length
    assert (np.frombuffer(data[32 * blocks : length], np.uint8) == 0).all()
