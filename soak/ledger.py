"""The ledger of the producers, outside of the repository: what they sent, and what was acknowledged.

A producer's life has a file of its own, one JSON object a line. A batch is written down before it is appended, and once
more, with ids and digests, when it was acknowledged; that line is synced before the producer goes on. A line that a
kill cut off was told to nobody.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import msgspec

Key: TypeAlias = tuple[str, int]
"""A writer and one of its event ids."""


class Sent(msgspec.Struct, frozen=True, tag="sent"):
    """A batch that is about to be appended: its numbers begin with `number`."""

    number: int
    count: int


class Told(msgspec.Struct, frozen=True, tag="told"):
    """A batch that was acknowledged at `ms`: its writer, first id, and a digest an event; `held` if a hold means it."""

    number: int
    writer: str
    first_id: int
    ms: int
    held: bool
    digests: tuple[str, ...]

    @property
    def ids(self) -> range:
        """The ids of its events."""
        return range(self.first_id, self.first_id + len(self.digests))


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """A batch of which the repository said that it cannot take it now, and why."""

    number: int
    why: str


Line: TypeAlias = Sent | Told | Refused
_DECODER: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)
_ENCODER = msgspec.json.Encoder()


class LedgerFile:
    """The file of one life of a producer; many threads write to it."""

    def __init__(self, path: Path) -> None:
        self._number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._lock = threading.Lock()

    def write(self, line: Line) -> None:
        """Add a line; what was told is on the disk on return."""
        data = _ENCODER.encode(line) + b"\n"
        with self._lock:
            os.write(self._number, data)
        if isinstance(line, Told):
            os.fsync(self._number)


@dataclass
class Ledger:
    """The records of all producers until now."""

    folder: Path
    sent: dict[int, int] = field(default_factory=dict)
    """How many events each batch has, by its first number."""
    told: list[Told] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    _read: dict[Path, int] = field(default_factory=dict)

    def refresh(self) -> None:
        """Read what was added; a line without its end is left for later."""
        for path in sorted(self.folder.glob("*.jsonl")):
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                data = file.read()
            end = data.rfind(b"\n") + 1
            self._read[path] = self._read.get(path, 0) + end
            for line in _lines(data[:end]):
                self._take(line)

    @property
    def events_sent(self) -> int:
        """The number of events sent."""
        return sum(self.sent.values())

    @property
    def events_told(self) -> int:
        """The number of events acknowledged."""
        return sum(len(batch.digests) for batch in self.told)

    def _take(self, line: Line) -> None:
        if isinstance(line, Sent):
            self.sent[line.number] = line.count
        elif isinstance(line, Told):
            self.told.append(line)
        else:
            self.refused.append(line)


def _lines(data: bytes) -> Iterator[Line]:
    for line in data.splitlines():
        yield _DECODER.decode(line)
