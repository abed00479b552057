"""Which events are stored already: numbers are found as in a dictionary, and memory holds what is not live yet."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from custody.capture import Accepted, Format, InputPlace
from custody.errors import StorageError
from custody.ingest import dedup
from custody.ingest.dedup import SortedRuns, StoredKeys, keys_of, keys_of_writer
from custody.ingest.ingest import Ingest
from custody.journal import JournalFile
from custody.repository import Repository
from custody.vfs import PosixFileSystem
from tests.support import event, run_steps, sample

NUMBERS = st.integers(0, 30) | st.integers(0, (1 << 63) - 1)
Batches = list[list[tuple[int, int]]]


@given(st.lists(st.lists(st.tuples(NUMBERS, st.integers(0, 1000)), max_size=8), max_size=12), st.lists(NUMBERS))
def test_all_values_of_a_number_are_found(batches: Batches, wanted: list[int]) -> None:
    check_values(batches, wanted)
    # Runs as long as that are merged no more.
    with patch.object(dedup, "_RUN_LENGTH_MAX", 4):
        check_values(batches, wanted)


def check_values(batches: Batches, wanted: list[int]) -> None:
    runs, known = SortedRuns(), dict[int, list[int]]()
    for batch in batches:
        runs.add([number for number, _ in batch], [value for _, value in batch])
        for number, value in batch:
            known.setdefault(number, []).append(value)
        asked = [*wanted, *known]
        assert runs.find(asked) == {number: known[number] for number in asked if number in known}
    assert len(runs) == sum(map(len, batches))


@given(st.lists(st.lists(st.integers(0, 100), max_size=8), max_size=12), st.integers(0, 100))
def test_what_lies_below_a_bound_is_dropped(batches: list[list[int]], least: int) -> None:
    """Values grow from batch to batch, as the ids of events do."""
    runs, known = SortedRuns(), dict[int, list[int]]()
    for batch in batches:
        ids = range(len(runs), len(runs) + len(batch))
        runs.add(batch, ids)
        for number, value in zip(batch, ids, strict=True):
            known.setdefault(number, []).append(value)
    runs.drop_below(least)
    left = {number: [value for value in values if value >= least] for number, values in known.items()}
    assert runs.find(list(known)) == {number: values for number, values in left.items() if values}


def stored(ingest: Ingest, numbers: Sequence[int], **changes: object) -> tuple[int, int]:
    """How many of some events of one source were stored, and how many had been before."""
    events = [event(number, source_node="shop", source_ordinal=number, **changes) for number in numbers]
    outcomes = [Accepted(one, InputPlace(at, 0), msgspec.json.encode(one)) for at, one in enumerate(events)]
    report = ingest.batches([outcomes], origin="test", format=Format.CUSTODY)
    return report.stored, report.repeated


def test_ingests_of_one_writer_know_what_each_of_them_stored(tmp_path: Path) -> None:
    """A door of the server and a job that tries the quarantine again share the writer of their process."""
    repository = Repository.create(tmp_path / "r")
    with repository.writer() as writer, repository.ingest(writer) as door, repository.ingest(writer) as job:
        assert stored(door, [1]) == (1, 0)
        assert stored(job, [1, 2]) == (1, 1)
        assert stored(door, [2, 3]) == (1, 1)
        door.renew()
        assert stored(job, [1, 2, 3]) == (0, 3)
        door._distrust()
        assert stored(job, [1, 2, 3, 4]) == (1, 3)
        assert stored(door, [1, 2, 3, 4]) == (0, 4)
        assert keys_of_writer(writer) is keys_of_writer(writer)
    assert repository.search("").total == 4


def test_what_is_live_leaves_memory_and_is_found_in_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = Repository.create(tmp_path / "r")
    with repository.ingest() as before:
        assert stored(before, range(50)) == (50, 0)
    with repository.writer() as writer, repository.ingest(writer) as ingest:
        assert stored(ingest, range(40, 60)) == (10, 10)
        own = keys_of_writer(writer)
        assert own.view is not None
        assert (sum(map(len, own.view.tail)), len(own.added["shop"])) == (50, 10)
        ingest.renew()
        # Nothing was rolled over: all of it is needed still.
        assert (sum(map(len, own.view.tail)), len(own.added["shop"])) == (50, 10)
        writer.seal()
        assert stored(ingest, range(60, 65)) == (5, 0)
        run_steps(repository.settings)
        monkeypatch.setattr(dedup, "_keys_of", lambda *_: pytest.fail("a journal was read for its keys"))
        ingest.renew()
        assert (sum(map(len, own.view.tail)), len(own.added["shop"])) == (0, 5)
        assert stored(ingest, range(70)) == (5, 65)
        assert stored(ingest, [3, 62], component_name="other") == (0, 0)
    assert repository.search("").total == 70


def test_nothing_is_dropped_while_a_disk_is_away(tmp_path: Path) -> None:
    root = tmp_path / "r"
    Repository.create(root)
    (root / "custody.toml").write_text('[repository]\ncontainers = ["one", "two"]\n')
    repository = Repository.open(root)
    with repository.writer() as writer, repository.ingest(writer) as ingest:
        assert stored(ingest, range(10)) == (10, 0)
        own = keys_of_writer(writer)
        (root / "two").rename(root / "away")
        try:
            with pytest.raises(StorageError, match="two"):
                ingest.renew()
        finally:
            (root / "away").rename(root / "two")
        assert len(own.added["shop"]) == 10
        assert stored(ingest, range(10)) == (0, 10)


def journal_of(tmp_path: Path, events: int, append: int) -> tuple[Repository, Path]:
    """A repository, and its only journal, which many small appends wrote."""
    repository = Repository.create(tmp_path / "r")
    some = sample(events)
    with repository.writer() as writer:
        for start in range(0, events, append):
            writer.append(some[start : start + append])
    [group] = repository.workspace().groups()
    [path] = group.sealed
    return repository, path


def test_a_journal_in_pieces_is_the_journal(tmp_path: Path) -> None:
    _, path = journal_of(tmp_path, 400, 7)
    journal = JournalFile.read(PosixFileSystem(), path)
    for piece_bytes in (1, 5000, 1 << 30):
        pieces = list(journal.tables(piece_bytes))
        assert len(pieces) == {1: len(journal.records), 1 << 30: 1}.get(piece_bytes, len(pieces)) > 0
        assert pa.concat_tables(pieces).equals(journal.table())
    assert 1 < len(list(journal.tables(20_000))) < len(journal.records)


def test_keys_of_a_journal_are_read_in_little_memory(tmp_path: Path) -> None:
    """A server that begins reads the journals that wait, of a hundred megabytes each, for the keys alone."""
    repository, path = journal_of(tmp_path, 5000, 200)
    keys = StoredKeys(repository.workspaces, "main")
    peaks = []
    for piece_bytes in (1 << 30, 1):
        keys.forget()
        with patch.object(dedup, "_PIECE_BYTES", piece_bytes):
            tracemalloc.start()
            keys.refresh()
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
    assert len(keys.find(keys_of(repository.events(0, 5000)))) == 5000
    assert path.stat().st_size > 1 << 20
    assert peaks[1] < peaks[0] / 4, peaks
