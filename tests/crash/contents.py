"""The scenario of contents: small and large ones, and the events that speak of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from custody.flow.content.record import ContentRecord, read_header, scan
from custody.format.names import is_claim
from custody.repository import SlotWriter
from custody.vfs import FileSystem
from tests.crash.scenarios import StoreScenario
from tests.crash.store import SETTINGS, Promises, check_catalog, repository
from tests.support import event

LIMITED = SETTINGS.model_copy(
    update={"content": SETTINGS.content.model_copy(update={"claim_bytes": 4096, "containers": ("c1", "c2")})}
)


@dataclass
class Contents(Promises):
    """Besides the events: what each acknowledged one speaks of, and everything that was tried."""

    contents: dict[int, bytes] = field(default_factory=dict)
    bodies: list[bytes] = field(default_factory=list)

    def copy(self) -> Contents:
        return Contents(self.tried, dict(self.acknowledged), dict(self.contents), list(self.bodies))

    def store(self, writer: SlotWriter, size: int) -> None:
        """Store an event with a content of so many bytes, and write down the acknowledgement."""
        number = self.tried
        self.tried += 1
        body = f"{number:04d}".encode() * (size // 4)
        self.bodies.append(body)
        ids = writer.append_with_content([event(number)], body)
        self.contents[ids.start] = body


class Storing(StoreScenario):
    """Contents over two containers: some share a file, a file is full, one is large; in the lives of two processes."""

    def new_record(self) -> Contents:
        return Contents()

    def run(self, fs: FileSystem, record: Promises) -> None:
        assert isinstance(record, Contents)
        with repository(fs, LIMITED).writer() as writer:
            for size in (40, 400, 3900, 800, 8000, 40):
                record.store(writer, size)
        with repository(fs, LIMITED).writer() as writer:
            record.store(writer, 40)

    def check(self, fs: FileSystem, record: Promises) -> None:
        assert isinstance(record, Contents)
        check_catalog(fs)
        at = repository(fs, LIMITED)
        found = {item.event_id: item for item in at.events(0, 100)}
        for event_id, body in record.contents.items():
            assert event_id in found, f"acknowledged event {event_id} is lost"
            assert at.content(found[event_id]).read() == body
        for item in found.values():
            assert at.content(item).read() in record.bodies, "an event lies there without its content"
        check_claims(fs, record)

    def use(self, fs: FileSystem, record: Promises) -> None:
        assert isinstance(record, Contents)
        with repository(fs, LIMITED).writer() as writer:
            record.store(writer, 40)


def check_claims(fs: FileSystem, record: Contents) -> None:
    """Whatever has the name of a resource claim has a head, and holds nothing that was never stored."""
    home = SETTINGS.store / "main/content"
    for container in fs.list(home):
        for section in fs.list(home / container):
            for name in fs.list(home / container / section):
                path = home / container / section / name
                if is_claim(name):
                    _check_claim(fs, path, record)
                else:
                    assert name.endswith(".partial"), path


def _check_claim(fs: FileSystem, path: Path, record: Contents) -> None:
    data = memoryview(fs.read(path))
    header, start = read_header(data, path)
    for item in scan(data, header.key, start):
        # A record may be whole while the content before it is not: its power failed before it was synced.
        if isinstance(item, ContentRecord):
            assert item.length in {len(body) for body in record.bodies}
