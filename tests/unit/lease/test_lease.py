"""Leases: the greatest epoch holds, who is gone or tried earlier makes way, and who was overtaken is told."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import msgspec
import pytest

from custody.clock import ManualClock
from custody.errors import CorruptionError, FormatVersionError, LockedError, SupersededError
from custody.lease import (
    Attempt,
    FencedFileSystem,
    Heartbeat,
    Holder,
    Lease,
    lease_status,
    read_holder,
    take,
    this_process,
)
from custody.lease import lease as holders
from custody.vfs import FileSystem, PosixFileSystem
from custody.vfs.memory import MemoryFileSystem

FOLDER = Path("/leases/rollover")
CLOCK = ManualClock(1_772_409_600_000)
FIRST, SECOND = Attempt("dag/run/task", 1), Attempt("dag/run/task", 2)
OTHER = Attempt("custody/elsewhere", 1)


def taken(fs: FileSystem, attempt: Attempt, folder: Path = FOLDER, **options: object) -> Lease:
    chosen = {"wait_seconds": 0, "dead_seconds": 10, **options}
    return take(fs, folder, "main", attempt, CLOCK, **chosen)  # type: ignore[arg-type]


def test_a_free_lease_is_taken_with_the_next_epoch() -> None:
    fs = MemoryFileSystem()
    first = taken(fs, FIRST)
    assert (first.epoch, first.clean, first.is_current()) == (1, True, True)
    first.release()
    second = taken(fs, OTHER)
    assert (second.epoch, second.clean) == (2, True)
    assert not first.is_current()
    second.release(failed=True)
    assert (taken(fs, OTHER).epoch, taken(fs, OTHER, take_over=True).clean) == (3, False)


def test_what_was_left_is_not_forgotten_by_work_that_did_not_recover() -> None:
    fs = MemoryFileSystem()
    taken(fs, FIRST).release(failed=True)
    retry = taken(fs, SECOND)
    assert not retry.clean
    retry.release()
    status = lease_status(fs, FOLDER)
    assert status is not None
    assert status.failed
    recovering = taken(fs, OTHER)
    assert not recovering.clean
    recovering.release(recovered=True)
    assert taken(fs, OTHER).clean


def test_a_live_holder_is_waited_for_and_then_named() -> None:
    fs = MemoryFileSystem()
    taken(fs, FIRST)
    waited: list[float] = []
    with pytest.raises(LockedError, match=r"0000000001: .* dag/run/task/1 \(process \d+ on .*--take-over") as raised:
        taken(fs, OTHER, wait_seconds=0.05, sleep=waited.append)
    assert raised.value.exit_code == 14
    assert waited


def test_a_holder_that_ends_while_another_one_waits_makes_way() -> None:
    fs = MemoryFileSystem()
    first = taken(fs, FIRST)
    assert taken(fs, OTHER, wait_seconds=60, sleep=lambda _: first.release()).epoch == 2


def test_a_later_try_of_the_same_task_takes_over_at_once_and_the_earlier_one_is_told() -> None:
    fs = MemoryFileSystem()
    first = taken(fs, FIRST)
    second = taken(fs, SECOND)
    assert (second.epoch, second.clean) == (2, False)
    with pytest.raises(SupersededError, match=r"expected epoch 1 .* got epoch 2: dag/run/task/2") as raised:
        first.check()
    assert raised.value.exit_code == 19
    second.check()
    with pytest.raises(SupersededError, match="later try"):
        taken(fs, FIRST)
    first.release()
    status = lease_status(fs, FOLDER)
    assert status is not None
    assert status.is_open, "who was overtaken must not end the other one's lease"


def test_an_earlier_try_comes_too_late_also_when_the_later_one_has_ended() -> None:
    fs = MemoryFileSystem()
    taken(fs, SECOND).release()
    with pytest.raises(SupersededError):
        taken(fs, FIRST)


def test_a_process_that_ended_holds_nothing(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from custody.clock import SystemClock;"
        "from custody.lease import Attempt, take; from custody.vfs import PosixFileSystem;"
        "take(PosixFileSystem(), Path(sys.argv[1]), 'main', Attempt('a', 1), SystemClock(), "
        "wait_seconds=0, dead_seconds=60);"
        "print(1, flush=True); sys.stdin.read()"
    )
    fs = PosixFileSystem()
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "lease")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        with pytest.raises(LockedError, match=rf"process {process.pid} on"):
            taken(fs, OTHER, tmp_path / "lease")
        process.kill()
        process.wait()
    lease = taken(fs, OTHER, tmp_path / "lease")
    assert (lease.epoch, lease.clean) == (2, False)


def test_a_number_that_another_process_has_now_is_not_taken_for_the_holder() -> None:
    here = this_process()
    assert holders.is_gone(here, here) is False
    assert holders.is_gone(msgspec.structs.replace(here, started=here.started + 1), here) is True
    assert holders.is_gone(msgspec.structs.replace(here, boot="another kernel"), here) is True
    assert holders.is_gone(msgspec.structs.replace(here, host="another"), here) is None


def test_a_holder_elsewhere_counts_as_dead_once_its_last_sign_of_life_is_old() -> None:
    fs, now = MemoryFileSystem(), CLOCK.now_ms()
    with patch.object(holders, "is_gone", lambda *_: None):
        first = taken(fs, FIRST)
        first.beat(now - 5_000)
        with pytest.raises(LockedError):
            taken(fs, OTHER)
        first.beat(now - 20_000)
        assert taken(fs, OTHER).epoch == 2


def test_signs_of_life_are_given_while_the_work_goes_on() -> None:
    fs = MemoryFileSystem()
    lease = taken(fs, FIRST)
    with Heartbeat([lease], CLOCK, 0.04):
        for _ in range(500):
            if fs.exists(FOLDER / "0000000001.beat"):
                break
            subprocess.run(["true"], check=True)
    assert fs.read(FOLDER / "0000000001.beat") == str(CLOCK.now_ms()).encode()


def test_old_epochs_go_and_who_counts_on_them_comes_too_late() -> None:
    fs = MemoryFileSystem()
    slow = Lease(fs, FOLDER, 1)
    for _ in range(4):
        taken(fs, OTHER).release()
    assert {name.partition(".")[0] for name in fs.list(FOLDER)} == {"0000000003", "0000000004"}
    assert not slow.is_current()
    # Its number is free again; the lease is not had by taking it.
    assert fs.publish_if_absent(FOLDER / "0000000002", b"")
    status = lease_status(fs, FOLDER)
    assert status is not None
    assert status.epoch == 4


def test_an_epoch_that_the_catalog_knows_is_not_given_again() -> None:
    assert taken(MemoryFileSystem(), FIRST, floor=7).epoch == 8


def test_a_damaged_lease_is_free_once_nothing_has_changed_for_long(tmp_path: Path) -> None:
    fs = PosixFileSystem()
    taken(fs, FIRST, tmp_path)
    path = tmp_path / "0000000001"
    data = bytearray(path.read_bytes())
    data[-2] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptionError, match="0000000001 @0"):
        Holder.decode(bytes(data), path)
    with pytest.raises(FormatVersionError, match="expected lease version 1, got 2"):
        Holder.decode(_other_version(), path)
    assert read_holder(fs, path) is None
    clock_ms = CLOCK.now_ms() / 1000
    os.utime(path, (clock_ms - 5, clock_ms - 5))
    with pytest.raises(LockedError, match="unknown attempt"):
        taken(fs, OTHER, tmp_path)
    os.utime(path, (clock_ms - 20, clock_ms - 20))
    assert taken(fs, OTHER, tmp_path).epoch == 2


def _other_version() -> bytes:
    good = Holder(lease="rollover", writer="main", epoch=1, attempt="a/1", process=this_process(), taken_ms=0).encode()
    return good[:7] + b"\x02" + good[8:]


@pytest.mark.parametrize(
    ("name", "task", "number"),
    [
        ("dag/run/task/2", "dag/run/task", 2),
        ("dag/manual__2026-03-02T00:00:00+00:00/t/10", None, 10),
        ("alone", "alone", 1),
    ],
)
def test_an_attempt_s_name_says_its_task_and_its_number(name: str, task: str | None, number: int) -> None:
    attempt = Attempt.parse(name)
    assert attempt.number == number
    assert attempt.task == (task or name.rpartition("/")[0])
    assert Attempt.parse(str(attempt)) == attempt


@pytest.mark.parametrize("effect", ["rename", "link", "remove", "remove_directory", "cut"])
def test_every_effect_that_others_see_is_refused_to_who_was_overtaken(effect: str) -> None:
    fs = MemoryFileSystem()
    first = taken(fs, FIRST)
    fenced = FencedFileSystem(fs, first)
    fs.make_directory(Path("/shared/empty"))
    fs.write_durably(Path("/shared/file"), b"content")
    before = fs.files()
    calls: dict[str, Callable[[], object]] = {
        "rename": lambda: fenced.rename(Path("/shared/file"), Path("/shared/other")),
        "link": lambda: fenced.link(Path("/shared/file"), Path("/shared/other")),
        "remove": lambda: fenced.remove(Path("/shared/file")),
        "remove_directory": lambda: fenced.remove_directory(Path("/shared/empty")),
        "cut": lambda: fenced.cut(Path("/shared/file"), 2),
    }
    taken(fs, SECOND)
    with pytest.raises(SupersededError):
        calls[effect]()
    assert {path: data for path, data in fs.files().items() if "work" in str(path)} == {
        path: data for path, data in before.items() if "work" in str(path)
    }
    fenced = FencedFileSystem(fs, Lease(fs, FOLDER, 2))
    calls[effect]()
    assert fs.files() != before
