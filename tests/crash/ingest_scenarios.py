"""Scenarios of an ingest: of events that two slots read, and of what goes to the quarantine beside events."""

from __future__ import annotations

import io
import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

from custody.capture import CaptureLimits, Format, read_batches
from custody.clock import ManualClock
from custody.config import Settings
from custody.repository import FileReport, Ingest, Repository
from custody.vfs import FileSystem, durable
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


class _Reporting(Scenario[Reports]):
    def new_record(self) -> Reports:
        return Reports()

    def copy(self, record: Reports) -> Reports:
        return Reports(set(record.counted))


class Ingesting(_Reporting):
    """One process ingests a file, another one that was there before a file with some of its events.

    Args:
        folder: a real folder for the files that are ingested.
    """

    FILES = (range(3), range(1, 5))

    def __init__(self, folder: Path) -> None:
        self._paths = [folder / f"{number}.json" for number in range(len(self.FILES))]
        for path, ordinals in zip(self._paths, self.FILES, strict=True):
            write(path, *(document("SEND", eventOrdinal=number) for number in ordinals))

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


class PuttingAside(_Reporting):
    """Of what comes some events are stored with a warning and some elements are refused, several at a time.

    An event that is stored is a repetition when it comes again, so its warning has to be kept before it is stored.

    Args:
        is_columns: whether it is read as columns.
    """

    WARNED, REFUSED = range(3), range(3, 6)

    def __init__(self, *, is_columns: bool = False) -> None:
        self._is_columns = is_columns

    def run(self, fs: FileSystem, record: Reports) -> None:
        report = self._ingest(fs)
        assert report.stored == report.warned == len(self.WARNED), report
        record.counted = {*self.WARNED, *self.REFUSED}

    def check(self, fs: FileSystem, record: Reports) -> None:
        opened = _repository(fs)
        entries = list(opened.quarantine.entries())
        assert all(opened.quarantine.raw(entry.key) for entry in entries)
        stored = {
            item.source_ordinal for name in SETTINGS.repository.slots for item in opened.events(0, EVERYTHING, name)
        }
        assert stored <= {entry.index for entry in entries if entry.is_stored}, "a stored event without its warning"
        assert record.counted <= {entry.index for entry in entries}, "what was put aside is lost"

    def use(self, fs: FileSystem, record: Reports) -> None:
        report = self._ingest(fs)
        assert report.stored + report.repeated == len(self.WARNED), report
        record.counted = {*self.WARNED, *self.REFUSED}

    def _ingest(self, fs: FileSystem) -> FileReport:
        forks = [document("FORK", eventOrdinal=number, childIds=[], parentIds=[]) for number in self.WARNED]
        text = json.dumps([*forks, *({"eventOrdinal": number} for number in self.REFUSED)]).encode()
        batches = read_batches(
            io.BytesIO(text),
            CaptureLimits(1 << 20),
            batch_events=10,
            format=Format.NIFI,
            columns_from=0 if self._is_columns else len(forks) + 10,
        )
        # So that few files are synced as many are.
        with patch.object(durable, "_ONE_SYNC_FILES", 2), _repository(fs).ingest() as work:
            report = work.batches(batches, origin="bad.json", format=Format.NIFI)
        assert report.rejected == len(self.REFUSED), report
        return report


def _repository(fs: FileSystem) -> Repository:
    return Repository(SETTINGS, fs, ManualClock(1_772_409_600_000))
