"""Scenario of an ingest: two slots read files that share events; an event that a report counted is stored once."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from custody.clock import ManualClock
from custody.config import Settings
from custody.repository import Ingest, Repository
from custody.vfs import FileSystem
from tests.crash.enumeration import Scenario
from tests.crash.memory_repository import EVERYTHING
from tests.unit.capture.json_documents import document
from tests.unit.ingest.test_ingest import write

SETTINGS = Settings.model_validate(
    {
        "root": Path("/repository"),
        "repository": {"writer_slots": 2, "containers": ["disk1"]},
        "capture": {"batch_events": 2},
    }
)


@dataclass
class Reports:
    """Which events a report counted as stored or as repeated, by their ordinals."""

    counted: set[int] = field(default_factory=set)

    def ingest(self, work: Ingest, path: Path, ordinals: range) -> None:
        report = work.file(path)
        assert report.stored + report.repeated == report.read == len(ordinals), report
        assert not report.rejected, report
        self.counted |= set(ordinals)


class Ingesting(Scenario[Reports]):
    """One process ingests a file, another one that was there before a file with some of its events.

    Args:
        folder: a real folder for the files that are ingested.
    """

    FILES = (range(3), range(1, 5))

    def __init__(self, folder: Path) -> None:
        self._paths = [folder / f"{number}.json" for number in range(len(self.FILES))]
        for path, ordinals in zip(self._paths, self.FILES, strict=True):
            write(path, *(document("SEND", eventOrdinal=number) for number in ordinals))

    def new_record(self) -> Reports:
        return Reports()

    def copy(self, record: Reports) -> Reports:
        return Reports(set(record.counted))

    def run(self, fs: FileSystem, record: Reports) -> None:
        with _repository(fs).ingest() as first, _repository(fs).ingest() as second:
            record.ingest(first, self._paths[0], self.FILES[0])
            record.ingest(second, self._paths[1], self.FILES[1])
            record.ingest(first, self._paths[1], self.FILES[1])

    def check(self, fs: FileSystem, record: Reports) -> None:
        counts: Counter[int] = Counter()
        opened = _repository(fs)
        for name in SETTINGS.repository.slots:
            counts.update(item.source_ordinal or 0 for item in opened.events(0, EVERYTHING, name))
        assert max(counts.values(), default=1) == 1, f"stored twice: {counts}"
        assert record.counted <= set(counts), f"lost: {record.counted - set(counts)}"

    def use(self, fs: FileSystem, record: Reports) -> None:
        with _repository(fs).ingest() as work:
            for path, ordinals in zip(self._paths, self.FILES, strict=True):
                record.ingest(work, path, ordinals)


def _repository(fs: FileSystem) -> Repository:
    return Repository(SETTINGS, fs, ManualClock(1_772_409_600_000))
