"""Questions all the while, each answer compared with what must be there at that moment.

What was acknowledged before the question must be in the answer unless the catalog's marks, read after it, say that it
expired; what the answer holds must be what was sent. A question's events are chosen among what is known by then.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from custody.errors import CustodyError, NotFoundError
from custody.model import Event
from custody.repository import Repository
from soak.events import digest, flowfile_of
from soak.judge import Expired, Found, Verdict
from soak.ledger import Key, Ledger, Told
from soak.producer import now_ms

NEWEST = 50
RECENT_BATCHES = 400
Ids: TypeAlias = npt.NDArray[np.int64]


def found_of(writer: str, event: Event) -> Found:
    """Return an event as the judge knows it."""
    return Found((writer, event.event_id), event.source_ordinal or 0, digest(event))


@dataclass
class Known:
    """Facts about a repository: the ledger, and by writer the ids that were acknowledged, in no order."""

    ledger: Ledger
    digests: dict[Key, str] = field(default_factory=dict)
    numbers: dict[Key, int] = field(default_factory=dict)
    ids: dict[str, Ids] = field(default_factory=dict)
    _taken: int = 0

    def refresh(self) -> None:
        """Read what producers wrote down since."""
        self.ledger.refresh()
        new: dict[str, list[Ids]] = {}
        for batch in self.ledger.told[self._taken :]:
            for item, event_id in enumerate(batch.ids):
                self.digests[batch.writer, event_id] = batch.digests[item]
                self.numbers[batch.writer, event_id] = batch.number + item
            new.setdefault(batch.writer, []).append(np.arange(batch.ids.start, batch.ids.stop))
        self._taken = len(self.ledger.told)
        for writer, parts in new.items():
            self.ids[writer] = np.concatenate([self.ids.get(writer, np.empty(0, np.int64)), *parts])

    def gone(self, expired: dict[str, Expired]) -> int:
        """Return how many acknowledged events are in marked groups."""
        count = 0
        for writer, ids in self.ids.items():
            marks = expired.get(writer, Expired())
            if marks.gone:
                places = np.searchsorted(np.array(marks.groups), ids, side="right") - 1
                flags = np.isin(np.array(marks.groups), list(marks.gone))
                count += int(flags[places[places >= 0]].sum())
        return count


def expired_now(repository: Repository) -> dict[str, Expired]:
    """Return by writer what the marks say to be gone."""
    by_writer = {}
    for workspace in repository.workspaces():
        on_disk = [group.first_event_id for group in workspace.groups()]
        by_writer[workspace.writer] = Expired.of(workspace.catalog.load(), on_disk)
    return by_writer


@dataclass
class Asker:
    """Asks one question after the other; an answer that is not right is a problem of `verdict`."""

    repository: Repository
    known: Known
    seed: int
    verdict: Verdict = field(default_factory=Verdict)
    asked: Counter[str] = field(default_factory=Counter)
    empty: Counter[str] = field(default_factory=Counter)
    """Questions for events that had expired."""
    seconds: dict[str, list[float]] = field(default_factory=dict)
    fresh_ms: list[int] = field(default_factory=list)
    """From the acknowledgement of the newest event that was known to the answer that had it."""
    notices: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)  # noqa: S311 - which events are asked for
        self._seen_ms: dict[str, int] = {}
        self._questions: Sequence[tuple[str, Callable[[], None]]] = (
            ("get by id", self._get),
            ("newest", self._newest),
            ("by FlowFile", self._flowfile),
            ("count", self._count),
        )

    def ask(self) -> None:
        """Ask the next question; an error is a problem, too."""
        name, question = self._questions[sum(self.asked.values()) % len(self._questions)]
        self.known.refresh()
        self.asked[name] += 1
        started = time.monotonic()
        try:
            question()
        except CustodyError as error:
            self.verdict.complain(f"{name}: {type(error).__name__}", str(error))
        self.seconds.setdefault(name, []).append(time.monotonic() - started)

    def _get(self) -> None:
        for batch in self._some_batches(3):
            key = batch.writer, self._chance.choice(batch.ids)
            try:
                event = self.repository.get(key[1], key[0])
            except NotFoundError:
                self._missing("get by id", [key])
            else:
                self._same("get by id", [found_of(batch.writer, event)])

    def _newest(self) -> None:
        batches = self.known.ledger.told[-RECENT_BATCHES:]
        for writer in sorted({batch.writer for batch in batches}):
            own = [batch for batch in batches if batch.writer == writer]
            result = self.repository.search("", limit=NEWEST, writer=writer)
            answered = now_ms()
            self._say(result.notices)
            events = [found_of(stored.writer, stored.event) for stored in result.events]
            self._same("newest", events)
            ids = [item.key[1] for item in events]
            if ids != sorted(set(ids), reverse=True):
                self.verdict.complain("newest: order", str(ids))
            least = min(ids, default=0)
            acknowledged = [event_id for batch in own for event_id in batch.ids if event_id >= least]
            missing = sorted(set(acknowledged) - set(ids))
            if missing:
                self._missing("newest", [(writer, event_id) for event_id in missing])
            elif (newest := max(batch.ms for batch in own)) > self._seen_ms.get(writer, 0):
                self._seen_ms[writer] = newest
                self.fresh_ms.append(max(answered - newest, 0))

    def _flowfile(self) -> None:
        for batch in self._some_batches(2):
            key = batch.writer, self._chance.choice(batch.ids)
            number = self.known.numbers[key]
            uuid = flowfile_of(number)
            siblings = [
                (batch.writer, event_id)
                for event_id in batch.ids
                if flowfile_of(self.known.numbers[batch.writer, event_id]) == uuid
            ]
            result = self.repository.search(f"flowfile_uuid:{uuid}", limit=100)
            self._say(result.notices)
            events = [found_of(stored.writer, stored.event) for stored in result.events]
            self._same("by FlowFile", events)
            keys = [item.key for item in events]
            if result.total != len(keys) or len(set(keys)) != len(keys):
                self.verdict.complain("by FlowFile: total", f"{uuid}: {result.total} said, {len(keys)} given")
            if any(flowfile_of(item.number) != uuid for item in events):
                self.verdict.complain("by FlowFile: another one's", uuid)
            missing = [sibling for sibling in siblings if sibling not in keys]
            if missing:
                self._missing("by FlowFile", missing)

    def _count(self) -> None:
        acknowledged = self.known.ledger.events_told
        before = self.known.gone(expired_now(self.repository))
        result = self.repository.search("", limit=1)
        self._say(result.notices)
        # Of what is known now more may have expired meanwhile; of what was known then that much was gone at most.
        after = self.known.gone(expired_now(self.repository))
        self.known.refresh()
        least, most = acknowledged - after, self.known.ledger.events_sent - before
        if not least <= result.total <= most:
            self.verdict.complain("count", f"{result.total}, expected {least} to {most}")

    def _some_batches(self, count: int) -> list[Told]:
        """Return batches of any age, and the newest one."""
        batches = self.known.ledger.told
        return [self._chance.choice(batches) for _ in range(count)] + batches[-1:] if batches else []

    def _same(self, name: str, events: Iterable[Found]) -> None:
        """Complain of events that are not as they were told; one that was told to nobody has to have been sent."""
        for item in events:
            digest = self.known.digests.get(item.key)
            if digest is None:
                self.known.refresh()
                digest = self.known.digests.get(item.key)
            if digest is not None and digest != item.digest:
                self.verdict.complain(f"{name}: event changed", f"{item.key[0]}/{item.key[1]}")
            elif digest is None and not self._was_sent(item.number):
                self.verdict.complain(f"{name}: event never sent", f"number {item.number}")

    def _was_sent(self, number: int) -> bool:
        sent = self.known.ledger.sent
        return any(first <= number < first + sent[first] for first in sent if 0 <= number - first <= NEWEST)

    def _missing(self, name: str, keys: Iterable[Key]) -> None:
        expired = expired_now(self.repository)
        lost = [key for key in keys if key[1] not in expired.get(key[0], Expired())]
        self.empty[name] += not lost
        for key in lost:
            self.verdict.complain(f"{name}: acknowledged event missing", f"{key[0]}/{key[1]}")

    def _say(self, notices: Iterable[str]) -> None:
        for notice in notices:
            self.notices[notice] += 1
