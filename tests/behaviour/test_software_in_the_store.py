"""Tables of software whose repository is a bucket: the answers of a folder, by ranges, whatever this machine has."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest
from click.testing import CliRunner

from custody.catalog import PrunedError
from custody.cli.main import cli
from custody.clock import ManualClock, SystemClock
from custody.config import Settings
from custody.errors import ConfigurationError, CorruptionError, NotFoundError, StorageError
from custody.maintenance.findings import Level
from custody.maintenance.verification.check_catalog import check_software
from custody.repository import Repository
from custody.retention.disk_usage import measure_disk
from custody.retention.swh_builds import remove_former
from custody.spark.swh.steps import ALL
from custody.spark.swh.steps import main as build_steps
from custody.spark.swh.work import BYTES_OF_AN_ARC
from custody.store import counted
from custody.store.remote import RemoteStore, open_remote
from custody.swh.build import Build
from custody.swh.publishing import database_catalog, database_folder, publish, published_state
from custody.vfs import PosixFileSystem
from tests.behaviour.places import UnluckyStore, s3_url
from tests.behaviour.s3 import BUCKET, s3_environment
from tests.support import INCLUDE
from tests.swh.database import publish_reference
from tests.swh.graphs import Shape, random_graph, write_graph
from tests.swh.reference import Reference
from tests.swh.test_database import expected_first

__all__ = ["s3_url"]

COMMAND = Path(sys.executable).with_name("custody")
REFERENCE = Reference(random_graph(Shape(5, 30, 25, 12, 4, 3, 3, 20, 0.1)), "all")
EXPECTED = expected_first(REFERENCE)
DAY_MS = 86_400_000


@pytest.fixture(params=["memory", pytest.param("s3", marks=pytest.mark.slow)])
def location(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    location = f"memory://{uuid4().hex}"
    if request.param == "s3":
        location = f"s3://{BUCKET}/{uuid4().hex}"
        for name, value in s3_environment(request.getfixturevalue("s3_url")).items():
            monkeypatch.setenv(name, value)
    monkeypatch.setenv("CUSTODY__REPOSITORY__STORE", location)
    return location


@pytest.fixture(params=["whole indexes", "indexes by ranges"], autouse=True)
def reading(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How indexes come: those of these tables are small."""
    if request.param == "indexes by ranges":
        monkeypatch.setattr("custody.swh.database._WHOLE_INDEX_BYTES", 0)
    return str(request.param)


@pytest.fixture
def settings(location: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("CUSTODY__RETENTION__GRACE", "7 days")
    settings = Repository.create(tmp_path / "repository").settings
    assert publish_reference(settings, "one", REFERENCE, "all").revision == 0
    return settings


@pytest.fixture
def bucket(location: str) -> RemoteStore:
    return open_remote(location, can_put_if_absent=True)


def asked(settings: Settings) -> object:
    return Repository.open(settings.root).software().whereis_many([place.swhid for place in EXPECTED.values()])


def local_files(settings: Settings, below: str) -> list[Path]:
    return sorted(path for path in (database_folder(settings) / below).rglob("*") if path.suffix in (".parquet", ".ef"))


def build_of(settings: Settings) -> Build:
    return Build.open(PosixFileSystem(), database_folder(settings), "one")


def test_a_machine_with_an_empty_disk_answers_from_the_bucket_by_ranges(settings: Settings, reading: str) -> None:
    shutil.rmtree(settings.store)
    assert asked(settings) == list(EXPECTED.values())
    whole = {path.suffix for path in local_files(settings, "builds")}
    pieces = {path.suffix for path in local_files(settings, "ranges")}
    assert (whole, pieces) == (({".ef"}, {".parquet"}) if reading == "whole indexes" else (set(), {".ef", ".parquet"}))
    # Again, by another process on the same disk: nothing of the tables is fetched.
    with counted() as traffic:
        assert asked(settings) == list(EXPECTED.values())
    assert "range" not in traffic.traffic.requests


def _zeros(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.in_parts(2)
@pytest.mark.parametrize("below", ["builds", "ranges"])
@pytest.mark.parametrize("damage", [_zeros, _cut, Path.unlink])
def test_what_is_damaged_on_this_disk_is_fetched_again(
    settings: Settings, below: str, damage: Callable[[Path], None]
) -> None:
    if below == "ranges":
        shutil.rmtree(settings.store)
        asked(settings)
    damaged = local_files(settings, below)
    assert damaged
    for path in damaged:
        damage(path)
    assert asked(settings) == list(EXPECTED.values())


def test_damage_in_the_bucket_is_named_by_verify_and_by_the_question(settings: Settings, bucket: RemoteStore) -> None:
    shutil.rmtree(settings.store)
    state = published_state(database_catalog(settings, PosixFileSystem(), SystemClock()))
    [path] = [path for path, file in state.files.items() if file.table == "nodes" and path.endswith("00000.parquet")]
    key = f"main/swh/{path}"
    data = bytearray(bucket.get(key))
    data[:200] = bytes(200)
    bucket.put(key, bytes(data))
    with pytest.raises(CorruptionError, match=r"00000\.parquet: pages .* Build the database anew"):
        asked(settings)
    found = list(check_software(settings, "main", PosixFileSystem(), SystemClock(), Level.DEFAULT))
    assert [(finding.kind, "expected other bytes" in finding.message) for finding in found] == [
        ("software-damaged", True)
    ]
    bucket.delete(key)
    shutil.rmtree(settings.store)
    with pytest.raises(NotFoundError, match="nodes"):
        asked(settings)


def test_sql_and_the_command_line_ask_the_bucket(settings: Settings) -> None:
    shutil.rmtree(settings.store)
    root = str(settings.root)
    placed = next(place for place in EXPECTED.values() if place.origin is not None)
    done = CliRunner().invoke(cli, ["-r", root, "swh", "whereis", str(placed.swhid), "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["anchor"] == str(placed.anchor)
    done = CliRunner().invoke(cli, ["-r", root, "sql", "select count(*) as n from software_nodes", "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == {"n": len(list(REFERENCE.nodes()))}


def test_copies_go_when_they_take_too_much_room_and_a_build_that_is_not_published_stays(
    settings: Settings, bucket: RemoteStore
) -> None:
    tight = settings.model_copy(
        update={"repository": settings.repository.model_copy(update={"work_copies_bytes_max": 1})}
    )
    fs, unpublished = PosixFileSystem(), database_folder(settings) / "builds/begun"
    shutil.copytree(database_folder(settings) / "builds/one", unpublished)
    before = sorted(unpublished.rglob("*"))
    catalog = database_catalog(tight, fs, SystemClock())
    files = catalog.objects.files
    path = next(iter(catalog.load().files))
    files.forget(path)
    files.path(path)
    left = [file for file in local_files(settings, "builds/one") if file != files.where(path)]
    assert len(left) <= 1  # the index that was looked at before
    assert sorted(unpublished.rglob("*")) == before
    assert not list(bucket.list("main/swh/builds/begun/"))


def test_a_replaced_build_leaves_the_bucket_after_the_grace(settings: Settings, bucket: RemoteStore) -> None:
    fs = PosixFileSystem()
    assert publish_reference(settings, "two", REFERENCE, "all").revision == 1
    use = measure_disk(settings, fs).kinds["software"]
    shutil.rmtree(settings.store)  # another machine
    assert measure_disk(settings, fs).kinds["software"] == use
    catalog = database_catalog(settings, fs, SystemClock())
    [*_, last] = (transaction.commit_time_ms for transaction in catalog.timeline())
    assert remove_former(settings, fs, ManualClock(last + DAY_MS), needs_room=False) == (0, 0)
    count, size = remove_former(settings, fs, ManualClock(last + 8 * DAY_MS), needs_room=False)
    assert count == 1
    assert size > 10_000
    assert bucket.folders("main/swh/builds/") == ["two"]
    with pytest.raises(PrunedError):
        published_state(catalog, 0)
    assert asked(settings) == list(EXPECTED.values())
    assert remove_former(settings, fs, ManualClock(last + 9 * DAY_MS), needs_room=False) == (0, 0)


@pytest.mark.in_parts(4)
@pytest.mark.parametrize("behind", [False, True])
def test_publishing_may_be_cut_at_each_put(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, behind: bool) -> None:
    monkeypatch.setattr("custody.store.local_copies._PAUSE_SECONDS", 0)
    monkeypatch.setenv("CUSTODY__REPOSITORY__STORE", "store")
    origin = Repository.create(tmp_path / "origin").settings
    publish_reference(origin, "one", REFERENCE, "all")
    put, left = RemoteStore.put_if_absent, 0

    def cut(self: RemoteStore, key: str, data: bytes) -> bool:
        """Fail at one put, before or behind its effect, and at all that follow: the machine is off."""
        nonlocal left
        left -= 1
        done = left >= 0 or (left == -1 and behind)
        won = done and put(self, key, data)
        if left < 0:
            raise StorageError("the machine is off")
        return won

    cuts, was_cut = 0, True
    while was_cut:
        monkeypatch.setenv("CUSTODY__REPOSITORY__STORE", f"memory://{uuid4().hex}")
        settings = Repository.create(tmp_path / f"{cuts}").settings
        shutil.copytree(database_folder(origin) / "builds/one", database_folder(settings) / "builds/one")
        catalog = database_catalog(settings, PosixFileSystem(), SystemClock())
        store, left, was_cut = catalog.objects.store, cuts, False
        with monkeypatch.context() as patch:
            patch.setattr(RemoteStore, "put_if_absent", cut)
            try:
                publish(catalog, build_of(settings))
            except StorageError:
                was_cut = True
        again = database_catalog(settings, PosixFileSystem(), SystemClock())
        # Listed means readable: whatever was cut, no file is listed that is not in the store.
        for path, file in again.load().files.items():
            assert store.head(f"main/swh/{path}") is not None
            assert store.head(f"main/swh/{file.toc_path}") is not None
        assert publish(again, build_of(settings)).revision == 0
        shutil.rmtree(settings.store)
        assert asked(settings) == list(EXPECTED.values())
        cuts += 1
    assert cuts > 10


def test_a_lost_answer_or_a_refused_put_is_tried_again(location: str, tmp_path: Path) -> None:
    settings = Repository.create(tmp_path / "other").settings
    catalog = database_catalog(settings, PosixFileSystem(), SystemClock())
    copies = catalog.objects.files.copies
    assert copies is not None
    copies._store = UnluckyStore(catalog.objects.store, "refused", "lost", "refused")
    folder = database_folder(settings)
    (folder / "builds").mkdir(parents=True)
    (folder / "builds/a.parquet").write_bytes(b"a")
    catalog.objects.files.publish("builds/a.parquet", hashlib.sha256(b"a").digest())
    assert catalog.objects.store.get("main/swh/builds/a.parquet") == b"a"


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The arguments of jobs whose executors share nothing with the driver but the store."""
    monkeypatch.setenv("CUSTODY__REPOSITORY__STORE", f"memory://{uuid4().hex}")
    monkeypatch.setenv("CUSTODY__REPOSITORY__STAGING", "store")
    monkeypatch.setenv("CUSTODY__JOURNAL__HANDOFF", "store")
    root = tmp_path / "repository"
    Repository.create(root)
    graph = write_graph(REFERENCE.graph, tmp_path / "graph")
    return ["--repository", str(root), "--graph", str(graph), "--build", "b", "--node-filter", "all"]


@pytest.mark.in_parts(2)
@pytest.mark.parametrize("driver_bytes", ["0", "4000000"])
def test_without_a_shared_work_folder_the_driver_builds(
    alone: list[str], driver_bytes: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUSTODY__SPARK__DRIVER_BYTES_MAX", driver_bytes)
    monkeypatch.setattr("custody.spark.swh.steps.start_session", lambda _: pytest.fail("a session was started"))
    assert build_steps(ALL, alone) == 0
    settings = Repository.create(tmp_path / "other").settings
    assert asked(settings) == list(EXPECTED.values())


def test_without_a_shared_work_folder_a_graph_that_does_not_fit_is_refused_at_once(
    alone: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CUSTODY__SWH__MEMORY_BYTES", "1000")
    assert build_steps(ALL, alone) == ConfigurationError.exit_code
    edges = REFERENCE.graph.edges
    assert f"expected swh.memory_bytes of at least {len(edges) * BYTES_OF_AN_ARC} for {len(edges)} edges" in (
        capsys.readouterr().err
    )


@pytest.mark.spark
@pytest.mark.slow
def test_spark_builds_into_the_bucket_and_another_machine_answers(
    s3_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a user would: the command builds with Spark and publishes, and a machine with the bucket alone is asked."""
    monkeypatch.setenv("CUSTODY__REPOSITORY__STORE", f"s3://{BUCKET}/{uuid4().hex}")
    for name, value in s3_environment(s3_url).items():
        monkeypatch.setenv(name, value)
    root, other = tmp_path / "builder", tmp_path / "asker"
    Repository.create(root)
    graph = write_graph(REFERENCE.graph, tmp_path / "graph")
    build = ["swh", "build", str(graph), "--name", "b", "--node-filter", "all"]
    environment = {**os.environ, "PYTHONPATH": str(INCLUDE)}
    done = subprocess.run([COMMAND, "-r", root, *build], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    settings = Repository.create(other).settings
    assert asked(settings) == list(EXPECTED.values())
    assert local_files(settings, "ranges")
    assert not list(check_software(settings, "main", PosixFileSystem(), SystemClock(), Level.DEFAULT))
