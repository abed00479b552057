"""Which event can be replayed: the reasons against it in their order, and what is sent again."""

from __future__ import annotations

import pytest

from custody.errors import CorruptionError, InvalidInputError, NotFoundError
from custody.model import ContentClaim, Event
from custody.replay import Refusal, RefusalCode, Replay, ReplayJudge
from tests.support import event

BEFORE = ContentClaim(container="custody:main/1", section="0000", identifier="7-0", offset=10, size=5)
AFTER = ContentClaim(container="custody:main/1", section="0000", identifier="7-0", offset=40, size=9)
GONE = ContentClaim(container="custody:main/1", section="0000", identifier="gone", offset=0, size=3)
DAMAGED = ContentClaim(container="custody:main/1", section="0000", identifier="damaged", offset=0, size=3)
NOW = 1_772_409_600_123


def find(claim: ContentClaim) -> object:
    if claim.identifier == "gone":
        raise NotFoundError("the file is gone.")
    if claim.identifier == "damaged":
        raise CorruptionError("the file is damaged.")
    return claim


def step(**values: object) -> Event:
    """An event that can be replayed, but for `values`."""
    fields: dict[str, object] = {
        "event_id": 7,
        "event_type": "CONTENT_MODIFIED",
        "source_queue_identifier": "orders",
        "previous_attributes": {"filename": "a.csv", "discard.reason": "late", "uuid": "old"},
        "updated_attributes": {"filename": "b.csv", "alternate.identifier": "x:y"},
        "previous_file_size": 5,
        "file_size": 9,
        "previous_content_claim": BEFORE,
        "content_claim": AFTER,
        "lineage_start_date": 100,
        "flowfile_entry_date": 200,
    }
    return event(1, **{**fields, **values})


def judged(**values: object) -> Replay | Refusal:
    return ReplayJudge({"orders"}, find).judge("main", step(**values))


def sent(**values: object) -> Replay:
    replay = judged(**values)
    assert isinstance(replay, Replay)
    return replay


def code(**values: object) -> str:
    refusal = judged(**values)
    assert isinstance(refusal, Refusal)
    assert f"event main/7 [{refusal.code}]" in refusal.message
    return refusal.code.value


ALL_WRONG: dict[str, object] = {
    "event_type": "JOIN",
    "previous_content_claim": ContentClaim(container="custody:main/1", size=5),
    "source_queue_identifier": None,
}


def test_the_first_reason_counts() -> None:
    wrong = dict(ALL_WRONG)
    assert code(**wrong) == "several-parents"
    wrong["event_type"] = "DROP"
    assert code(**wrong) == "incomplete-claim"
    wrong["previous_content_claim"] = GONE
    assert code(**wrong) == "content-gone"
    wrong["previous_content_claim"] = BEFORE
    assert code(**wrong) == "no-source-queue"
    wrong["source_queue_identifier"] = "removed"
    assert code(**wrong) == "queue-removed"
    wrong["source_queue_identifier"] = "orders"
    assert sent(**wrong).queue == "orders"


@pytest.mark.parametrize("part", ["container", "section", "identifier", "size"])
def test_a_claim_that_lacks_a_part_is_incomplete(part: str) -> None:
    whole = {"container": "custody:main/1", "section": "0000", "identifier": "7-0", "size": 5}
    claim = ContentClaim(**{**whole, part: None})  # type: ignore[arg-type]
    assert code(previous_content_claim=claim) == "incomplete-claim"
    assert code(previous_content_claim=None, previous_file_size=None, content_claim=claim) == "incomplete-claim"
    refusal = judged(previous_content_claim=claim)
    assert isinstance(refusal, Refusal)
    assert f"no {part}" in refusal.message


def test_a_content_of_which_nobody_knows_is_told_from_one_that_is_gone() -> None:
    assert code(previous_content_claim=DAMAGED) == "content-unreadable"


def test_the_input_of_the_step_is_sent_again() -> None:
    flowfile = sent().flowfile("new", NOW)
    assert flowfile.attributes == {
        "filename": "a.csv",
        "uuid": "new",
        "flowfile.replay": "true",
        "flowfile.replay.timestamp": "2026-03-02T00:00:00.123Z",
    }
    assert (flowfile.uuid, flowfile.size, flowfile.content_claim) == ("new", 5, BEFORE)
    assert (flowfile.entry_date, flowfile.lineage_start_date) == (NOW, 100)


@pytest.mark.parametrize("empty", [None, ContentClaim()])
def test_without_any_claim_of_the_input_the_output_is_sent_again(empty: ContentClaim | None) -> None:
    flowfile = sent(previous_content_claim=empty, previous_file_size=None).flowfile("new", NOW)
    assert (flowfile.size, flowfile.content_claim, flowfile.attributes["filename"]) == (9, AFTER, "b.csv")
    assert not {"discard.reason", "alternate.identifier"} & flowfile.attributes.keys()


def test_an_input_that_was_empty_is_sent_empty() -> None:
    flowfile = sent(previous_content_claim=None, previous_file_size=0).flowfile("new", NOW)
    assert (flowfile.size, flowfile.content_claim, flowfile.attributes["filename"]) == (0, None, "a.csv")


def test_no_content_at_all_is_fine_and_bytes_without_a_claim_are_not() -> None:
    nothing: dict[str, object] = {"previous_content_claim": None, "previous_file_size": None, "content_claim": None}
    assert sent(**nothing, file_size=0).flowfile("new", NOW).size == 0
    assert code(**nothing, file_size=4) == "incomplete-claim"


def test_of_an_empty_content_nothing_has_to_be_there() -> None:
    claim = ContentClaim(container="custody:main/1", section="0000", identifier="gone", offset=0, size=0)
    assert sent(previous_content_claim=claim).size == 0


def test_the_event_of_a_replay_goes_from_the_old_flowfile_to_the_new_one() -> None:
    replay = sent(component_id="dag.sort")
    flowfile = replay.flowfile("new", NOW)
    report = replay.report(flowfile, "alice", NOW)
    old = replay.event.flowfile_uuid
    assert (report.event_type, report.details) == ("REPLAY", "Replay requested by alice")
    assert (report.flowfile_uuid, report.parent_uuids, report.child_uuids) == (old, (old,), ("new",))
    assert (report.component_id, report.event_time, report.content_claim) == ("dag.sort", NOW, BEFORE)
    assert (report.previous_attributes, report.updated_attributes) == ({}, flowfile.attributes)


def test_the_codes_are_those_that_programs_compare() -> None:
    assert [item.value for item in RefusalCode] == [
        "unknown-event",
        "several-parents",
        "incomplete-claim",
        "content-gone",
        "content-unreadable",
        "no-source-queue",
        "queue-removed",
        "masked-attribute",
        "repeated",
    ]


@pytest.mark.parametrize("reason", list(RefusalCode))
def test_each_reason_says_what_to_do_and_has_an_error(reason: RefusalCode) -> None:
    refusal = Refusal("main", 7, reason, "detail")
    assert refusal.message.endswith(".")
    gone = reason in (RefusalCode.UNKNOWN_EVENT, RefusalCode.CONTENT_GONE, RefusalCode.QUEUE_REMOVED)
    assert isinstance(refusal.error(), NotFoundError if gone else InvalidInputError)
    assert refusal.document()["code"] == reason.value
