"""Stripes: which one a log goes to, how one is taken into use by several at once, and what its mark says."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from custody.catalog.data_files import DataFiles
from custody.catalog.stripes import Stripe, StripeMark, Stripes
from custody.errors import ConfigurationError, CorruptionError, StripeMissingError
from custody.format.names import parse_trash, split_stripe, trash_path
from custody.store import LocalStore
from custody.vfs import PosixFileSystem
from custody.vfs.memory import CrashMode, InjectedCrash, MemoryFileSystem

FS = PosixFileSystem()
HOME = "main/provenance/"


def stripes(root: Path, *names: str, writer: str = "main", retired: tuple[str, ...] = ()) -> Stripes:
    for name in names:
        (root / name).mkdir(exist_ok=True)
    store = LocalStore(FS, root / "store")
    return Stripes(FS, store, writer, "provenance", {name: root / name for name in names}, retired)


def test_logs_spread_over_all_stripes_and_a_log_has_one(tmp_path: Path) -> None:
    chosen = Counter(stripes(tmp_path, "a", "b", "c").choose(first, 1, 0) for first in range(0, 300_000, 1000))
    assert set(chosen) == {"a", "b", "c"}
    assert min(chosen.values()) > 60
    again = Counter(stripes(tmp_path, "a", "b", "c").choose(first, 1, 0) for first in range(0, 300_000, 1000))
    assert again == chosen


def test_without_stripes_and_with_all_retired_a_log_goes_to_the_store(tmp_path: Path) -> None:
    assert stripes(tmp_path).choose(7, 1, 0) == ""
    assert stripes(tmp_path, "a", retired=("a",)).choose(7, 1, 0) == ""


def test_many_that_take_a_stripe_into_use_at_once_agree_on_one_mark(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()

    def take(number: int) -> bytes:
        taker = stripes(tmp_path, "a")
        taker.get("a").add(number)
        taker.get("a").check()
        return taker.get("a").mark.read_bytes()

    with ThreadPoolExecutor(16) as pool:
        marks = set(pool.map(take, range(64)))
    assert len(marks) == 1
    assert marks == {(tmp_path / "store" / HOME / "stripes/a").read_bytes()}


def test_a_folder_that_does_not_exist_is_not_made(tmp_path: Path) -> None:
    taker = Stripes(FS, LocalStore(FS, tmp_path / "store"), "main", "provenance", {"a": tmp_path / "not-mounted"})
    with pytest.raises(StripeMissingError, match="does not exist; custody does not make it"):
        taker.choose(0, 1, 0)
    assert not (tmp_path / "not-mounted").exists()
    assert taker.in_use() == []


def test_two_names_for_one_folder_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "a")
    folders = {"a": tmp_path / "a", "b": tmp_path / "link"}
    taker = Stripes(FS, LocalStore(FS, tmp_path / "store"), "main", "provenance", folders)
    taker.get("a").add(0)
    with pytest.raises(ConfigurationError, match=r"cannot become the stripe 'b'.*says that it is the stripe 'a'"):
        taker.get("b").add(0)


def test_a_stripe_without_room_or_read_only_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Stripe, "has_room", lambda self, size: self.name != "a")
    assert {stripes(tmp_path, "a", "b").choose(first, 1, 0) for first in range(50)} == {"b"}
    monkeypatch.setattr(Stripe, "has_room", lambda self, size: False)
    # Full as all are, the write says which disk it is.
    assert {stripes(tmp_path, "a", "b").choose(first, 1, 0) for first in range(50)} == {"a", "b"}


def test_a_file_that_went_with_its_disk_while_it_was_looked_for_is_not_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taker = stripes(tmp_path, "a")
    taker.get("a").add(0)
    path = "stripe-a/data/2026-03-01/events/00000000000000000000.parquet"
    files = DataFiles(taker.store, HOME, taker)
    assert not files.exists(path)
    assert files.put_if_absent(path, b"log")
    checks = iter([None, StripeMissingError("gone meanwhile")])

    def check(self: Stripe) -> None:
        failure = next(checks)
        if failure is not None:
            raise failure

    monkeypatch.setattr(Stripe, "check", check)
    (tmp_path / "a" / HOME / "data/2026-03-01/events/00000000000000000000.parquet").unlink()
    with pytest.raises(StripeMissingError, match="gone meanwhile"):
        files.exists(path)


def test_a_catalog_without_stripes_never_calls_a_file_on_one_absent(tmp_path: Path) -> None:
    files = DataFiles(LocalStore(FS, tmp_path), HOME)
    with pytest.raises(StripeMissingError, match="opened without any"):
        files.exists("stripe-a/data/2026-03-01/events/00000000000000000000.parquet")


def test_files_move_between_stripes_and_within_one(tmp_path: Path) -> None:
    taker = stripes(tmp_path, "a", "b")
    for name in ("a", "b"):
        taker.get(name).add(0)
    files = DataFiles(taker.store, HOME, taker)
    log = "data/2026-03-01/events/00000000000000000000.parquet"
    assert files.put_if_absent(f"stripe-a/{log}", b"log")
    files.move(f"stripe-a/{log}", trash_path(f"stripe-a/{log}", 5))
    assert [info.key for info in files.list("trash/")] == [f"stripe-a/trash/0000000000005/{log}"]
    assert parse_trash(f"stripe-a/trash/0000000000005/{log}") == (5, f"stripe-a/{log}")
    files.move(f"stripe-a/trash/0000000000005/{log}", f"stripe-b/{log}")
    assert (files.get(f"stripe-b/{log}"), list(files.list("trash/"))) == (b"log", [])
    files.move(f"stripe-b/{log}", log)
    assert [info.key for info in files.list("data/")] == [log]


@pytest.mark.parametrize("path", ["stripes/data/x", "stripe-/data/x", "stripe-A/data/x", "data/stripe-a/x", "stripe-a"])
def test_only_a_whole_name_at_the_beginning_names_a_stripe(path: str) -> None:
    assert split_stripe(path) == ("", path)


@pytest.mark.parametrize("mode", [CrashMode.SYNCED_ONLY, CrashMode.ALL_KEPT])
def test_a_crash_while_a_stripe_is_taken_into_use_leaves_one_that_can_be(mode: CrashMode) -> None:
    """And a stripe that is in use at any moment stays so over a later power loss."""
    prepared = MemoryFileSystem()
    prepared.make_directory(Path("/disk"))
    for crash_at in range(1, 200):
        crashing = prepared.crashed(CrashMode.ALL_KEPT)
        crashing.crash_at = crash_at
        with suppress(InjectedCrash):
            _taker(crashing).get("a").add(0)
        left = crashing.crashed(mode)
        _taker(left).get("a").add(1)
        lost = left.crashed(CrashMode.SYNCED_ONLY)
        assert _taker(lost).in_use() == ["a"]
        _taker(lost).get("a").check()
        if len(crashing.operations) < crash_at:
            break
    assert crash_at > 10


def _taker(fs: MemoryFileSystem) -> Stripes:
    return Stripes(fs, LocalStore(fs, Path("/store")), "main", "provenance", {"a": Path("/disk")})


def test_damaged_record_and_sign_are_an_error_and_no_absence(tmp_path: Path) -> None:
    taker = stripes(tmp_path, "a")
    taker.get("a").add(0)
    for name in ("a", "a.marked"):
        (tmp_path / "store" / HOME / "stripes" / name).write_bytes(b"CUSTSTR\x01damaged")
    with pytest.raises(CorruptionError):
        stripes(tmp_path, "a").get("a").check()
    assert len(list(stripes(tmp_path, "a").damage())) == 2


def test_a_mark_of_a_newer_version_is_not_taken_for_damage(tmp_path: Path) -> None:
    taker = stripes(tmp_path, "a")
    taker.get("a").add(0)
    mark = taker.get("a").mark
    assert StripeMark.decode(mark.read_bytes(), mark).writer == "main"
    mark.write_bytes(mark.read_bytes()[:7] + b"\x02" + mark.read_bytes()[8:])
    with pytest.raises(StripeMissingError, match="expected the mark of a stripe, version 1"):
        taker.get("a").check()
