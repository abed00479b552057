"""Runs of exports: what is delivered, in which order, from where; what is refused; who delivers."""

from __future__ import annotations

import json
import shutil
import threading
from itertools import pairwise
from pathlib import Path

import pytest

from custody.clock import SystemClock
from custody.config import Settings, load_settings
from custody.errors import (
    ConfigurationError,
    CorruptionError,
    LockedError,
    NotFoundError,
    StorageError,
    SupersededError,
)
from custody.export.cursors import CURSORS_FILE, read_cursors
from custody.export.export_run import Export, parse_position, refused_entries
from custody.export.export_steps import EXPORT_STEPS
from custody.export.receiver import EventBatch, RefusedError, UnavailableError
from custody.lease import Attempt
from custody.read.settled import settled_bound
from custody.repository import EventSelection, Repository
from custody.vfs import PosixFileSystem
from custody.vfs.wrapping import WrappingFileSystem
from custody.workspace import Workspace
from tests.support import append, event, run_steps, sample
from tests.unit.export.receivers import Answer, http_inbox


def made(folder: Path, **target: object) -> Repository:
    """A repository with one export, `box`."""
    Repository.create(folder)
    lines = [f"{key} = {_toml(value)}" for key, value in {"kind": "files", "url": "out", **target}.items()]
    with (folder / "custody.toml").open("a") as file:
        file.write("\n[exports.box]\n" + "\n".join(lines) + "\n")
    return Repository.open(folder)


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {json.dumps(each)}" for key, each in value.items()) + "}"
    return json.dumps(value)


def box(repository: Repository) -> Export:
    return Export(load_settings(repository.settings.root), "box", PosixFileSystem(), SystemClock())


def deliver(repository: Repository) -> int:
    with box(repository).started(Attempt.new("test")) as run:
        return run.deliver_waiting().delivered


def written(repository: Repository, writer: str = "main") -> list[int]:
    """The ordinals in the files of the export, in the order of the files."""
    folder = repository.settings.root / "out" / writer
    lines = [line for path in sorted(folder.glob("*.ndjson")) for line in path.read_text().splitlines()]
    return [json.loads(line)["eventOrdinal"] for line in lines]


def test_live_and_waiting_events_are_delivered_once_and_in_order(tmp_path: Path) -> None:
    repository = made(tmp_path / "r", batch_events=7)
    append(repository, [event(number) for number in range(30)])
    run_steps(repository.settings)
    append(repository, [event(number) for number in range(30, 41)])
    assert deliver(repository) == 41
    assert written(repository) == list(range(41))
    append(repository, [event(number) for number in range(41, 44)])
    run_steps(repository.settings)
    assert deliver(repository) == 3
    assert deliver(repository) == 0
    assert written(repository) == list(range(44))
    assert box(repository).status().waiting == 0


def test_a_query_chooses_the_events_of_an_export_live_and_waiting(tmp_path: Path) -> None:
    repository = made(tmp_path / "r", query="event_type:SEND AND component_name:out*", batch_events=3)
    kinds = [("SEND", "out-a"), ("RECEIVE", "out-a"), ("SEND", "in"), ("SEND", "out-b")]
    events = [event(n, event_type=kinds[n % 4][0], component_name=kinds[n % 4][1]) for n in range(40)]
    append(repository, events[:24])
    run_steps(repository.settings)
    append(repository, events[24:])
    assert deliver(repository) == 20
    assert written(repository) == [n for n in range(40) if n % 4 in (0, 3)]
    assert (deliver(repository), box(repository).status().waiting) == (0, 0)


def test_a_query_that_cannot_be_read_stops_an_export_by_its_setting(tmp_path: Path) -> None:
    repository = made(tmp_path / "r", query="event_tpye:SEND")
    append(repository, [event(0)])
    with pytest.raises(ConfigurationError, match=r"exports\.box\.query: .*event_tpye"):
        deliver(repository)


def test_each_writer_is_followed_on_its_own(tmp_path: Path) -> None:
    repository = made(tmp_path / "r")
    for name, count in (("north", 5), ("south", 3)):
        settings = repository.settings.model_copy(
            update={"repository": repository.settings.repository.model_copy(update={"writer": name})}
        )
        append(Repository(settings), [event(number) for number in range(count)])
    assert deliver(repository) == 8
    assert written(repository, "north") == list(range(5))
    assert written(repository, "south") == list(range(3))


def test_while_threads_append_no_event_is_passed_by(tmp_path: Path) -> None:
    repository = made(tmp_path / "r")
    threads, each = 6, 40
    ended = threading.Event()
    with repository.writer() as writer, box(repository).started(Attempt.new("test")) as run:

        def work(number: int) -> None:
            for step in range(each):
                writer.append([event(number * each + step)])

        workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
        for worker in workers:
            worker.start()
        runs = 0
        while not ended.is_set():
            if not any(worker.is_alive() for worker in workers):
                ended.set()
            run.deliver_waiting()
            runs += 1
        assert runs > 1
    deliver(repository)
    stored = [item.source_ordinal for item in repository.events(0, 10_000)]
    assert sorted(number or 0 for number in stored) == list(range(threads * each))
    assert written(repository) == stored


def test_the_bound_stops_before_a_gap_in_an_open_group(tmp_path: Path) -> None:
    repository = made(tmp_path / "r")
    copy = tmp_path / "copy"
    with repository.writer() as writer:
        for number in range(20):
            writer.append([event(number)])
        barrier = threading.Barrier(2)

        def work(number: int) -> None:
            barrier.wait()
            for step in range(20):
                writer.append([event(1000 * number + step)])

        pair = [threading.Thread(target=work, args=(number,)) for number in (1, 2)]
        for thread in pair:
            thread.start()
        for thread in pair:
            thread.join()
        shutil.copytree(repository.settings.root, copy)
    open_journals = sorted(copy.rglob("*.journal"))
    if len(open_journals) < 2:
        pytest.skip("the two threads took turns and used one journal")
    # The last record of one journal is cut off: as if it were still on its way.
    records = {path: path.read_bytes() for path in open_journals}
    path, data = min(records.items(), key=lambda item: len(item[1]))
    path.write_bytes(data[: data.rindex(b"\xc5\x7e\xa1\x1d")])
    looked = Repository.open(copy)
    ids = [item.event_id for item in looked.events(0, 1000)]
    bound = settled_bound(looked.workspace("main"), lambda _: None)
    missing = next((number for number, stored in enumerate(ids) if stored != number), len(ids))
    assert bound == missing
    assert deliver(looked) == missing


class Syncing(WrappingFileSystem):
    """A disk that remembers which files were synced by somebody who does not write them."""

    def __init__(self) -> None:
        super().__init__(PosixFileSystem())
        self.synced: list[Path] = []

    def sync_file(self, path: Path) -> None:
        self.synced.append(path)
        self.inner.sync_file(path)


def test_what_an_open_journal_holds_is_durable_before_it_counts(tmp_path: Path) -> None:
    repository = made(tmp_path / "r")
    with repository.writer() as writer:
        writer.append([event(0)])
        fs = Syncing()
        assert settled_bound(Workspace(repository.settings, "main", fs), lambda _: None) == 1
        assert [path.suffix for path in fs.synced] == [".journal"]
    fs = Syncing()
    assert settled_bound(Workspace(repository.settings, "main", fs), lambda _: None) == 1
    assert fs.synced == []  # a sealed one was synced before it got its name


def test_a_sealed_group_has_no_gap_that_matters(tmp_path: Path) -> None:
    repository = made(tmp_path / "r")
    append(repository, [event(0)])
    append(repository, [event(1)])
    assert settled_bound(repository.workspace(), lambda _: None) == 2
    run_steps(repository.settings)
    assert settled_bound(repository.workspace(), lambda _: None) == 2


def test_a_missing_container_stops_an_export_before_it_passes_events_by(tmp_path: Path) -> None:
    repository = made(tmp_path / "r")
    append(repository, [event(0)])
    (repository.settings.root / "containers" / "1").rename(tmp_path / "elsewhere")
    with pytest.raises(StorageError, match="containers/1"):
        deliver(Repository.open(repository.settings.root))
    (tmp_path / "elsewhere").rename(repository.settings.root / "containers" / "1")
    assert deliver(Repository.open(repository.settings.root)) == 1


def test_a_new_export_may_begin_behind_the_newest_event(tmp_path: Path) -> None:
    repository = made(tmp_path / "r", begin="newest")
    append(repository, [event(0)])
    assert deliver(repository) == 0
    append(repository, [event(1)])
    assert deliver(repository) == 1
    assert written(repository) == [1]


def test_what_a_receiver_refuses_goes_to_the_quarantine_and_the_rest_on(tmp_path: Path) -> None:
    disliked = {3, 11}

    def answer(_method: str, _path: str, body: bytes) -> Answer:
        ordinals = {item["eventOrdinal"] for item in json.loads(body)}
        return (422, {}, b"not liked") if ordinals & disliked else (200, {}, b"")

    with http_inbox(answer) as inbox:
        repository = made(tmp_path / "r", kind="http", url=f"{inbox.url}/events", batch_events=8)
        append(repository, [event(number) for number in range(16)])
        with box(repository).started(Attempt.new("test")) as run:
            report = run.deliver_waiting()
        assert (report.delivered, report.refused) == (14, 2)
        taken = [
            item["eventOrdinal"]
            for _, _, _, body in inbox.requests
            for item in json.loads(body)
            if not disliked & {other["eventOrdinal"] for other in json.loads(body)}
        ]
        assert taken == [number for number in range(16) if number not in disliked]
        entries = list(refused_entries(repository.quarantine, "box"))
        assert [entry.index for entry in entries] == [3, 11]
        assert "422: not liked" in entries[0].message
        assert json.loads(repository.quarantine.raw(entries[0].key))["eventOrdinal"] == 3
        # Mended there: what was refused is sent again, and leaves the quarantine.
        disliked.clear()
        disliked.add(11)
        with box(repository).started(Attempt.new("test")) as run:
            again = run.resend()
        assert (again.delivered, again.refused) == (1, 1)
        assert [entry.index for entry in refused_entries(repository.quarantine, "box")] == [11]


class Away:
    """A receiver that takes nothing for some calls."""

    def __init__(self, calls: int) -> None:
        self.calls = calls
        self.batches: list[EventBatch] = []

    def deliver(self, batch: EventBatch) -> None:
        self.calls -= 1
        if self.calls >= 0:
            raise UnavailableError("away", retry_seconds=0.01)
        self.batches.append(batch)

    def close(self) -> None:
        pass


def test_a_receiver_that_is_away_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("custody.export.export_run._FIRST_PAUSE_SECONDS", 0.01)
    repository = made(tmp_path / "r", retry_seconds=5.0)
    append(repository, sample(20))
    receiver = Away(calls=3)
    with box(repository).started(Attempt.new("test"), receiver) as run:
        assert run.deliver_waiting().delivered == 20
    with pytest.raises(UnavailableError), box(repository).started(Attempt.new("test"), Away(calls=99)) as run:
        append(repository, [event(77)])
        run.deliver_waiting(retry_seconds=0.05)
    assert box(repository).status().waiting == 1
    assert deliver(repository) == 1


def test_one_run_of_an_export_delivers_at_a_time(tmp_path: Path) -> None:
    repository = made(tmp_path / "r")
    settings = repository.settings.model_copy(
        update={"lease": repository.settings.lease.model_copy(update={"wait_seconds": 0.0})}
    )
    append(repository, [event(0)])
    first = Export(settings, "box", PosixFileSystem(), SystemClock())
    with first.started(Attempt("export", 1)) as run:
        with pytest.raises(LockedError), first.started(Attempt.new("other")):
            pass
        # A later try of the same work takes over; the earlier one moves no cursor any more.
        with first.started(Attempt("export", 2)) as later:
            assert later.deliver_waiting().delivered == 1
        append(repository, [event(1)])
        with pytest.raises(SupersededError):
            run.deliver_waiting()
    cursors = read_cursors(PosixFileSystem(), first.folder, "box")
    assert cursors is not None
    assert cursors.next_event_ids == {"main": 1}


def test_a_rewound_export_delivers_again_also_with_damaged_cursors(tmp_path: Path) -> None:
    repository = made(tmp_path / "r")
    append(repository, [event(number) for number in range(5)])
    assert deliver(repository) == 5
    box(repository).rewind({"main": 3}, Attempt.new("test"))
    assert deliver(repository) == 2
    file = box(repository).folder / CURSORS_FILE
    file.write_bytes(file.read_bytes().replace(b'"main": 5', b'"main": 4'))
    with pytest.raises(CorruptionError, match="--rewind WRITER:EVENT_ID"):
        deliver(repository)
    box(repository).rewind({"main": 0}, Attempt.new("test"))
    assert deliver(repository) == 5


def test_forgotten_events_are_not_exported(tmp_path: Path) -> None:
    repository = made(tmp_path / "r")
    append(repository, [event(number) for number in range(5)])
    run_steps(repository.settings)
    repository.forget(EventSelection(event_ids=[2]), "asked for")
    assert deliver(repository) == 4
    assert written(repository) == [0, 1, 3, 4]
    assert box(repository).status().waiting == 0


def test_the_step_has_a_unit_for_each_export_with_something_to_deliver(tmp_path: Path) -> None:
    repository = made(tmp_path / "r")
    step, resend = EXPORT_STEPS["export_deliver"], EXPORT_STEPS["export_resend"]
    assert step.units(repository.settings) == resend.units(repository.settings) == []
    append(repository, [event(0)])
    [unit] = step.units(repository.settings)
    assert step.run(repository.workspace(), unit).events == 1
    assert step.units(repository.settings) == []


def test_the_step_names_the_files_that_it_wrote(tmp_path: Path) -> None:
    repository = made(tmp_path / "r", batch_events=3)
    append(repository, [event(number) for number in range(8)])
    [unit] = EXPORT_STEPS["export_deliver"].units(repository.settings)
    report = EXPORT_STEPS["export_deliver"].run(repository.workspace(), unit)
    files = sorted((repository.settings.root / "out" / "main").iterdir())
    assert report.files == tuple(path.as_uri() for path in files)
    assert len(files) == 3
    append(repository, [event(8)])
    [unit] = EXPORT_STEPS["export_deliver"].units(repository.settings)
    [name] = EXPORT_STEPS["export_deliver"].run(repository.workspace(), unit).files
    assert name.endswith("/00000000000000000008.ndjson")


def test_an_export_that_the_settings_do_not_have_is_named(tmp_path: Path) -> None:
    repository = made(tmp_path / "r")
    with pytest.raises(NotFoundError, match="which have box"):
        Export(repository.settings, "bax", PosixFileSystem(), SystemClock())


@pytest.mark.parametrize("text", ["main", "main:", ":5", "main:-1", "main:x"])
def test_a_position_is_a_writer_and_an_event(text: str) -> None:
    assert parse_position("a:b:7") == ("a:b", 7)
    with pytest.raises(ValueError, match="WRITER:EVENT_ID"):
        parse_position(text)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ({"kind": "http", "url": "ftp://x"}, "http:// or https://"),
        ({"kind": "http", "url": "http://user:secret@host/x"}, "no credentials"),
        ({"kind": "http", "url": "http://h", "certificate_file": "a.pem"}, "belong together"),
        ({"kind": "carrier-pigeon", "url": "x"}, "kind"),
        ({"kind": "files", "url": "x", "batch_events": 0}, "batch_events"),
    ],
)
def test_settings_that_cannot_work_are_refused_and_show_no_secret(
    tmp_path: Path, target: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
        made(tmp_path / "r", **target)
    assert "secret" not in str(caught.value)


def test_batches_are_cut_by_bytes(tmp_path: Path) -> None:
    repository = made(tmp_path / "r", batch_bytes=4096)
    append(repository, [event(number, details="x" * 1000) for number in range(40)])
    assert deliver(repository) == 40
    files = sorted((repository.settings.root / "out" / "main").iterdir())
    assert len(files) > 4
    firsts = [int(path.stem) for path in files]
    assert all(later > earlier for earlier, later in pairwise(firsts))


def test_a_refusal_of_a_whole_batch_is_an_error_of_its_own() -> None:
    assert isinstance(RefusedError("x"), ValueError)


def test_settings_of_exports_go_to_workers_as_they_are(tmp_path: Path) -> None:
    settings = made(tmp_path / "r", token="of nobody").settings  # noqa: S106
    assert Settings.from_json(settings.to_json()).exports == settings.exports
