"""A build: the folder in which a database is made, step by step, until the catalog lists its files.

    <database>/builds/<build>/build.json                  of which graph, with which filter
    <database>/builds/<build>/<step>/output.json          what the step made
    <database>/builds/<build>/<step>/tables/<table>/...   files of the database
    <database>/builds/<build>/<step>/kept/<name>/...      what later steps read; goes when the build is published
    <database>/builds/<build>/attempt.<step>.<uuid>/      a step that goes on, or that died

An attempt becomes a step's output by one rename, after everything in it was synced: a step's folder is whole, or it is
not there. It stays in one folder, as a move between two may leave a name in both after a crash. Of two attempts at one
step the first one wins; the other finds the folder there and throws its own away.
"""

from __future__ import annotations

import errno
import re
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from custody.errors import ConfigurationError, CorruptionError, NotFoundError, StorageError
from custody.format.checked_json import is_changed, with_checksum
from custody.format.names import BUILDS, SOFTWARE
from custody.swh.index_file import INDEX_SUFFIX
from custody.swh.table_file import WrittenFile
from custody.vfs import FileSystem

NODE_FILTERS = ("heads", "all")
# Also names of folders on disk: add steps, never rename one.
STEPS = (
    "swh_nodes",
    "swh_earliest_timestamps",
    "swh_max_leaf_timestamps",
    "swh_directory_frontier",
    "swh_frontier_directories_in_revisions",
    "swh_contents_in_revisions",
    "swh_contents_in_frontier_directories",
    "swh_revisions_in_origins",
)
"""The steps in their order; what publishes a build comes behind them."""

NODES_STEP, TIMESTAMPS_STEP, LEAVES_STEP, FRONTIER_STEP = STEPS[:4]
PUBLISH = "swh_publish"
DATABASE = SOFTWARE
"""Under which name the database lies beside the events of a writer."""

_T = TypeVar("_T", bound=msgspec.Struct)
# Safe as a folder's name; none begins with a dot, as the folders do that retention is removing.
_NAME = re.compile(r"[A-Za-z0-9_=][A-Za-z0-9._=+-]{0,99}")
# Names on disk.
_DESCRIPTION, _OUTPUT, _ATTEMPT = "build.json", "output.json", "attempt."


class BuildDescription(msgspec.Struct, frozen=True, kw_only=True):
    """The source of a build: graph, fingerprint and filter. A build is not continued with others."""

    graph: str
    fingerprint: str
    node_filter: str
    graph_version: str = ""
    """Name of the version of the graph; empty where nothing names it."""

    def footer(self) -> dict[str, str]:
        """Return what the footers of the tables say of the graph, by the names that the original uses."""
        return {"swh_graph_version": self.graph_version, "swh_graph_path": self.graph} if self.graph_version else {}


class StepOutput(msgspec.Struct, frozen=True, kw_only=True):
    """The output of a step: files of the database, rows that it kept for later steps, rounds of its loops."""

    step: str
    files: tuple[WrittenFile, ...]
    kept: Mapping[str, int]
    rounds: int
    seconds: float
    walks: str = ""
    """How the arcs were kept, which decides how later steps walk; of the first step only."""
    attempt: str = ""
    """Who made it, where that was said: under Airflow `<dag>/<run>/<task>/<try>`."""


_BUILD_DESCRIPTION = msgspec.json.Decoder(BuildDescription)
_STEP_OUTPUT = msgspec.json.Decoder(StepOutput)


class Build:
    """One build of a database; every method may be called again after a crash."""

    def __init__(self, fs: FileSystem, folder: Path, description: BuildDescription) -> None:
        self._fs = fs
        self.folder = folder
        self.description = description

    @property
    def name(self) -> str:
        """The build's name."""
        return self.folder.name

    @classmethod
    def begin(cls, fs: FileSystem, database: Path, name: str, description: BuildDescription) -> Build:
        """Make a build, or go on with the one of that name.

        Raises:
            ConfigurationError: the name is not safe, the filter is not known, or it was started for another graph
                or filter.
        """
        if description.node_filter not in NODE_FILTERS:
            raise ConfigurationError(f"node filter {description.node_filter!r}: expected one of {NODE_FILTERS}.")
        folder = _folder(database, name)
        fs.make_directory(folder)
        # Of two that begin the same build one writes; both compare what lies there afterwards.
        fs.publish_if_absent(folder / _DESCRIPTION, with_checksum(msgspec.json.encode(description)))
        build = cls.open(fs, database, name)
        if build.description != description:
            raise ConfigurationError(
                f"build {name}: was started with {build.description}, expected {description}. Choose another name."
            )
        return build

    @classmethod
    def open(cls, fs: FileSystem, database: Path, name: str) -> Build:
        """Return a build that was started.

        Raises:
            NotFoundError: there is none of that name.
        """
        folder = _folder(database, name)
        if not fs.exists(folder / _DESCRIPTION):
            raise NotFoundError(f"build {name}: expected {folder / _DESCRIPTION}, found none. Run {STEPS[0]} first.")
        return cls(fs, folder, _decoded(fs, folder / _DESCRIPTION, _BUILD_DESCRIPTION))

    def output(self, step: str) -> StepOutput | None:
        """Return what a finished step made; None if it did not finish yet."""
        path = self.folder / step / _OUTPUT
        return _decoded(self._fs, path, _STEP_OUTPUT) if self._fs.exists(path) else None

    def intermediate(self, step: str, name: str) -> Path:
        """Return the folder of rows that a finished step keeps for later steps.

        Raises:
            NotFoundError: the step did not finish, or the build is published and those rows are gone.
        """
        folder = self.folder / step / "kept" / name
        if not self._fs.exists(folder):
            raise NotFoundError(f"{folder}: expected what the step {step} keeps, found none. Run that step first.")
        return folder

    def has_intermediate(self, step: str, name: str) -> bool:
        """Whether a finished step keeps rows of that name for later steps."""
        return self._fs.exists(self.folder / step / "kept" / name)

    def attempt(self, step: str) -> Path:
        """Make the folder of a new attempt at a step.

        What earlier attempts left stays: one of them may live on. Publishing the build removes it.
        """
        folder = self.folder / f"{_ATTEMPT}{step}.{uuid.uuid4().hex}"
        for inner in ("rounds", "kept", "tables"):
            self._fs.make_directory(folder / inner)
        return folder

    def finish(self, attempt: Path, output: StepOutput) -> StepOutput:
        """Make an attempt the output of its step; return that of another attempt where one was faster.

        Durability: on return the output survives power loss.
        """
        # Everything in the folder is synced before the rename: after it the step counts as done, also after a crash.
        # Only the attempt itself reads its rounds.
        self._fs.remove_tree(attempt / "rounds")
        self._fs.write_durably(attempt / _OUTPUT, with_checksum(msgspec.json.encode(output)))
        self._sync(attempt)
        target = self.folder / output.step
        try:
            self._fs.rename(attempt, target)
        except StorageError as error:
            # Another attempt published first. Its output is as good as this one, and later steps may read it already.
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            self._fs.remove_tree(attempt)
        self._fs.sync_directory(self.folder)
        finished = self.output(output.step)
        assert finished is not None  # noqa: S101 - it was renamed, or lies there already
        return finished

    def files(self) -> dict[str, WrittenFile]:
        """Return the files of all steps by their paths within the database's folder.

        Raises:
            NotFoundError: a step did not finish yet.
        """
        listed: dict[str, WrittenFile] = {}
        for step in STEPS:
            output = self.output(step)
            if output is None:
                raise NotFoundError(f"build {self.name}: the step {step} did not finish. Run it first.")
            for file in output.files:
                listed[f"{BUILDS}/{self.name}/{step}/tables/{file.table}/{file.name}"] = file
        return listed

    def table_files(self, output: StepOutput) -> list[tuple[WrittenFile, Path, Path]]:
        """Return the files of a finished step's tables, each with its path and that of its index."""
        tables = self.folder / output.step / "tables"
        paths = [(file, tables / file.table / file.name) for file in output.files]
        return [(file, path, path.with_suffix(INDEX_SUFFIX)) for file, path in paths]

    def clear(self) -> None:
        """Remove what is no part of the database: what steps kept, and what attempts left."""
        for step in STEPS:
            self._fs.remove_tree(self.folder / step / "kept")
        for name in self._fs.list(self.folder):
            if name.startswith(_ATTEMPT):
                self._fs.remove_tree(self.folder / name)

    def _sync(self, folder: Path) -> None:
        """Make a tree durable that others wrote."""
        # Files before their folder: a name that survives a power loss then leads to whole content.
        for name in self._fs.list(folder):
            path = folder / name
            if self._fs.is_directory(path):
                self._sync(path)
            else:
                self._fs.sync_file(path)
        self._fs.sync_directory(folder)


def _folder(database: Path, name: str) -> Path:
    if _NAME.fullmatch(name) is None:
        raise ConfigurationError(
            f"build {name[:100]!r}: expected 1 to 100 letters, digits or one of . _ = + -, the first none of . + -."
        )
    return database / BUILDS / name


def _decoded(fs: FileSystem, path: Path, form: msgspec.json.Decoder[_T]) -> _T:
    data = fs.read(path)
    if is_changed(data):
        raise CorruptionError(f"{path} @0: expected {form.type.__name__} with its checksum, got other bytes.")
    try:
        return form.decode(data)
    except msgspec.DecodeError as error:
        raise CorruptionError(f"{path} @0: expected {form.type.__name__} as JSON: {error}.") from error
