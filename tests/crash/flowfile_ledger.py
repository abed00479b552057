"""The model beside a FlowFile repository: what each commit makes of queues, contents and events.

`opened` opens the queues of a disk as a process does that just started; each commit there is written down before it is
tried and once more when it was acknowledged. So after a crash two states may be found: the last acknowledged one, and
that of the commit that was under way. Nothing in between, and queues and events agree on which of them it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from itertools import combinations
from pathlib import Path
from unittest.mock import patch

import msgspec

from custody.clock import ManualClock
from custody.config import ContentStore, Settings
from custody.errors import BackpressureError
from custody.flow import Component, FlowFile
from custody.flowfile_repository import ArchiveOptions, Connection, ContentArchive, Waiting, Work
from custody.flowfile_repository.state import FlowFileState, claim_text
from custody.model import Event
from custody.repository import Repository
from custody.repository.flow import Flow
from custody.vfs import FileSystem
from tests.crash.memory_repository import EVERYTHING, NOW_MS

SETTINGS = Settings.model_validate(
    {"root": Path("/repository"), "repository": {"writer_slots": 3, "containers": ["disk1"]}}
)
# Less than the settings allow: a scenario swaps a few FlowFiles, and its files of contents are soon full.
SMALL = SETTINGS.model_copy(
    update={
        "flowfiles": SETTINGS.flowfiles.model_copy(update={"swap_threshold": 4}),
        "content": SETTINGS.content.model_copy(update={"claim_bytes": 4096}),
    }
)
WORKER = Component(id="worker", type="Worker")
FIRST, RANKED, LAST = "first", "ranked", "last"
CONNECTIONS = (
    Connection(name=FIRST),
    Connection(name=RANKED, prioritizers=("attribute:rank",)),
    Connection(name=LAST, prioritizers=("newest",)),
)
View = dict[str, list[tuple[FlowFile, bytes]]]
"""The FlowFiles of each queue with their contents, first ones first."""


@dataclass(frozen=True)
class Placing:
    """A FlowFile in a queue, its content, and the number of its arrival."""

    queue: str
    flowfile: FlowFile
    body: bytes
    arrival: int

    @property
    def place(self) -> tuple[object, ...]:
        """What the queue orders by."""
        if self.queue == RANKED:
            return int(self.flowfile.attributes["rank"]), self.arrival
        if self.queue == LAST:
            return -self.flowfile.lineage_start_date, self.arrival
        return (self.arrival,)


@dataclass(frozen=True)
class Kept:
    """What queues and provenance hold at one moment."""

    placings: tuple[Placing, ...] = ()
    events: tuple[bytes, ...] = ()
    arrivals: int = 0

    def view(self, taken: frozenset[str] = frozenset()) -> View:
        """Return the queues in their order, without what is being worked on."""
        queues: View = {connection.name: [] for connection in CONNECTIONS}
        waiting = [placing for placing in self.placings if placing.flowfile.uuid not in taken]
        for placing in sorted(waiting, key=lambda placing: placing.place):
            queues[placing.queue].append((placing.flowfile, placing.body))
        return queues

    def after(self, commit: Tried) -> Kept:
        """Return what a commit makes of it."""
        work = commit.work
        changed = {placed.flowfile.uuid for placed in work.placed} | set(work.leaves)
        stay = [placing for placing in self.placings if placing.flowfile.uuid not in changed]
        enter = [
            Placing(placed.queue, placed.flowfile, body, self.arrivals + number)
            for number, (placed, body) in enumerate(zip(work.placed, commit.bodies, strict=True))
        ]
        events = (*self.events, *map(without_key, work.events))
        return Kept((*stay, *enter), events, self.arrivals + len(enter))


@dataclass(frozen=True, eq=False)
class Tried:
    """A commit that was tried, with the contents of its FlowFiles as they were then."""

    work: Work
    bodies: tuple[bytes, ...]


@dataclass
class FlowLedger:
    """What was acknowledged, the commit that is under way, and the contents that were given away."""

    acknowledged: Kept = Kept()
    pending: tuple[Tried, ...] = ()
    """Commits that are under way: of two, one comes in the middle of the other."""
    released: frozenset[str] = frozenset()
    """Resource claims that the FlowFile repository said nobody needs."""
    commits: int = 0

    def copy(self) -> FlowLedger:
        return replace(self)

    def release(self, fs: FileSystem, claims: Iterable[str]) -> None:
        """Note that these contents may be gone from now on; a file that is not full is still written, and stays."""
        for claim in claims:
            writer, *names = claim.removeprefix("custody:").split("/")
            if fs.size(SMALL.store.joinpath(writer, "content", *names)) >= SMALL.content.claim_bytes:
                self.released |= {claim}

    def drop(self, tried: Tried) -> None:
        """Note that a commit is not under way any more."""
        self.pending = tuple(one for one in self.pending if one is not tried)

    def settle(self, flow: Flow, stored: list[bytes], *, taken: frozenset[str] = frozenset()) -> None:
        """Raise unless queues and events are those that were acknowledged, or those of the commit under way.

        Args:
            taken: FlowFiles on which live sessions work; nobody else may have any.
        """
        found = seen(flow, taken=taken)
        states = [
            reduce(Kept.after, chosen, self.acknowledged)
            for count in range(len(self.pending) + 1)
            for chosen in combinations(self.pending, count)
        ]
        fitting = [state for state in states if state.view(taken) == found]
        assert fitting, (
            f"queues: {_shown(found)}, expected {' or '.join(_shown(state.view(taken)) for state in states)}"
        )
        agreeing = [state for state in fitting if Counter(state.events) == Counter(stored)]
        assert agreeing, _differing(fitting[-1].events, stored)
        self.acknowledged, self.pending = agreeing[-1], ()
        referred = {claim_text(flowfile) for waiting in found.values() for flowfile, _ in waiting}
        assert not referred & self.released, f"released, and a FlowFile refers to it: {referred & self.released}"


class _Recording(ContentArchive):
    """An archive that deletes nothing, and tells the ledger what it could delete."""

    def __init__(self, fs: FileSystem, store: Path, ledger: FlowLedger) -> None:
        super().__init__(fs, ContentStore(store), ArchiveOptions())
        self._disk, self._ledger = fs, ledger

    def due(self, archived: Mapping[str, int], now_ms: int) -> list[str]:
        self._ledger.release(self._disk, archived)
        return []


@contextmanager
def opened(fs: FileSystem, ledger: FlowLedger, settings: Settings = SMALL) -> Iterator[Flow]:
    """Open the queues of a disk; commits are written down in the ledger."""
    repository = Repository(settings, fs, ManualClock(NOW_MS))
    with repository.flowfiles(is_ticking=False) as flow:
        right = flow.queues.commit

        def commit(work: Work) -> range:
            tried = Tried(work, tuple(body_of(flow, placed.flowfile) for placed in work.placed))
            ledger.pending += (tried,)
            try:
                ids = right(work)
            except BackpressureError:
                ledger.drop(tried)  # nothing was done
                raise
            ledger.drop(tried)
            ledger.acknowledged = ledger.acknowledged.after(tried)
            ledger.commits += 1
            return ids

        archive = _Recording(fs, settings.store, ledger)
        with patch.object(flow.queues, "commit", commit), patch.object(flow.queues, "_archive", archive):
            for connection in CONNECTIONS:
                if connection not in flow.queues.connections():
                    flow.queues.connect(connection)
            yield flow


def body_of(flow: Flow, flowfile: FlowFile) -> bytes:
    """Return the content of a FlowFile as it can be read now."""
    claim = flowfile.content_claim
    return b"" if claim is None else b"".join(flow._find(claim).chunks())


def seen(flow: Flow, *, taken: frozenset[str] = frozenset()) -> View:
    """Return the queues as the repository has them, without those `taken`, on which live sessions work."""

    def look(state: FlowFileState) -> dict[str, list[Waiting]]:
        assert set(state.taken) == taken, f"taken: {[one.session for one in state.taken.values()]}"
        found = {}
        for name, queue in state.queues.items():
            swapped = [
                item
                for swap in queue.swaps
                for number in range(swap.next_block, len(swap.blocks))
                for item in state.read_block(swap, number)
            ]
            found[name] = sorted([*queue.waiting.values(), *swapped], key=lambda item: item.order)
        return found

    queues = flow.queues._read(look)
    uuids = Counter(item.uuid for items in queues.values() for item in items)
    assert max(uuids.values(), default=1) == 1, f"a FlowFile is there twice: {uuids}"
    return {name: [(item.flowfile, body_of(flow, item.flowfile)) for item in items] for name, items in queues.items()}


def stored_events(fs: FileSystem, settings: Settings = SMALL) -> list[bytes]:
    """Return all events, without ids and keys."""
    repository = Repository(settings, fs, ManualClock(NOW_MS))
    events = [event for name in settings.repository.slots for event in repository.events(0, EVERYTHING, name)]
    return list(map(without_key, events))


def without_key(event: Event) -> bytes:
    """Return an event as one text that can be compared, but for what tells it from its copies."""
    plain = msgspec.structs.replace(event, event_id=-1, source_node=None, source_ordinal=None)
    return msgspec.json.encode(plain, order="deterministic")


def _shown(view: View) -> str:
    return str({name: [(flowfile.uuid[-4:], len(body)) for flowfile, body in items] for name, items in view.items()})


def _differing(expected: Sequence[bytes], stored: Sequence[bytes]) -> str:
    lost, more = Counter(expected) - Counter(stored), Counter(stored) - Counter(expected)
    return f"events that are missing: {_types(lost)}, that no FlowFile agrees with: {_types(more)}"


def _types(events: Counter[bytes]) -> list[str]:
    return [msgspec.json.decode(data, type=Event).event_type for data in events.elements()]
