"""Filters of terms: never against a term that is there, seldom for one that is not, and without one nothing changes."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from whoosh import query

from custody.errors import CorruptionError
from custody.format.split_block import Probes, may_have, split_block_filter
from custody.index import build_shard, manifest
from custody.index.dictionary import FIELD_BYTES
from custody.index.manifest import Manifest, PackedFile
from custody.index.paged_file import CheckedFile, pages_of
from custody.index.shard import OpenShard
from custody.index.term_filter import BITS_PER_TERM, probes_of
from custody.index.terms import TermSet, encoded
from custody.model import to_batch
from custody.vfs import PosixFileSystem
from tests.support import event, sample

FS = PosixFileSystem()


@given(st.lists(st.integers(0, 2**64 - 1), max_size=300), st.integers(1, 20))
def test_what_was_put_in_is_never_denied(values: list[int], bits: int) -> None:
    hashes = np.array(values, np.uint64)
    assert may_have(split_block_filter(hashes, bits), Probes.of(hashes)).all()


@pytest.mark.parametrize("count", [100, 5000, 200_000])
def test_what_was_not_put_in_is_nearly_always_denied(count: int) -> None:
    # The hashes are those of a dictionary: 32 bits, so that equal ones stand for different terms now and then.
    drawn = np.unique(np.random.default_rng(count).integers(0, 2**32, 2 * count + 20_000, np.uint32))
    np.random.default_rng(1).shuffle(drawn)
    there, absent = drawn[:count], drawn[count:][:20_000]
    probes = probes_of(there)
    hashes = (probes.upper << np.uint64(32)) | _lower(there)
    blocks = split_block_filter(hashes, BITS_PER_TERM)
    assert may_have(blocks, probes).all()
    assert blocks.nbytes <= count * BITS_PER_TERM // 8 + 32
    assert may_have(blocks, probes_of(absent)).mean() < 0.025


def _lower(hashes: np.ndarray) -> np.ndarray:
    """Return the lower half as the page of the format says it."""
    mixed = (hashes.astype(np.uint64) * np.uint64(0x9E3779B1)) & np.uint64(0xFFFFFFFF)
    return mixed ^ (mixed >> np.uint64(16))


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return a shard that Whoosh opens, the same without a filter, as earlier releases wrote it, and packed."""
    folder = tmp_path_factory.mktemp("shards")
    table = pa.Table.from_batches([to_batch(sample(400), 0)])
    for name in ("with", "without"):
        build_shard(FS, folder / name, table, ["order.region"], layout="whoosh")
    build_shard(FS, folder / "packed", table, ["order.region"])
    path = folder / "without" / manifest.NAME
    described = Manifest.decode(path.read_bytes(), path)
    place, sums = 0, []
    for file in described.description.files:
        pages = pages_of(file.size)
        if file.name.endswith(".flt"):
            (folder / "without" / file.name).unlink()
        else:
            sums.append(described.checksums[place : place + pages])
        place += pages
    others = tuple(file for file in described.description.files if not file.name.endswith(".flt"))
    about = msgspec.structs.replace(described.description, files=others)
    path.write_bytes(Manifest(description=about, checksums=np.concatenate(sums), zones=described.zones).encode())
    return [folder / "with", folder / "without", folder / "packed"]


@pytest.mark.parametrize("count", [1, 2, 11, 16, 90, 400])
def test_a_shard_without_a_filter_answers_the_same(shards: list[Path], count: int) -> None:
    uuids = sorted({one.flowfile_uuid for one in sample(400)})[:count]
    for texts in (uuids, [uuid[::-1] for uuid in uuids], [*uuids[: count // 2 + 1], *(uuid[::-1] for uuid in uuids)]):
        question = query.Or([query.Term("flowfile_uuid", text) for text in texts])
        first, *others = (OpenShard(FS, path) for path in shards)
        for other in others:
            assert first.search(question).tolist() == other.search(question).tolist()
            assert first.count(question) == other.count(question)
    assert first.count(question) > 0


@pytest.mark.parametrize("number", [0, 2])
def test_terms_that_are_there_are_among_the_candidates(shards: list[Path], number: int) -> None:
    events = sample(400)
    shard = OpenShard(FS, shards[number])
    for name in ("flowfile_uuid", "filename", "component_id", "event_type"):
        texts = {encoded(str(getattr(one, name, None) or one.updated_attributes.get(name, ""))) for one in events}
        for text in texts:
            if shard.terms.find(name, text.lower()) is not None:
                question = query.Or([query.Term(name, text.lower().decode()), query.Term(name, "not there")])
                assert shard.count(question) > 0


def test_a_filter_of_no_blocks_is_refused(shards: list[Path], tmp_path: Path) -> None:
    path = shards[0] / manifest.NAME
    described = Manifest.decode(path.read_bytes(), path)
    [name] = [file.name for file in described.description.files if file.name.endswith(".flt")]
    good = (shards[0] / name).read_bytes()
    files = tuple(
        msgspec.structs.replace(file, size=len(good) - 1) if file.name == name else file
        for file in described.description.files
    )
    forged = tmp_path / "forged"
    forged.mkdir()
    for file in shards[0].iterdir():
        (forged / file.name).write_bytes(file.read_bytes()[:-1] if file.name == name else file.read_bytes())
    about = msgspec.structs.replace(described.description, files=files)
    (forged / manifest.NAME).write_bytes(msgspec.structs.replace(described, description=about).encode())
    with pytest.raises(CorruptionError, match="blocks of 32 bytes"):
        OpenShard(FS, forged)


@pytest.mark.parametrize("number", [0, 2])
def test_one_term_is_asked_as_many_are(shards: list[Path], number: int) -> None:
    shard = OpenShard(FS, shards[number])
    assert shard.term_filter is not None
    uuids = [encoded(uuid) for uuid in {one.flowfile_uuid for one in sample(400)}]
    absent = [uuid[::-1] for uuid in uuids]
    [prefix] = {
        start.to_bytes(FIELD_BYTES, "big")
        for start in range(64)
        if len(shard.term_filter.candidates(TermSet(uuids), start.to_bytes(FIELD_BYTES, "big"))) == len(uuids)
    }
    chosen = shard.term_filter.candidates(TermSet([*uuids, *absent]), prefix).tolist()
    asked = [place for place, term in enumerate([*uuids, *absent]) if shard.term_filter.has(prefix + term)]
    assert asked == chosen
    assert len(uuids) <= len(asked) < 1.1 * len(uuids)


def test_a_term_that_a_packed_shard_lacks_is_looked_for_in_one_page_of_its_filter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [f"text {number}" for number in range(60_000)]
    events = [event(number, source_queue_identifier=text) for number, text in enumerate(texts)]
    path = build_shard(FS, tmp_path / "shard", pa.Table.from_batches([to_batch(events, 0)]), []).path
    pages: list[int] = []
    check = CheckedFile._check

    def counted(self: CheckedFile, page: int) -> None:
        pages.append(page)
        check(self, page)

    monkeypatch.setattr(CheckedFile, "_check", counted)
    name = "source_queue_identifier"
    shard = OpenShard(FS, path)
    before = len(pages)
    # One term in seven hundred is not ruled out: of these, at least one is.
    for place in range(2):
        assert shard.count(query.Term(name, f"none {place}")) == 0
    assert 1 <= len(pages) - before <= 2
    assert shard.count(query.Term(name, texts[7].lower())) == 1
    assert len(pages) - before > 4


def test_damage_to_a_filter_is_met_by_whoever_needs_that_page(tmp_path: Path) -> None:
    texts = [f"text {number}" for number in range(60_000)]
    events = [event(number, source_queue_identifier=text) for number, text in enumerate(texts)]
    path = build_shard(FS, tmp_path / "shard", pa.Table.from_batches([to_batch(events, 0)]), []).path
    packed = OpenShard(FS, path).description.packed
    assert isinstance(packed, PackedFile)
    file = path / "packed.data"
    data = bytearray(file.read_bytes())
    data[packed.filter_place + packed.filter_bytes // 2] ^= 1
    file.unlink()
    file.write_bytes(data)
    met = 0
    for number in range(40):
        shard = OpenShard(FS, path)
        try:
            assert shard.count(query.Term("source_queue_identifier", texts[number])) == 1
        except CorruptionError:
            met += 1
    assert 0 < met < 40
