"""Damage in the head and the records of a file of contents: what events vouch for comes back, nothing else changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from custody.errors import CorruptionError, LockedError, NotFoundError
from custody.maintenance.repair.repair_contents import mend_claim
from custody.repository import Repository
from custody.vfs import PosixFileSystem
from custody.workspace import Workspace
from tests.support import event, run_steps

BODIES = (b"one" * 50, b"two" * 50, b"three" * 50)


@pytest.fixture(params=["journal", "log"])
def repository(request: pytest.FixtureRequest, tmp_path: Path) -> Repository:
    created = Repository.create(tmp_path / "repository")
    with created.writer() as writer:
        for number, body in enumerate(BODIES):
            writer.append_with_content([event(number)], body)
    if request.param == "log":
        run_steps(created.settings)
    return created


def claim_of(repository: Repository) -> tuple[Path, str]:
    path = repository.content(repository.get(0)).path
    return path, str(path.relative_to(repository.settings.store))


def test_heads_and_records_come_back_as_they_were(repository: Repository) -> None:
    path, name = claim_of(repository)
    whole = path.read_bytes()
    at = Workspace(repository.settings, "main", PosixFileSystem())
    offsets = [repository.content(repository.get(number)).claim.offset or 0 for number in range(3)]
    damaged = bytearray(whole)
    for position in (3, 60, offsets[0] + len(BODIES[0]) + 9, offsets[2] + len(BODIES[2]) + 30):
        damaged[position] ^= 0x55
    path.write_bytes(bytes(damaged[:-7]))  # and its end is gone
    with pytest.raises(CorruptionError):
        repository.content(repository.get(1))
    assert "3 contents" in mend_claim(at, name)
    assert path.read_bytes() == whole
    with pytest.raises(NotFoundError, match="nothing that an event vouches for"):
        mend_claim(at, name)


def test_a_damaged_content_stays_damaged_and_is_not_vouched_for(repository: Repository) -> None:
    path, name = claim_of(repository)
    data = bytearray(path.read_bytes())
    data[data.index(b"twotwo")] ^= 1
    data[9] ^= 1
    path.write_bytes(bytes(data))
    mend_claim(Workspace(repository.settings, "main", PosixFileSystem()), name)
    assert repository.content(repository.get(0)).read() == BODIES[0]
    assert repository.content(repository.get(2)).read() == BODIES[2]
    with pytest.raises(CorruptionError):
        repository.content(repository.get(1)).read()


def test_a_file_that_a_live_writer_may_append_to_is_left_alone(repository: Repository) -> None:
    _, name = claim_of(repository)
    with repository.writer(), pytest.raises(LockedError):
        mend_claim(Workspace(repository.settings, "main", PosixFileSystem()), name)
