"""Two machines with one writer name on one store: one of them is told, and neither loses what it acknowledged."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event as Signal
from unittest.mock import patch

import msgspec
import pytest

from custody.catalog import AddFile
from custody.clock import ManualClock
from custody.config import Settings
from custody.errors import ClosedError, ConfigurationError, ConflictError, StorageError
from custody.format.framing import frame, frames
from custody.ingest.slots import SlotWriter
from custody.journal import JournalWriter, decode_state, encode_state
from custody.journal.incarnations import Incarnations
from custody.maintenance.verification import verify_repository
from custody.model import Event
from custody.recovery import find_leftovers
from custody.repository import Repository
from custody.repository.containers import claim_writer_name
from custody.store import open_store
from custody.vfs import PosixFileSystem
from tests.support import append, event, run_steps, unnumbered

FS = PosixFileSystem()


@pytest.fixture
def machines(tmp_path: Path) -> tuple[Repository, Repository]:
    """Two repositories with containers of their own, one writer name and one store."""
    store = str(tmp_path / "store")
    first, second = (
        Settings.model_validate({"root": tmp_path / name, "repository": {"store": store}}) for name in "ab"
    )
    return Repository(first), Repository(second)


@pytest.fixture
def unaware() -> Iterator[None]:
    """Writers as they were before there were incarnations."""

    class Unaware(SlotWriter):
        def __init__(self, *arguments: object) -> None:
            with patch.object(Incarnations, "check", lambda *_: None), patch.object(Incarnations, "claim", _no_claim):
                super().__init__(*arguments)  # type: ignore[arg-type]

    with patch("custody.ingest.slots.SlotWriter", Unaware):
        yield


def _no_claim(*_: object) -> object:
    class _None:
        first_event_id = 0

    return _None()


def forget_incarnations(repository: Repository) -> None:
    """Leave containers and journals as a custody did that knew no incarnations."""
    for root in repository.settings.containers:
        for state in root.glob("*/STATE"):
            decoded = decode_state(state.read_bytes(), state)
            state.write_bytes(encode_state(msgspec.structs.replace(decoded, incarnation="")))
        for path in root.glob("*/journals/*"):
            data = path.read_bytes()
            head = next(frames(data, 8))
            header = msgspec.json.decode(head.payload)  # type: ignore[union-attr]
            del header["incarnation"]
            path.write_bytes(data[:8] + frame(1, msgspec.json.encode(header)) + data[head.end :])  # type: ignore[union-attr]


def numbers(repository: Repository) -> list[int]:
    """The numbers of all events of all writers."""
    return sorted(stored.event.source_ordinal or 0 for stored in repository.search("", limit=10_000).events)


def kinds(repository: Repository) -> list[str]:
    report = verify_repository(repository.workspaces(), repository.settings, FS)
    return sorted(item.kind for item in report.findings if item.severity == "damage")


def events(*chosen: int) -> list[Event]:
    return [event(number) for number in chosen]


def test_the_second_machine_is_refused_at_its_first_append(machines: tuple[Repository, Repository]) -> None:
    one, other = machines
    append(one, events(0, 1, 2))
    with pytest.raises(ConfigurationError, match=r"claimed .* by another incarnation.*repository\.writer.*claim main"):
        append(other, events(10))
    assert not list(other.settings.containers[0].glob("*/journals/*")), "nothing is left that could be taken for events"
    run_steps(one.settings)
    append(one, events(3))
    assert numbers(one) == [0, 1, 2, 3]
    assert kinds(one) == []


def test_both_had_acknowledged_before_and_neither_loses_an_event(
    machines: tuple[Repository, Repository], unaware: None
) -> None:
    one, other = machines
    append(one, events(0, 1, 2))
    append(other, events(10, 11, 12, 13, 14))
    forget_incarnations(one)
    forget_incarnations(other)
    run_steps(one.settings)  # with steps that know incarnations, before any writer does
    run_steps(other.settings)
    assert numbers(one) == [0, 1, 2]
    result = other.search("")
    assert any("custody recover --adopt" in notice for notice in result.notices)
    assert "journal-of-others" in kinds(other)
    assert other.status().writers[0].journals_of_others == 1
    assert "adopt" in [item.action for item in find_leftovers(other.workspace())]
    other.recover(adopt=True)
    run_steps(other.settings)
    assert numbers(other) == [0, 1, 2, 10, 11, 12, 13, 14]
    assert kinds(other) == []


def test_what_was_acknowledged_under_a_lost_race_is_kept_told_and_brought_in(
    machines: tuple[Repository, Repository], unaware: None
) -> None:
    one, other = machines
    append(other, events(10, 11, 12, 13, 14))
    with patch("custody.ingest.slots.SlotWriter", SlotWriter):
        append(one, events(0, 1, 2))
    for _ in range(2):
        run_steps(one.settings)
        run_steps(other.settings)
    assert numbers(one) == [0, 1, 2]
    with pytest.raises(StorageError, match=r"event 4: .*not part of this answer"):
        other.get(4)
    [report] = other.recover(adopt=True).values()
    assert [item.writer for item in report.adopted] == [report.adopted[0].writer]
    run_steps(other.settings)
    assert numbers(other) == [0, 1, 2, 10, 11, 12, 13, 14]
    assert unnumbered([other.get(4, report.adopted[0].writer)]) == events(14)
    assert not other.recover(adopt=True)["main"].adopted


def test_of_two_that_race_for_the_name_one_wins(machines: tuple[Repository, Repository]) -> None:
    one, other = machines
    check, raced = Incarnations.check, False

    def late(self: Incarnations, known: object) -> object:
        nonlocal raced
        claim = check(self, known)  # type: ignore[arg-type]
        if claim is None and not raced:
            raced = True
            append(other, events(10))  # between the look and the claim
        return claim

    with patch.object(Incarnations, "check", late), pytest.raises(ConfigurationError, match="another incarnation"):
        append(one, events(0))
    assert numbers(other) == [10]
    with pytest.raises(ConfigurationError):
        append(one, events(0))


def test_a_machine_that_is_paused_goes_on_and_the_other_stays_refused(machines: tuple[Repository, Repository]) -> None:
    one, other = machines
    with one.writer() as writer:
        writer.append(events(0))
        for _ in range(2):  # `one` is paused here
            with pytest.raises(ConfigurationError):
                append(other, events(10))
        writer.append(events(1))
        writer.seal()
        writer.append(events(2))
    run_steps(one.settings)
    assert numbers(one) == [0, 1, 2]


def test_a_name_that_was_taken_over_is_lost_to_who_had_it(machines: tuple[Repository, Repository]) -> None:
    one, other = machines
    append(one, events(0, 1))
    run_steps(one.settings)
    with one.writer() as writer:
        writer.append(events(2))  # waits on `one`, which is thought to be gone
        claim = claim_writer_name(other.settings, "main")
        assert (claim.number, claim.first_event_id) == (2, 2)
        writer.seal()
        with pytest.raises(ClosedError, match="lost its name"):
            writer.append(events(3))
    append(other, events(10, 11))
    run_steps(one.settings)
    run_steps(other.settings)
    assert numbers(other) == [0, 1, 10, 11]
    with pytest.raises(ConfigurationError):
        append(one, events(3))
    one.recover(adopt=True)
    run_steps(one.settings)
    assert numbers(one) == numbers(other) == [0, 1, 2, 10, 11]


def test_a_store_that_answers_late_holds_no_append_up_and_its_answer_counts(
    machines: tuple[Repository, Repository], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = machines
    asked, answer = Signal(), Signal()
    still_holds = Incarnations.still_holds

    def late(self: Incarnations, incarnation: str) -> bool:
        asked.set()
        assert answer.wait(60)
        return still_holds(self, incarnation)

    monkeypatch.setattr(Incarnations, "answers_late", True)
    monkeypatch.setattr(Incarnations, "still_holds", late)
    with one.writer() as writer:
        writer.append(events(0))
        assert not asked.is_set(), "the start has asked"
        for number in (1, 2):
            writer.seal()
            writer.append(events(number))
        assert asked.is_set()
        claim_writer_name(other.settings, "main")
        answer.set()
        with pytest.raises(ClosedError, match="lost its name"):
            for _ in range(600):
                writer.append(events(3))
                time.sleep(0.1)
    assert one.status().writers[0].journals_of_others


def test_a_commit_of_the_machine_that_lost_the_name_does_not_come_behind(
    machines: tuple[Repository, Repository],
) -> None:
    one, other = machines
    append(one, events(0, 1))
    run_steps(one.settings)
    append(one, events(2, 3))
    run_steps(one.settings, "rollover", "compress", "index")
    claim = claim_writer_name(other.settings, "main")
    assert claim.first_event_id == 4, "what is staged has its ids"
    append(other, events(10))
    run_steps(other.settings)
    assert numbers(other) == [0, 1, 2, 3, 10]


def test_ids_that_two_gave_out_are_never_committed_twice(
    machines: tuple[Repository, Repository], unaware: None
) -> None:
    one, other = machines
    append(one, events(0, 1, 2, 3))
    run_steps(one.settings)
    with other.writer() as writer:
        writer._next_event_id = 2
        writer.append(events(10, 11, 12))
    forget_incarnations(other)
    shutil.rmtree(one.settings.store / "main/provenance/incarnations", ignore_errors=True)
    run_steps(other.settings, "rollover", "compress", "index")
    with pytest.raises(ConflictError, match=r"expected ids that no live log has, got 2 to 4.* 0 to 3"):
        run_steps(other.settings, "commit")
    assert list(other.settings.containers[0].glob("main/journals/*.sealed"))


def test_the_same_machine_starts_again_and_again(machines: tuple[Repository, Repository]) -> None:
    one, _ = machines
    for number in range(3):
        append(Repository(one.settings), events(number))
    claims = one.workspace().incarnations.claims()
    assert [claim.number for claim in claims] == [1]
    assert claims[0].first_event_id == 0


def test_a_repository_of_before_is_adopted_by_its_next_start(
    machines: tuple[Repository, Repository], unaware: None
) -> None:
    one, other = machines
    append(one, events(0))
    run_steps(one.settings)
    append(one, events(1))
    forget_incarnations(one)
    with patch("custody.ingest.slots.SlotWriter", SlotWriter):
        append(one, events(2))
        run_steps(one.settings)
        append(one, events(3))
        with pytest.raises(ConfigurationError):
            append(other, events(10))
    assert numbers(one) == [0, 1, 2, 3]
    assert kinds(one) == []


def test_an_older_custody_that_drops_the_incarnation_from_the_state_does_not_lock_its_writer_out(
    machines: tuple[Repository, Repository],
) -> None:
    one, _ = machines
    append(one, events(0))
    forget_incarnations(one)
    append(one, events(1))
    run_steps(one.settings)
    assert numbers(one) == [0, 1]
    [claim] = one.workspace().incarnations.claims()
    state = next(one.settings.containers[0].glob("main/STATE"))
    assert decode_state(state.read_bytes(), state).incarnation == claim.incarnation


@pytest.mark.parametrize("how", ["all folders", "the state alone"])
def test_containers_that_were_replaced_by_hand_get_the_name_by_a_command(
    machines: tuple[Repository, Repository], how: str
) -> None:
    one, _ = machines
    append(one, events(0, 1))
    run_steps(one.settings)
    if how == "the state alone":
        (one.settings.containers[0] / "main/STATE").unlink()
        append(one, events(2))  # its folder shows that the disk is mounted
    else:
        shutil.rmtree(one.settings.containers[0])
        with pytest.raises(ConfigurationError, match="If these are not mounted, mount them"):
            append(one, events(2))
        claim_writer_name(one.settings, "main")
        append(one, events(2))
    run_steps(one.settings)
    assert sorted(stored.event.event_id for stored in one.search("").events) == [0, 1, 2]
    assert kinds(one) == []


def test_a_store_that_keeps_bytes_in_memory_gives_the_name_to_one(tmp_path: Path) -> None:
    store = open_store(f"memory://{tmp_path.name}", FS, tmp_path)

    def writer(disk: str) -> JournalWriter:
        claims = Incarnations(store, "main", "provenance")
        return JournalWriter(FS, [tmp_path / disk], "main", "provenance", ManualClock(), None, claims)

    with writer("a") as first:
        first.append(events(0))
        with pytest.raises(ConfigurationError, match="memory://"):
            writer("b")
    with writer("a") as first:
        assert first.append(events(1)) == range(1, 2)


def test_a_journal_of_a_container_that_was_given_up_is_not_swept_unseen(tmp_path: Path) -> None:
    settings = Settings.model_validate({"root": tmp_path, "repository": {"containers": ["disk1", "disk2"]}})
    one = Repository(settings)
    with one.writer() as writer:
        writer.append(events(0, 1))
        [journal] = writer.seal()
    disk = next(root for root in settings.containers if journal.is_relative_to(root))
    away = journal.with_name(journal.name.replace(".0.", ".1."))
    journal.rename(away)  # as if its group had had two journals, and the other one had been on the other disk
    rest = next(root for root in settings.containers if root != disk) / "main/journals" / journal.name
    with JournalWriter(FS, [tmp_path / "scratch"], "main", "provenance", one._clock) as other:
        other.begin(0)
        other.append(events(5))
    made = next((tmp_path / "scratch/main/journals").glob("*.sealed"))
    data = made.read_bytes()
    head, mine = next(frames(data, 8)), next(frames(away.read_bytes(), 8))
    rest.write_bytes(data[:8] + frame(1, mine.payload) + data[head.end :])  # type: ignore[union-attr]
    shutil.rmtree(tmp_path / "scratch")
    content = away.read_bytes()
    away.unlink()
    run_steps(settings)  # the group becomes live without what lay on the disk that was given up
    away.write_bytes(content)
    for _ in range(2):
        run_steps(settings)
    assert away.read_bytes() == content
    assert "journal-of-others" in kinds(one)
    assert any("--adopt" in notice for notice in one.search("").notices)
    one.recover(adopt=True)
    run_steps(settings)
    assert numbers(one) == [0, 1, 5]


def test_a_damaged_claim_is_named_and_the_writer_claims_its_name_anew(machines: tuple[Repository, Repository]) -> None:
    one, other = machines
    append(one, events(0))
    [path] = (one.settings.store / "main/provenance/incarnations").iterdir()
    data = bytearray(path.read_bytes())
    for place in range(len(data)):
        path.write_bytes(bytes([*data[:place], data[place] ^ 1, *data[place + 1 :]]))
        assert kinds(Repository(one.settings)) == ["incarnation-damaged"], place
    assert numbers(Repository(one.settings)) == [0]
    path.unlink()
    append(Repository(one.settings), events(1))
    with pytest.raises(ConfigurationError):
        append(other, events(10))


def test_logs_say_under_which_incarnation_their_events_came(machines: tuple[Repository, Repository]) -> None:
    one, _ = machines
    append(one, events(0))
    run_steps(one.settings)
    [claim] = one.workspace().incarnations.claims()
    [file] = one.workspace().catalog.load().files.values()
    assert isinstance(file, AddFile)
    assert file.incarnation.hex() == claim.incarnation
