"""Fixtures of all tests: a repository in a folder of its own, and one whose events are live."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest
from execnet.gateway_base import MainThreadOnlyExecModel
from hypothesis import HealthCheck, settings
from xdist.remote import Producer  # type: ignore[import-untyped]
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

from custody.repository import Repository
from custody.vfs import PosixFileSystem
from tests import forks
from tests.parts import SEED_VARIABLE, WHOLE, Part, part_of_seed, seed_of_run
from tests.support import run_steps, write_samples

# A slow machine must not fail a property; the examples are the same in every run.
settings.register_profile(
    "custody",
    deadline=None,
    derandomize=True,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("custody")


_ON_ONE_SPARK = {f"tests/spark/test_{name}.py" for name in ("event_source", "software_source", "swh_tables")}
"""They share the fixture `one_spark`: on several workers each would start a Spark."""


class _ByFile(LoadScopeScheduling):  # type: ignore[misc]  # it has no types
    """A file's tests stay on one worker, for they share fixtures; those of a crash share nothing and spread."""

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith("tests/crash/"):
            return nodeid
        # One Airflow at a time is enough for a machine.
        if nodeid.startswith("tests/airflow/"):
            return "airflow"
        file = nodeid.partition("::")[0]
        return "one Spark" if file in _ON_ONE_SPARK else file


_BYTES_NAMED_MAX = 16


def pytest_configure() -> None:
    """Fix the seed before the workers start: a commit that is made meanwhile gives them no other one."""
    os.environ[SEED_VARIABLE] = seed_of_run()


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name a case by the length of its bytes, not by the bytes.

    Compressed bytes may hold the time: two workers that collect in different seconds would not agree on the tests.
    """
    return f"{argname}-{len(val)}" if isinstance(val, bytes) and len(val) > _BYTES_NAMED_MAX else None


def pytest_report_header() -> str:
    return f"parts of the enumerations: {SEED_VARIABLE}={seed_of_run()}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the cases of `in_parts(n)` tests that belong to other parts than this run's; not if any is named."""
    if any("::" in argument for argument in config.args):
        return
    tests: dict[tuple[str, int], list[pytest.Item]] = {}
    for item in items:
        marker = item.get_closest_marker("in_parts")
        if marker is not None and marker.args and not item.get_closest_marker("slow"):
            tests.setdefault((item.nodeid.partition("[")[0], marker.args[0]), []).append(item)
    part, left_out = part_of_seed(seed_of_run()).apart(), set[pytest.Item]()
    for (name, parts), cases in tests.items():
        chosen = part.of(name, len(cases), parts)
        left_out.update(case for number, case in enumerate(cases) if number not in chosen)
    if left_out:
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=sorted(left_out, key=lambda item: item.nodeid))


def pytest_collection_finish() -> None:
    """Let no later collection of garbage go through the tests themselves.

    All of them lie in each worker, with what they import more than half a million objects: a collection of all of them
    takes half a second of CPU, and there are tests that ask for a dozen.
    """
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    """Let what was kept out be freed at the end: DuckDB complains of what is left."""
    gc.unfreeze()


@pytest.hookimpl(optionalhook=True)  # there is no such hook where all tests run in one process
def pytest_xdist_setupnodes(config: pytest.Config) -> None:
    """Let workers begin as forks of one process that has imported all tests, if all are to run."""
    if config.args_source is pytest.Config.ArgsSource.TESTPATHS:
        MainThreadOnlyExecModel.subprocess = forks  # type: ignore[method-assign,assignment]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> _ByFile:
    return _ByFile(config, log)


@pytest.fixture(scope="session", autouse=True)
def _engines_begin_as_forks() -> Iterator[None]:
    """Hundreds of queries are asked: the process of each has imported DuckDB and Arrow when it begins."""
    with patch("custody.sql.client.subprocess", forks):
        yield


@pytest.fixture(autouse=True)
def _no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give no test the width of the terminal that it was started from: commands print for a pipe."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture
def part(request: pytest.FixtureRequest) -> Part:
    """The part of its enumeration that a test does: that of this run, the whole for a slow test."""
    return WHOLE if request.node.get_closest_marker("slow") else part_of_seed(seed_of_run())


@pytest.fixture
def fs() -> PosixFileSystem:
    return PosixFileSystem()


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """A new repository with default settings."""
    return Repository.create(tmp_path / "repository")


@pytest.fixture(scope="session")
def live(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """A repository whose 600 sample events are live; tests only read it."""
    root = tmp_path_factory.mktemp("live")
    opened = _sampled(root)
    run_steps(opened.settings)
    return opened


@pytest.fixture(scope="session")
def waiting(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """The same events, acknowledged and not live yet; tests only read it."""
    return _sampled(tmp_path_factory.mktemp("waiting"))


@pytest.fixture(scope="session")
def half_live(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """The same events, some of them live; tests only read it."""
    root = tmp_path_factory.mktemp("half")
    opened = _sampled(root, slice(0, 1))
    run_steps(opened.settings)
    return _sampled(root, slice(1, None))


def _sampled(root: Path, files: slice = slice(None)) -> Repository:
    folder = root / "repository"
    if not folder.exists():
        Repository.create(folder)
        (folder / "custody.toml").write_text(
            '[eventlog]\nblock_bytes_max = 65536\n[index]\nattributes = ["order.region", "mime.type", "mqtt.broker"]\n'
        )
    opened = Repository.open(folder)
    with opened.ingest() as work:
        for path in write_samples(root, 600)[files]:
            work.file(path)
    return opened
