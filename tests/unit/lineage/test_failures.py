"""Failures are told by facts: states, types and relationships, and by no word in a text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import msgspec
import pytest

from custody.airflow_runs.run_events import RunFacts, end_events
from custody.lineage import Lineage, has_failed, trace
from custody.model import AttributeMask, Event
from tests.support import event
from tests.unit.lineage.pipeline import CLEANING, RAW_UUID, REPORTING, pipeline
from tests.unit.lineage.test_identities import lineage_of


@pytest.mark.parametrize("relationship", ["failure", "Failure", "comms.failure", "Parse Failure", "failed", "errors"])
def test_a_route_to_a_failure_has_failed(relationship: str) -> None:
    assert has_failed(event(0, event_type="ROUTE", relationship=relationship))
    ended = f"Auto-Terminated by {relationship} Relationship"
    assert has_failed(event(0, event_type="DROP", details=ended))
    assert not has_failed(event(0, event_type="SEND", details=ended)), "no end of a FlowFile"


@pytest.mark.parametrize(
    "text", ["success", "no error", "0 errors", "no_errors", "error.log", "failover", "failure handled", "matched", ""]
)
def test_a_word_is_no_failure(text: str) -> None:
    assert not has_failed(event(0, event_type="ROUTE", relationship=text))
    assert not has_failed(event(0, event_type="DROP", details=f"Auto-Terminated by {text} Relationship"))


@pytest.mark.parametrize("text", ["0 errors", "no error", "Connection error", "failure", "Run failed"])
@pytest.mark.parametrize("event_type", ["ROUTE", "DROP", "SEND"])
def test_a_text_for_people_tells_no_failure(event_type: str, text: str) -> None:
    attributes = {"filename": "error.log", "state": "failed", "airflow.state": "failed"}
    assert not has_failed(event(0, event_type=event_type, details=text, updated_attributes=attributes))


def test_what_nobody_came_to_in_time_has_failed() -> None:
    assert has_failed(event(0, event_type="EXPIRE"))
    assert not has_failed(event(0, event_type="DROP"))


@pytest.mark.parametrize(("end", "failed"), [("COMPLETE", False), ("FAIL", True), ("ABORT", True), ("OTHER", False)])
@pytest.mark.parametrize("mask", [(), ("openlineage.*",)])
def test_a_run_of_openlineage_says_how_it_ended(end: str, failed: bool, mask: Sequence[str]) -> None:
    last = AttributeMask(mask).event(pipeline(ends=end)[-1])
    assert has_failed(last) is failed


@pytest.mark.parametrize(("state", "failed"), [("success", False), ("failed", True), ("skipped", False)])
@pytest.mark.parametrize("task", [None, "t"])
def test_a_run_of_airflow_says_how_it_ended(state: str, failed: bool, task: str | None) -> None:
    moment = datetime(2026, 3, 1, tzinfo=UTC)
    facts = RunFacts(deployment="here", dag_id="d", run_id="r", run_after=moment, end=moment, state=state, task_id=task)
    [end] = [msgspec.convert(one, Event) for one in end_events(facts)]
    assert has_failed(end) is failed
    assert not has_failed(AttributeMask(["airflow.state"]).event(end)), "what is masked tells nothing"


def chain(length: int) -> list[Event]:
    """FlowFiles of which each makes the next one; the last is routed to a failure, and each has a brother."""
    steps = [
        event(
            number,
            event_type="FORK",
            flowfile_uuid=f"f{number}",
            parent_uuids=(f"f{number}",),
            child_uuids=(f"f{number + 1}", f"brother{number}"),
        )
        for number in range(length)
    ]
    return [*steps, event(length, event_type="ROUTE", flowfile_uuid=f"f{length}", relationship="failure")]


def test_the_way_from_the_start_to_each_failure_stays() -> None:
    lineage = lineage_of(chain(3), "f0").only_failures()
    assert list(lineage.nodes) == ["f0", "f1", "f2", "f3"]
    assert [node.failed for node in lineage.nodes.values()] == [False, False, False, True]
    assert lineage.nodes["f1"].children == ("f2",)
    assert lineage.events == 4
    assert lineage.left_out == {"brother0", "brother1", "brother2"}


def test_without_a_failure_only_the_start_stays() -> None:
    lineage = lineage_of(chain(3)[:-1], "f1").only_failures()
    assert list(lineage.nodes) == ["f1"]


def test_a_run_that_failed_is_one_of_its_lineage() -> None:
    lineage = lineage_of(pipeline(ends="FAIL"), RAW_UUID)
    assert {uuid for uuid, node in lineage.nodes.items() if node.failed} == {REPORTING}
    assert lineage.nodes[REPORTING].events_failed == (False, True)
    assert CLEANING in lineage.only_failures().nodes, "on the way"


def test_a_failure_across_an_identifier_keeps_its_way() -> None:
    names = {"alternate_identifier_uri": "erp:1"}
    events = [
        event(0, event_id=0, event_type="ADDINFO", flowfile_uuid="here", **names),
        event(1, event_id=1, event_type="ADDINFO", flowfile_uuid="there", **names),
        event(2, event_id=2, event_type="ADDINFO", flowfile_uuid="third", **names),
        event(3, event_id=3, event_type="FORK", flowfile_uuid="there", parent_uuids=("there",), child_uuids=("child",)),
        event(4, event_id=4, event_type="ROUTE", flowfile_uuid="child", relationship="failure"),
    ]

    def among(uuids: Sequence[str], most: int) -> list[tuple[str, Event]]:
        return [("main", one) for one in events if one.flowfile_uuid in uuids][:most]

    def identified(_: Sequence[str], most: int) -> list[tuple[str, Event]]:
        return [("main", one) for one in events if one.event_type == "ADDINFO"][:most]

    lineage: Lineage = trace(among, ["here"], 100, identified=identified)
    assert set(lineage.nodes) == {"here", "there", "third", "child"}
    assert set(lineage.only_failures().nodes) == {"here", "there", "child"}
    assert replace(lineage, starts=()).only_failures().nodes.keys() == {"child"}
