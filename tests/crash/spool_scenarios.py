"""The scenario of a spool: producers append, a delivery runs between and after them, the server loses nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

import msgspec

from custody.client import spool as spools
from custody.client.spool import Spool, read_positions, read_segment, segment_name, segment_numbers
from custody.client.spool_delivery import Receipt, SpoolDelivery
from custody.errors import InvalidInputError
from custody.vfs import FileSystem
from tests.crash.enumeration import Scenario

FOLDER = Path("/spool")
REFUSED = 3
"""The number of an event that the server does not take."""


@dataclass
class Told:
    """What producers were promised, and what the server, on another machine, has taken."""

    tried: int = 0
    kept: set[int] = field(default_factory=set)
    taken: dict[tuple[str, int], int] = field(default_factory=dict)
    contradictions: list[str] = field(default_factory=list)

    def copy(self) -> Told:
        return Told(self.tried, set(self.kept), dict(self.taken), list(self.contradictions))


class Server:
    """Knows events by source and ordinal, as the events door does."""

    def __init__(self, told: Told) -> None:
        self._told = told

    def send(self, lines: bytes) -> Receipt:
        events = [msgspec.json.decode(line) for line in lines.splitlines()]
        if any(event["number"] == REFUSED for event in events):
            raise InvalidInputError("one of them is not liked")
        repeated = 0
        for event in events:
            key = event["source_node"], event["source_ordinal"]
            former = self._told.taken.setdefault(key, event["number"])
            repeated += former == event["number"]
            if former != event["number"]:
                self._told.contradictions.append(f"{key} was {former} and is {event['number']}")
        return Receipt(stored=len(events), repeated=repeated)


def append(spool: Spool, told: Told, count: int) -> None:
    numbers = range(told.tried, told.tried + count)
    told.tried += count
    spool.append([{"number": number} for number in numbers])
    told.kept.update(numbers)


def deliver(fs: FileSystem, told: Told) -> None:
    SpoolDelivery(FOLDER, Server(told), fs).deliver()


class Spooling(Scenario[Told]):
    """Every event that was kept reaches the server once, whatever crashed, also where its segment came and went."""

    always_at = frozenset({"sync_directory", "rename", "remove"})

    def new_record(self) -> Told:
        return Told()

    def copy(self, record: Told) -> Told:
        return record.copy()

    def run(self, fs: FileSystem, record: Told) -> None:
        # Small, so that segments come and go.
        with patch.object(spools, "SEGMENT_BYTES", 300):
            with Spool(FOLDER, "p", fs=fs) as first:
                append(first, record, 2)
                deliver(fs, record)
                append(first, record, 3)
                with Spool(FOLDER, "p", fs=fs) as second:
                    append(second, record, 1)
                    append(first, record, 2)
                    deliver(fs, record)
                    append(second, record, 2)
            deliver(fs, record)
            with Spool(FOLDER, "p", fs=fs) as third:
                append(third, record, 1)

    def check(self, fs: FileSystem, record: Told) -> None:
        assert not record.contradictions, record.contradictions
        missing = record.kept - set(record.taken.values()) - set(_waiting(fs)) - set(_refused(fs))
        assert not missing, f"{sorted(missing)} were kept, and neither wait nor were taken"

    def use(self, fs: FileSystem, record: Told) -> None:
        with Spool(FOLDER, "p", fs=fs) as spool:
            append(spool, record, 2)
        deliver(fs, record)
        taken = sorted(record.taken.values())
        assert taken == sorted(set(taken)), f"an event was taken under two names: {taken}"
        assert not record.contradictions, record.contradictions
        lost = record.kept - set(taken) - set(_refused(fs))
        assert not lost, f"{sorted(lost)} were kept, and are lost"
        assert segment_numbers(fs, FOLDER) == []


def _waiting(fs: FileSystem) -> Sequence[int]:
    done = read_positions(fs, FOLDER)
    return [
        msgspec.json.decode(line)["number"]
        for number in segment_numbers(fs, FOLDER)
        if number not in done.finished
        for lines in read_segment(fs, FOLDER / segment_name(number)).frames[done.frames.get(number, 0) :]
        for line in lines.splitlines()
    ]


def _refused(fs: FileSystem) -> Sequence[int]:
    folder = FOLDER / spools.REFUSED
    names = [name for name in fs.list(folder) if name.endswith(".json")]
    return [msgspec.json.decode(fs.read(folder / name))["event"]["number"] for name in names]
