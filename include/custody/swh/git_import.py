"""The import of a git repository: everything that its references lead to becomes a graph of nodes and edges.

Git's hashes of files, trees, commits and annotated tags are those in Software Heritage's identifiers: the one of a file
is what `git hash-object` prints. Contents are never read. The walk keeps the hash and the id of each object in memory;
rows go to disk in batches, as Parquet.

Objects are read as git reads them, not as a strict parser does: real histories hold commits with odd time zones, names
and modes. Of a commit only what the graph needs is looked at.
"""

from __future__ import annotations

import contextlib
import hashlib
import stat
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from custody.errors import ConfigurationError, ConflictError, InvalidInputError
from custody.extras import install_command
from custody.swh.graph import GRAPH_SCHEMAS
from custody.swh.swhid import HASH_BYTES, ObjectType
from custody.vfs import FileSystem, temporary

if TYPE_CHECKING:
    from dulwich.repo import Repo


_BATCH_ROWS = 1 << 16


class TableWriter:
    """One Parquet file of a graph that is being written; `rows` counts what was added."""

    def __init__(self, fs: FileSystem, path: Path, schema: pa.Schema) -> None:
        self._schema = schema
        self._columns: list[list[object]] = [[] for _ in schema]
        self._file = fs.create(path)
        self._writer = pq.ParquetWriter(self._file, schema, compression="zstd", write_page_checksum=True)
        self.rows = 0

    def add(self, row: Sequence[object]) -> None:
        """Append one row, in the order of the schema."""
        for column, value in zip(self._columns, row, strict=True):
            column.append(value)
        self.rows += 1
        if len(self._columns[0]) == _BATCH_ROWS:
            self._write()

    def close(self) -> None:
        """Write what is left, and sync."""
        self._write()
        self._writer.close()
        self._file.sync()
        self._file.close()

    def abandon(self) -> None:
        """Close the file as it is; it is of no use."""
        # Else pyarrow would write a footer when the writer is forgotten, into a file that is closed.
        with contextlib.suppress(OSError, pa.ArrowException):
            self._writer.close()
        self._file.close()

    def _write(self) -> None:
        arrays = [pa.array(column, kind) for column, kind in zip(self._columns, self._schema.types, strict=True)]
        self._writer.write_batch(pa.record_batch(arrays, schema=self._schema))
        for column in self._columns:
            column.clear()


_COMMIT, _TREE, _TAG = 1, 2, 4  # git's numbers of object types; 3 is a blob
_TYPES = {b"commit": ObjectType.REVISION, b"tree": ObjectType.DIRECTORY, b"blob": ObjectType.CONTENT}
_TYPES[b"tag"] = ObjectType.RELEASE
_NUMBERS = {1: ObjectType.REVISION, 2: ObjectType.DIRECTORY, 3: ObjectType.CONTENT, 4: ObjectType.RELEASE}
_GIT_NUMBERS = {name: number for number, kind in _NUMBERS.items() for name, other in _TYPES.items() if other == kind}
_TARGETS = {
    ObjectType.CONTENT: b"content",
    ObjectType.DIRECTORY: b"directory",
    ObjectType.REVISION: b"revision",
    ObjectType.RELEASE: b"release",
}
_INT64 = range(-(1 << 63), 1 << 63)


@dataclass(frozen=True, slots=True)
class Imported:
    """The size of an imported graph: rows of its tables, and edges left out because their target is not there."""

    nodes: int
    edges: int
    origin: str
    absent: int
    submodules: int


def import_git(fs: FileSystem, repository: Path, out: Path, *, origin: str | None = None) -> Imported:
    """Write the graph of a git repository to the new folder `out`; `origin` is the URL it is known by.

    Durability: on return the graph survives power loss. Before, `out` does not exist.

    Raises:
        ConfigurationError: the package dulwich is not installed.
        ConflictError: `out` exists.
        InvalidInputError: there is no git repository, or an object of it is damaged.
    """
    repo = _open(repository)
    url = origin if origin is not None else repository.resolve().as_uri()
    if fs.exists(out):
        raise ConflictError(f"{out}: expected a folder that does not exist yet. Choose another one.")
    fs.make_directory(out.parent)
    # Written under a temporary name: `out` is there as a whole or not at all.
    draft = temporary(out)
    fs.add_directory(draft)
    try:
        with repo, _GraphWriter(fs, draft) as writer:
            imported = _Walk(repo, writer).run(url)
        # The files were synced when they were closed; now their names, then the rename.
        fs.sync_directory(draft)
        fs.rename(draft, out)
    except BaseException:
        fs.remove_tree(draft)
        raise
    fs.sync_directory(out.parent)
    return imported


def _open(repository: Path) -> Repo:
    try:
        # Only who imports git needs it: an optional package.
        from dulwich.errors import NotGitRepository
        from dulwich.repo import Repo
    except ImportError as error:
        raise ConfigurationError(f"dulwich: not installed. Run: {install_command('git')}") from error
    try:
        return Repo(str(repository))
    except NotGitRepository as error:
        raise InvalidInputError(f"{repository}: expected a git repository, found none.") from error


class _GraphWriter:
    """The four tables of a graph that is being written."""

    def __init__(self, fs: FileSystem, folder: Path) -> None:
        self._tables = {
            name: TableWriter(fs, folder / f"{name}.parquet", schema) for name, schema in GRAPH_SCHEMAS.items()
        }
        self.nodes, self.edges = self._tables["nodes"], self._tables["edges"]
        self.timestamps, self.origins = self._tables["timestamps"], self._tables["origins"]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for table in self._tables.values():
            if kind is None:
                table.close()
            else:
                table.abandon()


class _Walk:
    """Goes from the references to all that they lead to; each object once."""

    def __init__(self, repo: Repo, writer: _GraphWriter) -> None:
        from dulwich.errors import FileFormatException

        self._damage: type[Exception] = FileFormatException
        self._store: Any = repo.object_store
        self._stores = list(_with_alternates(self._store))
        self._refs: Any = repo.refs
        self._writer = writer
        self._ids: dict[bytes, int] = {}
        """Of every object that was met, by its hash; of one that is not there, -1."""
        self._waiting: list[tuple[bytes, ObjectType]] = []
        self._next_id = 0
        self._absent = 0
        self._submodules = 0

    def run(self, url: str) -> Imported:
        origin = self._new_node(ObjectType.ORIGIN, hashlib.sha1(url.encode(), usedforsecurity=False).digest())
        self._writer.origins.add((origin, url))
        branches = self._branches()
        snapshot = self._new_node(ObjectType.SNAPSHOT, _snapshot_hash(branches))
        self._edge(origin, ObjectType.ORIGIN, snapshot, ObjectType.SNAPSHOT, None)
        for name, (kind, target) in branches.items():
            if kind is not None:
                self._link(snapshot, ObjectType.SNAPSHOT, kind, target, name)
        # A stack and no recursion: histories are longer than Python's stack is deep.
        while self._waiting:
            self._visit(*self._waiting.pop())
        return Imported(self._writer.nodes.rows, self._writer.edges.rows, url, self._absent, self._submodules)

    def _branches(self) -> dict[bytes, tuple[ObjectType | None, bytes]]:
        """The references by name: type and hash of the target, or no type and the name that it stands for."""
        branches: dict[bytes, tuple[ObjectType | None, bytes]] = {
            name: (None, target) for name, target in self._refs.get_symrefs().items()
        }
        for name, digest in self._refs.as_dict().items():
            if name not in branches and self._has(digest):
                kind = _NUMBERS[self._read(digest)[0]]
                branches[name] = (kind, bytes.fromhex(digest.decode()))
        return dict(sorted(branches.items()))

    def _visit(self, digest: bytes, kind: ObjectType) -> None:
        number, data = self._read(digest.hex().encode())
        if _NUMBERS.get(number) != kind:
            raise InvalidInputError(f"git object {digest.hex()}: expected a {kind}, got git's type {number}.")
        node = self._ids[digest]
        try:
            if number == _TREE:
                self._tree(node, data)
            elif number == _COMMIT:
                self._commit(node, data)
            elif number == _TAG:
                self._tag(node, data)
        except (ValueError, KeyError) as error:
            raise _damaged(digest.hex(), error) from error

    def _has(self, name: bytes) -> bool:
        try:
            return any(store.contains_packed(name) for store in self._stores) or self._loose_file(name) is not None
        except (ValueError, zlib.error, self._damage) as error:
            raise _damaged(name.decode(), error) from error

    def _read(self, name: bytes) -> tuple[int, bytes]:
        try:
            # dulwich parses whatever is no part of a pack.
            file = self._loose_file(name)
            if file is not None:
                return _loose_object(file.read_bytes())
            number, data = self._store.get_raw(name)
        # A file that is gone by now was packed meanwhile, or removed.
        except (KeyError, ValueError, OSError, zlib.error, self._damage) as error:
            raise _damaged(name.decode(), error) from error
        return number, data

    def _loose_file(self, name: bytes) -> Path | None:
        """Return the file of an object that is no part of a pack; raises ValueError for what is no hash."""
        text = name.decode()
        if len(bytes.fromhex(text)) != HASH_BYTES:
            raise ValueError(f"expected a hash of {HASH_BYTES} bytes, got {text[:80]!r}")
        files = (Path(store.path) / text[:2] / text[2:] for store in self._stores)
        return next((file for file in files if file.is_file()), None)

    def _tree(self, node: int, data: bytes) -> None:
        for mode, name, target in _tree_entries(data):
            # A submodule: a commit of another repository, which is not in this one.
            if stat.S_IFMT(mode) == 0o160000:
                self._submodules += 1
                continue
            kind = ObjectType.DIRECTORY if stat.S_ISDIR(mode) else ObjectType.CONTENT
            self._link(node, ObjectType.DIRECTORY, kind, target, name)

    def _commit(self, node: int, data: bytes) -> None:
        fields = list(_header(data))
        dates = {key: _seconds(value) for key, value in fields if key in (b"author", b"committer")}
        self._writer.timestamps.add((node, dates.get(b"author"), dates.get(b"committer")))
        for key, value in fields:
            if key in (b"tree", b"parent"):
                kind = ObjectType.DIRECTORY if key == b"tree" else ObjectType.REVISION
                self._link(node, ObjectType.REVISION, kind, bytes.fromhex(value.decode()), None)

    def _tag(self, node: int, data: bytes) -> None:
        fields = dict(_header(data))
        self._writer.timestamps.add((node, _seconds(fields.get(b"tagger", b"")), None))
        target = bytes.fromhex(fields[b"object"].decode())
        self._link(node, ObjectType.RELEASE, _TYPES[fields[b"type"]], target, None)

    def _link(self, source: int, source_type: ObjectType, kind: ObjectType, target: bytes, name: bytes | None) -> None:
        node = self._ids.get(target)
        if node is None:
            node = self._meet(kind, target)
        # A shallow clone lacks objects: what it has is imported, and the gaps are counted.
        if node < 0:
            self._absent += 1
        else:
            self._edge(source, source_type, node, kind, name)

    def _meet(self, kind: ObjectType, digest: bytes) -> int:
        """Give an object that is met for the first time an id; -1 where it is not there (a shallow clone)."""
        if not self._has(digest.hex().encode()):
            # Remembered, so that the store is asked only once for an object that is absent.
            self._ids[digest] = -1
            return -1
        # Contents are never read: the graph needs nothing of them but the hash.
        if kind != ObjectType.CONTENT:
            self._waiting.append((digest, kind))
        number = self._ids[digest] = self._new_node(kind, digest)
        return number

    def _new_node(self, kind: ObjectType, digest: bytes) -> int:
        number = self._next_id
        self._next_id += 1
        self._writer.nodes.add((number, kind, digest))
        return number

    def _edge(
        self, source: int, source_type: ObjectType, target: int, target_type: ObjectType, name: bytes | None
    ) -> None:
        self._writer.edges.add((source, target, source_type, target_type, name))


def _with_alternates(store: Any) -> Iterator[Any]:  # noqa: ANN401 - of an optional package
    """Yield a store of objects, and those that it borrows from, each once."""
    waiting, seen = [store], set()
    while waiting:
        store = waiting.pop()
        if store.path not in seen:
            seen.add(store.path)
            yield store
            waiting += store.alternates


def _loose_object(data: bytes) -> tuple[int, bytes]:
    """Return git's number of the type of a loose object, and its content; raises ValueError, KeyError, zlib.error."""
    head, _, content = zlib.decompress(data).partition(b"\0")
    name, _, size = head.partition(b" ")
    if int(size) != len(content):
        raise ValueError(f"expected {int(size)} bytes, got {len(content)}")
    return _GIT_NUMBERS[name], content


def _damaged(name: str, error: Exception) -> InvalidInputError:
    reason = f"{type(error).__name__}: {error}"
    return InvalidInputError(f"git object {name}: expected a whole object, got {reason}. Run: git fsck")


def _tree_entries(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Mode, name and hash of the entries of a tree: `<octal mode> <name>\\0<20 bytes>` one after the other."""
    start = 0
    while start < len(data):
        space = data.index(b" ", start)
        end = data.index(b"\0", space)
        yield int(data[start:space], 8), data[space + 1 : end], data[end + 1 : end + 1 + HASH_BYTES]
        start = end + 1 + HASH_BYTES


def _header(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values before the first empty line; of a value of several lines the first one."""
    for line in data.partition(b"\n\n")[0].split(b"\n"):
        # A line that begins with a blank continues the value before it, as those of a signature do.
        if not line.startswith(b" "):
            key, _, value = line.partition(b" ")
            yield key, value


def _seconds(person: bytes) -> int | None:
    """The time in `name <mail> <seconds> <zone>`; None where there is none, or one that fits no column."""
    parts = person.rpartition(b">")[2].split()
    try:
        seconds = int(parts[0])
    except (IndexError, ValueError):
        return None
    return seconds if seconds in _INT64 else None


def _snapshot_hash(branches: Mapping[bytes, tuple[ObjectType | None, bytes]]) -> bytes:
    """The hash of a snapshot: that of its branches in the order of their names, each with type, name and target."""
    body = b"".join(
        (b"alias" if kind is None else _TARGETS[kind]) + b" " + name + b"\0" + f"{len(target)}:".encode() + target
        for name, (kind, target) in branches.items()
    )
    header = f"snapshot {len(body)}\0".encode()
    return hashlib.sha1(header + body, usedforsecurity=False).digest()
