"""Builds of provenance tables as a scenario: steps that write their files, finish one by one, and are published; the
build that was replaced is removed.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

from custody.catalog import Catalog
from custody.clock import ManualClock
from custody.config import Settings
from custody.retention.swh_builds import former_builds, remove_former
from custody.store import LocalStore
from custody.swh.build import STEPS, Build, BuildDescription, StepOutput
from custody.swh.index_file import read_index
from custody.swh.publishing import publish
from custody.swh.table_file import write_table_file
from custody.swh.tables import CONTENTS_IN_REVISIONS, TABLES
from custody.vfs import FileSystem
from tests.crash.enumeration import Scenario

STORE = Path("/store")
DATABASE = STORE / "main" / "swh"
DESCRIPTION = BuildDescription(graph="/graph", fingerprint="f", node_filter="all")
SETTINGS = Settings.model_validate({"root": Path("/")})
WRITING = (STEPS[0], STEPS[5])
"""The steps that write a file; the others only finish."""


@dataclass
class Made:
    """What was promised: builds whose steps finished, and which of them was published last."""

    finished: dict[str, list[str]] = field(default_factory=dict)
    published: list[str] = field(default_factory=list)
    removing: bool = False


class Building(Scenario[Made]):
    """Two builds, then the first one goes; what is found goes on under the name of the last one."""

    always_at = frozenset({"rename"})

    def __init__(self, source: Path) -> None:
        self._source = source

    def new_record(self) -> Made:
        return Made()

    def copy(self, record: Made) -> Made:
        finished = {name: list(steps) for name, steps in record.finished.items()}
        return Made(finished, list(record.published), record.removing)

    def run(self, fs: FileSystem, record: Made) -> None:
        for name in ("one", "two"):
            self._build(fs, record, name)
        self._remove(fs, record)
        assert not fs.exists(DATABASE / "builds" / "one")

    def use(self, fs: FileSystem, record: Made) -> None:
        self._build(fs, record, list(record.finished)[-1] if record.finished else "one")
        self._remove(fs, record)
        assert former_builds(SETTINGS, fs, ManualClock(2_000), needs_room=True) == []

    def check(self, fs: FileSystem, record: Made) -> None:
        for name, steps in record.finished.items():
            if record.removing and name != record.published[-1] and not fs.exists(DATABASE / "builds" / name):
                continue
            build = Build.open(fs, DATABASE, name)
            assert build.description == DESCRIPTION
            for step in STEPS:
                output = build.output(step)
                assert step not in steps or output is not None, f"{step} had finished"
                if output is not None:
                    self._whole(fs, build, output)
        timeline = catalog(fs)
        state = timeline.load()
        for revision in range(max(state.floor, 0), state.revision):
            assert all(fs.exists(DATABASE / path) for path in timeline.at(revision).files), "a kept revision has a hole"
        names = {file.partition for file in state.files.values()}
        assert len(names) <= 1, "files of two builds are live"
        if record.published:
            assert names
            assert names >= {record.published[-1]} or names == {list(record.finished)[-1]}
        for path, file in state.files.items():
            assert hashlib.sha256(fs.read(DATABASE / path)).digest() == file.sha256
            assert hashlib.sha256(fs.read(DATABASE / file.toc_path)).digest() == file.toc_sha256

    def _build(self, fs: FileSystem, record: Made, name: str) -> None:
        build = Build.begin(fs, DATABASE, name, DESCRIPTION)
        finished = record.finished.setdefault(name, [])
        for step in STEPS:
            if build.output(step) is None:
                build.finish(*self._attempt(fs, build, step))
            if step not in finished:
                finished.append(step)
        assert publish(catalog(fs), build).files == len(WRITING)
        record.published.append(name)

    def _remove(self, fs: FileSystem, record: Made) -> None:
        record.removing = True
        remove_former(SETTINGS, fs, ManualClock(2_000), needs_room=True)

    def _attempt(self, fs: FileSystem, build: Build, step: str) -> tuple[Path, StepOutput]:
        attempt = build.attempt(step)
        files = []
        if step in WRITING:
            folder = attempt / "tables" / CONTENTS_IN_REVISIONS
            fs.make_directory(folder)
            written = write_table_file(fs, TABLES[CONTENTS_IN_REVISIONS], [self._source], folder / "00000.parquet")
            assert written is not None
            files.append(written)
        return attempt, StepOutput(step=step, files=tuple(files), kept={}, rounds=0, seconds=0.0)

    @staticmethod
    def _whole(fs: FileSystem, build: Build, output: StepOutput) -> None:
        for file in output.files:
            path = build.folder / output.step / "tables" / file.table / file.name
            assert hashlib.sha256(fs.read(path)).hexdigest() == file.sha256
            assert read_index(fs, path.with_suffix(".ef")).first == file.first_key


def catalog(fs: FileSystem) -> Catalog:
    return Catalog(LocalStore(fs, STORE), "main", "swh", ManualClock(1_000))
