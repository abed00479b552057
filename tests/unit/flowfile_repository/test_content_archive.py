"""The content archive: what is archived when, what goes by age and for want of room, and what never goes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from custody.clock import ManualClock
from custody.config import ContentStore, load_settings
from custody.errors import BackpressureError, NotFoundError
from custody.flow import Component, FlowFile
from custody.flow.content import ContentOptions, ContentWriter, ResourceClaim
from custody.flow.flowfile import new_flowfile
from custody.flowfile_repository import (
    ArchiveOptions,
    ContentArchive,
    FlowFileRepository,
    Placed,
    Work,
    claimed_contents,
)
from custody.flowfile_repository.content_archive import WRITTEN_MS
from custody.recovery import STEPS
from custody.repository import EventSelection, Repository
from custody.repository.flow import Flow
from custody.vfs import PosixFileSystem, Space
from tests.support import run_steps

GET, USE = Component(id="get", type="Get"), Component(id="use", type="Use")
DAY_MS = 86_400_000
OLD_MS = WRITTEN_MS + 60_000


class RoomyDisk(PosixFileSystem):
    """A disk that says how full it is: so many bytes of a thousand, less what was removed since."""

    def __init__(self, used: int) -> None:
        self.used = used

    def space(self, folder: Path) -> Space | None:
        return Space(1000, 1000 - self.used, False)

    def remove(self, path: Path) -> None:
        if "content" in path.parts and self.exists(path):
            self.used -= 100
        super().remove(path)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    Repository.create(tmp_path / "r")
    return tmp_path / "r"


@contextmanager
def open_flow(
    root: Path, clock: ManualClock, fs: PosixFileSystem | None = None, **content: Any
) -> Iterator[tuple[Repository, Flow]]:
    settings = load_settings(root)
    settings = settings.model_copy(update={"content": settings.content.model_copy(update=content)})
    repository = Repository(settings, fs, clock)
    with repository.flowfiles() as flow:
        flow.connect("in")
        yield repository, flow


def put(flow: Flow, data: bytes) -> FlowFile:
    with flow.session(GET) as session:
        flowfile = session.write_bytes(session.create(), data)
        session.transfer(flowfile, "in")
    return flowfile


def finish(flow: Flow, root: Path) -> None:
    """End the first FlowFile, and let its content look as if it was written long ago."""
    with flow.session(USE) as session:
        flowfile = session.get("in")
        assert flowfile is not None
        session.terminate(flowfile, "success")
    for path in (root / "store").rglob("content/*/*/*"):
        os.utime(path, (1, 1))


def clock() -> ManualClock:
    return ManualClock(1_772_409_600_000)


def test_a_content_is_archived_with_the_snapshot_after_its_last_flowfile(root: Path) -> None:
    now = clock()
    with open_flow(root, now) as (_, flow):
        put(flow, b"data")
        flow.queues.checkpoint()
        assert len(flow.queues.claims()) == 1
        finish(flow, root)
        assert (flow.queues.claims(), flow.queues.archived()) == ({}, {})
        flow.queues.checkpoint()
        assert list(flow.queues.archived().values()) == [now.now_ms()]
    with open_flow(root, now) as (_, flow):
        assert len(flow.queues.archived()) == 1


def test_it_can_be_read_until_it_is_too_old(root: Path) -> None:
    now = clock()
    with open_flow(root, now, archive_age="7 days") as (repository, flow):
        flowfile = put(flow, b"data")
        finish(flow, root)
        flow.queues.checkpoint()
        now.advance(7 * DAY_MS)
        flow.queues.checkpoint()
        claim = flowfile.content_claim
        assert claim is not None
        assert repository.content(claim).read() == b"data"
        now.advance(OLD_MS)
        flow.queues.checkpoint()
        assert flow.queues.archived() == {}
        with pytest.raises(NotFoundError, match="no longer there"):
            repository.content(claim).read()


def test_without_bounds_it_stays_as_long_as_an_event_refers_to_it(root: Path) -> None:
    now = clock()
    with open_flow(root, now) as (repository, flow):
        flowfile = put(flow, b"data")
        finish(flow, root)
        now.advance(3650 * DAY_MS)
        flow.queues.checkpoint()
        assert flowfile.content_claim is not None
        assert repository.content(flowfile.content_claim).read() == b"data"


def test_a_file_that_a_writer_may_still_append_to_stays(root: Path) -> None:
    now = clock()
    with open_flow(root, now, archive_age="1 second") as (_, flow):
        put(flow, b"data")
        finish(flow, root)
        [path] = [path for path in (root / "store").rglob("content/*/*/*") if path.is_file()]
        flow.queues.checkpoint()
        now.advance(OLD_MS)
        os.utime(path, (now.now_ms() / 1000, now.now_ms() / 1000))
        flow.queues.checkpoint()
        assert path.exists()
        assert len(flow.queues.archived()) == 1


def test_a_file_that_a_waiting_flowfile_shares_stays(root: Path) -> None:
    now = clock()
    with open_flow(root, now, archive_age="1 second") as (repository, flow):
        put(flow, b"first")
        second = put(flow, b"second")
        finish(flow, root)
        now.advance(OLD_MS)
        flow.queues.checkpoint()
        assert flow.queues.archived() == {}
        assert second.content_claim is not None
        assert repository.content(second.content_claim).read() == b"second"


def test_the_oldest_go_first_for_want_of_room(root: Path) -> None:
    now = clock()
    disk = RoomyDisk(used=400)
    claims = []
    # Files of 4096 bytes at least: each larger content has one of its own.
    with open_flow(root, now, disk, archive_share=0.5, claim_bytes=4096) as (repository, flow):
        for number in range(3):
            flowfile = put(flow, bytes([number]) * 5000)
            claims.append(flowfile.content_claim)
            finish(flow, root)
            flow.queues.checkpoint()
            now.advance(1000)
        now.advance(OLD_MS)
        disk.used = 600
        # The files look larger than they are to the disk: only the first is needed to come below 48 %.
        flow.queues.checkpoint()
        assert claims[2] is not None
        assert [claim is not None and _is_there(repository, claim) for claim in claims] == [False, True, True]


def test_writing_waits_when_the_archive_cannot_shrink(root: Path) -> None:
    now = clock()
    disk = RoomyDisk(used=510)
    with open_flow(root, now, disk, archive_share=0.5) as (_, flow):
        put(flow, b"data")  # within the margin
        disk.used = 530
        session = flow.session(GET)
        with pytest.raises(BackpressureError, match=r"53% of the disk is used.*archive_share"):
            session.write_bytes(session.create(), b"more")
        disk.used = 400
        flowfile = session.write_bytes(session.create(), b"more")
        session.rollback()
        assert flowfile.size == 4


def test_what_a_hold_means_is_not_deleted(root: Path) -> None:
    now = clock()
    with open_flow(root, now, archive_age="1 second") as (repository, flow):
        flowfile = put(flow, b"data")
        finish(flow, root)
        repository.hold("case", EventSelection(flowfile_uuids=[flowfile.uuid]), "court", "legal")
        flow.queues.checkpoint()
        now.advance(OLD_MS)
        flow.queues.checkpoint()
        assert flowfile.content_claim is not None
        assert repository.content(flowfile.content_claim).read() == b"data"
    run_steps(repository.settings, *STEPS)
    with open_flow(root, now, archive_age="1 second") as (again, flow):
        flow.queues.checkpoint()
        assert again.content(flowfile.content_claim).read() == b"data"  # also when its event is live
        again.release("case", "settled", "legal")
        flow.queues.checkpoint()
        with pytest.raises(NotFoundError):
            again.content(flowfile.content_claim)


def test_a_flowfile_that_refers_to_it_again_takes_it_out(root: Path) -> None:
    now = clock()
    with open_flow(root, now, archive_age="1 hour") as (_, flow):
        flowfile = put(flow, b"data")
        finish(flow, root)
        flow.queues.checkpoint()
        with flow.session(GET) as session:
            again = session.create({}, size=4, content_claim=flowfile.content_claim)
            session.transfer(again, "in")
        assert flow.queues.archived() == {}
        now.advance(DAY_MS)
        flow.queues.checkpoint()
        with flow.session(USE) as session:
            taken = session.get("in")
            assert taken is not None
            assert session.read_bytes(taken) == b"data"
            session.remove(taken)


def test_a_flowfile_cannot_refer_to_what_is_gone(root: Path) -> None:
    now = clock()
    with open_flow(root, now, archive_age="1 second") as (_, flow):
        flowfile = put(flow, b"data")
        finish(flow, root)
        flow.queues.checkpoint()
        now.advance(OLD_MS)
        flow.queues.checkpoint()
        session = flow.session(GET)
        again = session.create({}, size=4, content_claim=flowfile.content_claim)
        session.transfer(again, "in")
        with pytest.raises(NotFoundError, match="the content is gone"):
            session.commit()
        session.rollback()
        assert flow.queues.size("in").count == 0


def test_a_long_session_keeps_what_it_wrote(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("custody.flowfile_repository.flowfile_repository.PIN_SECONDS", -1.0)
    now = clock()
    with open_flow(root, now, archive_age="1 second") as (repository, flow):
        put(flow, b"first")
        session = flow.session(GET)
        late = session.write_bytes(session.create(), b"late")  # in the same file
        finish(flow, root)
        flow.queues.tick()
        flow.queues.checkpoint()
        now.advance(OLD_MS)
        flow.queues.checkpoint()
        session.transfer(late, "in")
        session.commit()
        assert late.content_claim is not None
        assert repository.content(late.content_claim).read() == b"late"
        finish(flow, root)
        flow.queues.checkpoint()
        now.advance(OLD_MS)
        flow.queues.checkpoint()
        assert not _is_there(repository, late.content_claim)


def test_retention_leaves_what_waiting_flowfiles_refer_to(root: Path) -> None:
    now = clock()
    with open_flow(root, now):
        pass  # makes the queue
    settings = load_settings(root)
    settings = settings.model_copy(update={"content": settings.content.model_copy(update={"unused_minutes": 0.0})})
    repository = Repository(settings, None, now)
    with repository.writer() as writer:
        stored = writer.content.put(b"data")
    for path in (root / "store").rglob("content/*/*/*"):
        os.utime(path, (1, 1))
    # Its events would be in the provenance repository: these have none, as if they had expired.
    with FlowFileRepository(PosixFileSystem(), settings.flowfiles_home, now) as queues:
        flowfile = new_flowfile("f-1", {}, size=4, content_claim=stored.claim, now_ms=now.now_ms())
        queues.commit(Work("s", [Placed(flowfile, "in")]))
        with claimed_contents(PosixFileSystem(), settings.flowfiles_home) as claimed:
            assert len(claimed) == 1
        assert repository.clean_contents(apply=True).claims == ()
        assert repository.content(stored.claim).read() == b"data"
        queues.take("in", "s")
        queues.commit(Work("s", leaves=["f-1"]))
        queues.checkpoint()
        assert len(repository.clean_contents(apply=True).claims) == 1
        assert not _is_there(repository, stored.claim)


def test_what_is_claimed_while_the_events_are_read_stays_and_nobody_waits(root: Path) -> None:
    now = clock()
    contents = []
    for data in (b"claimed again", b"done"):
        with open_flow(root, now, archive_age="1 hour") as (_, flow):
            contents.append(put(flow, data))
            finish(flow, root)
            flow.queues.checkpoint()
    now.advance(DAY_MS)
    with open_flow(root, now, archive_age="1 hour") as (repository, flow):

        def claim_again() -> set[str]:
            assert not PosixFileSystem().is_locked(repository.settings.flowfiles_home / "lock")
            claim = contents[0].content_claim
            with flow.session(GET) as session:
                session.transfer(session.create({}, size=contents[0].size, content_claim=claim), "in")
            return set()

        flow.archive._held = claim_again
        flow.queues.checkpoint()
        assert [_is_there(repository, one.content_claim) for one in contents] == [True, False]
        assert flow.queues.archived() == {}


def test_a_repository_without_flowfiles_claims_nothing(tmp_path: Path) -> None:
    with claimed_contents(PosixFileSystem(), tmp_path / "flowfiles") as claimed:
        assert claimed == frozenset()
    assert list(tmp_path.iterdir()) == []


def test_an_archive_without_bounds_names_only_what_is_gone(tmp_path: Path) -> None:
    archive = ContentArchive(PosixFileSystem(), ContentStore(tmp_path), ArchiveOptions())
    assert archive.due({"custody:main/1/0000/1772409600000-0": 5}, 1 << 60) == ["custody:main/1/0000/1772409600000-0"]


class TwoDisks(PosixFileSystem):
    """The store's disk, half full, and another one that is full."""

    def __init__(self, full: Path) -> None:
        self._full = full

    def space(self, folder: Path) -> Space | None:
        return Space(100_000, 1000 if folder == self._full else 50_000, False)


def _on_two_disks(tmp_path: Path, share: float) -> tuple[ContentArchive, dict[str, list[str]]]:
    """Return the archive of contents on two disks, and the resource claims on each, the oldest first."""
    (tmp_path / "disk").mkdir()
    store = ContentStore(tmp_path / "store", {"b": tmp_path / "disk"})
    fs = TwoDisks(tmp_path / "disk")
    to = ContentWriter(fs, store, "main", ManualClock(), ContentOptions(("a", "b"), 4096))
    claims: dict[str, list[str]] = {"a": [], "b": []}
    while min(map(len, claims.values())) < 3:
        resource = ResourceClaim.of(to.put(b"x" * 5000).claim)
        assert resource is not None
        os.utime(resource.path(store), (0, 0))
        claims[resource.container].append(resource.text)
    to.close()
    return ContentArchive(fs, store, ArchiveOptions(share_max=share)), claims


def test_each_disk_gives_up_what_is_too_much_on_it_alone(tmp_path: Path) -> None:
    archive, claims = _on_two_disks(tmp_path, 0.9)
    archived = {text: number for one in claims.values() for number, text in enumerate(one)}
    # 99 % are used, and 88 are wanted: three files of five thousand bytes and their heads, all on the full disk.
    assert archive.due(archived, 1 << 60) == claims["b"]
    with pytest.raises(BackpressureError, match=f"{tmp_path}/disk: 99% of the disk is used"):
        archive.require_room()


def test_what_lies_on_a_disk_that_is_away_waits_for_it(tmp_path: Path) -> None:
    archive, claims = _on_two_disks(tmp_path, 0.4)
    (tmp_path / "disk").rename(tmp_path / "taken out")
    archived = {text: 0 for one in claims.values() for text in one}
    assert sorted(archive.due(archived, 1 << 60)) == sorted(claims["a"])
    assert archive.held(claims["b"]) == set(claims["b"])


def _is_there(repository: Repository, claim: Any) -> bool:
    try:
        repository.content(claim).read()
    except NotFoundError:
        return False
    return True
