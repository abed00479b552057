"""Bad files through the command line: each is named with its place, kept in the quarantine, and costs nothing else."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from click.testing import CliRunner

from custody.cli.main import cli
from custody.repository import Repository
from custody.sample import SampleOptions, sample_events

GOOD = [json.loads(json.dumps(event)) for event in sample_events(SampleOptions(events=20, nodes=1))]
UNKNOWN_TYPE = "TELEPORT"


def changed(number: int, **values: object) -> dict[str, object]:
    """A good event with a number of its own, other values, and without those that are None."""
    event = {**GOOD[number], "eventOrdinal": 900_000 + number, **values}
    return {key: value for key, value in event.items() if value is not None}


@dataclass(frozen=True)
class BadFile:
    """A file, how many of its events can be stored, and what is said of the rest."""

    name: str
    data: bytes
    stored: int
    says: str
    index: int | None
    severity: str = "error"
    code: int = 1
    settings: dict[str, str] = field(default_factory=dict)


def array(*events: object) -> bytes:
    return json.dumps(events).encode()


HUGE = "x" * 30_000_000
CASES = [
    BadFile("not-json", b"<html>504 Gateway Time-out</html>", 0, "expected a JSON array", None),
    BadFile("empty", b"", 0, "expected a JSON array of events, got nothing", None),
    BadFile(
        "object",
        json.dumps(GOOD[0]).encode(),
        1,
        "expected a JSON array of events or an event a line, got one JSON object",
        0,
        severity="warning",
        code=0,
    ),
    BadFile("text", json.dumps("no events").encode(), 0, "expected a JSON array of events", None),
    BadFile("no-uuid", array(GOOD[0], changed(1, entityId=None), GOOD[2]), 2, "entityId: expected a value", 1),
    BadFile("null-uuid", array(GOOD[0], {**GOOD[1], "entityId": None}), 1, "entityId: expected a value, got null", 1),
    BadFile("negative-size", array(changed(0, entitySize=-1), GOOD[1]), 1, "file_size: expected 0", 0),
    BadFile(
        "huge-attribute",
        array(GOOD[0], GOOD[1], changed(2, updatedAttributes={"body": HUGE})),
        2,
        "expected at most 16777216 bytes (capture.event_bytes_max)",
        2,
    ),
    BadFile(
        "unknown-type",
        array(GOOD[0], changed(1, eventType=UNKNOWN_TYPE)),
        2,
        UNKNOWN_TYPE,
        1,
        severity="warning",
        code=0,
    ),
    BadFile("contradiction", array(GOOD[0], GOOD[1], {**GOOD[0], "entitySize": 5}), 2, "with different content", 2),
    BadFile("cut-off", array(*GOOD[:3])[:-40], 2, "the JSON breaks off here", 2),
    BadFile("text-for-number", array(changed(0, timestampMillis="yesterday")), 0, "timestampMillis: expected a", 0),
]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    Repository.create(root)
    return root


def custody(root: Path, *arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(cli, ["--repository", str(root), *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


def offset_of(case: BadFile) -> int:
    """Where element `index` of the case's array begins, found by decoding one element after the other."""
    if case.index is None or not case.data.startswith(b"["):
        return 0
    text, position = case.data.decode(), 1
    for _ in range(case.index):
        _, position = json.JSONDecoder().raw_decode(text, position)
        position += len(", ")
    return len(text[:position].encode())


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_a_bad_piece_is_named_with_its_place_and_the_good_events_are_kept(
    case: BadFile, root: Path, tmp_path: Path
) -> None:
    file = tmp_path / f"{case.name}.json"
    file.write_bytes(case.data)
    code, _, said = custody(root, "ingest", str(file))
    assert code == case.code
    assert str(file) in said
    assert case.says in said
    assert len(list(Repository.open(root).events(0, 100))) == case.stored

    _, output, _ = custody(root, "quarantine", "list", "--json")
    [entry] = json.loads(output)
    assert (entry["severity"], entry["index"], entry["file"]) == (case.severity, case.index, str(file))
    assert entry["offset"] == offset_of(case)
    piece = Repository.open(root).quarantine.raw(entry["key"])
    assert case.data[entry["offset"] : entry["offset"] + len(piece)] == piece


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_the_same_bad_file_again_adds_nothing(case: BadFile, root: Path, tmp_path: Path) -> None:
    file = tmp_path / f"{case.name}.json"
    file.write_bytes(case.data)
    custody(root, "ingest", str(file))
    custody(root, "ingest", str(file))
    assert len(list(Repository.open(root).events(0, 100))) == case.stored
    assert len(json.loads(custody(root, "quarantine", "list", "--json")[1])) == 1


def test_an_event_of_an_unknown_type_is_stored_as_it_is(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "unknown.json"
    file.write_bytes(array(changed(0, eventType=UNKNOWN_TYPE, flavour={"new": [1, 2]})))
    custody(root, "ingest", str(file))
    _, output, _ = custody(root, "events", "--nifi")
    assert json.loads(output) == changed(0, eventType=UNKNOWN_TYPE, flavour={"new": [1, 2]})


def test_a_rejected_event_is_stored_once_the_limit_allows_it(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "large.json"
    file.write_bytes(array(GOOD[0], changed(1, updatedAttributes={"body": "y" * 2_000_000})))
    monkeypatch.setenv("CUSTODY__CAPTURE__EVENT_BYTES_MAX", "1000000")
    assert custody(root, "ingest", str(file))[0] == 1
    assert custody(root, "quarantine", "resubmit", "--all")[0] == 1
    assert len(list(Repository.open(root).events(0, 10))) == 1
    monkeypatch.setenv("CUSTODY__CAPTURE__EVENT_BYTES_MAX", "3000000")
    assert custody(root, "quarantine", "resubmit", "--all")[0] == 0
    assert json.loads(custody(root, "quarantine", "list", "--json")[1]) == []
    stored = list(Repository.open(root).events(0, 10))
    assert [len(event.updated_attributes.get("body") or "") for event in stored] == [0, 2_000_000]
