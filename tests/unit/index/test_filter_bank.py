"""The filters of many shards in one array: no shard is ruled out that has a term, whatever comes and goes meanwhile."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from whoosh import query

from custody.index import OpenShard, build_shard
from custody.index.filter_bank import FilterBank, JoinedFilters
from custody.vfs import PosixFileSystem
from tests.support import event
from tests.unit.index.test_shard import table_of

FS = PosixFileSystem()
SHARDS, EVENTS = 12, 40


def uuid_of(shard: int, number: int) -> str:
    return f"{shard:08x}-0000-4000-8000-{number:012x}"


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> dict[str, OpenShard]:
    folder = tmp_path_factory.mktemp("shards")
    return {f"s{shard}": _built(folder / f"s{shard}", shard) for shard in range(SHARDS)}


def _built(path: Path, shard: int) -> OpenShard:
    # Of very different sizes, so that one that comes does not fit where another one went.
    events = [event(number, flowfile_uuid=uuid_of(shard, number)) for number in range(EVENTS * (1 + shard % 5 * 7))]
    build_shard(FS, path, table_of(events), [])
    return OpenShard(FS, path)


def told(filters: JoinedFilters, uuids: list[str]) -> list[bool]:
    """Which shards may have one of some uuids."""
    term = [query.Term("flowfile_uuid", uuid) for uuid in uuids]
    answer = filters.may_match(np.arange(SHARDS), term[0] if len(term) == 1 else query.Or(term), lambda _: True)
    return [True] * SHARDS if answer is None else answer.tolist()


def test_filters_that_come_and_go_are_those_of_their_shards(shards: dict[str, OpenShard]) -> None:
    chance = random.Random(4)  # noqa: S311 - which filters come and go
    bank = FilterBank()
    joined = JoinedFilters([bank], [tuple(shards)])
    kept: set[str] = set()
    ruled_out = 0
    for _ in range(200):
        name = chance.choice(list(shards))
        if name in kept and chance.random() < 0.6:
            bank.forget(name)
            kept.discard(name)
        else:
            bank.offer(name, shards[name])
            bank.offer(name, shards[name])
            kept.add(name)
        if chance.random() < 0.05:
            kept &= set(chance.sample(list(shards), SHARDS // 2))
            bank.keep_only(kept)
        assert len(bank) == len(kept)
        number = chance.randrange(SHARDS)
        for uuids in ([uuid_of(number, 3)], [uuid_of(number, 3), "none"]):
            may = told(joined, uuids)
            assert may[number]
            # A filter errs once in seven hundred terms.
            others = [may[other] for other in range(SHARDS) if other != number and f"s{other}" in kept]
            ruled_out += others.count(False)
            assert all(may[other] for other in range(SHARDS) if f"s{other}" not in kept)
            assert others.count(True) <= 1
    assert ruled_out > 500


def test_what_a_search_looks_at_does_not_change_under_it(shards: dict[str, OpenShard]) -> None:
    bank = FilterBank()
    for _ in range(2):
        for name in list(shards)[:3]:
            bank.offer(name, shards[name])
    [seen] = bank.current()
    blocks = seen.blocks.copy()
    for _ in range(2):
        for name in list(shards)[3:]:
            bank.offer(name, shards[name])
    for name in list(shards)[:8]:
        bank.forget(name)
    for _ in range(2):
        bank.offer("s0", shards["s0"])
    assert (seen.blocks == blocks).all()
    assert len(bank) == SHARDS - 8 + 1


def test_filters_take_no_more_than_their_bound_and_gaps_are_given_back(shards: dict[str, OpenShard]) -> None:
    bank = FilterBank(bytes_max=1 << 13)
    for _ in range(3):
        for name, shard in shards.items():
            bank.offer(name, shard)
    assert 0 < len(bank) < SHARDS
    assert bank.current()[0].blocks.nbytes <= 1 << 13
    for _ in range(30):
        for name, shard in shards.items():
            bank.forget(name)
            bank.offer(name, shard)
            bank.offer(name, shard)
    # Up to as much again lies between those that are kept.
    assert bank.current()[0].blocks.nbytes <= 2 << 13
