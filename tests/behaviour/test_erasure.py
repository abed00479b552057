"""Erasure: after it no file of the repository names the person, in whatever format; everybody else's events stay."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from custody import iceberg
from custody.catalog import PrunedError, store_of
from custody.catalog.codec import decode
from custody.cli.main import cli
from custody.clock import ManualClock
from custody.config import Settings
from custody.errors import NotFoundError
from custody.flow import Component
from custody.flow.content import ClaimFile
from custody.format.names import JournalName
from custody.journal import JournalFile
from custody.maintenance import compact
from custody.maintenance.findings import Level
from custody.maintenance.verification import verify_repository
from custody.model import Event
from custody.quarantine import Quarantine
from custody.quarantine.store import bad_piece
from custody.repository import Erasure, EventSelection, Repository
from custody.retention import RETENTION_STEPS, ErasureStore
from custody.retention.erasure import certificate_digest
from custody.vfs import PosixFileSystem
from custody.workspace import Workspace
from custody.workspace.run_reports import StepReport, UnitReport, report_place, write_report
from tests.behaviour.retained import pass_of
from tests.support import event, files_below

PERSON = "Erika-Mustermann-4711"
FS = PosixFileSystem()
CHOSEN = EventSelection(attributes={"customer": PERSON})


class Texts:
    """All that the files of a folder say, decoded by their formats as far as these hide bytes."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def naming(self, value: str) -> list[str]:
        """The files that name a value, by their paths and bytes, or by what they hold."""
        found = []
        for name, data in sorted(files_below(self._root).items()):
            texts = [name.encode(), data, *self._decoded(self._root / name, data)]
            if any(value.encode() in text for text in texts):
                found.append(name)
        return found

    def _decoded(self, path: Path, data: bytes) -> Iterator[bytes]:
        if path.suffix == ".parquet":
            file = pq.ParquetFile(pa.BufferReader(data))
            yield json.dumps(file.read().to_pylist(), default=str).encode()
            yield str(file.metadata.to_dict()).encode()
        elif path.suffix in (".txn", ".ckpt", ".kept"):
            yield str(decode(data, path)).encode()
        elif path.suffix == ".avro":
            yield repr(list(fastavro.reader(BytesIO(data)))).encode()
        elif JournalName.parse(path.name) is not None:
            yield json.dumps(JournalFile.read(FS, path).table().to_pylist(), default=str).encode()


class Stored:
    """A repository in which a person's value is everywhere where it can be."""

    def __init__(self, root: Path, **settings: Any) -> None:
        root.mkdir(exist_ok=True)
        (root / "custody.toml").touch()
        retention = {"grace": "0 seconds", **settings.pop("retention", {})}
        self.settings = Settings.model_validate({"root": root, "retention": retention, **settings})
        # Later than the times that the disk gives to files.
        self.clock = ManualClock(int(time.time() * 1000) + 86_400_000)

    @property
    def repository(self) -> Repository:
        return Repository(self.settings, FS, self.clock)

    def store(self, *logs: Iterable[Event]) -> None:
        """A live log of each group of events."""
        for events in logs:
            with self.repository.writer() as writer:
                for told in events:
                    body = f"body of {told.updated_attributes.get('customer')}".encode()
                    writer.append_with_content([told], body)
            pass_of(self.repository)

    def everywhere(self) -> None:
        """Live logs, former logs, journals, contents, quarantine, queues, jobs, plans, reports, uploads, a table."""
        repository = self.repository
        self.store(*([customer(log * 3 + number) for number in range(3)] for log in range(4)))
        list(compact(repository.workspace()))  # former logs, which a revision still lists
        iceberg.publish(repository.workspace())
        self.store([customer(12), customer(13)])
        with repository.writer() as writer:
            writer.append([customer(14), customer(15)])
        with repository.flowfiles() as flow:
            flow.connect("in")
            with flow.session(Component(id="c", type="T", name="n")) as session:
                for name in (PERSON, "other"):
                    session.transfer(session.create({"customer": name}), "in")
        raw = json.dumps({"attributes": {"customer": PERSON}}).encode()
        for number, piece in enumerate((raw, b'{"attributes":{"customer":"other"}}')):
            Quarantine(FS, self.settings.quarantine).add(
                bad_piece(
                    piece, severity="error", code="bad-value", message=f"customer {number}", file="in.json",
                    index=None, offset=number, node=None, received_ms=1,
                )
            )  # fmt: skip
        for folder, name, data in (
            (
                self.settings.jobs,
                "1.json",
                json.dumps({"state": "succeeded", "owner": "a", "subject": f"customer={PERSON}"}),
            ),
            (self.settings.replays, "a.plan", f"query customer:{PERSON}"),
        ):
            folder.mkdir(exist_ok=True)
            (folder / name).write_text(data)
        report = StepReport(
            step="retention_mark", repository="r", units=0, events=0, bytes=0, seconds=0.0, failed=0,
            details=(UnitReport(unit="main", note=f"attribute:customer={PERSON}"),),
        )  # fmt: skip
        write_report(*report_place(self.settings, FS), "run", report, "attempt")

    def erase(self, selection: EventSelection = CHOSEN) -> Erasure:
        """The command's way: request, roll over, go on."""
        erasure = self.repository.erase(selection, "request 17", who="dpo")
        pass_of(self.repository)
        return self.repository.continue_erasure(erasure.id)

    def findings(self) -> list[str]:
        """What a deep verification finds."""
        found = verify_repository(self.repository.workspaces(), self.settings, FS, Level.DEEP).findings
        return [f"{each.kind}: {each.message}" for each in found]


def customer(number: int) -> Event:
    """Every second event is the person's."""
    name = PERSON if number % 2 else f"other-{number}"
    return event(number, updated_attributes={"customer": name, "filename": f"{name}.json"})


@pytest.fixture
def stored(tmp_path: Path) -> Stored:
    made = Stored(tmp_path / "repository", eventlog={"row_copies": True}, iceberg={"publish": True})
    made.everywhere()
    return made


def test_an_erased_value_is_in_no_file_of_the_repository_and_other_events_stay(stored: Stored) -> None:
    texts = Texts(stored.settings.root)
    before = {item.event_id: item for item in stored.repository.events()}
    assert len(texts.naming(PERSON)) > 10, "the search finds what is there"
    erasure = stored.erase()
    assert (erasure.state, erasure.waiting, erasure.held) == ("done", (), {})
    assert texts.naming(PERSON) == []
    kept = {item.event_id: item for item in stored.repository.events()}
    # The queue's own events of the person are hers, too.
    assert kept == {
        number: item for number, item in before.items() if item.updated_attributes.get("customer") != PERSON
    }
    assert len(kept) == 9
    assert stored.repository.search(f'filename:"{PERSON}.json"').total == 0
    assert stored.findings() == []


def test_the_certificate_names_each_copy_that_went_and_no_value(stored: Stored) -> None:
    erasure = stored.erase()
    kinds = {copy.kind for copy in erasure.copies}
    assert kinds >= {
        "content", "copy of a tombstone", "event log", "FlowFile", "index shard", "job", "journal",
        "part of the Iceberg table", "quarantined piece", "replay plan", "report of a run",
        "revisions of the catalog", "table of contents",
    }  # fmt: skip
    assert all(
        not Path(copy.place).exists() for copy in erasure.copies if copy.how == "removed" and copy.place[0] == "/"
    )
    assert erasure.conditions == ("attribute customer",)
    assert erasure.selection is None
    assert erasure.events == 9
    notes = [
        action.note.text
        for transaction in stored.repository.workspace().catalog.timeline()
        for action in transaction.actions
        if action.HasField("note")
    ]
    assert f"erasure {erasure.id}: certificate with SHA-256 {certificate_digest(erasure)}" in notes
    assert stored.repository.erasures() == [erasure]


def test_a_content_that_shares_its_file_is_overwritten_and_the_others_are_read(tmp_path: Path) -> None:
    made = Stored(tmp_path / "repository")
    made.store([customer(0), customer(1), customer(2)])
    [first, second, third] = made.repository.events()
    erasure = made.erase()
    assert [copy.how for copy in erasure.copies if copy.kind == "content"] == ["overwritten"]
    assert made.repository.content(first).read() == b"body of other-0"
    assert made.repository.content(third).read() == b"body of other-2"
    [path] = [path for path in made.settings.store.rglob("content/*/*/*") if path.is_file()]
    file = ClaimFile.read(FS, path)
    assert [record.erased_ms is not None for record in file.contents] == [False, True, False]
    assert (list(file.damage()), file.gaps) == ([], ())
    assert second.event_id == 1
    assert made.findings() == []


def test_a_content_that_another_event_refers_to_stays_and_is_named(tmp_path: Path) -> None:
    made = Stored(tmp_path / "repository")
    made.store([customer(1)])
    [told] = made.repository.events()
    made.store()
    with made.repository.writer() as writer:
        writer.append([event(7, content_claim=told.content_claim)])
    pass_of(made.repository)
    erasure = made.erase()
    assert erasure.is_over
    assert any("other events" in text for text in erasure.kept)
    [other] = made.repository.events()
    assert made.repository.content(other).read() == f"body of {PERSON}".encode()


def test_a_held_event_stays_hidden_until_the_hold_ends_and_then_goes(stored: Stored) -> None:
    texts = Texts(stored.settings.root)
    stored.repository.hold("case", EventSelection(flowfile_uuids=[event(3).flowfile_uuid]), "court", "legal")
    erasure = stored.erase()
    assert (erasure.state, erasure.held) == ("held", {"case": 1})
    assert erasure.selection is not None
    assert not any(item.event_id == 3 for item in stored.repository.events())
    live = stored.repository.workspace().catalog.load()
    assert live.file_of(3) is not None
    # Nothing else of the person is in an event: what is named is the one log, the request, and what says of the hold.
    logs = [name for name in texts.naming(PERSON) if name.endswith(".parquet") and "/data/" in name]
    assert len(logs) == 1
    [table] = [pq.read_table(stored.settings.root / name) for name in logs]
    assert [row["event_id"] for row in table.to_pylist() if PERSON in str(row)] == [3]
    assert RETENTION_STEPS["retention_erase"].units(stored.settings) == [], "a pass looks again when the hold ends"
    stored.repository.release("case", "closed", "legal")
    assert len(RETENTION_STEPS["retention_erase"].units(stored.settings)) == 1
    done = stored.repository.continue_erasure(erasure.id)
    assert done.state == "done"
    # The hold itself named the event's FlowFile, no value.
    assert texts.naming(PERSON) == []
    assert stored.findings() == []


def test_a_hold_on_events_that_only_earlier_revisions_list_keeps_them(tmp_path: Path) -> None:
    made = Stored(tmp_path / "repository")
    made.store([customer(0), customer(1)])
    made.repository.forget(EventSelection(flowfile_uuids=[event(1).flowfile_uuid]), "asked")
    list(compact(made.repository.workspace()))
    made.repository.hold("case", EventSelection(flowfile_uuids=[event(1).flowfile_uuid]), "court", "legal")
    erasure = made.erase()
    assert (erasure.state, erasure.held) == ("held", {"case": 1})
    assert Texts(made.settings.root / "store/main/provenance/data").naming(PERSON)
    made.repository.release("case", "closed", "legal")
    assert made.repository.continue_erasure(erasure.id).is_over
    assert Texts(made.settings.root).naming(PERSON) == []


def test_readers_of_earlier_revisions_have_the_grace_and_are_told_afterwards(tmp_path: Path) -> None:
    made = Stored(tmp_path / "repository", retention={"grace": "10 minutes"})
    made.store([customer(0), customer(1)])
    revision = made.repository.workspace().catalog.load().revision
    erasure = made.erase()
    assert erasure.state == "open"
    assert any("readers of earlier revisions have 600 s left" in text for text in erasure.waiting)
    assert [item.event_id for item in made.repository.events(as_of=revision)] == [0], "hidden, and still readable"
    made.clock.advance(599_000)
    assert not made.repository.continue_erasure(erasure.id).is_over
    made.clock.advance(1_000)
    # The step does what the command does.
    step = RETENTION_STEPS["retention_erase"]
    workspace = Workspace(made.settings, "main", FS, made.clock)
    [report] = [step.run(workspace, unit) for unit in step.units(made.settings)]
    assert report.note is not None
    assert "done" in report.note
    with pytest.raises(PrunedError, match="pruned"):
        list(made.repository.events(as_of=revision))
    assert Texts(made.settings.root).naming(PERSON) == []


def test_events_that_are_not_live_yet_are_waited_for(tmp_path: Path) -> None:
    made = Stored(tmp_path / "repository")
    with made.repository.writer() as writer:
        writer.append([customer(0), customer(1)])
    erasure = made.repository.erase(CHOSEN, "request")
    assert any("not live and swept yet" in text for text in erasure.waiting)
    assert [item.event_id for item in made.repository.events()] == [0]
    # Another process compacts in between: what the contents are is known since the request.
    pass_of(made.repository)
    list(compact(made.repository.workspace()))
    assert made.repository.continue_erasure(erasure.id).is_over
    assert Texts(made.settings.root).naming(PERSON) == []


def test_an_erasure_of_single_events_searches_no_other_files(tmp_path: Path) -> None:
    made = Stored(tmp_path / "repository")
    made.store([customer(0), customer(1), customer(3)])
    made.settings.jobs.mkdir()
    (made.settings.jobs / "1.json").write_text(json.dumps({"state": "succeeded", "subject": PERSON}))
    erasure = made.erase(EventSelection(event_ids=[1]))
    assert erasure.is_over
    assert any("were not searched" in text for text in erasure.kept)
    assert (made.settings.jobs / "1.json").exists()
    assert [item.event_id for item in made.repository.events()] == [0, 2]


def test_values_of_similar_names_stay(tmp_path: Path) -> None:
    made = Stored(tmp_path / "repository")
    made.store([event(0, updated_attributes={"customer": "47"}), event(1, updated_attributes={"customer": "471"})])
    made.settings.jobs.mkdir()
    for number, subject in enumerate(("customer=47", "customer=471", "47 pieces", "other=47")):
        document = {"state": "succeeded", "owner": "a", "subject": subject}
        (made.settings.jobs / f"{number}.json").write_text(json.dumps(document))
    assert made.erase(EventSelection(attributes={"customer": "47"})).is_over
    assert [path.name for path in sorted(made.settings.jobs.iterdir())] == ["1.json", "2.json", "3.json"]
    assert [item.event_id for item in made.repository.events()] == [1]


def test_a_job_that_goes_on_is_waited_for(tmp_path: Path) -> None:
    made = Stored(tmp_path / "repository")
    made.store([customer(1)])
    made.settings.jobs.mkdir()
    job = made.settings.jobs / "1.json"
    job.write_text(json.dumps({"state": "running", "owner": "abc", "subject": PERSON}))
    with FS.lock(made.settings.jobs / "abc.lock"):
        erasure = made.erase()
        assert [text for text in erasure.waiting if "has not ended" in text]
    # Its process is gone: nobody writes to it any more.
    assert made.repository.continue_erasure(erasure.id).is_over
    assert not job.exists()


def test_the_command_shows_erases_and_lists(tmp_path: Path) -> None:
    root = tmp_path / "repository"
    made = Stored(root)
    (root / "custody.toml").write_text('[retention]\ngrace = "0 seconds"\n')
    made.everywhere()

    def run(*arguments: str) -> str:
        done = CliRunner().invoke(cli, ["-r", str(root), *arguments], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.output

    chosen = ("forget", "--attribute", f"customer={PERSON}", "--reason", "request 17", "--erase")
    planned = run(*chosen, "--dry-run")
    assert "would be erased" in planned
    assert "quarantined piece" in planned
    assert made.repository.erasures() == []
    done = json.loads(run(*chosen, "--yes", "--wait", "--json"))
    assert done["state"] == "done"
    assert PERSON not in json.dumps(done)
    listed = run("erasures")
    assert done["id"] in listed
    assert "event log" in run("erasures", done["id"])
    assert Texts(root).naming(PERSON) == []
    unknown = CliRunner().invoke(cli, ["-r", str(root), "erasures", "../x"])
    assert unknown.exit_code == NotFoundError.exit_code


def test_in_a_bucket_logs_and_handed_contents_go_and_versions_are_named(tmp_path: Path) -> None:
    made = Stored(
        tmp_path / "repository",
        repository={"store": "memory://erasure"}, content={"handoff": "store"}, journal={"handoff": "store"},
    )  # fmt: skip
    for numbers in (range(3), range(3, 5)):
        with made.repository.writer() as writer:
            for number in numbers:
                told = customer(number)
                writer.append_with_content([told], f"body of {told.updated_attributes['customer']}".encode())
            writer.seal()
        made.repository.hand_over()
        pass_of(made.repository)
    made.repository.hand_over_contents()
    erasure = made.erase()
    assert (erasure.state, erasure.waiting) == ("done", ())
    # Nobody can tell whether a bucket of this kind keeps versions.
    assert any("former versions in memory://erasure" in text for text in erasure.out_of_reach)
    assert "content in the store" in {copy.kind for copy in erasure.copies}
    store = store_of(made.settings, FS)
    texts = {key: store.get(key) for key in store.keys("")}
    logs = {
        key: str(pq.read_table(pa.BufferReader(data)).to_pylist())
        for key, data in texts.items()
        if key[-8:] == ".parquet"
    }
    assert len(logs) >= 2
    assert [key for key, data in texts.items() if PERSON.encode() in data or PERSON in logs.get(key, "")] == []
    assert Texts(made.settings.root).naming(PERSON) == []
    bodies = [made.repository.content(item).read().decode() for item in made.repository.events()]
    assert bodies == [f"body of other-{number}" for number in (0, 2, 4)]
    assert made.findings() == []


def test_a_damaged_request_is_named_by_verify(tmp_path: Path) -> None:
    made = Stored(tmp_path / "repository")
    made.store([customer(1)])
    erasure = made.erase()
    path = ErasureStore.of(made.settings, FS).locate(erasure)
    path.write_bytes(path.read_bytes().replace(b'"done"', b'"open"'))
    assert [text for text in made.findings() if text.startswith("erasure-damaged")]
