"""The judgement: what was acknowledged beside what is found, and what retention may have taken.

Pure functions over plain values, so that tests can show that a lost, doubled or changed event does not pass.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from custody.catalog import CatalogState
from soak.ledger import Key, Ledger, Told

NAMED_MAX = 5
"""So many examples of each kind of problem are named."""


@dataclass(frozen=True)
class Expired:
    """The expired ids of a writer, as its catalog's marks say, by the journal groups that they were in."""

    groups: tuple[int, ...] = ()
    """First ids of all groups that are known, in order: the ids of one end before the first id of the next."""
    gone: frozenset[int] = frozenset()

    @classmethod
    def of(cls, state: CatalogState, on_disk: Iterable[int]) -> Expired:
        """Return what a catalog says; `on_disk` are the groups that still have journals."""
        gone = {group for mark in state.marks.values() for group in mark.groups}
        live = {group for file in state.files.values() for group in file.groups}
        return cls(tuple(sorted(gone | live | set(on_disk))), frozenset(gone - live))

    def __contains__(self, event_id: int) -> bool:
        place = bisect_right(self.groups, event_id) - 1
        return place >= 0 and self.groups[place] in self.gone


@dataclass(frozen=True, slots=True)
class Found:
    """An event as an answer gave it out."""

    key: Key
    number: int
    digest: str


@dataclass
class Verdict:
    """The problems of a soak, by kind, with examples; and its counts."""

    problems: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[str]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def complain(self, kind: str, text: str) -> None:
        """Count a problem, and keep it as an example while there are few."""
        self.problems[kind] += 1
        examples = self.examples.setdefault(kind, [])
        if len(examples) < NAMED_MAX:
            examples.append(text)

    @property
    def holds(self) -> bool:
        """Whether there is no problem."""
        return not self.problems

    def lines(self) -> list[str]:
        """Return the problems as text."""
        return [f"{kind} ({count}): {'; '.join(self.examples[kind])}" for kind, count in sorted(self.problems.items())]


def judge(
    ledger: Ledger,
    events: Iterable[Found],
    expired: Mapping[str, Expired],
    held: Collection[int],
    verdict: Verdict,
    *,
    how: str,
) -> None:
    """Compare what was acknowledged with what one way of reading found, and complain of each difference.

    Args:
        ledger: what was sent, and what was told.
        events: all events that this way of reading found.
        expired: what retention took, by writer.
        held: numbers of events that a hold means besides those of batches that are `held`.
        verdict: where to complain.
        how: the name of that way.
    """
    by_key, numbers = _index(events, verdict, how)
    told_numbers = 0
    for batch in ledger.told:
        gone = expired.get(batch.writer, Expired())
        told_numbers += len(batch.digests)
        for number, event_id, digest in zip(_numbers(batch), batch.ids, batch.digests, strict=True):
            _judge_one(by_key, (batch.writer, event_id), number, digest, event_id in gone, verdict, how)
            if event_id in gone and (batch.held or number in held):
                verdict.complain(f"{how}: held event expired", f"{batch.writer}/{event_id}")
    _judge_unacknowledged(ledger, numbers, verdict, how)
    verdict.counts[f"{how}: events found"] = len(by_key)
    verdict.counts["acknowledged"] = told_numbers
    taken = _count(ledger.told, lambda batch, event_id: event_id in expired.get(batch.writer, Expired()))
    verdict.counts["acknowledged and expired"] = taken
    verdict.counts["acknowledged and held"] = sum(len(batch.digests) for batch in ledger.told if batch.held) + len(held)


def _index(events: Iterable[Found], verdict: Verdict, how: str) -> tuple[dict[Key, Found], Counter[int]]:
    by_key: dict[Key, Found] = {}
    numbers: Counter[int] = Counter()
    for item in events:
        if item.key in by_key:
            verdict.complain(f"{how}: id twice", f"{item.key[0]}/{item.key[1]}")
        by_key[item.key] = item
        numbers[item.number] += 1
        if numbers[item.number] == 2:
            verdict.complain(f"{how}: event twice", f"number {item.number}, now as {item.key[0]}/{item.key[1]}")
    return by_key, numbers


def _judge_one(
    by_key: Mapping[Key, Found], key: Key, number: int, digest: str, gone: bool, verdict: Verdict, how: str
) -> None:
    item = by_key.get(key)
    if item is None and not gone:
        verdict.complain(f"{how}: acknowledged event lost", f"{key[0]}/{key[1]}, number {number}")
    elif item is not None and gone:
        verdict.complain(f"{how}: expired event found", f"{key[0]}/{key[1]}")
    elif item is not None and (item.number, item.digest) != (number, digest):
        verdict.complain(f"{how}: event changed", f"{key[0]}/{key[1]}, number {number}, found number {item.number}")


def _judge_unacknowledged(ledger: Ledger, numbers: Mapping[int, int], verdict: Verdict, how: str) -> None:
    """Of a batch that nobody was told of all events may be there, or none; anything else was never sent."""
    acknowledged = {batch.number for batch in ledger.told}
    refused = {batch.number for batch in ledger.refused}
    sent = {number for batch in ledger.told for number in _numbers(batch)}
    stored = 0
    for first, count in ledger.sent.items():
        if first in acknowledged:
            continue
        sent.update(range(first, first + count))
        there = sum(number in numbers for number in range(first, first + count))
        stored += there
        if there not in (0, count):
            verdict.complain(f"{how}: half a batch", f"{there} of {count} events of the batch {first}")
        if there and first in refused:
            verdict.complain(f"{how}: refused batch found", f"batch {first}")
    for number in numbers.keys() - sent:
        verdict.complain(f"{how}: event never sent", f"number {number}")
    verdict.counts[f"{how}: found, never acknowledged"] = stored


def judge_amount(ledger: Ledger, expired: Mapping[str, Expired], marked: Mapping[str, int], verdict: Verdict) -> None:
    """Compare the acknowledged events that are gone with how many the marks say went; what they say is rounded by none.

    A mark counts also what was stored and told to nobody: at most what was sent and not told.
    """
    gone_by_writer = Counter(dict.fromkeys(expired, 0))
    for batch in ledger.told:
        gone = expired.get(batch.writer, Expired())
        gone_by_writer[batch.writer] += sum(event_id in gone for event_id in batch.ids)
    spare = ledger.events_sent - ledger.events_told
    for writer, count in sorted(gone_by_writer.items()):
        if not count <= marked.get(writer, 0) <= count + spare:
            text = f"{writer}: {count} acknowledged events are in marked groups, the marks say {marked.get(writer, 0)}"
            verdict.complain("marks and events differ", text)


def _numbers(batch: Told) -> range:
    return range(batch.number, batch.number + len(batch.digests))


def _count(batches: Iterable[Told], counts: Callable[[Told, int], bool]) -> int:
    return sum(counts(batch, event_id) for batch in batches for event_id in batch.ids)
