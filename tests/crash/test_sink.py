"""The NGSI sink, crashed at every operation in every mode; and bugs seeded into it, each of which must be found."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from custody.ngsi_sink.batch_file import FileAppend as BatchPart
from custody.ngsi_sink.local import LocalFiles
from custody.ngsi_sink.sink import Sink
from custody.ngsi_sink.target import FilesTarget
from custody.vfs.wrapping import WrappingFileSystem
from tests.crash.enumeration import enumerate_crashes
from tests.crash.sink_scenarios import Sinking
from tests.parts import Part


def test_a_crash_of_the_sink_writes_no_line_twice_and_loses_none(part: Part) -> None:
    outcome = enumerate_crashes(Sinking("csv-column"), seeds=1, part=part)
    assert not outcome.alarms, str(outcome)
    assert outcome.operations > 100


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["json-row", "json-column", "csv-row", "csv-column", "parquet"])
def test_a_crash_of_the_sink_in_every_mode(mode: str) -> None:
    outcome = enumerate_crashes(Sinking(mode), seeds=5)
    assert not outcome.alarms, str(outcome)
    assert outcome.operations > 80


class Together(FilesTarget):
    """Makes new files at once, however few they are."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given, together_from=1)


def together(patch: pytest.MonkeyPatch, files: type[LocalFiles] = LocalFiles) -> type[Sink]:
    """Let the sink make all new files of a batch at once."""
    patch.setattr("custody.ngsi_sink.sink.FilesTarget", Together)
    patch.setattr("custody.ngsi_sink.sink.LocalFiles", files)
    patch.setattr("custody.ngsi_sink.local._FILES_A_FOLDER", 0)
    return Sink


def test_a_crash_among_files_that_are_made_together(part: Part, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = enumerate_crashes(Sinking("csv-column", together(monkeypatch)), seeds=1, part=part)
    assert not outcome.alarms, str(outcome)
    assert outcome.operations > 100


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["json-row", "json-column", "csv-row", "csv-column", "parquet"])
def test_a_crash_among_files_that_are_made_together_in_every_mode(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = enumerate_crashes(Sinking(mode, together(monkeypatch)), seeds=5)
    assert not outcome.alarms, str(outcome)


class WritesBeforeCommit(Sink):
    """Brings a batch into the files, then makes it count."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        commit = self._state.commit

        def too_late(batch: Any, data: Any, *more: Any, **named: Any) -> None:
            for part, content in zip(batch.parts, data, strict=True):
                self._target.apply(part, content)
            commit(batch, data, *more, **named)

        self._state.commit = too_late  # type: ignore[method-assign]


class NeverEnds(Sink):
    """Does not bring to its end what a crash left."""

    def _finish(self, batch: Any, data: Any, *, is_new: bool) -> Any:
        return super()._finish(batch, data, is_new=is_new) if is_new else {}


class ForgetsColumns(Sink):
    """Takes the columns of each destination for new ones after a start."""

    def _recover(self) -> None:
        super()._recover()
        self._state.columns = {}


class BareTarget(FilesTarget):
    """Appends to a file, whatever is there."""

    def _apply(self, part: BatchPart, data: memoryview, *, is_settled: bool) -> None:
        if self._files.size(part.path) is None:
            self._files.create(part.path, data)
        else:
            self._files.append(part.path, data)


class TrustsLength(FilesTarget):
    """Takes a file that is long enough for one that has the bytes."""

    def _apply(self, part: BatchPart, data: memoryview, *, is_settled: bool) -> None:
        if self.length(part.path) < part.offset + part.length or not part.length:
            super()._apply(part, data, is_settled=is_settled)


class NoSync(LocalFiles):
    """Does not sync what it appends, nor what a crash left."""

    def append(self, path: str, data: memoryview) -> None:
        with self._fs.append(self._file(path)) as writing:
            writing.write(bytes(data))

    def settle(self, path: str) -> None:
        pass


class NoDirectorySync(LocalFiles):
    """Does not sync the names of new files."""

    def create(self, path: str, data: memoryview) -> None:
        file = self._file(path)
        self._fs.make_directory(file.parent)
        with self._fs.create(file) as writing:
            writing.write(bytes(data))
            writing.sync()

    def append(self, path: str, data: memoryview) -> None:
        with self._fs.append(self._file(path)) as writing:
            writing.write(bytes(data))
            writing.sync()

    def settle(self, path: str) -> None:
        self._fs.sync_file(self._file(path))


class NoDiskSync(LocalFiles):
    """Does not sync the disk behind files that were made together."""

    def _all_synced(self, made: Sequence[str]) -> bool:
        return True


class FoldersWithTheFiles(LocalFiles):
    """Leaves the names of folders to the sync of the files."""

    def create_together(self, files: Mapping[str, memoryview], check: Callable[[], None]) -> set[str]:
        whole = self._fs
        self._fs = _NoNames(whole)
        try:
            return super().create_together(files, check)
        finally:
            self._fs = whole


class _NoNames(WrappingFileSystem):
    def sync_directory(self, folder: Path) -> None:
        pass


def with_target(target: type[FilesTarget]) -> Callable[[pytest.MonkeyPatch], type[Sink]]:
    def put(patch: pytest.MonkeyPatch) -> type[Sink]:
        patch.setattr("custody.ngsi_sink.sink.FilesTarget", target)
        return Sink

    return put


def with_files(files: type[LocalFiles]) -> Callable[[pytest.MonkeyPatch], type[Sink]]:
    def put(patch: pytest.MonkeyPatch) -> type[Sink]:
        patch.setattr("custody.ngsi_sink.sink.LocalFiles", files)
        return Sink

    return put


def with_sink(sink: type[Sink]) -> Callable[[pytest.MonkeyPatch], type[Sink]]:
    return lambda patch: sink


BUGS: dict[str, Callable[[pytest.MonkeyPatch], type[Sink]]] = {
    "writes before the commit": with_sink(WritesBeforeCommit),
    "does not end a batch after a crash": with_sink(NeverEnds),
    "forgets columns": with_sink(ForgetsColumns),
    "appends to a torn end": with_target(BareTarget),
    "takes length for content": with_target(TrustsLength),
    "no sync of what is appended": with_files(NoSync),
    "no sync of a new name": with_files(NoDirectorySync),
    "no sync of the disk": lambda patch: together(patch, NoDiskSync),
    "folders are synced with the files": lambda patch: together(patch, FoldersWithTheFiles),
}


@pytest.mark.in_parts(3)
@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_in_the_sink_is_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = Sinking("csv-column", BUGS[bug](monkeypatch))
    outcome = enumerate_crashes(scenario, seeds=3, first_alarm_only=True)
    assert outcome.alarms, str(outcome)
