"""Scenario of the sink's whole job, from event logs to files: the next run finishes whatever a crash left.

The repository, with two writers' notifications in its event logs, is there before; the job begins, and is begun again.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

from custody.clock import ManualClock
from custody.errors import StorageError
from custody.lease import Attempt
from custody.ngsi.rendering import ColumnsByLocation
from custody.ngsi_sink.batch_file import WRITER, FileAppend
from custody.ngsi_sink.batch_plan import BatchPlan
from custody.ngsi_sink.chunk import Chunk, plan_chunk
from custody.ngsi_sink.local import LocalFiles
from custody.ngsi_sink.notifications import LiveNotifications
from custody.ngsi_sink.opening import OpenSink, open_sink, resubmit_entry
from custody.ngsi_sink.resubmission import FORMAT
from custody.ngsi_sink.target import FilesTarget
from custody.recovery import STEPS
from custody.repository import Repository
from custody.vfs import FileSystem
from custody.vfs.memory import CrashMode, MemoryFileSystem
from custody.workspace import Workspace
from tests.crash.enumeration import Scenario
from tests.unit.ngsi_sink.sink_repository import NOW_MS, bench, receive, settings

ROOT = Path("/repository")
FILES = ROOT / "hdfs"
_BATCH = re.compile(r"(-[0-9]{20})-[0-9]+(?=\.parquet$)")
"""The number of the batch, in the name of what was submitted again: a crash before it makes that another one."""
REFUSED = ("Tree", "Lamp")
"""The first does not answer before a commit, the second not after it, until the target is mended."""


class Refusing(FilesTarget):
    """Refuses two destinations while it is broken."""

    is_broken = True

    def length(self, path: str) -> int:
        self._refuse(path, REFUSED[0])
        return super().length(path)

    def apply(self, part: FileAppend, data: memoryview) -> None:
        self._refuse(part.path, REFUSED[1])
        super().apply(part, data)

    def _refuse(self, path: str, word: str) -> None:
        if self.is_broken and word in path:
            raise StorageError(f"{path}: refused")


@dataclass
class Done:
    """How often the job came to its end."""

    runs: int = 0


class Persisting(Scenario[Done]):
    """A run of the job with a target that refuses two destinations, then one with all that was put aside.

    `is_planned` lets others make the lines; the files have to be those of a run that makes them itself.
    """

    def __init__(self, mode: str, *, is_planned: bool = False) -> None:
        self._is_planned = False
        self._settings = settings(ROOT, file_format=mode, batch_ttl=0, enable_encoding=True, backend_files_at_once=1)
        disk = MemoryFileSystem()
        for names in (("Bench", "Tree", "Bench"), ("Lamp", "Bench")):
            with self._repository(disk).writer():  # the second one gets the other slot
                receive(self._repository(disk), [bench(n, name) for n, name in enumerate(names)], NOW_MS - len(names))
        for step in STEPS.values():
            for unit in step.units(self._settings, disk):
                step.run(Workspace(self._settings, unit.writer, disk, ManualClock(NOW_MS)), unit)
        self._disk = disk
        undisturbed = self.start()
        self.run(undisturbed, Done())
        self._expected = self._files(undisturbed)
        self._is_planned = is_planned

    def new_record(self) -> Done:
        return Done()

    def copy(self, record: Done) -> Done:
        return Done(record.runs)

    def start(self) -> MemoryFileSystem:
        return self._disk.crashed(CrashMode.ALL_KEPT)

    def run(self, fs: FileSystem, record: Done) -> None:
        self._job(fs, is_broken=True)
        record.runs = 1
        self._mended(fs)
        record.runs = 2

    def check(self, fs: FileSystem, record: Done) -> None:
        del record  # what was promised is compared after the next run, which is where it has to be
        for path, data in self._files(fs).items():
            wanted = self._expected[path]
            assert len(data) <= len(wanted), f"{path} is longer than it should be"
            # A block that did not reach the disk before power was lost is a gap of zeros, until the next run.
            assert all(byte in (0, due) for byte, due in zip(data, wanted, strict=False)), f"{path} holds other bytes"

    def use(self, fs: FileSystem, record: Done) -> None:
        self._job(fs, is_broken=True)
        self._mended(fs)
        assert self._files(fs) == self._expected, "the files differ from those of a run that nobody disturbed"
        sent = list(self._repository(fs).events(0, 1000, WRITER))
        assert max(Counter(event.flowfile_uuid for event in sent).values()) == 1, "told of twice"
        rows = Counter((event.transit_uri, parent) for event in sent for parent in event.parent_uuids)
        assert max(rows.values()) == 1, f"told of twice: {rows}"
        written = {Path(f"{FILES}{path}").as_uri() for path, data in self._expected.items() if data}
        assert {_BATCH.sub(r"\1", str(event.transit_uri)) for event in sent} == written
        assert not self._quarantined(fs), "the quarantine holds what was written"
        record.runs = 2

    def _job(self, fs: FileSystem, *, is_broken: bool) -> None:
        target = Refusing(LocalFiles(fs, FILES))
        target.is_broken = is_broken
        # Whoever crashed is this process, which lives: nobody would take its lease without being told to.
        with open_sink(
            self._repository(fs), Attempt("test", 1), target=target, take_over=True, sleep=lambda _: None
        ) as job:
            job.resubmit()
            job.run(planner=_Planner(job) if self._is_planned else None)

    def _mended(self, fs: FileSystem) -> None:
        """Do what a user does: mend the target, submit everything again, run the job."""
        for key in self._quarantined(fs):
            resubmit_entry(self._repository(fs), key)
        self._job(fs, is_broken=False)

    def _quarantined(self, fs: FileSystem) -> list[str]:
        """Return the sink's entries; another one is evidence of a journal that was cut in the middle of a write."""
        return [entry.key for entry in self._repository(fs).quarantine.entries() if entry.format == FORMAT]

    def _repository(self, fs: FileSystem) -> Repository:
        return Repository(self._settings, fs, ManualClock(NOW_MS))

    def _files(self, fs: FileSystem) -> dict[str, bytes]:
        def below(folder: Path) -> dict[str, bytes]:
            content_by_path: dict[str, bytes] = {}
            for name in fs.list(folder):
                path = folder / name
                content_by_path |= (
                    below(path) if fs.is_directory(path) else {str(path).removeprefix(str(FILES)): fs.read(path)}
                )
            return content_by_path

        return {_BATCH.sub(r"\1", path): data for path, data in below(FILES).items()}


class _Planner:
    """Plans chunks with a look of its own at the repository, as an executor does."""

    starts_at_bytes, chunks_at_once = 0, 2

    def __init__(self, job: OpenSink) -> None:
        self._job = job

    def plan(self, chunks: Sequence[Chunk], columns: ColumnsByLocation) -> Future[Sequence[BatchPlan | None]]:
        """Plan them at once."""
        source = LiveNotifications(self._job.repository, self._job.fs)
        answer: Future[Sequence[BatchPlan | None]] = Future()
        answer.set_result([plan_chunk(source, self._job.parameters, chunk, columns) for chunk in chunks])
        return answer
