"""Histories of a repository with a copy of each moment, and parts that are brought back to earlier ones.

A history is a made-up life of a repository: processes append and seal, passes and parts of passes run, events are
forgotten, an earlier state is accepted. After each action the tree is kept, and what it owes: the ledger. A restored
repository is put together from the trees of several moments, and must then be silent about nothing.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from custody.config import Settings
from custody.errors import CustodyError, EarlierStateError, NotFoundError
from custody.eventlog import EventLog
from custody.journal import JournalFile
from custody.recovery import STEPS
from custody.repository import Repository
from custody.repository.local_pass import run_locally
from custody.repository.soft_delete import EventSelection
from custody.vfs import PosixFileSystem
from tests.support import event

PARTS = ("disk1", "disk2", "store", "witness")
"""The folders that are restored. Each keeps what was seen of the others."""
ACTIONS = ("append", "append", "append", "pass", "pass", "part of a pass", "forget", "checkpoint", "accept")
Identity = tuple[int, str]
"""The id and the FlowFile of an event."""


@dataclass(frozen=True)
class Ledger:
    """What a repository owes at one moment."""

    events: frozenset[Identity] = frozenset()
    """The acknowledged events that were not forgotten, and not given up with an earlier state."""
    next_event_id: int = 0
    """Ids below it were given out."""
    made: int = 0
    """How many events were ever made."""


@dataclass
class History:
    """The moments of one repository, oldest first."""

    seed: int
    folder: Path
    moments: list[Ledger] = field(default_factory=list)
    actions: list[str] = field(default_factory=list)

    def tree(self, moment: int) -> Path:
        """Where the copy of a moment lies."""
        return self.folder / f"moment-{moment:02d}"


def settings_at(root: Path) -> Settings:
    return Settings.model_validate(
        {
            "root": root,
            "repository": {"containers": ["disk1", "disk2"]},
            "journal": {"journals": 2},
            "catalog": {"checkpoint_every": 3},
        }
    )


def make_history(seed: int, folder: Path, length: int = 10) -> History:
    """Live the history of a seed, and keep a copy of each moment."""
    chance, history, root = random.Random(seed), History(seed, folder), folder / "live"  # noqa: S311 - no secret
    root.mkdir(parents=True)
    ledger = Ledger()
    for number in range(length):
        action = "append" if number == 0 else "pass" if number == 2 else chance.choice(ACTIONS)
        # Where an earlier state could not be accepted, nothing is written any more.
        with suppress(EarlierStateError):
            ledger = _act(action, root, ledger, chance, history)
        shutil.copytree(root, history.tree(len(history.moments)))
        history.moments.append(ledger)
        history.actions.append(action)
    return history


def _act(action: str, root: Path, ledger: Ledger, chance: random.Random, history: History) -> Ledger:
    settings = settings_at(root)
    repository = Repository(settings)
    if action == "append":
        return _append(repository, ledger, chance)
    if action == "pass":
        run_locally(list(STEPS), settings)
    elif action == "part of a pass":
        run_locally(list(STEPS)[: chance.randrange(1, len(STEPS))], settings)
    elif action == "forget" and ledger.events:
        event_id, uuid = chance.choice(sorted(ledger.events))
        repository.forget(EventSelection(event_ids=[event_id]), "asked for", "main")
        return Ledger(ledger.events - {(event_id, uuid)}, ledger.next_event_id, ledger.made)
    elif action == "checkpoint":
        with suppress(CustodyError):  # nothing is committed yet
            repository.workspace("main").catalog.write_checkpoint()
    elif action == "accept" and history.moments:
        return _accept(root, ledger, chance, history)
    return ledger


def _append(repository: Repository, ledger: Ledger, chance: random.Random) -> Ledger:
    events, made = set(ledger.events), ledger.made
    next_event_id = ledger.next_event_id
    with repository.writer() as writer:
        for _ in range(chance.randrange(1, 4)):
            batch = [event(made + number) for number in range(chance.randrange(1, 6))]
            made += len(batch)
            ids = writer.append(batch)
            assert ids.start >= next_event_id, f"id {ids.start} was given out again"
            next_event_id = ids.stop
            events |= {(event_id, one.flowfile_uuid) for event_id, one in zip(ids, batch, strict=True)}
            if chance.random() < 0.3:
                writer.seal()
    return Ledger(frozenset(events), next_event_id, made)


def _accept(root: Path, ledger: Ledger, chance: random.Random, history: History) -> Ledger:
    """Bring the store back to an earlier moment, and accept that state; what it lacks is given up."""
    before = history.tree(chance.randrange(len(history.moments)))
    shutil.rmtree(root / "store", ignore_errors=True)
    if (before / "store").exists():
        shutil.copytree(before / "store", root / "store")
    repository = Repository(settings_at(root))
    with suppress(CustodyError):  # logs are there that can be listed again: then nothing is accepted, and all is told
        repository.recover(accept_earlier=True)
    return Ledger(frozenset(answered(repository)), ledger.next_event_id, ledger.made)


def answered(repository: Repository) -> set[Identity]:
    return {(one.event_id, one.flowfile_uuid) for one in repository.events(0, 10_000, "main")}


def notices(repository: Repository) -> tuple[str, ...]:
    stream = repository.events(0, 10_000, "main")
    for _ in stream:
        pass
    return stream.notices


def held(root: Path) -> set[Identity]:
    """The events of which a file has a copy, whoever lists it."""
    fs = PosixFileSystem()
    found: set[Identity] = set()
    for path in [*root.glob("disk*/main/journals/*"), *root.glob("store/main/provenance/data/*/events/*.parquet")]:
        if path.suffix in (".sealed", ".journal", ".parquet"):
            table = EventLog(fs, path).read() if path.suffix == ".parquet" else JournalFile.read(fs, path).table()
            ids, uuids = table.column("event_id").to_pylist(), table.column("flowfile_uuid").to_pylist()
            found |= set(zip(ids, uuids, strict=True))
    return found


def restored(history: History, seed: int, root: Path) -> tuple[Ledger, dict[str, int]]:
    """Put a repository together: the last moment or one before it, with some parts of earlier moments.

    One part at least is of the last moment; all parts of one moment are that moment, and nobody could tell.
    """
    chance = random.Random(seed)  # noqa: S311 - no secret
    now = chance.randrange(1, len(history.moments))
    parts = chance.sample(PARTS, chance.randrange(1, len(PARTS)))
    moments = dict.fromkeys(PARTS, now) | {part: chance.randrange(now) for part in parts}
    for part, moment in moments.items():
        if (history.tree(moment) / part).exists():
            shutil.copytree(history.tree(moment) / part, root / part)
    return history.moments[now], {part: moments[part] for part in parts}


def faults(root: Path, ledger: Ledger) -> Iterator[str]:
    """Yield what a restored repository is silent about, gives out twice, or deletes."""
    settings = settings_at(root)
    yield from _of_answers(Repository(settings), ledger.events, "restored")
    before = held(root)
    added = None
    with suppress(CustodyError):
        added = Repository(settings).append([event(9_000)])
    if added is not None and added.event_ids.start < ledger.next_event_id:
        yield f"id {added.event_ids.start} was given out again, ids go to {ledger.next_event_id - 1}"
    owed = ledger.events
    if added is not None:
        owed |= {(added.event_ids.start, event(9_000).flowfile_uuid)}
    yield from _of_answers(Repository(settings), owed, "after an append")
    run_locally(list(STEPS), settings)
    run_locally(list(STEPS), settings)
    lost = (before & ledger.events) - held(root)
    if lost:
        yield f"the last copies of {sorted(lost)[:3]} were deleted"
    yield from _of_answers(Repository(settings), owed, "after two passes")


def _of_answers(repository: Repository, owed: frozenset[Identity], when: str) -> Iterator[str]:
    found = answered(repository)
    if found != owed and not notices(repository):
        yield f"{when}: {len(owed - found)} events are missing and {len(found - owed)} too many, without a notice"
    by_id: Mapping[int, str] = dict(owed)
    for event_id in sorted({*by_id, *(event_id for event_id, _ in found)})[::3]:
        answer = repository.get_many([event_id], "main")
        got = [one.flowfile_uuid for one in answer]
        if got != ([by_id[event_id]] if event_id in by_id else []) and not answer.notices:
            yield f"{when}: event {event_id} is {got}, without a notice"
    result = repository.search("", writer="main") if found or owed else None
    if result is not None and result.total != len(owed) and not result.notices:
        yield f"{when}: a search counts {result.total} of {len(owed)} events, without a notice"


def try_restores(seeds: range, folder: Path) -> Iterator[str]:
    """Yield what is wrong with the restored repositories of some seeds, a history for each twenty of them."""
    history = None
    for seed in seeds:
        if history is None or history.seed != seed // 20:
            history = make_history(seed // 20, folder / f"history-{seed // 20}")
        root = folder / f"restored-{seed}"
        root.mkdir()
        ledger, moments = restored(history, seed, root)
        try:
            for fault in faults(root, ledger):
                yield f"seed {seed}, {moments} among {', '.join(history.actions)}: {fault}"
        except NotFoundError as error:
            # A writer of which nothing was put together: nothing of it is said, but an error.
            yield from [] if not held(root) else [f"seed {seed}: {error}"]
        shutil.rmtree(root)
