"""Every input format through the command line: stored once, or named in the quarantine and resubmitted."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from custody.capture import Format, dataset_uuid, event_reader
from custody.cli.main import cli
from custody.model import Event
from custody.repository import Repository
from tests.support import run_steps
from tests.unit.capture.json_documents import document
from tests.unit.capture.sample_inputs import (
    array,
    avro_file,
    dataset,
    dto,
    entity,
    lines,
    notification,
    one_of_each,
    own_event,
    payloads,
    run_event,
)

BAD = {
    Format.NIFI: lines([payloads(3)[0], {**payloads(3)[1], "entitySize": None}, payloads(3)[2]]),
    Format.NIFI_REST: array([dto(1), dto(2, fileSizeBytes=None), dto(3)]),
    Format.NIFI_AVRO: avro_file([payloads(3)[0], {**payloads(3)[1], "entitySize": None}, payloads(3)[2]]),
    Format.OPENLINEAGE: lines([run_event(number=1), run_event(number=2, job={}), run_event(number=3)]),
    Format.NGSI: lines([notification(entity(1)), notification({"type": "T"}), notification(entity(3))]),
    Format.CUSTODY: lines([own_event(1), own_event(2, file_size="much"), own_event(3)]),
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    Repository.create(root)
    return root


def custody(root: Path, *arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(cli, ["--repository", str(root), *map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


def stored(root: Path) -> list[Event]:
    return list(Repository.open(root).events(0, 1000))


@pytest.mark.parametrize("format", list(Format))
@pytest.mark.parametrize("choice", ["auto", "named"])
def test_a_file_of_each_format_is_stored_once(format: Format, choice: str, root: Path, tmp_path: Path) -> None:
    plain, packed = tmp_path / "file", tmp_path / "file.gz"
    plain.write_bytes(one_of_each()[format])
    packed.write_bytes(gzip.compress(one_of_each()[format]))
    os.utime(packed, (1_000_000, 1_000_000))
    options = ["--format", format] if choice == "named" else []
    for file in (plain, packed, plain):
        code, _, said = custody(root, "ingest", file, *options)
        assert (code, said.strip()) == (0, "")
    assert len(stored(root)) == (4 if format in (Format.NIFI, Format.NIFI_AVRO) else 3)
    assert json.loads(custody(root, "quarantine", "list", "--json")[1]) == []


def test_the_files_of_a_folder_are_those_that_may_hold_events(root: Path, tmp_path: Path) -> None:
    folder = tmp_path / "landing"
    folder.mkdir()
    files = {"a.json": Format.NIFI, "b.jsonl": Format.OPENLINEAGE, "c.ndjson": Format.NGSI, "d.avro": Format.NIFI_AVRO}
    for name, format in files.items():
        (folder / name).write_bytes(one_of_each()[format])
    (folder / "e.json.gz").write_bytes(gzip.compress(one_of_each()[Format.NIFI_REST]))
    (folder / "notes.txt").write_bytes(b"not looked at")
    (folder / "more.json").mkdir()
    code, output, _ = custody(root, "ingest", folder, "--json")
    assert code == 0
    reports = json.loads(output)
    assert [Path(report["file"]).name for report in reports] == [*files, "e.json.gz"]
    assert sum(report["repeated"] for report in reports) == 4  # the Avro file holds what the first one does


@pytest.mark.parametrize("format", list(Format))
def test_a_rejected_piece_is_tried_again_as_the_format_that_it_came_in(
    format: Format, root: Path, tmp_path: Path
) -> None:
    file = tmp_path / "bad.gz"
    file.write_bytes(gzip.compress(BAD[format]))
    code, _, said = custody(root, "ingest", file)
    assert (code, len(stored(root))) == (1, 2)
    assert f"{file}: event 1 at byte " in said
    [entry] = json.loads(custody(root, "quarantine", "list", "--json")[1])
    assert (entry["format"], entry["index"]) == (format, 1)
    assert custody(root, "quarantine", "resubmit", entry["key"])[0] == 1
    [again] = json.loads(custody(root, "quarantine", "list", "--json")[1])
    assert again == entry


@pytest.mark.parametrize("format", list(Format))
def test_an_event_that_was_too_large_is_stored_once_the_limit_allows_it(
    format: Format, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "y" * 6000
    large = {
        Format.NIFI: array([{**payloads(1)[0], "details": text}]),
        Format.NIFI_REST: json.dumps({"provenanceEvents": [dto(details=text)]}).encode(),
        Format.NIFI_AVRO: avro_file([{**payloads(1)[0], "details": text}]),
        Format.OPENLINEAGE: lines([run_event(inputs=[dataset(text)])]),
        Format.NGSI: lines([notification({**entity(), "text": text})]),
        Format.CUSTODY: lines([own_event(details=text)]),
    }
    file = tmp_path / "large"
    file.write_bytes(large[format])
    with monkeypatch.context() as limited:
        limited.setenv("CUSTODY__CAPTURE__EVENT_BYTES_MAX", "4096")
        assert custody(root, "ingest", file)[0] == 1
        assert stored(root) == []
    assert custody(root, "quarantine", "resubmit", "--all")[0] == 0
    assert len(stored(root)) == 1
    assert json.loads(custody(root, "quarantine", "list", "--json")[1]) == []


def test_a_file_read_as_the_wrong_format_can_be_tried_again_as_the_right_one(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "runs.jsonl"
    file.write_bytes(lines([run_event()]))
    assert custody(root, "ingest", file, "--format", "nifi")[0] == 1
    assert custody(root, "quarantine", "resubmit", "--all", "--format", "openlineage")[0] == 0
    assert [event.source_format for event in stored(root)] == ["openlineage"]


def test_an_entry_of_a_format_to_come_is_left_where_it_is(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "bad.json"
    file.write_bytes(array([{**payloads(1)[0], "entitySize": -1}]))
    custody(root, "ingest", file)
    quarantine = Repository.open(root).quarantine
    [body] = quarantine.bodies()
    [piece] = quarantine.pieces(body)
    quarantine.replace(body, [piece._replace(entry=msgspec.structs.replace(piece.entry, format="tomorrow"))])
    code, _, said = custody(root, "quarantine", "resubmit", "--all")
    assert code != 0
    assert "expected a format out of nifi, nifi-rest" in said
    assert list(quarantine.known_keys()) == [piece.entry.key]


def test_large_events_are_stored_in_smaller_batches(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_reader, "BATCH_BYTES_MAX", 3000)
    file = tmp_path / "events.json"
    file.write_bytes(array(payloads(20)))
    seen: list[int] = []
    with Repository.open(root).ingest() as work:
        report = work.file(file, progress=seen.append)
    assert report.stored == 20
    assert len(seen) > 5


def test_two_events_with_one_number_and_other_content_contradict_each_other(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "events.json"
    file.write_bytes(array([document("CREATE"), document("CREATE", componentId="another")]))
    code, _, said = custody(root, "ingest", file)
    assert (code, len(stored(root))) == (1, 1)
    assert "with different content (component_id)" in said.replace("\n", " ")


def test_two_openlineage_events_of_one_run_type_and_time_are_both_stored(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "runs.jsonl"
    file.write_bytes(lines([run_event(), run_event(inputs=[dataset("seed")]), run_event()]))
    code, _, _ = custody(root, "ingest", file)
    assert (code, len(stored(root))) == (0, 2)


def test_the_lineage_of_a_dataset_goes_through_the_runs(root: Path, tmp_path: Path) -> None:
    runs = [
        run_event("COMPLETE", 1, inputs=[dataset("seed")], outputs=[dataset("tree")]),
        run_event("COMPLETE", 2, inputs=[dataset("tree")], outputs=[dataset("wood")]),
    ]
    file = tmp_path / "runs.jsonl"
    file.write_bytes(lines(runs))
    custody(root, "ingest", file)
    repository = Repository.open(root)
    run_steps(repository.settings)
    lineage = repository.lineage([dataset_uuid("lake://east", "wood")])
    assert lineage.events == 2
    assert [event.event.filename for event in repository.search("filename:wood").events] == ["wood"]


def test_a_gzip_bomb_is_an_error_of_its_file_and_the_next_file_is_read(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUSTODY__CAPTURE__FILE_BYTES_MAX", "1000000")
    bomb, good = tmp_path / "a.gz", tmp_path / "b.json"
    bomb.write_bytes(gzip.compress(array(payloads(1))[:-1] + b',{"details": "' + b"x" * 5_000_000))
    good.write_bytes(array(payloads(3)))
    code, _, said = custody(root, "ingest", bomb, good)
    assert code == 1
    assert f"{bomb}: event 1 at byte " in said
    assert "expected at most 1000000 bytes of text (capture.file_bytes_max)" in said
    assert len(stored(root)) == 3
