"""What became of a file: counted while it is ingested, and reported at the end."""

from __future__ import annotations

import msgspec

from custody.capture import Format


class FileReport(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one file; the numbers count events, `rejected` also counts pieces that are no events.

    The event ids are those of `writer`.
    """

    file: str
    writer: str
    read: int
    stored: int
    repeated: int
    retold: int
    """How many of the repeated ones told a name or an address anew; what was stored first stays."""
    rejected: int
    warned: int
    first_event_id: int | None
    last_event_id: int | None
    problems: tuple[str, ...]


class Tally:
    """Counts what happens to one file, and knows what goes into the quarantine with each of its pieces."""

    def __init__(self, file: str, format: Format, node: str | None) -> None:
        self.file = file
        self.format = format
        self.node = node
        self.read = self.stored = self.repeated = self.retold = self.rejected = self.warned = 0
        self.first: int | None = None
        self.last: int | None = None
        self.problems: list[str] = []

    def report(self, writer: str) -> FileReport:
        """Return what was counted; the ids are those of this writer."""
        return FileReport(
            file=self.file,
            writer=writer,
            read=self.read,
            stored=self.stored,
            repeated=self.repeated,
            retold=self.retold,
            rejected=self.rejected,
            warned=self.warned,
            first_event_id=self.first,
            last_event_id=self.last,
            problems=tuple(self.problems),
        )
