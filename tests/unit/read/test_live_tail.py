"""The live tail: waiting journals are counted without being read, decoded once, and their damage is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from custody.cli.main import cli
from custody.errors import NotFoundError
from custody.journal import JournalFile
from custody.model import Event
from custody.repository import Repository
from custody.repository.soft_delete import EventSelection
from custody.vfs import FileSystem
from tests.support import append, event, run_steps

GENERATIONS = 12
Counts = dict[Path, int]


def generation(number: int) -> Event:
    """The event that makes a FlowFile of the one before it."""
    before, made = f"flowfile-{number}", f"flowfile-{number + 1}"
    return event(number, event_type="FORK", flowfile_uuid=before, parent_uuids=(before,), child_uuids=(made,))


@pytest.fixture
def waiting(repository: Repository) -> Repository:
    """A live log, then three groups that wait, a third of the generations in each."""
    append(repository, [generation(number) for number in range(3)])
    run_steps(repository.settings)
    for first in (3, 6, 9):
        append(repository, [generation(number) for number in range(first, first + 3)])
    return repository


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> Counts:
    """How often the events of each journal were decoded; no answer shows it."""
    counts: Counts = {}
    table = JournalFile.table

    def counting(journal: JournalFile) -> object:
        counts[journal.path] = counts.get(journal.path, 0) + 1
        return table(journal)

    monkeypatch.setattr(JournalFile, "table", counting)
    return counts


def uncached(repository: Repository) -> Repository:
    """The repository with a cache that is smaller than any journal."""
    query = repository.settings.query.model_copy(update={"cache_bytes": 0})
    return Repository(repository.settings.model_copy(update={"query": query}))


def test_a_lineage_decodes_each_journal_once_however_many_generations_there_are(
    waiting: Repository, decoded: Counts
) -> None:
    found = uncached(waiting).lineage(["flowfile-0"])
    assert (found.events, len(found.nodes), found.notices) == (GENERATIONS, GENERATIONS + 1, ())
    assert list(decoded.values()) == [1, 1, 1]


def test_status_and_forgetting_count_what_waits_without_decoding_it(waiting: Repository, decoded: Counts) -> None:
    with waiting.writer() as writer:
        writer.append([event(100), event(101)])
        [found] = waiting.status().writers
        assert (found.events_live, found.events_waiting, found.next_event_id) == (3, GENERATIONS - 3 + 2, 14)
        [forgotten] = waiting.forget(EventSelection(flowfile_uuids=("flowfile-12",)), "a test")
        assert decoded == {}
        stones = waiting.workspace().catalog.load().tombstones
        assert stones[forgotten.tombstone].before_event_id == 14


def test_status_looks_again_when_a_journal_is_swept_meanwhile(
    waiting: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = type(waiting.workspace().fs).view
    is_swept: list[Path] = []

    def sweeping(fs: FileSystem, path: Path) -> memoryview:
        if path.suffix == ".sealed" and not is_swept:
            is_swept.append(path)
            monkeypatch.undo()
            run_steps(waiting.settings)
        return view(fs, path)

    monkeypatch.setattr(type(waiting.workspace().fs), "view", sweeping)
    [found] = waiting.status().writers
    assert (found.events_live, found.events_waiting, found.next_event_id) == (GENERATIONS, 0, GENERATIONS)
    assert is_swept


def test_a_lineage_names_what_could_not_be_read(waiting: Repository) -> None:
    [*_, journal] = sorted(waiting.settings.root.rglob("*.sealed"))
    data = bytearray(journal.read_bytes())
    data[data.index(b"flowfile-11")] ^= 1
    journal.write_bytes(data)
    opened = Repository.open(waiting.settings.root)
    [found] = opened.status().writers  # an operator sees the rest all the same
    assert found.events_waiting == GENERATIONS - 3
    lineage = opened.lineage(["flowfile-0"])
    assert lineage.events == 9
    [notice] = lineage.notices
    assert str(journal) in notice
    with pytest.raises(
        NotFoundError, match=r"no event mentions the FlowFile flowfile-11\. Not all could be read: .*sealed"
    ):
        opened.lineage(["flowfile-11"])
    told = CliRunner().invoke(cli, ["-r", str(opened.settings.root), "lineage", "flowfile-0", "--json"])
    assert json.loads(told.stdout)["events"] == 9
    assert "".join(notice.split()) in "".join(told.stderr.split())
