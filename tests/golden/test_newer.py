"""Files of a newer custody that only adds a column: read but for that column, reported once, never written anew."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

from custody.cli.main import cli
from custody.errors import FormatVersionError
from custody.eventlog import EventLog
from custody.journal import JournalFile
from custody.maintenance.findings import Level
from custody.maintenance.verification import verify_repository
from custody.model import EVENT_SCHEMA, Event
from custody.recovery import STEPS
from custody.repository import EventSelection, Repository
from custody.workspace import Workspace
from tests.golden.newer import make_newer
from tests.support import append, event, files_below, run_steps

HERE = Path(__file__).parent
NOTICE = (
    "some events were stored by a newer custody, with schema version 3: their columns weather are not shown. "
    "Use that one."
)
WHOLE = [
    Event(
        event_id=n,
        event_type="RECEIVE",
        event_time=1_772_359_200_000 + n,
        component_id="c",
        component_type="Load",
        flowfile_uuid=f"f-{n}",
        file_size=n,
        transit_uri="x:y",
    )
    for n in range(47)
]


@pytest.fixture
def newer(tmp_path: Path) -> Repository:
    shutil.copytree(HERE / "newer-custody", tmp_path / "newer")
    return Repository.open(tmp_path / "newer")


def test_every_question_is_answered_and_what_is_not_shown_is_said_once(newer: Repository) -> None:
    for _ in range(2):  # once more, from the caches
        stream = newer.events(count=100)
        assert list(stream) == WHOLE
        assert stream.notices == (NOTICE,)
        page = newer.search("", limit=100)
        assert (page.total, page.notices) == (47, (NOTICE,))
        assert sorted((item.event for item in page.events), key=lambda item: item.event_id) == WHOLE
        assert newer.search("flowfile_uuid:f-1").total == 1
        assert [newer.get(n) for n in (0, 4, 6, 46)] == [WHOLE[n] for n in (0, 4, 6, 46)]
    assert newer.lineage(["f-2"]).events == 1
    with newer.sql("select * exclude writer from events order by event_id") as result:
        table = pa.Table.from_batches(result.batches(), result.schema)
    assert table.column_names == EVENT_SCHEMA.names
    assert table.column("file_size").to_pylist() == list(range(47))


def test_columns_are_known_by_the_log_and_the_journals(newer: Repository) -> None:
    [path] = newer.settings.store.rglob("*.parquet")
    fs = newer.workspace().fs
    log = EventLog(fs, path)
    assert (log.metadata.schema_version, log.metadata.reader_version) == (3, 1)
    assert log.unknown_columns == ("weather",)
    assert log.read().schema.equals(EVENT_SCHEMA)
    assert log.read(["file_size", "event_id"]).to_pydict() == {"event_id": [0, 1, 2], "file_size": [0, 1, 2]}
    for journal in newer.settings.root.rglob("*.sealed"):
        contents = JournalFile.read(fs, journal)
        assert contents.unknown_columns == ("weather",)
        assert contents.table().schema.equals(EVENT_SCHEMA)


@pytest.mark.parametrize("level", Level)
def test_verify_finds_it_whole_and_takes_note(newer: Repository, level: Level) -> None:
    workspaces, fs = newer.workspaces(), newer.workspace().fs
    findings = verify_repository(workspaces, newer.settings, fs, level).findings
    assert [item.kind for item in findings] == ["log-newer"]


def test_what_would_lose_the_column_is_refused_and_the_rest_of_a_pass_is_done(newer: Repository) -> None:
    settings = newer.settings
    journals = {name: data for name, data in files_below(settings.root).items() if name.endswith(".sealed")}
    with pytest.raises(
        FormatVersionError, match=r"would be lost\. Nothing was changed\. Run it with the newer custody"
    ):
        run_steps(settings, "rollover")
    with pytest.raises(FormatVersionError, match="would be lost"):
        run_steps(settings, "compress")
    assert run_steps(settings, "index")[0].events == 3
    for name in ("checkpoint", "sweep"):
        run_steps(settings, name)
    after = files_below(settings.root)
    assert {name: data for name, data in after.items() if name.endswith(".sealed")} == journals
    assert not list(settings.store.rglob("*.partial"))
    assert list(newer.events(count=100)) == WHOLE


def test_a_log_is_neither_joined_nor_rewritten_and_what_was_forgotten_stays_hidden(newer: Repository) -> None:
    settings = newer.settings
    shutil.rmtree(settings.store / "main/provenance/staging")
    for journal in settings.root.rglob("*.sealed"):
        journal.unlink()  # as if all were live
    append(newer, [event(1, event_time=1_772_359_200_000), event(2, event_time=1_772_359_200_000)])
    run_steps(settings, "rollover", "compress", "index", "commit", "sweep")
    [path] = [path for path in settings.store.rglob("*.parquet") if path.name.startswith("0" * 20)]
    before = path.read_bytes()
    assert [item.logs_after for item in newer.compact()] == []
    newer.forget(EventSelection(event_ids=[1]), "on request")
    reports = newer.compact()
    assert [(item.error, item.note) for item in reports] == [
        (None, "left to the newer custody whose columns would be lost")
    ]
    assert path.read_bytes() == before
    assert 1 not in [item.event_id for item in newer.events()]
    assert newer.plan_retention() is not None


def test_the_catalog_is_rebuilt_from_its_footers(newer: Repository) -> None:
    shutil.rmtree(newer.settings.store / "main/provenance/transactions")
    # Nothing says what was forgotten there: that custody kept no second copies.
    asked = ["-r", str(newer.settings.root), "catalog", "rebuild", "--yes", "--accept-loss"]
    result = CliRunner().invoke(cli, asked)
    assert result.exit_code == 0, result.output
    again = Repository.open(newer.settings.root)
    [file] = again.workspace().catalog.load().files.values()
    assert (file.schema_version, file.rows) == (3, 3)
    assert list(again.events(count=100)) == WHOLE


def test_a_version_that_older_readers_cannot_read_is_refused(tmp_path: Path) -> None:
    make_newer(tmp_path / "newer", breaking=True)
    repository = Repository.open(tmp_path / "newer")
    with pytest.raises(FormatVersionError, match=r"events of schema version 1 or 2, got 3\. Use a newer custody"):
        list(repository.events())
    for name in ("rollover", "compress"):
        step = STEPS[name]
        with pytest.raises(FormatVersionError, match="schema version 1 or 2, got 3"):
            [step.run(Workspace(repository.settings, unit.writer), unit) for unit in step.units(repository.settings)]
