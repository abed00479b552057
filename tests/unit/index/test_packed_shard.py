"""A packed shard as a whole: its size, what a question fetches of it from a store, and what its manifest may say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from whoosh import query

from custody.errors import CorruptionError
from custody.index import OpenShard, ShardSource, build_shard, open_stored, pack
from custody.index.manifest import NAME, Description, Manifest, PackedFile
from custody.model import EVENT_SCHEMA
from custody.store import LocalStore
from custody.store.ranged_file import RangedFile
from custody.vfs import PosixFileSystem
from tests.support import event, sample
from tests.unit.index.test_shard import table_of

FS = PosixFileSystem()
ROWS = 120_000


def size_of(path: Path) -> int:
    return sum(file.stat().st_size for file in path.iterdir())


def test_a_packed_shard_takes_a_third_of_what_whoosh_takes(tmp_path: Path) -> None:
    table = table_of(sample(3000))
    packed, whoosh = (
        build_shard(FS, tmp_path / layout, table, ["order.region"], layout=layout).path
        for layout in ("packed", "whoosh")
    )
    assert 3 * size_of(packed) < size_of(whoosh)
    assert sorted(file.name for file in packed.iterdir()) == [NAME, "packed.data"]


def test_terms_are_found_again_however_many_were_asked_for_in_between(tmp_path: Path) -> None:
    table = table_of(sample(3000))
    build_shard(FS, tmp_path / "shard", table, ["order.region"])
    shard = OpenShard(FS, tmp_path / "shard")
    uuids = list(dict.fromkeys(table.column("flowfile_uuid").to_pylist()))[:200]
    asked = [*uuids, *(f"{uuid}x" for uuid in uuids), *uuids[::-1]]
    counts = [shard.count(query.Term("flowfile_uuid", uuid)) for uuid in asked]
    assert all(counts[: len(uuids)])
    assert counts[len(uuids) :] == [0] * len(uuids) + counts[: len(uuids)][::-1]


class Store(LocalStore):
    """A store that counts what is fetched."""

    fetched = 0
    requests = 0

    def get_range(self, key: str, start: int, length: int) -> bytes:
        data = super().get_range(key, start, length)
        self.fetched += len(data)
        self.requests += 1
        return data


class Source:
    """The object of a shard in a folder; nothing of it was fetched before."""

    def __init__(self, folder: Path, store: Store) -> None:
        self._folder = folder
        self._store = store

    def locate(self) -> Path:
        return self._folder / "object.shard"

    def size_here(self) -> int | None:
        return None

    def open(self, size: int) -> RangedFile:
        (self._folder / "here").unlink(missing_ok=True)
        return RangedFile(FS, self._folder / "here", self._store, "object.shard", size)

    def tail(self, length: int) -> bytes:
        return self._store.get_range("object.shard", -length, length)

    def forget(self) -> None:
        raise AssertionError("nothing is damaged")


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A shard of many uuids and names, and its object."""
    folder = tmp_path_factory.mktemp("large")
    chance = np.random.default_rng(7)
    one = table_of([event(0, updated_attributes={})])
    table = one.take(pa.array(np.zeros(ROWS, np.int64)))
    times = 1_772_359_100_000 + np.cumsum(chance.integers(0, 900, ROWS))
    columns = {
        "event_id": pa.array(np.arange(ROWS)),
        "flowfile_uuid": pa.array([uuid_of(number) for number in range(ROWS)]),
        "transit_uri": pa.array([f"https://host/{number * 7919 % ROWS:06}/{number % 90}" for number in range(ROWS)]),
        "event_time": pa.array(times, pa.int64()).cast(EVENT_SCHEMA.field("event_time").type),
    }
    for name, values in columns.items():
        field = EVENT_SCHEMA.field(name)
        table = table.set_column(EVENT_SCHEMA.get_field_index(name), field, values.cast(field.type))
    path = build_shard(FS, folder / "shard", table, []).path
    (folder / "object.shard").write_bytes(pack(FS, path))
    return folder


def uuid_of(number: int) -> str:
    return str(UUID(int=(number * 0x9E3779B97F4A7C15F39CC0605CEDC835) % (1 << 128)))


@pytest.mark.parametrize(
    ("question", "found"),
    [
        (query.Term("flowfile_uuid", uuid_of(77)), 1),
        (query.Term("flowfile_uuid", uuid_of(ROWS)), 0),
        (query.Term("transit_uri", "https://host/000000/0"), 1),
        (query.Prefix("transit_uri", "https://host/00012"), 10),
        (query.NumericRange("event_time", 1_772_359_100_000, 1_772_359_200_000), 200),
        (
            query.And([query.Term("event_type", event(0).event_type.lower()), query.Term("flowfile_uuid", uuid_of(5))]),
            1,
        ),
    ],
)
def test_a_question_fetches_what_it_needs(large: Path, question: query.Query, found: int) -> None:
    expected = OpenShard(FS, large / "shard").search(question)
    assert len(expected) == pytest.approx(found, rel=0.3)
    store = Store(FS, large)
    source: ShardSource = Source(large, store)
    stored = OpenShard(FS, large / "none", open_stored(source))
    assert stored.search(question).tolist() == expected.tolist()
    whole = (large / "object.shard").stat().st_size
    assert whole > 3 << 20
    assert store.fetched < 1 << 20
    assert store.requests <= 8


def changed(change: Callable[[Description, PackedFile], Description]) -> Callable[[Manifest], Manifest]:
    def apply(found: Manifest) -> Manifest:
        assert isinstance(found.description.packed, PackedFile)
        return msgspec.structs.replace(found, description=change(found.description, found.description.packed))

    return apply


def with_field(about: Description, packed: PackedFile, **values: int) -> Description:
    fields = {name: msgspec.structs.replace(field, **values) for name, field in packed.fields.items()}
    return msgspec.structs.replace(about, packed=msgspec.structs.replace(packed, fields=fields))


@pytest.mark.parametrize(
    "change",
    [
        lambda about, _: msgspec.structs.replace(about, documents=1 << 50),
        lambda about, _: msgspec.structs.replace(about, documents=1 << 50, absent={}),
        lambda about, _: msgspec.structs.replace(about, documents=-1),
        lambda about, packed: with_field(about, packed, terms=-1),
        lambda about, packed: with_field(about, packed, terms=1 << 50),
        lambda about, packed: with_field(about, packed, place=1 << 50),
        lambda about, packed: with_field(about, packed, place=-8),
        lambda about, packed: with_field(about, packed, lists=1 << 62),
        lambda about, packed: with_field(about, packed, number=1 << 20),
        lambda about, packed: msgspec.structs.replace(
            about, packed=msgspec.structs.replace(packed, filter_bytes=1 << 50)
        ),
        lambda about, _: msgspec.structs.replace(about, layout="bulk"),
        lambda about, _: msgspec.structs.replace(about, packed=msgspec.UNSET),
    ],
)
def test_a_manifest_that_was_forged_is_refused_before_memory_is_taken(
    tmp_path: Path, change: Callable[[Description, PackedFile], Description]
) -> None:
    path = build_shard(FS, tmp_path / "shard", table_of(sample(300)), []).path
    manifest = path / NAME
    good = Manifest.decode(manifest.read_bytes(), manifest)
    manifest.write_bytes(changed(change)(good).encode())
    uuids = [query.Term("flowfile_uuid", str(UUID(int=number))) for number in range(60)]
    with pytest.raises(CorruptionError, match="shard"):
        shard = OpenShard(FS, path)
        for question in (query.Or(uuids), query.Term("event_type", "send"), query.Prefix("filename", "")):
            shard.search(question)
