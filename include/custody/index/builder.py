"""The builder of index shards: one immutable index of the events of one log, newest event first.

A shard is built in a folder of its own attempt, synced, and published by renaming that folder; so a folder with the
name of a shard is always a whole shard. It is packed, or has the layout that Whoosh opens. Then the bulk writer makes
the bytes that the installed Whoosh reads; of a Whoosh that it does not know, Whoosh's own writer does the work, some
hundred times slower.
"""

from __future__ import annotations

import hashlib
import logging
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pyarrow as pa

from custody.errors import ConfigurationError
from custody.index import manifest, whoosh_writer
from custody.index.fields import STANDARD_FIELDS, IndexedFields, Layout
from custody.index.packed_writer import write_packed
from custody.index.segment_writer import write_segment
from custody.vfs import FileSystem

# Part of the layout: what a crash leaves behind is recognised by this prefix and removed.
ATTEMPT_PREFIX = "building-"
# Bounds the values that wait for their field; beyond it they go to a file of the attempt.
MEMORY_BYTES = 256 << 20

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BuiltShard:
    """A published shard; `sha256` is that of its manifest, which holds the checksums of all its files."""

    path: Path
    documents: int
    size_bytes: int
    sha256: bytes


def build_shard(
    fs: FileSystem,
    path: Path,
    tables: pa.Table | Iterable[pa.Table],
    attributes: Sequence[str],
    *,
    standard: Sequence[str] = STANDARD_FIELDS,
    ranges: Sequence[str] = (),
    attribute_characters: int | None = None,
    layout: Layout = "packed",
    writer: Literal["bulk", "stock"] | None = None,
    memory_bytes: int = MEMORY_BYTES,
    replace: bool = False,
) -> BuiltShard:
    """Index events, which come in the order of their ids, and publish the shard's folder.

    One that exists already is kept, unless `replace` is set. `standard` names the standard fields that are indexed,
    `ranges` the number fields that get terms besides their column, so that stock Whoosh can search them;
    `attribute_characters` is the most that a term has of an attribute's value; `layout` says whether Whoosh can open
    the shard, and then `writer` is chosen by the installed Whoosh when it is not named; `memory_bytes` bounds what is
    kept of the events in memory.

    Durability: on return the shard survives power loss.

    Raises:
        ConfigurationError: a field is not known, the bulk writer is asked for a Whoosh it does not know, or `ranges`
            are named for a packed shard.
    """
    aside: Path | None = None
    if replace or not fs.exists(path):
        fs.make_directory(path.parent)
        # A name of its own for each attempt: of two processes that build the same shard, none touches the other's
        # files.
        attempt = path.with_name(f"{ATTEMPT_PREFIX}{path.name}-{uuid.uuid4().hex}")
        fs.make_directory(attempt)
        try:
            _write(
                fs,
                attempt,
                [tables] if isinstance(tables, pa.Table) else tables,
                IndexedFields.checked(attributes, standard, ranges, attribute_characters, layout),
                writer,
                memory_bytes,
            )
            # The names of the files have to be durable before the folder gets the name that promises a whole shard.
            fs.sync_directory(attempt)
            # A rename onto a folder that is not empty fails, so the old shard has to give up the name first.
            if fs.exists(path):
                aside = path.with_name(f"{ATTEMPT_PREFIX}{path.name}-{uuid.uuid4().hex}")
                fs.rename(path, aside)
            fs.rename(attempt, path)
        # Also when the process is asked to stop: a half-built folder is worth nothing to anybody.
        except BaseException:
            fs.remove_tree(attempt)
            raise
    # Also for a shard that is there already: the process that built it may have died before this.
    fs.sync_directory(path.parent)
    if aside is not None:
        # Only now: until the rename is durable a crash may bring the old shard back, and it must be whole then.
        fs.remove_tree(aside)
    # Read from the disk, not from what was built: another process may have published this shard first.
    data = fs.read(path / manifest.NAME)
    documents = manifest.Manifest.decode(data, path / manifest.NAME).description.documents
    size = sum(fs.size(path / name) for name in fs.list(path))
    return BuiltShard(path, documents, size, hashlib.sha256(data).digest())


def _write(
    fs: FileSystem,
    folder: Path,
    tables: Iterable[pa.Table],
    indexed: IndexedFields,
    writer: Literal["bulk", "stock"] | None,
    memory_bytes: int,
) -> None:
    if indexed.layout == "packed":
        written = write_packed(fs, folder, tables, indexed, memory_bytes)
    else:
        written = _write_for_whoosh(fs, folder, tables, indexed, writer, memory_bytes)
    # The manifest is written last: it has the checksums of all other files.
    with fs.create(folder / manifest.NAME) as file:
        file.write(written.encode())
        file.sync()


def _write_for_whoosh(
    fs: FileSystem,
    folder: Path,
    tables: Iterable[pa.Table],
    indexed: IndexedFields,
    writer: Literal["bulk", "stock"] | None,
    memory_bytes: int,
) -> manifest.Manifest:
    difference = whoosh_writer.whoosh_difference()
    if writer == "bulk" and difference is not None:
        raise ConfigurationError(f"the bulk writer of index shards does not know this Whoosh: {difference}.")
    if writer is None and difference is not None:
        _log.warning("%s: index shards are written by Whoosh itself, which is slow.", difference)
        writer = "stock"
    if writer == "stock":
        return whoosh_writer.write_stock_segment(fs, folder, tables, indexed)
    return write_segment(fs, folder, tables, indexed, memory_bytes)
