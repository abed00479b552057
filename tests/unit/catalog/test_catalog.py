"""The catalog: a linear chain of transactions that says what is live; whoever races for it, one wins each place."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from custody.catalog import (
    Action,
    AddShard,
    Catalog,
    CatalogState,
    PrunedError,
    RemoveFile,
    RemoveShard,
    Transaction,
    chain,
    plan_prune,
    prune,
    readable_checkpoints,
    verify,
)
from custody.catalog.codec import decode
from custody.catalog.keys import CatalogObject
from custody.catalog.wellformed import check_full
from custody.clock import ManualClock
from custody.errors import ConflictError, NotFoundError, StorageError
from custody.store import LocalStore
from custody.vfs import PosixFileSystem
from tests.support import files_below, python
from tests.unit.catalog.catalogs import START_MS, add, build, open_catalog, transactions, value

COMMIT = """
import random
import sys
import time
from pathlib import Path
from custody.catalog import Action, AddFile, Catalog
from custody.clock import SystemClock
from custody.store import LocalStore
from custody.vfs import PosixFileSystem
catalog = Catalog(LocalStore(PosixFileSystem(), Path(sys.argv[1])), "main", "provenance", SystemClock())
print("ready", flush=True)
sys.stdin.readline()
for number in range(int(sys.argv[3])):
    catalog.commit([Action(add_file=AddFile(path=f"{sys.argv[2]}/{number}"))], next_event_id=number)
    time.sleep(random.random() / 500)  # on a quick disk one process would be done before the next one is woken
"""


def test_an_empty_catalog_lists_nothing(tmp_path: Path) -> None:
    state = open_catalog(tmp_path).load()
    assert (state.revision, state.next_event_id, dict(state.files), dict(state.shards)) == (-1, 0, {}, {})
    assert list(open_catalog(tmp_path).timeline()) == []
    assert open_catalog(tmp_path).checkpoint_age() == 0


def test_another_reader_sees_what_was_committed(tmp_path: Path) -> None:
    state = build(tmp_path).load()
    assert value(open_catalog(tmp_path).load()) == value(state)
    assert sorted(state.files) == [f"file-{n}" for n in range(4)]
    assert sorted(state.shards) == [f"shard-{n}" for n in range(4)]
    assert state.next_event_id == 40
    file = state.file_of(25)
    assert file is not None
    assert file.path == "file-2"
    assert state.file_of(40) is None


def test_each_transaction_carries_its_predecessor_s_uuid_and_digest(tmp_path: Path) -> None:
    timeline = list(build(tmp_path).timeline())
    assert [transaction.revision for transaction in timeline] == [0, 1, 2, 3]
    for path, transaction in zip(transactions(tmp_path), timeline, strict=True):
        assert decode(path.read_bytes(), path) == transaction
    assert timeline[0].previous_digest == timeline[0].previous_uuid == b""
    for former, later in pairwise(timeline):
        assert later.previous_uuid == former.uuid
        assert later.catalog_id == former.catalog_id
    assert len({transaction.attempt_id for transaction in timeline}) == 4


def test_a_reader_that_stays_open_follows_later_commits(tmp_path: Path) -> None:
    reader = open_catalog(tmp_path)
    assert reader.load().revision == -1
    build(tmp_path)
    assert reader.load().revision == 3
    open_catalog(tmp_path).commit([add("later")])
    assert "later" in reader.load().files


def test_two_open_writers_both_land_one_after_the_other(tmp_path: Path) -> None:
    one, other = open_catalog(tmp_path), open_catalog(tmp_path)
    one.load()
    other.load()
    one.commit([add("one")])
    state = other.commit([add("other")])
    assert (state.revision, sorted(state.files)) == (1, ["one", "other"])


def test_processes_that_race_all_land_in_one_line_and_nothing_is_lost(tmp_path: Path) -> None:
    with (
        python(COMMIT, tmp_path, "a", 150) as first,
        python(COMMIT, tmp_path, "b", 150) as second,
        python(COMMIT, tmp_path, "c", 150) as third,
    ):
        for process in (first, second, third):
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in (first, second, third):
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        assert [process.wait(60) for process in (first, second, third)] == [0, 0, 0]
    state = open_catalog(tmp_path).load()
    assert sorted(state.files) == sorted(f"{name}/{n}" for name in "abc" for n in range(150))
    timeline = list(open_catalog(tmp_path).timeline())
    assert [transaction.revision for transaction in timeline] == list(range(450))
    writers = [transaction.actions[0].add_file.path[0] for transaction in timeline]
    assert sum(one != other for one, other in pairwise(writers)) > 2, "they did not race"


def test_a_commit_that_contradicts_the_state_writes_nothing(tmp_path: Path) -> None:
    catalog = build(tmp_path)
    before = files_below(tmp_path)
    contradictions = [
        [add("file-0")],
        [add("new"), add("new")],
        [Action(remove_file=RemoveFile(path="absent"))],
        [Action(add_shard=AddShard(name="shard-1"))],
        [Action(remove_shard=RemoveShard(name="absent"))],
    ]
    for actions in contradictions:
        with pytest.raises(ConflictError, match="cannot"):
            catalog.commit(actions)
        with pytest.raises(ConflictError, match="cannot"):
            open_catalog(tmp_path).commit(actions)
    assert files_below(tmp_path) == before
    assert catalog.load().revision == 3


def test_a_writer_that_lost_the_race_for_the_same_file_is_told(tmp_path: Path) -> None:
    one, other = open_catalog(tmp_path), open_catalog(tmp_path)
    one.load()
    other.load()
    one.commit([add("same")])
    with pytest.raises(ConflictError, match="same"):
        other.commit([add("same")])


def test_removed_files_and_shards_are_not_live(tmp_path: Path) -> None:
    state = build(tmp_path).commit(
        [Action(remove_file=RemoveFile(path="file-1")), Action(remove_shard=RemoveShard(name="shard-1"))]
    )
    assert "file-1" not in state.files
    assert "shard-1" not in state.shards
    assert value(open_catalog(tmp_path).load()) == value(state)


def test_commit_times_strictly_increase_when_the_clock_is_set_back(tmp_path: Path) -> None:
    clock = ManualClock(START_MS)
    catalog = open_catalog(tmp_path, clock)
    for number, step in enumerate((0, -3_600_000, 0, 10, 7_200_000)):
        clock.advance(step)
        catalog.commit([add(str(number))])
    times = [transaction.commit_time_ms for transaction in catalog.timeline()]
    assert times[0] == START_MS
    assert times == sorted(set(times))
    assert times[-1] == clock.now_ms()


def test_the_next_event_id_never_goes_down(tmp_path: Path) -> None:
    catalog = open_catalog(tmp_path)
    next_ids = [catalog.commit([add(str(n))], next_event_id=n).next_event_id for n in (5, 3, 0, 9)]
    assert next_ids == [transaction.next_event_id for transaction in catalog.timeline()] == [5, 5, 5, 9]
    catalog.checkpoint()
    assert open_catalog(tmp_path).load().next_event_id == 9


@pytest.mark.parametrize("later", [0, 3])
def test_loading_from_a_checkpoint_equals_a_full_replay(tmp_path: Path, later: int) -> None:
    catalog = build(tmp_path)
    catalog.checkpoint()
    for number in range(later):
        catalog.commit([add(f"later-{number}"), Action(remove_file=RemoveFile(path=f"file-{number}"))])
    assert catalog.checkpoint_age() == later
    with_checkpoint = value(open_catalog(tmp_path).load())
    [checkpoint] = transactions(tmp_path, "ckpt")
    checkpoint.unlink()
    assert value(open_catalog(tmp_path).load()) == with_checkpoint
    assert open_catalog(tmp_path).checkpoint_age() == 4 + later


def test_a_checkpoint_written_twice_stays_as_it_is(tmp_path: Path) -> None:
    catalog = build(tmp_path)
    assert catalog.checkpoint() == transactions(tmp_path, "ckpt")[0]
    before = files_below(tmp_path)
    open_catalog(tmp_path).checkpoint()
    assert files_below(tmp_path) == before


def test_an_empty_catalog_has_nothing_to_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(ConflictError, match="empty"):
        open_catalog(tmp_path).checkpoint()


@pytest.mark.parametrize("revision", [0, 2, 4, 6])
def test_a_checkpoint_of_any_revision_gives_its_state_and_leaves_the_hint_at_the_newest(
    tmp_path: Path, revision: int
) -> None:
    catalog = build(tmp_path, 7)
    before = value(catalog.at(revision))
    catalog.write_checkpoint(4)
    hint = catalog.chain.hinted()
    assert hint is not None
    assert hint.revision == 4
    written = catalog.write_checkpoint(revision)
    assert written.key.endswith(".ckpt")
    again = open_catalog(tmp_path)
    checkpoints = {item.revision for item in again.objects.checkpoints()}
    assert checkpoints == {4, revision}
    hint = again.chain.hinted()
    assert hint is not None
    assert hint.revision == max(checkpoints), "the hint does not move back"
    assert value(again.at(revision)) == before
    assert value(again.load()) == value(catalog.load())
    assert verify(again, files=False).defects == []
    # From the checkpoint alone: the transactions before it are not needed to read this revision.
    for number in range(revision):
        transactions(tmp_path)[0].unlink()
        assert number < revision
    assert value(open_catalog(tmp_path).at(revision)) == before


def test_a_checkpoint_of_a_revision_is_where_a_pruning_begins(tmp_path: Path) -> None:
    catalog = build(tmp_path, 9)
    for revision in (8, 7):
        catalog.write_checkpoint(revision)
    assert prune(catalog, 3).floor == 0
    catalog.write_checkpoint(3)
    assert prune(catalog, 3).floor == 3
    again = open_catalog(tmp_path)
    with pytest.raises(PrunedError):
        again.write_checkpoint(2)
    with pytest.raises(NotFoundError, match="no revision 99"):
        again.write_checkpoint(99)
    assert verify(again, files=False).defects == []


class _CommitBetween(PosixFileSystem):
    """Lets somebody commit right after a reader found nothing new."""

    def __init__(self, root: Path) -> None:
        self._root: Path | None = root

    def read(self, path: Path) -> bytes:
        try:
            return super().read(path)
        except StorageError:
            if path.suffix == ".txn" and self._root is not None:
                root, self._root = self._root, None
                open_catalog(root).commit([add("meanwhile")])
            raise


def test_a_checkpoint_is_decoded_once_a_process_and_a_damaged_one_is_told_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = build(tmp_path)
    written = catalog.checkpoint()
    catalog.commit([add("later", 40)])
    expected = value(catalog.load())
    checked: list[object] = []

    def counted(message: Transaction, where: object) -> Transaction:
        checked.append(where)
        return check_full(message, where)

    monkeypatch.setattr(chain, "check_full", counted)
    assert value(open_catalog(tmp_path).load()) == value(open_catalog(tmp_path).load()) == expected
    assert checked == [str(written)]
    whole = written.read_bytes()
    written.write_bytes(whole[:100] + bytes([whole[100] ^ 1]) + whole[101:])
    reader = open_catalog(tmp_path)
    assert value(reader.load()) == expected
    assert any("expected a catalog object with its checksum" in notice for notice in reader.notices)


def test_the_states_of_checkpoints_are_kept_up_to_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = open_catalog(tmp_path)
    for number in range(8):
        catalog.commit([add(f"file-{number}", number)])
        catalog.checkpoint()
        assert len(open_catalog(tmp_path).load().files) == number + 1
    assert len(chain._CHECKPOINTS._states) == chain._CHECKPOINTS_KEPT
    monkeypatch.setattr(chain, "_KEPT_BYTES_MAX", 1)
    for _ in range(2):
        catalog.commit([add(f"file-{catalog.load().revision + 1}", 10 + catalog.load().revision)])
        catalog.checkpoint()
        assert value(open_catalog(tmp_path).load()) == value(catalog.load())
        assert not chain._CHECKPOINTS._states


def test_a_pruning_reads_no_more_checkpoints_than_decide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = open_catalog(tmp_path)
    for number in range(12):
        catalog.commit([add(f"file-{number}", number)])
        catalog.checkpoint()
    read: list[int] = []
    right = chain.Chain.checkpoint

    def counted(self: chain.Chain, item: CatalogObject, *rest: Any) -> Any:
        read.append(item.revision)
        return right(self, item, *rest)

    monkeypatch.setattr(chain.Chain, "checkpoint", counted)
    assert plan_prune(catalog, 11, 1).floor == 10
    assert plan_prune(catalog, 9).floor == 9
    assert set(read) == {11, 10, 9}
    read.clear()
    assert list(readable_checkpoints(catalog)) == [*range(11, -1, -1)]
    assert next(readable_checkpoints(catalog)) == 11


def test_a_commit_while_a_reader_looks_is_not_taken_for_a_hole(tmp_path: Path) -> None:
    build(tmp_path)
    reader = Catalog(LocalStore(_CommitBetween(tmp_path), tmp_path), "main", "provenance", ManualClock())
    assert "meanwhile" in reader.load().files


def test_a_reader_and_a_writer_that_were_overtaken_by_a_prune_find_what_is_newer(tmp_path: Path) -> None:
    slow = open_catalog(tmp_path)
    slow.commit([add("a")])
    fast = open_catalog(tmp_path)
    for name in "bcdef":
        fast.commit([add(name)])
        fast.checkpoint()
    prune(fast, 3)
    assert set(slow.load().files) == set(fast.load().files)
    assert set(slow.commit([add("g")]).files) == set(open_catalog(tmp_path).load().files)


def test_a_commit_whose_place_was_pruned_between_look_and_put_is_tried_again_on_top(tmp_path: Path) -> None:
    slow = open_catalog(tmp_path)
    slow.commit([add("a")])
    right = Catalog.settle

    def overtaken(self: Catalog) -> CatalogState:
        state = right(self)
        with patch.object(Catalog, "settle", right):
            fast = open_catalog(tmp_path)
            if len(fast.load().files) == 1:
                for name in "bcdef":
                    fast.commit([add(name)])
                    fast.checkpoint()
                prune(fast, 3)
        return state

    with patch.object(Catalog, "settle", overtaken):
        slow.commit([add("g")])
    assert len(open_catalog(tmp_path).load().files) == 7
    assert verify(open_catalog(tmp_path), files=False).defects == []
