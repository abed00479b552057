"""Ingest: every event once, whatever is ingested again and when; a contradiction never overwrites."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from custody.capture import Accepted, Format, batched_outcomes, event_reader, former_ordinal
from custody.capture.encodings import InputText
from custody.capture.nifi_avro import read_avro
from custody.capture.values import format_time
from custody.errors import InvalidInputError, NotFoundError
from custody.ingest.ingest import ColumnDelivery, DeliveryReport
from custody.model import Event, to_batch
from custody.repository import EventSelection, FileReport, Repository
from tests.support import run_steps, unnumbered, write_samples
from tests.unit.capture.json_documents import KINDS, NODE, document
from tests.unit.capture.sample_inputs import (
    any_avro,
    array,
    avro_file,
    dataset,
    dto,
    entity,
    envelope,
    lines,
    notification,
    read,
    run_event,
)
from tests.unit.capture.test_ngsi_columns import ODD as NGSI_ODD
from tests.unit.capture.test_nifi_columns import AVRO_ODD, ODD
from tests.unit.capture.test_openlineage_columns import ALL as ALL_OF_OPENLINEAGE


def run_of(namespace: str, number: int, hour: int) -> dict[str, object]:
    """An event of a run of a job in a namespace, in some hour of a day."""
    time = f"2026-03-04T{hour:02d}:06:{number:02d}Z"
    return run_event("START", number, eventTime=time, job={"namespace": namespace, "name": "load"})


def write(path: Path, *documents: dict[str, object]) -> Path:
    path.write_text(json.dumps(documents, ensure_ascii=False), encoding="utf-8")
    return path


def ingest(repository: Repository, *files: Path, node: str | None = None) -> list[FileReport]:
    with repository.ingest() as work:
        return [work.file(file, node=node) for file in files]


def stored(repository: Repository) -> list[Event]:
    return list(repository.events(count=100_000))


def tuned(repository: Repository, toml: str) -> Repository:
    (repository.settings.root / "custody.toml").write_text(toml)
    return Repository.open(repository.settings.root)


@pytest.mark.parametrize("state", ["journals", "live", "half live"])
def test_files_ingested_again_add_no_event(repository: Repository, tmp_path: Path, state: str) -> None:
    files = write_samples(tmp_path, 300, batch_size=60)
    first = ingest(repository, *files)
    before = stored(repository)
    assert [report.stored for report in first] == [report.read for report in first]
    assert sum(report.stored for report in first) == len(before) == 300
    if state == "half live":
        run_steps(repository.settings, "rollover", "compress", "index", "commit")
    elif state == "live":
        run_steps(repository.settings)
    for opened in (repository, Repository.open(repository.settings.root)):
        again = ingest(opened, *files)
        assert [report.repeated for report in again] == [report.read for report in first]
        assert {report.stored for report in again} == {0}
        assert {report.first_event_id for report in again} == {None}
    assert stored(repository) == before
    assert list(repository.quarantine.entries()) == []
    run_steps(repository.settings)
    assert stored(repository) == before


def test_a_file_that_repeats_itself_stores_each_event_once(repository: Repository, tmp_path: Path) -> None:
    documents = [document(kind) for kind in KINDS]
    copies = [{**item, "eventId": "another copy"} for item in documents]
    [report] = ingest(repository, write(tmp_path / "a.json", *documents, *copies))
    assert (report.read, report.stored, report.repeated, report.rejected) == (36, 18, 18, 0)
    assert [item.event_type for item in stored(repository)] == KINDS


def test_repetitions_are_found_across_batches(repository: Repository, tmp_path: Path) -> None:
    opened = tuned(repository, "[capture]\nbatch_events = 1\n")
    documents = [document(kind) for kind in KINDS]
    [report] = ingest(opened, write(tmp_path / "a.json", *documents, *documents))
    assert (report.stored, report.repeated) == (18, 18)


def test_a_file_that_was_cut_off_is_completed_by_the_whole_one(repository: Repository, tmp_path: Path) -> None:
    [file] = write_samples(tmp_path, 50, nodes=1)
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    [part] = ingest(repository, file)
    file.write_bytes(whole)
    [rest] = ingest(repository, file)
    assert part.rejected == 1
    assert part.stored + rest.stored == 50
    assert rest.repeated == part.stored
    assert [item.source_ordinal for item in stored(repository)] == sorted(
        item.source_ordinal or 0 for item in stored(repository)
    )


@pytest.mark.parametrize("live", [False, True])
def test_the_same_number_with_other_content_is_a_contradiction_and_the_first_is_kept(
    repository: Repository, tmp_path: Path, live: bool
) -> None:
    ingest(repository, write(tmp_path / "a.json", document("SEND")))
    before = stored(repository)
    if live:
        run_steps(repository.settings)
    other = document("SEND", entitySize=999)
    [report] = ingest(repository, write(tmp_path / "b.json", other))
    assert (report.read, report.stored, report.repeated, report.rejected) == (1, 0, 0, 1)
    assert stored(repository) == before
    [entry] = repository.quarantine.entries()
    assert entry.code == "contradiction"
    assert "as event 0" in entry.message
    assert json.loads(repository.quarantine.raw(entry.key)) == other


RESENT: dict[str, dict[str, object]] = {
    "a renamed component": {"componentName": "renamed meanwhile"},
    "a component that is gone": {"componentName": None},
    "another process group": {"processGroupId": "moved", "processGroupName": "elsewhere"},
    "another flow's name": {"application": "NiFi Flow 2"},
    "another platform": {"platform": "cloud"},
    "a host that was renamed": {"actorHostname": "nifi-2.example"},
    "null values": {"updatedAttributes": {"filename": "x", "gone": None}, "details": None, "future": None},
    "children in another order": {"childIds": ["b", "c", "a"]},
    "parents in another order": {"parentIds": ["p", "o"]},
    "a key that custody does not know": {"flowVersion": 7},
}


@pytest.mark.parametrize(
    ("case", "state"),
    [
        *((case, "in this file") for case in RESENT),
        ("a renamed component", "in journals"),
        ("a renamed component", "live"),
        ("children in another order", "live"),
    ],
)
def test_a_field_that_a_node_may_tell_anew_is_a_repetition_and_the_first_value_stays(
    repository: Repository, tmp_path: Path, case: str, state: str
) -> None:
    changes = RESENT[case]
    whole = {"parentIds": ["o", "p"], "childIds": ["a", "b", "c"], "updatedAttributes": {"filename": "x"}}
    first, again = document("FORK", **whole), document("FORK", **whole, eventId="resent") | changes
    if state == "in this file":
        [report] = ingest(repository, write(tmp_path / "a.json", first, again))
    else:
        ingest(repository, write(tmp_path / "a.json", first))
        if state == "live":
            run_steps(repository.settings)
        [report] = ingest(repository, write(tmp_path / "b.json", again))
    names = {"componentName", "processGroupId", "application", "platform", "actorHostname"}
    assert (report.repeated, report.rejected, report.retold) == (1, 0, int(not names.isdisjoint(changes)))
    [kept] = stored(repository)
    assert (kept.component_name, kept.child_uuids) == (first["componentName"], ("a", "b", "c"))
    assert list(repository.quarantine.entries()) == []


@pytest.mark.parametrize(
    ("key", "value", "field"),
    [
        ("eventType", "CLONE", "event_type"),
        ("timestampMillis", 5, "event_time"),
        ("durationMillis", 12345, "event_duration"),
        ("lineageStart", 5, "lineage_start_date"),
        ("componentId", "other", "component_id"),
        ("componentType", "other", "component_type"),
        ("entityId", "other", "flowfile_uuid"),
        ("entitySize", 5, "file_size"),
        ("previousEntitySize", 5, "previous_file_size"),
        ("updatedAttributes", {"filename": "y"}, "updated_attributes"),
        ("previousAttributes", {"filename": "y"}, "previous_attributes"),
        ("childIds", ["a", "b", "b"], "child_uuids"),
        ("parentIds", ["o"], "parent_uuids"),
        ("transitUri", "x:y", "transit_uri"),
        ("details", "other words", "details"),
        ("remoteIdentifier", "urn:x", "source_system_flowfile_identifier"),
        ("alternateIdentifier", "urn:x", "alternate_identifier_uri"),
        ("future", 2, "extra"),
    ],
)
def test_what_a_node_may_not_tell_anew_is_a_contradiction_that_says_in_what(
    repository: Repository, tmp_path: Path, key: str, value: object, field: str
) -> None:
    first = document("FORK", parentIds=["o", "p"], childIds=["a", "b", "c"], future=1)
    ingest(repository, write(tmp_path / "a.json", first))
    [report] = ingest(repository, write(tmp_path / "b.json", {**first, key: value}))
    assert (report.repeated, report.rejected, report.retold) == (0, 1, 0)
    assert f"with different content ({field});" in report.problems[0]


def test_two_that_contradict_each_other_in_one_file_keep_the_first(repository: Repository, tmp_path: Path) -> None:
    one, other = document("SEND"), document("SEND", entitySize=999)
    [report] = ingest(repository, write(tmp_path / "a.json", one, other))
    assert (report.stored, report.rejected) == (1, 1)
    assert "in this file" in report.problems[0]
    assert stored(repository)[0].file_size == one["entitySize"]


def life(number: int, events: int = 20) -> list[dict[str, object]]:
    """What a NiFi reports whose counter begins at 0 in each of its lives: the same ordinals, other events."""
    return [
        document(
            "CREATE",
            eventId=f"{number}-{ordinal}",
            eventOrdinal=ordinal,
            entityId=f"flowfile-{number}-{ordinal}",
            timestampMillis=1_772_409_600_000 + number * 86_400_000 + ordinal,
        )
        for ordinal in range(events)
    ]


def as_rest(event: dict[str, Any]) -> dict[str, object]:
    return dto(
        event["eventOrdinal"],
        flowFileUuid=event["entityId"],
        clusterNodeId=NODE,
        eventTimestamp=format_time(event["timestampMillis"]),
    )


AS_FILES: dict[str, Callable[[list[dict[str, object]]], bytes]] = {
    "json": array,
    "avro": avro_file,
    "rest": lambda events: array(map(as_rest, events)),
}


@pytest.mark.parametrize("count", [3, 20, 100])
@pytest.mark.parametrize("form", AS_FILES)
@pytest.mark.parametrize("state", ["journals", "live", "read anew"])
def test_a_node_that_numbers_from_the_start_again_has_all_events_stored_once(
    repository: Repository, tmp_path: Path, form: str, state: str, count: int
) -> None:
    files = []
    for number in range(3):
        files.append(tmp_path / f"{number}")
        files[-1].write_bytes(AS_FILES[form](life(number, count)))
    if state == "read anew":
        reports = [report for file in files for report in ingest(repository, file)]
    else:
        reports = ingest(repository, *files)
    assert [(report.stored, report.rejected) for report in reports] == [(count, 0)] * 3
    if state == "live":
        run_steps(repository.settings)
    again = ingest(repository, *files, *files)
    assert [(report.repeated, report.stored, report.rejected) for report in again] == [(count, 0, 0)] * 6
    assert len({event.flowfile_uuid for event in stored(repository)}) == len(stored(repository)) == 3 * count
    assert list(repository.quarantine.entries()) == []


def test_of_several_lives_in_one_file_each_event_is_stored_once(repository: Repository, tmp_path: Path) -> None:
    lives = [event for number in range(3) for event in life(number)]
    [report] = ingest(repository, write(tmp_path / "a.json", *lives, *lives))
    assert (report.stored, report.repeated, report.rejected) == (60, 60, 0)


@pytest.mark.parametrize("changes", [{"timestampMillis": 7}, {"entityId": "another"}, {"entitySize": 77}])
def test_an_event_of_a_former_life_that_was_changed_is_a_contradiction(
    repository: Repository, tmp_path: Path, changes: dict[str, object]
) -> None:
    ingest(repository, write(tmp_path / "a.json", *life(0), *life(1)))
    [report] = ingest(repository, write(tmp_path / "b.json", *({**event, **changes} for event in life(0))))
    assert (report.stored, report.repeated, report.rejected) == (0, 0, 20)


@pytest.mark.parametrize("state", ["hidden", "erased"])
def test_what_was_forgotten_hides_no_event_of_another_life(repository: Repository, tmp_path: Path, state: str) -> None:
    old, new = write(tmp_path / "a.json", *life(0)), write(tmp_path / "b.json", *life(1))
    ingest(repository, old)
    run_steps(repository.settings)
    repository.forget(EventSelection(flowfile_uuids=["flowfile-0-3", "flowfile-0-4"]), reason="asked")
    if state == "erased":
        repository.compact()
    [again, fresh, once_more] = ingest(repository, old, new, new)
    assert (again.stored, again.repeated) == (0, 20)
    assert (fresh.stored, fresh.repeated) == (20, 0)
    assert (once_more.stored, once_more.repeated) == (0, 20)


def test_the_same_number_of_another_node_is_another_event(repository: Repository, tmp_path: Path) -> None:
    alone = {"contentURI": None, "previousContentURI": None, "actorHostname": None}
    file = write(tmp_path / "a.json", document("SEND", **alone))
    for node in ("one", "two"):
        assert ingest(repository, file, node=node)[0].stored == 1
    assert [item.source_node for item in stored(repository)] == ["one", "two"]


def test_ids_of_a_report_are_those_of_its_events(repository: Repository, tmp_path: Path) -> None:
    opened = tuned(repository, "[capture]\nbatch_events = 5\n")
    reports = ingest(
        opened,
        write(tmp_path / "a.json", *[document(kind) for kind in KINDS[:7]]),
        write(tmp_path / "b.json", *[document(kind) for kind in KINDS[5:]]),
    )
    assert [(report.first_event_id, report.last_event_id) for report in reports] == [(0, 6), (7, 17)]
    assert [item.event_type for item in stored(opened)] == KINDS


def test_progress_goes_up_to_the_end_of_the_file(repository: Repository, tmp_path: Path) -> None:
    opened = tuned(repository, "[capture]\nbatch_events = 7\n")
    file = write(tmp_path / "a.json", *[document(kind) for kind in KINDS])
    seen: list[int] = []
    with opened.ingest() as work:
        work.file(file, progress=seen.append)
    assert len(seen) == 3
    assert seen == sorted(seen)
    assert seen[-1] == file.stat().st_size


def test_a_rejected_piece_is_stored_after_the_limit_was_raised(repository: Repository, tmp_path: Path) -> None:
    large = document("SEND", updatedAttributes={"body": "y" * 20_000})
    tight = tuned(repository, "[capture]\nevent_bytes_max = 8192\n")
    [report] = ingest(tight, write(tmp_path / "a.json", document("CREATE"), large))
    assert (report.stored, report.rejected) == (1, 1)
    [entry] = tight.quarantine.entries()
    with tight.ingest() as work:
        assert work.resubmit(entry.key).rejected == 1
    assert list(tight.quarantine.entries()) == [entry]

    wide = tuned(repository, "[capture]\nevent_bytes_max = 100000\n")
    with wide.ingest() as work:
        assert work.resubmit(entry.key).stored == 1
        with pytest.raises(NotFoundError, match=entry.key):
            work.resubmit(entry.key)
    assert list(wide.quarantine.entries()) == []
    assert stored(wide)[1].updated_attributes["body"] == "y" * 20_000


@pytest.mark.parametrize("data", [b"<html>", b"{}", b'[{"a": 1}, {"b', b"[1]"])
def test_a_piece_that_is_still_bad_stays_as_it_was(repository: Repository, tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.json").write_bytes(data)
    ingest(repository, tmp_path / "a.json")
    before = list(repository.quarantine.entries())
    assert before
    with repository.ingest() as work:
        for entry in before:
            assert work.resubmit(entry.key).rejected == 1
    assert list(repository.quarantine.entries()) == before


def test_a_warned_event_is_stored_and_its_piece_kept_until_it_is_looked_at(
    repository: Repository, tmp_path: Path
) -> None:
    [report] = ingest(repository, write(tmp_path / "a.json", document("SEND", eventType="TELEPORT")))
    assert (report.stored, report.warned, report.rejected) == (1, 1, 0)
    [entry] = repository.quarantine.entries()
    assert entry.is_stored
    with repository.ingest() as work:
        assert work.resubmit(entry.key).repeated == 1
    assert list(repository.quarantine.entries()) == []
    assert len(stored(repository)) == 1


def test_a_missing_or_too_large_file_is_refused_whole(repository: Repository, tmp_path: Path) -> None:
    opened = tuned(repository, "[capture]\nfile_bytes_max = 1024\n")
    with pytest.raises(NotFoundError, match="absent"):
        ingest(opened, tmp_path / "absent.json")
    with pytest.raises(InvalidInputError, match="file_bytes_max"):
        ingest(opened, write(tmp_path / "a.json", document("SEND"), document("DROP")))
    assert stored(opened) == []


def test_events_come_out_as_capture_read_them(repository: Repository, tmp_path: Path) -> None:
    files = write_samples(tmp_path, 120, nodes=3)
    ingest(repository, *files)
    before = unnumbered(stored(repository))
    run_steps(repository.settings)
    assert unnumbered(stored(repository)) == before
    assert len({(item.source_node, item.source_ordinal) for item in before}) == 120


def _files(folder: Path, format: str) -> list[Path]:
    """Files with all that an ingest tells apart: usual events, warnings, odd and bad ones, copies, contradictions."""
    folder.mkdir()
    if format == "ngsi":
        return _notifications(folder)
    if format == "openlineage":
        return _run_events(folder)
    written = write if format == "json" else _written_avro
    usual = [{**document(kind), "eventOrdinal": 5000 + number} for number, kind in enumerate([*KINDS, *KINDS])]
    odd = [
        {**document("CONTENT_MODIFIED"), "eventOrdinal": 9000 + number, **change}
        for number, (name, change) in enumerate(ODD.items())
        if (format == "json" and not name.startswith("half a character")) or name in AVRO_ODD
    ]
    return [
        written(folder / "a.json", *usual[:10]),
        written(folder / "b.json", *usual[5:20], usual[19], {**usual[18], "entitySize": 99}),
        written(folder / "c.json", *[piece for pair in zip(usual[20:], odd, strict=False) for piece in pair]),
        written(folder / "d.json", {**usual[0], "entitySize": 98}, {**usual[1], "eventId": "again"}, usual[35]),
        written(folder / "e.json", *odd[10:], *usual),
    ]


def _notifications(folder: Path) -> list[Path]:
    arrived = {"receivedAt": 1_790_000_000_000}
    usual = [
        {**envelope(notification(entity(number), entity(100 + number)), Fiware_Service="s"), **arrived}
        for number in range(30)
    ]
    odd = [one for one in NGSI_ODD.values() if isinstance(one, dict)]
    # The same notification, as somebody else says that it arrived: a contradiction.
    again = {**usual[3], "receivedAt": "2026-09-21T14:13:20Z", "url": "http://elsewhere.example.org"}
    parts = [
        usual[:10],
        [*usual[5:20], usual[19]],
        [piece for pair in zip(usual[20:], odd, strict=False) for piece in pair],
        [usual[0], again, usual[29]],
        [*odd[10:], *usual],
    ]
    for number, part in enumerate(parts):
        (folder / f"{number}.json").write_bytes(lines(part))
    return sorted(folder.iterdir())


def _run_events(folder: Path) -> list[Path]:
    usual = [run_event("START", number, inputs=[dataset("seed")]) for number in range(30)]
    odd = [one for one in ALL_OF_OPENLINEAGE.values() if isinstance(one, dict)]
    # Keys in another order are a repetition, another value is another observation.
    again, other = dict(reversed(usual[3].items())), {**usual[3], "producer": "https://example.org/other"}
    parts = [
        usual[:10],
        [*usual[5:20], usual[19]],
        [piece for pair in zip(usual[20:], odd, strict=False) for piece in pair],
        [usual[0], again, other, usual[29]],
        [*odd[10:], *usual],
    ]
    for number, part in enumerate(parts):
        (folder / f"{number}.json").write_bytes(lines(part))
    return sorted(folder.iterdir())


def _written_avro(path: Path, *documents: dict[str, Any]) -> Path:
    path.write_bytes(any_avro(documents))
    return path


def _one_by_one(text: InputText, *, size: int, bytes_max: int, event_bytes_max: int, node: str | None) -> object:
    return batched_outcomes(read_avro(text, event_bytes_max=event_bytes_max, node=node), size)


@pytest.mark.in_parts(4)
@pytest.mark.parametrize("format", ["json", "avro", "ngsi", "openlineage"])
@pytest.mark.parametrize("state", ["journals", "live", "forgotten"])
@pytest.mark.parametrize("batch_events", [4, 1000])
def test_in_columns_everything_becomes_what_it_becomes_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str, batch_events: int, format: str
) -> None:
    files, results = _files(tmp_path / "files", format), []
    for way in ("columns", "one by one"):
        if way == "one by one":
            monkeypatch.setattr(event_reader, "_short_array", lambda *_: None)
            monkeypatch.setattr(event_reader, "read_avro_columns", _one_by_one)
            monkeypatch.setattr(event_reader, "_COLUMN_PIECES", {})
        opened = tuned(Repository.create(tmp_path / way), f"[capture]\nbatch_events = {batch_events}\n")
        reports = ingest(opened, *files[:3])
        if state != "journals":
            run_steps(opened.settings)
        if state == "forgotten":
            opened.forget(EventSelection(event_ids=[2, 7, 11]), "asked for")
        reports += ingest(opened, *files[3:], *files)
        pieces = sorted(
            (entry.file, entry.index or 0, entry.offset, entry.code, entry.message)
            for entry in opened.quarantine.entries()
        )
        results.append((reports, stored(opened), pieces))
    assert results[0] == results[1]
    codes = {code for _, _, _, code, _ in results[0][2]}
    if format == "ngsi":
        assert codes >= {"contradiction", "bad-value", "time-range"}
        return
    if format == "openlineage":
        assert codes >= {"bad-value"}
        return
    assert any(report.warned for report in results[0][0])
    assert codes >= {"contradiction", "bad-value", "unknown-type"}


def test_what_an_older_custody_stored_of_runs_is_known_in_columns(repository: Repository, tmp_path: Path) -> None:
    documents = [run_event("START", number) for number in range(8)]
    path = tmp_path / "runs.ndjson"
    path.write_bytes(lines(documents[:6]))
    former = []
    for outcome in read(path.read_bytes(), Format.OPENLINEAGE)[:4]:
        assert isinstance(outcome, Accepted)
        former.append(msgspec.structs.replace(outcome.event, source_ordinal=former_ordinal(outcome.event)))
    repository.append(former)
    repository.forget(EventSelection(event_ids=[1]), "asked for")
    [report] = ingest(repository, path)
    assert (report.read, report.stored, report.repeated) == (6, 2, 4)
    # Of the same run, type and time, but another event.
    path.write_bytes(lines([{**documents[0], "producer": "https://example.org/other"}, *documents]))
    [report] = ingest(repository, path)
    assert (report.read, report.stored, report.repeated) == (9, 3, 6)


@pytest.mark.parametrize("state", ["journals", "live", "erased", "stored meanwhile", "delivered meanwhile"])
def test_what_an_older_custody_stored_of_runs_is_known_wherever_it_lies(
    repository: Repository, tmp_path: Path, state: str
) -> None:
    documents = [run_of(name, number, 5 + number // 4) for number in range(8) for name in ("one", "two")]
    path = tmp_path / "runs.ndjson"
    path.write_bytes(lines(documents))
    outcomes = [one for one in read(path.read_bytes(), Format.OPENLINEAGE) if isinstance(one, Accepted)]
    former = [
        replace(one, event=msgspec.structs.replace(one.event, source_ordinal=former_ordinal(one.event)))
        for one in outcomes[:5]
    ]
    is_before = "meanwhile" not in state
    if is_before:
        repository.append([one.event for one in former])
    if state in ("live", "erased"):
        run_steps(repository.settings)
    if state == "erased":
        repository.forget(EventSelection(event_ids=list(range(6))), "asked for")
        repository.compact()
        assert not repository.workspace().catalog.load().files
    with repository.ingest() as work:
        late = tmp_path / "late.ndjson"
        late.write_bytes(lines([run_of("one", 9, 9)]))
        assert work.file(late).stored == 1
        if state == "stored meanwhile":
            assert work.batches([former], origin="test", format=Format.CUSTODY).stored == 5
        elif state == "delivered meanwhile":
            columns = to_batch([one.event for one in former], 0).drop_columns(["event_id"])
            delivery = ColumnDelivery(
                origin="test", format=Format.CUSTODY, outcomes=(), size=1, events=columns, rows=np.arange(5)
            )
            [result] = work.deliveries([delivery])
            assert isinstance(result, DeliveryReport)
            assert result.counts.stored == 5
        report = work.file(path)
        assert (report.read, report.stored, report.repeated) == (16, 11, 5)
        again = work.file(path)
        assert (again.stored, again.repeated) == (0, 16)
