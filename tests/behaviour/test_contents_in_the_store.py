"""Contents that were handed over: they are read, checked, listed and deleted without the disks that they were on."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest
from click.testing import CliRunner, Result

from custody.cli.main import cli
from custody.clock import ManualClock, SystemClock
from custody.errors import ContentContainerMissingError, CorruptionError, NotFoundError, StorageError
from custody.flow import Component
from custody.flow.content import Availability, ClaimFile, ContentReader, ResourceClaim, handed_claims, with_content
from custody.flow.content.handed_claims import HandedClaims
from custody.maintenance.findings import Level
from custody.maintenance.verification import verify_repository
from custody.model import Event
from custody.repository import EventSelection, Repository
from custody.repository.retention_api import apply_retention
from custody.rollover import handing_over_contents
from custody.serving.application import Access
from custody.serving.repository_measures import RepositoryMeasures
from custody.store import ObjectStore, counted, open_store
from custody.vfs import PosixFileSystem
from tests.behaviour.places import s3_url
from tests.behaviour.s3 import BUCKET, s3_environment
from tests.support import append, event, flipped, run_steps
from tests.unit.replay.replay_fixtures import fill
from tests.unit.serving.test_api_door import client_of

__all__ = ["s3_url"]

FS = PosixFileSystem()
HOST_OF_ANOTHER = "another-machine"
BODIES = [b"one", b"two" * 50, b"three" * 2000, bytes(range(256)) * 4096, b""]


@dataclass(frozen=True)
class Place:
    """A repository whose contents are handed over, and the disks that may be lost."""

    root: Path
    store: str

    def open(self) -> Repository:
        """As a process that just started."""
        return Repository.open(self.root)

    def lose_the_disks(self) -> None:
        """Remove all that is not in the store, but the settings."""
        for folder in ("containers", "disks", "work"):
            shutil.rmtree(self.root / folder, ignore_errors=True)

    def objects(self) -> list[str]:
        """The keys of what was handed over."""
        return list(self.bucket.keys("main/content-handoff/"))

    @property
    def bucket(self) -> ObjectStore:
        return open_store(self.store, FS, self.root)


@pytest.fixture(params=["folder", "memory", pytest.param("s3", marks=pytest.mark.slow)])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    root = tmp_path / "repository"
    root.mkdir()
    store = {"folder": str(tmp_path / "store"), "memory": f"memory://{uuid4().hex}"}.get(request.param, "")
    if request.param == "s3":
        for name, value in s3_environment(request.getfixturevalue("s3_url")).items():
            monkeypatch.setenv(name, value)
        store = f"s3://{BUCKET}/{uuid4().hex}"
    monkeypatch.setattr(handing_over_contents, "_QUIET_MS", 0)
    (root / "disks/a").mkdir(parents=True)
    (root / "disks/b").mkdir()
    (root / "custody.toml").write_text(
        f'[repository]\nstore = "{store}"\n[catalog]\ncheckpoint_every = 1\nhistory_revisions_max = 1\n'
        + '[content]\nhandoff = "store"\nclaim_bytes = 4096\nunused_minutes = 0\n'
        + 'containers = ["a=disks/a", "b=disks/b"]\n[retention]\ngrace = "0 seconds"\n'
    )
    yield Place(root, store)


def run(place: Place, *arguments: object) -> Result:
    return CliRunner().invoke(cli, ["--repository", str(place.root), *map(str, arguments)])


def store_all(place: Place) -> None:
    """Store the contents with an event each, live; they are not handed over."""
    with place.open().writer() as writer:
        for number, body in enumerate(BODIES):
            writer.append_with_content([event(number)], body)


def events(place: Place) -> list[Event]:
    return list(place.open().events(0, 100))


def handed_over(place: Place) -> None:
    store_all(place)
    place.open().hand_over_contents()
    run_steps(place.open().settings)
    assert all(item.claims == 0 for item in place.open().contents_not_handed_over().values())


def expire(place: Place) -> None:
    """Let the history be as long as it may be, and a pass of retention go over the repository, days later."""
    for number in range(3):
        append(place.open(), [event(100 + number)])
        run_steps(place.open().settings)
    settings = place.open().settings
    for day in (10, 20):
        apply_retention(settings, FS, ManualClock(int(time.time() * 1000) + day * 86_400_000))


def test_contents_outlive_the_disks_that_they_were_on(place: Place) -> None:
    handed_over(place)
    place.lose_the_disks()
    at = place.open()
    assert [at.content(item).read() for item in events(place)] == BODIES
    assert [at.content(item).sha256 for item in events(place)] == [
        item.updated_attributes["content.sha256"] for item in events(place)
    ]
    assert {item.place for item in at.contents() if item.problem is None} == {"store"}
    # Once more, from what was fetched.
    with counted() as traffic:
        assert [place.open().content(item).read() for item in events(place)] == BODIES
    assert traffic.traffic.bytes_read < 200_000
    found = [json.loads(line) for line in run(place, "content", "list", "--json").stdout.splitlines()]
    assert sum(item["contents"] for item in found) == len(BODIES)


def test_parts_of_contents_are_read_by_ranges(place: Place) -> None:
    handed_over(place)
    place.lose_the_disks()
    large = events(place)[3]
    claim = large.content_claim
    assert claim is not None
    reader = ContentReader(FS, place.open().settings.content_store)
    for start, length in ((0, 1), (262_143, 2), (262_144, 262_144), (1_048_575, 1), (300_000, 500_000)):
        part = msgspec.structs.replace(claim, offset=(claim.offset or 0) + start, size=length)
        assert reader.find(part).read() == BODIES[3][start : start + length]
    beyond = msgspec.structs.replace(claim, size=len(BODIES[3]) + 1)
    assert reader.availability(beyond) is Availability.DAMAGED


def test_a_part_costs_the_chunks_that_it_touches(place: Place) -> None:
    if not place.store.startswith("memory"):
        pytest.skip("counts requests")
    handed_over(place)
    place.lose_the_disks()
    claim = events(place)[3].content_claim
    assert claim is not None
    part = msgspec.structs.replace(claim, offset=(claim.offset or 0) + 500_000, size=10)
    with counted() as traffic:
        assert place.open().content(part).read() == BODIES[3][500_000:500_010]
    total = traffic.traffic
    assert total.requests.get("range") == 1
    assert total.bytes_read < 300_000


def test_small_contents_one_after_the_other_take_few_requests_and_a_single_one_its_own_bytes(place: Place) -> None:
    if not place.store.startswith("memory"):
        pytest.skip("counts requests")
    settings = place.root / "custody.toml"
    settings.write_text(settings.read_text().replace("claim_bytes = 4096", "claim_bytes = 1048576"))
    bodies = [b"%d " % number * 100 for number in range(2000)]
    with place.open().writer() as writer:
        stored = writer.content.put_many(bodies)
        writer.append([with_content(event(number), content) for number, content in enumerate(stored)])
    place.open().hand_over_contents()
    run_steps(place.open().settings)
    place.lose_the_disks()
    found = list(place.open().events(0, 2000))
    reader = ContentReader(FS, place.open().settings.content_store)
    with counted() as traffic:
        assert [reader.of(item).read() for item in found] == bodies
    # Of which each begins with one content and goes on with twice as much as before.
    assert traffic.traffic.requests["range"] <= 12
    place.lose_the_disks()
    reader = ContentReader(FS, place.open().settings.content_store)
    with counted() as traffic:
        assert reader.of(found[1000]).read() == bodies[1000]
    assert traffic.traffic.requests["range"] == 1
    assert traffic.traffic.bytes_read < 300_000


def test_what_is_not_handed_over_is_said(place: Place) -> None:
    store_all(place)
    waiting = place.open().contents_not_handed_over()["main"]
    assert waiting.claims >= 3
    status = json.loads(run(place, "status", "--json").stdout)
    [of_main] = status["contents_not_handed_over"]
    assert (of_main["writer"], of_main["claims"]) == ("main", waiting.claims)
    assert "files of contents" in run(place, "status").stderr
    measures = RepositoryMeasures(place.open(), FS, SystemClock())()
    values = {measure.name: measure.value for measure in measures}
    assert values["content_files_not_handed_over"] == waiting.claims
    done = json.loads(run(place, "handoff", "--json").stdout)
    assert done["contents_handed_over"][0]["claims"] == waiting.claims
    assert done["contents_not_handed_over"]["main"] == {"claims": 0, "bytes": 0, "oldest_ms": None}
    assert json.loads(run(place, "handoff", "--json").stdout)["contents_handed_over"][0]["claims"] == 0


def test_forgotten_contents_go_from_the_store_as_well(place: Place) -> None:
    handed_over(place)
    large = events(place)[3]
    before = len(place.objects())
    assert before
    place.open().forget(EventSelection(event_ids=(large.event_id,)), "asked for")
    place.open().compact()
    expire(place)
    claim = large.content_claim
    assert claim is not None
    assert not [key for key in place.objects() if f"/{claim.identifier}/" in key]
    with pytest.raises(NotFoundError):
        place.open().content(claim)
    place.lose_the_disks()
    left = events(place)
    with_contents = [item for item in left if item.content_claim is not None]
    assert [place.open().content(item).read() for item in with_contents] == BODIES[:3] + BODIES[4:]


def kinds(place: Place, level: Level = Level.DEFAULT) -> list[str]:
    at = place.open()
    report = verify_repository(at.workspaces(), at.settings, FS, level)
    return [item.kind for item in report.findings if item.kind.startswith("handed-content")]


def test_damage_in_the_store_is_found_and_put_again_while_the_disk_is_there(place: Place) -> None:
    handed_over(place)
    assert kinds(place) == kinds(place, Level.QUICK) == []
    large = events(place)[3]
    claim = large.content_claim
    assert claim is not None
    keys = [key for key in place.objects() if f"/{claim.identifier}/" in key]
    [piece] = [key for key in keys if not key.endswith("manifest")]
    [manifest] = [key for key in keys if key.endswith("manifest")]
    whole = place.bucket.get(piece)
    place.bucket.put(piece, flipped(whole, 8 * 600_000))
    assert (kinds(place), kinds(place, Level.QUICK)) == (["handed-content-damaged"], [])
    assert place.open().content(large).read() == BODIES[3], "the disk has it"
    for key, kind in ((piece, "handed-content-damaged"), (manifest, "handed-content-unfinished")):
        place.bucket.delete(key)
        assert kinds(place, Level.QUICK) == kinds(place) == [kind]
        assert place.open().hand_over_contents()[0].claims == 1
        assert kinds(place) == []
    place.bucket.put(manifest, flipped(place.bucket.get(manifest), 100))
    assert kinds(place, Level.QUICK) == ["handed-content-damaged"]
    place.bucket.delete(manifest)
    place.open().hand_over_contents()
    place.bucket.put(piece, flipped(whole, 8 * 600_000))
    place.lose_the_disks()
    pieces = place.open().content(large).chunks()
    with pytest.raises(CorruptionError, match=f"{claim.identifier} @"):
        list(pieces)
    place.bucket.put(piece, whole)


def test_a_damaged_file_is_not_handed_over_and_named(place: Place) -> None:
    store_all(place)
    [path] = [path for path in (place.root / "disks").rglob("*") if path.is_file() and path.stat().st_size > 1_000_000]
    path.write_bytes(flipped(path.read_bytes(), 8 * 600_000))
    done = run(place, "handoff")
    assert done.exit_code == 0
    assert "not handed over:" in done.stderr
    assert path.name in done.stderr.replace("\n", "")
    assert not [key for key in place.objects() if path.name in key]
    assert place.open().contents_not_handed_over()["main"].claims == 1


def test_what_lies_before_a_damaged_content_is_handed_over(place: Place) -> None:
    # As a power loss leaves it: contents that were acknowledged, and the record of one that was not, without its bytes.
    bodies = [b"first", b"elsewhere", b"last" * 500]
    with place.open().writer() as writer:
        for number, body in enumerate(bodies):
            writer.append_with_content([event(number)], body)
    stored = events(place)
    [path] = [path for path in (place.root / "disks").rglob("*") if path.is_file() and bodies[2] in path.read_bytes()]
    assert bodies[0] in path.read_bytes()
    path.write_bytes(path.read_bytes().replace(bodies[2], bytes(len(bodies[2]))))
    for _ in range(2):
        [done] = place.open().hand_over_contents()
        [problem] = done.problems
        assert path.name in problem
        assert "with the CRC-32" in problem
    assert place.open().contents_not_handed_over()["main"].claims == 1
    place.lose_the_disks()
    assert [place.open().content(item).read() for item in stored[:2]] == bodies[:2]
    with pytest.raises(CorruptionError):
        place.open().content(stored[2]).read()


def test_a_store_that_does_not_answer_makes_no_content_gone(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    handed_over(place)
    found = events(place)
    place.lose_the_disks()

    def refuse(self: HandedClaims, prefix: str) -> None:
        raise StorageError(f"{prefix}: no answer")

    with monkeypatch.context() as patch:
        patch.setattr(HandedClaims, "_read_listing", refuse)
        with pytest.raises(ContentContainerMissingError, match="does not say"):
            place.open().content(found[0])
        reader = ContentReader(FS, place.open().settings.content_store)
        assert reader.availability(found[0].content_claim) is Availability.AWAY
        with pytest.raises(StorageError):
            place.open().clean_contents(apply=True)
    assert [place.open().content(item).read() for item in found] == BODIES


def test_a_file_that_has_grown_is_handed_over_again(place: Place) -> None:
    with place.open().writer() as writer:
        first = writer.content.put(b"first")
        for _ in range(2):
            place.open().hand_over_contents()
        others = [writer.content.put(f"more {number}".encode()) for number in range(3)]
        place.open().hand_over_contents()
    place.lose_the_disks()
    assert place.open().content(first.claim).read() == b"first"
    assert [place.open().content(stored.claim).read() for stored in others] == [b"more 0", b"more 1", b"more 2"]
    name = f"/{first.claim.identifier}/"
    lengths = {key.split("/")[5] for key in place.objects() if name in key}
    assert len(lengths) == 2
    handed = HandedClaims.of(FS, place.open().settings.content_store)
    assert handed is not None
    handed.remove(handed.listed("main"))
    assert place.objects() == []


def test_a_content_of_many_pieces_is_read_across_them(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handed_claims, "PIECE_BYTES", 300_000)
    handed_over(place)
    large = events(place)[3].content_claim
    assert large is not None
    assert len([key for key in place.objects() if f"/{large.identifier}/" in key]) >= 5
    place.lose_the_disks()
    assert [place.open().content(item).read() for item in events(place)] == BODIES
    part = msgspec.structs.replace(large, offset=(large.offset or 0) + 200_000, size=400_000)
    assert place.open().content(part).read() == BODIES[3][200_000:600_000]
    assert kinds(place) == []


def test_the_api_gives_ranges_of_contents_that_are_in_the_store_alone(place: Place) -> None:
    handed_over(place)
    place.lose_the_disks()
    client = client_of(place.open(), Access())
    whole = client.get("events/main/3/content")
    assert (whole.status_code, whole.content) == (200, BODIES[3])
    part = client.get("events/main/3/content", headers={"Range": "bytes=500000-500099"})
    assert (part.status_code, part.content) == (206, BODIES[3][500_000:500_100])
    assert client.get("events/main/3").json()["content"]["availability"] == "available"


def test_replays_send_contents_that_are_in_the_store_alone(place: Place) -> None:
    repository = place.open()
    fill(repository, 6)
    repository.hand_over_contents()
    shutil.rmtree(place.root / "disks")
    again = place.open()
    plan = again.plan_replay("event_type:DROP")
    assert (len(plan.events), len(plan.refused)) == (6, 0)
    (place.root / "disks/a").mkdir(parents=True)
    (place.root / "disks/b").mkdir()
    report = place.open().replay(plan, user="alice")
    assert (report.replayed, report.stopped) == (6, None)


def test_the_archive_lets_contents_go_from_the_store_as_well(place: Place) -> None:
    clock = ManualClock(1_772_409_600_000)
    settings = place.open().settings
    settings = settings.model_copy(update={"content": settings.content.model_copy(update={"archive_age": "1 hour"})})
    at = Repository(settings, FS, clock)
    with at.flowfiles() as flow:
        flow.connect("in")
        with flow.session(Component(id="get", type="Get")) as session:
            flowfile = session.write_bytes(session.create(), b"data")
            session.transfer(flowfile, "in")
        for path in place.root.rglob("*/content/*/*/*"):
            os.utime(path, (1, 1))
        at.hand_over_contents()
        assert len(place.objects()) == 2
        with flow.session(Component(id="use", type="Use")) as session:
            taken = session.get("in")
            assert taken is not None
            session.terminate(taken, "success")
        flow.queues.checkpoint()
        assert len(place.objects()) == 2, "it is young"
        clock.advance(2 * 3_600_000)
        flow.queues.checkpoint()
        assert place.objects() == []
        assert flow.queues.archived() == {}


def test_an_interrupted_hand_over_of_what_is_forgotten_is_found_and_goes(place: Place) -> None:
    store_all(place)
    with place.open().writer() as writer:
        stored = writer.content.put(b"no event speaks of it" * 400)

    def die() -> None:
        raise RuntimeError("the process dies")

    handed = HandedClaims.of(FS, place.open().settings.content_store)
    resource = ResourceClaim.of(stored.claim)
    assert handed is not None
    assert resource is not None
    path = resource.path(place.open().settings.content_store)
    with pytest.raises(RuntimeError, match="dies"):
        handed.put(ClaimFile.read(FS, path), resource, "worker-1", 1, die)
    path.unlink()
    assert kinds(place) == ["handed-content-unfinished"]
    [left] = [item for item in place.open().contents() if item.place == "store"]
    assert "interrupted" in str(left.problem)
    time.sleep(0.01)
    place.open().clean_contents(apply=True)
    assert place.objects() == []
    assert [place.open().content(item).read() for item in events(place)] == BODIES


def test_another_machine_reads_what_was_handed_over_and_deletes_nothing(place: Place, tmp_path: Path) -> None:
    handed_over(place)
    with place.open().writer() as writer:
        unused = writer.content.put(b"no event speaks of it" * 400)
    place.open().hand_over_contents()
    other = Place(tmp_path / "other", place.store)
    other.root.mkdir()
    (other.root / "custody.toml").write_text((place.root / "custody.toml").read_text())
    (other.root / "disks/a").mkdir(parents=True)
    (other.root / "disks/b").mkdir()
    assert [other.open().content(item).read() for item in events(other)] == BODIES
    # Journals of the first machine may speak of any content: only where they are, or when it is gone for good.
    others_host = HOST_OF_ANOTHER
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("socket.gethostname", lambda: others_host)
        refused = run(other, "content", "clean", "--yes")
        assert refused.exit_code == 12
        assert "is on the machine" in refused.output
        assert other.open().content(unused.claim).read()
        assert run(other, "containers", "claim", "main", "--yes").exit_code == 0
        assert run(other, "content", "clean", "--yes").exit_code == 0
    if not place.store.startswith("/"):
        with pytest.raises(NotFoundError):
            other.open().content(unused.claim)
    assert [other.open().content(item).read() for item in events(other)] == BODIES
