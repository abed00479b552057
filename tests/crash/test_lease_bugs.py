"""Seeded bugs of the fence: each piece of it is left out once, and the harm of two attempts side by side is found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import PropertyMock, patch

import pytest

from custody.lease import FencedFileSystem, Lease
from custody.lease import lease as leases
from custody.recovery import STEPS, leftovers
from custody.workspace import remove, step_lease
from tests.crash.lease_scenarios import OTHER_SETTINGS, side_by_side
from tests.crash.test_leases import Start, half_swept, left_over, waiting

ALL = tuple(STEPS)


@contextmanager
def no_check() -> Iterator[None]:
    with patch.object(Lease, "check", lambda _: None):
        yield


def no_epoch_in_the_catalog() -> AbstractContextManager[object]:
    return patch.object(step_lease, "_fence", lambda _: None)


def removed_at_once() -> AbstractContextManager[object]:
    # By its name: the package has a function that is called like the module.
    return patch.object(
        import_module("custody.recovery.recover_step"), "discard", lambda workspace, path: remove(workspace.fs, path)
    )


@contextmanager
def epoch_given_twice() -> Iterator[None]:
    right = leases._try_next

    def wrong(fs: Any, folder: Path, writer: str, attempt: Any, clock: Any, found: Any, floor: int) -> Lease | None:
        if found is not None and attempt.number == 2:
            return Lease(fs, folder, found.epoch)
        return right(fs, folder, writer, attempt, clock, found, floor)

    with patch.object(leases, "_try_next", wrong):
        yield


@contextmanager
def recovery_of_live_files() -> Iterator[None]:
    with ExitStack() as stack:
        stack.enter_context(patch.object(leftovers.LeftoverScan, "_is_uncommitted", lambda *_: True))
        stack.enter_context(patch.object(leftovers.LeftoverScan, "_kept", PropertyMock(return_value=set())))
        yield


@contextmanager
def logs_replaced() -> Iterator[None]:
    right = FencedFileSystem.link

    def wrong(self: FencedFileSystem, source: Path, target: Path) -> bool:
        if target.suffix not in (".parquet", ".toc"):
            return right(self, source, target)
        self.rename(source, target)
        return True

    with patch.object(FencedFileSystem, "link", wrong):
        yield


@dataclass(frozen=True)
class Bug:
    name: str
    seeded: Callable[[], AbstractContextManager[object]]
    start: Start
    names: tuple[str, ...] = ALL


BUGS = [
    Bug("the lease is not looked at", no_check, left_over),
    Bug("an epoch is given to two attempts", epoch_given_twice, left_over),
    Bug("recovery removes files under their names", removed_at_once, left_over),
    Bug("the catalog is not told of the epoch", no_epoch_in_the_catalog, waiting, ALL[:4]),
    Bug("a log takes the place of another one", logs_replaced, waiting, ALL[1:]),
    Bug("recovery removes what is listed", recovery_of_live_files, half_swept),
]


@pytest.mark.in_parts(4)
@pytest.mark.parametrize("bug", BUGS, ids=[bug.name for bug in BUGS])
def test_a_fence_with_a_gap_is_found(bug: Bug) -> None:
    with bug.seeded(), pytest.raises(AssertionError, match="paused before"):
        side_by_side(bug.start, other=OTHER_SETTINGS, names=bug.names)
