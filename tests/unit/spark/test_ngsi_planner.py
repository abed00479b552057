"""What executors get of the sink, and what becomes of chunks that they cannot plan; tests/spark ask Spark itself."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark import cloudpickle

from custody.config import Settings
from custody.ngsi.parameters import Parameters
from custody.ngsi_sink.chunk import Chunk, Span, merged
from custody.ngsi_sink.notifications import LiveNotifications
from custody.spark.ngsi_planner import ExecutorPlanner
from custody.vfs import PosixFileSystem
from tests.unit.ngsi_sink.sink_repository import bench, received

SECRETS: dict[str, Any] = {
    "hdfs_password": "hunter2-of-hive",
    "krb5_password": "hunter2-of-kerberos",
    "oauth2_token": "hunter2-token",
}


class Context:
    """A session with one executor, which gets everything as bytes."""

    master = "local[2]"
    defaultParallelism = 2

    def __init__(self) -> None:
        self.sent = b""
        self.jobs = 0
        self.cancelled: list[str] = []
        self.is_broken = False
        self.sparkContext = self
        self._pieces: Sequence[Chunk] = ()

    def setJobGroup(self, group: str, description: str, *, interruptOnCancel: bool) -> None:
        assert interruptOnCancel
        assert "custody" in group + description

    def cancelJobGroup(self, group: str) -> None:
        self.cancelled.append(group)

    def parallelize(self, pieces: Sequence[Chunk], count: int) -> Context:
        assert count == len(pieces)
        self._pieces = pieces
        return self

    def map(self, work: Callable[[Chunk], Any]) -> Context:
        self.sent = cloudpickle.dumps((work, list(self._pieces)))
        return self

    def collect(self) -> list[Any]:
        self.jobs += 1
        if self.is_broken:
            raise Py4JError("an executor was lost")
        work, pieces = pickle.loads(self.sent)  # noqa: S301 - of this process
        return pickle.loads(pickle.dumps([work(piece) for piece in pieces]))  # type: ignore[no-any-return]  # noqa: S301


@pytest.fixture
def context() -> Context:
    return Context()


def planner_of(root: Path, context: Context) -> tuple[ExecutorPlanner, Chunk]:
    repository = received(root, [bench(1), bench(2)], krb5_auth=True, krb5_user="warden", **SECRETS)
    settings = repository.settings
    parameters = Parameters.from_section(settings.ngsi, settings.root)
    chunk = Chunk.of(list(merged(LiveNotifications(repository, PosixFileSystem()), [Span("main", 0, 2)])), 0)
    return ExecutorPlanner(settings, parameters, lambda: context, with_journals=False), chunk


def test_executors_plan_without_a_password_or_a_token(tmp_path: Path, context: Context) -> None:
    planner, chunk = planner_of(tmp_path / "repository", context)
    with planner:
        [plan] = planner.plan([chunk], {}).result()
    assert plan is not None
    assert len(plan.sources) == 2
    assert b"warden" in context.sent
    assert b"hunter2" not in context.sent


def test_chunks_that_executors_are_lost_with_have_no_plan_and_no_others_are_sent(
    tmp_path: Path, context: Context
) -> None:
    planner, chunk = planner_of(tmp_path / "repository", context)
    context.is_broken = True
    with planner:
        assert planner.plan([chunk, chunk], {}).result() == [None, None]
        context.is_broken = False
        assert planner.plan([chunk], {}).result() == [None]
    assert context.jobs == 1
    assert len(context.cancelled) == 1


def test_chunks_that_executors_cannot_read_are_sent_once(tmp_path: Path, context: Context) -> None:
    planner, chunk = planner_of(tmp_path / "repository", context)
    other = Chunk(chunk.spans, chunk.events, "another digest", 0)
    with planner:
        assert planner.plan([other, chunk], {}).result()[0] is None
        assert planner.plan([other], {}).result() == [None]
        assert planner.plan([chunk], {}).result() == [None]
    assert context.jobs == 2


def test_a_run_that_hands_nothing_over_starts_no_session(tmp_path: Path) -> None:
    repository = received(tmp_path / "repository", [bench(1)])
    settings = Settings.model_validate({"root": repository.settings.root, "ngsi": {"hdfs_username": "warden"}})
    parameters = Parameters.from_section(settings.ngsi, settings.root)

    def start() -> Any:
        pytest.fail("a session was started")

    with ExecutorPlanner(settings, parameters, start, with_journals=True) as planner:
        assert planner.starts_at_bytes == settings.spark.driver_bytes_max > 0
