"""Exports of many events come from a process of their own: the same bytes, and no process outlives its reader."""

from __future__ import annotations

import io
import os

import psutil  # type: ignore[import-untyped]
import pytest

from custody.errors import InvalidInputError, StorageError
from custody.model.visibility import EventCondition, Visibility
from custody.repository import Repository
from custody.serving import export_process
from custody.serving.api_export import EXPORTS, event_stream
from custody.serving.export_process import exported, next_frame
from tests.support import append, event, run_steps

EVENTS = 300
CLERK = Visibility((EventCondition.of({"process_group_name": "orders*"}),), (), ("tenant",))


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    repository = Repository.create(tmp_path_factory.mktemp("exports") / "repository")
    groups = ("orders", "orders-late", "payments")
    append(
        repository,
        [
            event(number, process_group_name=groups[number % 3], updated_attributes={"tenant": f"${{t{number}}}"})
            for number in range(EVENTS)
        ],
    )
    run_steps(repository.settings)
    return Repository.open(repository.settings.root)


@pytest.fixture(autouse=True)
def _far(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export_process, "NEAR_EVENTS_MAX", 5)


def children() -> list[psutil.Process]:
    return [one for one in psutil.Process().children() if export_process.__name__ in " ".join(one.cmdline())]


def test_its_bytes_are_those_of_this_process_for_who_sees_some_and_some_masked(repository: Repository) -> None:
    seen = repository.seen_by(CLERK)
    expected = b"".join(event_stream(seen, EXPORTS["ndjson"], "event_type:*", None, None))
    assert b"".join(exported(seen, "ndjson", "event_type:*", None, None, CLERK)) == expected
    assert b'"events":200' in expected
    assert b"payments" not in expected and b"${t" not in expected
    assert children() == []


def test_it_ends_with_its_reader(repository: Repository) -> None:
    pieces = exported(repository, "csv", "", None, None, None)
    next(pieces)
    [child] = children()
    # Whoever else works here goes first, which counts in one session alone; and Ctrl-C in a terminal is for the server.
    assert (child.nice(), os.getsid(child.pid)) == (export_process.NICENESS, os.getsid(0))
    assert os.getpgid(child.pid) == child.pid
    pieces.close()
    assert not child.is_running()


@pytest.mark.parametrize("left", [b"", b"D", b"D\0\0\0\5abc", b"X\0\0\0\0", b"P\0\0\0\3why"])
def test_an_answer_that_is_cut_is_none(left: bytes) -> None:
    stdout = io.BytesIO(b"D\0\0\0\2ab" + left)
    assert next_frame(stdout) == b"ab"
    with pytest.raises(StorageError):
        next_frame(stdout)


def test_few_events_need_no_process_and_a_wrong_query_is_told_before(repository: Repository) -> None:
    few = exported(repository, "ndjson", "filename:none", None, None, None)
    assert b'"events":0' in b"".join(few)
    assert children() == []
    with pytest.raises(InvalidInputError):
        next(exported(repository, "ndjson", "nothing:1", None, None, None))
