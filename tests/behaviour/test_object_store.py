"""A repository whose store is a bucket: the same answers as from a folder, whatever becomes of the local copies."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest
from click.testing import CliRunner, Result
from obstore.store import MemoryStore

from custody.catalog import collect_garbage
from custody.cli.main import cli
from custody.clock import ManualClock
from custody.errors import ConfigurationError, ConflictError, StorageError
from custody.recovery import STEPS
from custody.repository import EventSelection, Repository
from custody.repository.local_pass import run_locally
from custody.serving.server_metrics import ServerMetrics
from custody.store import ObjectData, ObjectStore, counted, read_parts, require_conditional_puts
from custody.store.local_copies import LocalCopies
from custody.store.remote import RemoteStore, open_remote
from custody.vfs import PosixFileSystem
from tests.behaviour.answers import MAIN, QUESTIONS, answer, build, opened
from tests.behaviour.places import UnluckyStore, WrappedStore, s3_url
from tests.behaviour.s3 import BUCKET, s3_environment
from tests.support import append, numbered, run_steps, sample

__all__ = ["s3_url"]


@dataclass(frozen=True)
class Pair:
    """The same history twice: a repository in a folder, and one whose store is a bucket."""

    local: Path
    remote: Path
    store: RemoteStore


# A store in the memory of this process has the same client; the server adds a network.
@pytest.fixture(scope="module", params=["memory", "s3"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    local, remote = tmp_path_factory.mktemp("local"), tmp_path_factory.mktemp("remote")
    build(local)
    location = f"memory://{uuid4().hex}"
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "s3":
            url = request.getfixturevalue("s3_url")
            location = f"s3://{BUCKET}/{uuid4().hex}"
            for name, value in s3_environment(url).items():
                patch.setenv(name, value)
        patch.setenv("CUSTODY__REPOSITORY__STORE", location)
        build(remote)
        yield Pair(local, remote, open_remote(location, can_put_if_absent=True))


def of_folder(root: Path) -> Repository:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("CUSTODY__REPOSITORY__STORE")
        return opened(root)


def damaged(data: bytes) -> bytes:
    return data[:200] + bytes(len(data) // 2) + data[200 + len(data) // 2 :]


def copies(root: Path) -> list[Path]:
    return sorted((root / "work").glob("*/*/data/**/*.parquet"))


def pieces(root: Path) -> list[Path]:
    """The local files of what was read by ranges."""
    return sorted(path for path in (root / "work").glob("*/*/ranges/**/*") if path.is_file())


def run(root: Path, *arguments: object) -> Result:
    # Of the pair the containers are no default ones, and verify looks for them.
    disks = [disk.name for disk in sorted(root.glob("disk*"))]
    if disks:
        (root / "custody.toml").write_text(f"[repository]\ncontainers = {json.dumps(disks)}\n")
    (root / "custody.toml").touch()
    return CliRunner().invoke(cli, ["--repository", str(root), *map(str, arguments)])


@pytest.mark.slow
@pytest.mark.parametrize("state", ["kept", "gone", "damaged", "without shards", "damaged pieces"])
def test_every_question_has_the_answer_of_a_folder(pair: Pair, state: str) -> None:
    local, remote = pair.local, pair.remote
    if state in ("gone", "without shards"):
        shutil.rmtree(remote / "work")
    # What a machine without the shards' disks has: pages of them come from the store.
    for folder in [*remote.glob("disk*/*/index")] if state == "without shards" else ():
        shutil.rmtree(folder)
    for path in pieces(remote) if state == "damaged pieces" else ():
        with path.open("r+b") as file:
            for start in range(0, path.stat().st_size, 20_000):
                file.seek(start)
                file.write(b"damage")
    for path in copies(remote) if state == "damaged" else ():
        # A copy of the same length with other bytes, and another one that was cut.
        data = path.read_bytes()
        path.write_bytes(data[: len(data) // 2] + (bytes(len(data) - len(data) // 2) if len(path.name) % 2 else b""))
    expected, given = of_folder(local), opened(remote)
    for name, question in QUESTIONS.items():
        wanted, answered = answer(expected, question), answer(given, question)
        assert not isinstance(wanted, str)
        assert not isinstance(answered, str), (name, answered)
        assert answered.same == wanted.same, name
        assert len(answered.said) == len(wanted.said), (name, answered.said)
    assert copies(remote)
    assert [path for path in pieces(remote) if path.suffix == ".shard"] or state in ("kept", "gone", "damaged")


@pytest.mark.slow
def test_what_is_damaged_in_the_store_is_named_and_the_rest_is_read_as_in_a_folder(pair: Pair) -> None:
    # The commits have ids of their own: the logs of both have the same names and not all the same bytes.
    path = max(of_folder(pair.local).workspace(MAIN).state().files)
    key = f"main/provenance/{path}"
    of_local = pair.local / "store" / key
    good, good_local = pair.store.get(key), of_local.read_bytes()
    shutil.rmtree(pair.remote / "work")
    pair.store.put(key, damaged(good))
    of_local.write_bytes(damaged(good_local))
    try:
        for name in ("search all", "events main", "get main", "lineage", "sql without what is damaged"):
            expected = answer(of_folder(pair.local), QUESTIONS[name])
            given = answer(opened(pair.remote), QUESTIONS[name])
            assert not isinstance(expected, str)
            assert not isinstance(given, str)
            assert given.same == expected.same
            assert any(Path(key).name in notice for notice in given.said), name
        assert run(pair.remote, "verify").exit_code == 20
    finally:
        pair.store.put(key, good)
        of_local.write_bytes(good_local)
    assert run(pair.remote, "verify").exit_code == 0
    # The damaged copy is not kept: the catalog says that it is not what was written.
    assert answer(opened(pair.remote), QUESTIONS["search all"]) == answer(
        of_folder(pair.local), QUESTIONS["search all"]
    )


EVENTS = sample(30)
FOLDER = "main/provenance/data/2026-01-01/events"


def test_copies_take_no_more_room_than_they_may(tmp_path: Path) -> None:
    store, bound = RemoteStore(MemoryStore(), "memory://room"), 10_000
    contents = {f"{FOLDER}/{number}.parquet": bytes([number]) * 3000 for number in range(6)}
    for key, data in contents.items():
        store.put(key, data)
    kept = LocalCopies(PosixFileSystem(), store, tmp_path / "work", bound)
    keys = list(contents)
    for key in [*keys[:3], keys[0], keys[3]]:
        path = kept.fetch(key, hashlib.sha256(contents[key]).digest())
        assert path.read_bytes() == contents[key]
        assert sum(copy.stat().st_size for copy in copies(tmp_path)) <= bound
        time.sleep(0.002)
    # The second was used least recently.
    assert [copy.name for copy in copies(tmp_path)] == ["0.parquet", "2.parquet", "3.parquet"]
    # What the store does not have is no copy: it waits to be published.
    waiting = tmp_path / "work" / FOLDER / "waiting.parquet"
    waiting.write_bytes(bytes(bound))
    for key in keys:
        kept.fetch(key, None)
    assert waiting.exists()


def test_pieces_of_files_take_no_more_room_than_they_may_and_dead_ones_go(tmp_path: Path) -> None:
    store, size = RemoteStore(MemoryStore(), "memory://pieces"), 1 << 20
    keys = [f"{FOLDER}/{number}.parquet" for number in range(4)]
    for key in keys:
        store.put(key, bytes(range(256)) * (size // 256))
    kept = LocalCopies(PosixFileSystem(), store, tmp_path / "work", 200_000)
    dead = tmp_path / "work" / "main/provenance/ranges/data/dead.parquet.1.partial"
    dead.parent.mkdir(parents=True)
    dead.write_bytes(b"")
    os.utime(dead, (time.time() - 7200,) * 2)
    for key in keys:
        file = kept.ranged(key, size)
        # All of them are as long as their objects; what was fetched is a tenth of it.
        file.fetch([(0, 100_000)], lambda _: True)
        assert bytes(file.view[:256]) == bytes(range(256))
        time.sleep(0.002)
    assert not dead.exists()
    assert [path.name for path in pieces(tmp_path)] in (["3.parquet"], ["2.parquet", "3.parquet"])
    kept.forget(keys[3])
    assert "3.parquet" not in [path.name for path in pieces(tmp_path)]


def written(root: Path, data: bytes) -> tuple[str, bytes]:
    """A log of the work folder that is to be published: its key and its digest."""
    path = root / FOLDER / "new.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return f"{FOLDER}/new.parquet", hashlib.sha256(data).digest()


@pytest.mark.parametrize(
    "endings",
    [("done",), ("lost",), ("refused",), ("conflict",), ("refused", "lost"), ("conflict", "lost"), ("refused",) * 3],
    ids=" then ".join,
)
def test_a_put_whose_answer_is_lost_is_found_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, endings: tuple[str, ...]
) -> None:
    monkeypatch.setattr("custody.store.local_copies._PAUSE_SECONDS", 0)
    inner = RemoteStore(MemoryStore(), "memory://put")
    key, digest = written(tmp_path, b"events")
    store = UnluckyStore(inner, *endings)
    LocalCopies(PosixFileSystem(), store, tmp_path, 1 << 20).publish(key, digest)
    assert inner.get(key) == b"events"
    assert store.endings == []
    LocalCopies(PosixFileSystem(), store, tmp_path, 1 << 20).publish(key, digest)


def test_a_put_that_never_arrives_or_meets_other_bytes_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("custody.store.local_copies._PAUSE_SECONDS", 0)
    inner = RemoteStore(MemoryStore(), "memory://refused")
    key, digest = written(tmp_path, b"events")
    with pytest.raises(StorageError, match="the connection ended"):
        LocalCopies(PosixFileSystem(), UnluckyStore(inner, *["refused"] * 9), tmp_path, 1 << 20).publish(key, digest)
    inner.put(key, b"others")
    with pytest.raises(ConflictError, match="expected the bytes of"):
        LocalCopies(PosixFileSystem(), inner, tmp_path, 1 << 20).publish(key, digest)
    assert inner.get(key) == b"others"


class _Careless(WrappedStore):
    """Says that a name was free, and writes over what is there, as services without conditional puts do."""

    def put_if_absent(self, key: str, data: ObjectData) -> bool:
        self.put(key, data)
        return True


def test_a_store_without_conditional_puts_is_refused() -> None:
    careful = RemoteStore(MemoryStore(), "memory://careful")
    with pytest.raises(ConfigurationError, match="writes over a name that is taken"):
        require_conditional_puts(_Careless(careful), "memory://careless")
    for _ in range(2):
        require_conditional_puts(careful, f"memory://{uuid4().hex}")
    assert list(careful.keys("")) == ["CONDITIONAL-PUTS"]


def test_a_pass_leaves_a_reader_alone_that_is_fetching(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUSTODY__REPOSITORY__STORE", f"memory://{uuid4().hex}")
    (tmp_path / "custody.toml").touch()
    append(Repository.open(tmp_path), EVENTS)
    run_steps(Repository.open(tmp_path).settings)
    shutil.rmtree(tmp_path / "work")
    parts_of = read_parts
    under_way: list[Path] = []

    def interrupted(store: ObjectStore, key: str) -> Iterator[bytes]:
        for part in parts_of(store, key) or ():
            yield part
            if key.endswith(".toc") and not under_way:
                under_way.extend((tmp_path / "work").rglob("*.fetching"))
                run_steps(Repository.open(tmp_path).settings)

    monkeypatch.setattr("custody.store.local_copies.read_parts", interrupted)
    assert list(Repository.open(tmp_path).events(count=100)) == numbered(EVENTS)
    assert len(under_way) == 1
    assert not under_way[0].exists()


def test_what_a_killed_fetch_left_goes_after_a_while_and_no_other(tmp_path: Path) -> None:
    store = RemoteStore(MemoryStore(), "memory://killed")
    store.put(f"{FOLDER}/log.parquet", b"log")
    killed, alive = (tmp_path / FOLDER / f"other.parquet.{name}.fetching" for name in ("killed", "alive"))
    killed.parent.mkdir(parents=True)
    for path in (killed, alive):
        path.write_bytes(bytes(3000))
    os.utime(killed, (time.time() - 7200,) * 2)
    LocalCopies(PosixFileSystem(), store, tmp_path, 1000).fetch(f"{FOLDER}/log.parquet", None)
    assert not killed.exists()
    assert alive.exists()


def test_retention_and_garbage_collection_run_and_take_the_copies_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUSTODY__REPOSITORY__STORE", f"memory://{uuid4().hex}")
    monkeypatch.setenv("CUSTODY__RETENTION__BYTES_MAX", str(1 << 20))
    monkeypatch.setenv("CUSTODY__EVENTLOG__LOG_BYTES_TARGET", "20000")
    (tmp_path / "custody.toml").touch()
    repository = Repository.open(tmp_path)
    for seed in range(4):
        append(repository, sample(130, seed=seed))
        run_steps(repository.settings)
    before = len(copies(tmp_path))
    assert repository.search("", limit=0).total == 520
    result = run(tmp_path, "run", "--local", "retention_all")
    assert result.exit_code == 0, result.output
    left = Repository.open(tmp_path)
    assert 0 < left.search("", limit=0).total < 520
    live = {Path(path).name for path in left.workspace().state().files}
    marked = {Path(path).name for mark in left.workspace().state().marks.values() for path in mark.paths}
    assert {copy.name for copy in copies(tmp_path)} <= live | marked
    assert len(live) < before
    assert run(tmp_path, "verify").exit_code == 0


@dataclass(frozen=True)
class Machines:
    """A repository in a bucket, as the machine that wrote it has it, and as another one with an empty disk."""

    own: Path
    other: Path
    store: RemoteStore

    @property
    def shard(self) -> str:
        """The key of the only shard."""
        [key] = self.store.keys("main/provenance/index/")
        return key


@pytest.fixture
def machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machines:
    location = f"memory://{uuid4().hex}"
    monkeypatch.setenv("CUSTODY__REPOSITORY__STORE", location)
    monkeypatch.setenv("CUSTODY__EVENTLOG__BLOCK_BYTES_MAX", "8192")
    own, other = tmp_path / "own", tmp_path / "other"
    for root in (own, other):
        root.mkdir()
        (root / "custody.toml").touch()
    append(Repository.open(own), EVENTS)
    run_steps(Repository.open(own).settings)
    return Machines(own, other, open_remote(location, can_put_if_absent=True))


def live_shard(repository: Repository) -> str:
    [name] = repository.workspace().state().shards
    return f"main/provenance/index/{name}.shard"


def asked(root: Path, text: str = "event_type:SEND") -> tuple[list[int], tuple[str, ...]]:
    answer = Repository.open(root).search(text, limit=100)
    # Another machine says rightly that it does not see the disks of the writer.
    notices = tuple(notice for notice in answer.notices if "last seen at" not in notice)
    return [stored.event.event_id for stored in answer.events], notices


def test_an_empty_disk_reads_one_block_of_a_log_and_pages_of_a_shard(machines: Machines) -> None:
    for path in (machines.own / "work", *machines.own.glob("containers/*/main/index")):
        shutil.rmtree(path)
    repository = Repository.open(machines.own)
    with counted() as counter:
        assert repository.get(20) == numbered(EVENTS)[20]
    assert counter.traffic.requests["range"] == 1
    with counted() as counter:
        assert repository.get(20) == numbered(EVENTS)[20]
    assert "range" not in counter.traffic.requests
    # Another process: the block lies on the disk.
    with counted() as counter:
        assert Repository.open(machines.own).get(20) == numbered(EVENTS)[20]
    assert "range" not in counter.traffic.requests
    ids, notices = asked(machines.other)
    assert ids == asked(machines.own)[0] == [e.event_id for e in numbered(EVENTS)[::-1] if e.event_type == "SEND"]
    assert notices == ()
    assert not copies(machines.other), "no log was fetched whole"


def test_a_shard_that_is_damaged_or_gone_in_the_store_costs_time_and_no_answer(machines: Machines) -> None:
    expected, _ = asked(machines.own)
    data = machines.store.get(machines.shard)
    for broken in (data[:-20], data[:-48] + bytes(48), bytes(len(data) // 2) + data[len(data) // 2 :], b""):
        machines.store.put(machines.shard, broken)
        shutil.rmtree(machines.other / "work", ignore_errors=True)
        ids, notices = asked(machines.other)
        assert ids == expected
        assert len(notices) == 1
        assert "searched without an index" in notices[0]
    # Mended, it is used again by who had pieces of the damaged one.
    machines.store.put(machines.shard, data)
    assert asked(machines.other) == (expected, ())
    machines.store.delete(machines.shard)
    shutil.rmtree(machines.other / "work")
    assert asked(machines.other)[0] == expected


def test_a_shard_that_was_built_anew_elsewhere_replaces_what_a_reader_has(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = Repository.open(machines.other)
    question = "event_type:SEND"
    before = reader.search(question, limit=100).total
    first = machines.store.get(machines.shard)
    monkeypatch.setenv("CUSTODY__INDEX__ATTRIBUTES", '["path"]')
    assert run(machines.own, "index", "rebuild", "--stale").exit_code == 0
    assert machines.store.get(machines.shard) != first
    # The former object is not away: a paused process may still have a use for it.
    assert [machines.store.get(key) for key in machines.store.keys("main/provenance/trash/")] == [first]
    assert reader.search(question, limit=100).total == before
    assert asked(machines.other, "attribute.path:/data OR event_type:SEND")[1] == ()
    # Nothing is left to build, neither for the machine that did it nor for one without any shard.
    for root in (machines.own, machines.other):
        result = run(root, "index", "rebuild", "--stale")
        assert "no live index shard" in result.output or result.exit_code == 0
        assert not list(root.glob("containers/*/main/index/*")) or root == machines.own


def test_shards_of_the_store_go_with_their_logs_and_strangers_stay(machines: Machines) -> None:
    repository = Repository.open(machines.own)
    former = machines.shard
    repository.forget(EventSelection(event_ids=[3, 4]), "asked for")
    repository.compact("main")
    assert machines.shard != former
    assert asked(machines.other, "*")[0] == [e.event_id for e in numbered(EVENTS)[::-1] if e.event_id not in (3, 4)]
    # What an attempt left that ended before its commit goes to the trash when it is old, and nothing else does.
    left, foreign = former, "main/provenance/index/notes.txt"
    for key in (left, foreign):
        machines.store.put(key, b"left")
    catalog = repository.workspace().catalog
    report = collect_garbage(catalog, ManualClock(int(time.time() * 1000) + 48 * 3_600_000))
    assert report.unknown == ["index/notes.txt"]
    assert f"main/provenance/{report.moved[-1]}" == left
    assert sorted(machines.store.keys("main/provenance/index/")) == sorted([live_shard(repository), foreign])


def test_what_was_asked_of_the_store_is_shown(machines: Machines) -> None:
    shutil.rmtree(machines.own / "work")
    result = run(machines.own, "search", "event_type:SEND", "--limit", "5", "--explain", "--json")
    asked_for = json.loads(result.stdout)["store"]
    assert asked_for["requests"]["range"] >= 1
    assert asked_for["bytes_read"] > 0
    assert "store" not in json.loads(run(machines.own, "search", "--json").stdout)
    assert "requests to the store: " in run(machines.own, "search", "event_type:SEND", "--explain").output
    assert "requests to the store: " in run(machines.own, "event", "3", "--explain").output
    assert "requests to the store: " not in run(machines.own, "event", "3").output
    append(Repository.open(machines.own), EVENTS)
    reports = run_locally(tuple(STEPS), Repository.open(machines.own).settings)
    asked_by = {report.step: report.store.requests for report in reports if report.store is not None}
    # Log and table of contents are put when the catalog is about to list them, like the shard, then the transaction.
    assert asked_by["commit"]["put"] >= 4
    assert sum(report.store.bytes_written for report in reports if report.store is not None) > 10_000
    text = asyncio.run(ServerMetrics().own_text()).decode()
    assert 'custody_store_requests_total{kind="put"}' in text
    assert 'custody_store_bytes_total{way="read"}' in text
