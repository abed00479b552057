"""One live shard: is it there, is it whole, and does it answer as its logs would."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from whoosh.query import Every

from custody.catalog import AddShard, CatalogState
from custody.errors import CorruptionError, CustodyError, NotFoundError
from custody.format.framing import misplaced_parts
from custody.index import ATTRIBUTE_PREFIX, DAY, IDENTIFIER_FIELDS, POINTER_COLUMN, OpenShard
from custody.index.manifest import NAME as MANIFEST
from custody.index.manifest import PREAMBLE
from custody.maintenance.findings import Finding, Level
from custody.maintenance.planning import open_file
from custody.query import SEVERAL_VALUES, facets_of_table
from custody.rollover import Workspace


def check_shard(workspace: Workspace, state: CatalogState, name: str, level: Level) -> Iterator[Finding]:
    """Yield what is wrong with a live shard; one that was built with other settings is not wrong."""
    shard = state.shards[name]
    try:
        opened = OpenShard(workspace.fs, workspace.shard_path(shard))
        _check_description(workspace, shard, opened)
        if level is not Level.QUICK:
            _check_marks(workspace, shard)
            opened.verify()
    except NotFoundError as error:
        yield _finding(workspace, shard, "shard-missing", error)
        return
    except CustodyError as error:
        yield _finding(workspace, shard, "shard-damaged", error)
        return
    if level is Level.DEEP:
        yield from _compared(workspace, state, shard, opened)


def _check_description(workspace: Workspace, shard: AddShard, opened: OpenShard) -> None:
    """Raise CorruptionError unless the folder holds the shard that the catalog means, with files of the right sizes."""
    found = opened.description
    said = (shard.documents, shard.first_event_id, shard.last_event_id)
    if (found.documents, found.first_event_id, found.last_event_id) != said:
        got = (found.documents, found.first_event_id, found.last_event_id)
        raise CorruptionError(f"{opened.path}: expected documents, first and last id {said}, got {got}: another shard.")
    for file in found.files:
        path = opened.path / file.name
        size = workspace.fs.size(path) if workspace.fs.exists(path) else -1
        if size != file.size:
            raise CorruptionError(f"{path}: expected {file.size} bytes, got {'no file' if size < 0 else size}.")


def _check_marks(workspace: Workspace, shard: AddShard) -> None:
    path = workspace.shard_path(shard) / MANIFEST
    for offset in misplaced_parts(workspace.fs.read(path), len(PREAMBLE)):
        raise CorruptionError(f"{path} @{offset}: expected the mark of a record, got that of a part.")


def _compared(workspace: Workspace, state: CatalogState, shard: AddShard, opened: OpenShard) -> Iterator[Finding]:
    """Compare pointers and counted values with those of the logs; damaged logs are found by themselves."""
    fields = [DAY, *(field.name for field in IDENTIFIER_FIELDS if field.name not in SEVERAL_VALUES)]
    fields += [ATTRIBUTE_PREFIX + name for name in opened.description.attributes]
    fields = [name for name in fields if name == DAY or name in opened.description.fields]
    counts: dict[str, Counter[str]] = {name: Counter() for name in fields}
    parts = [np.empty(0, np.int64)]
    try:
        for path in shard.log_paths:
            log = open_file(workspace, state.files[path])
            for table in log.tables(range(len(log.toc.blocks))):
                parts.append(np.asarray(table.column("event_id").combine_chunks()))
                facets_of_table(counts, table, Every(), opened.description.attributes)
    except (CustodyError, OSError, pa.ArrowException, ValueError, KeyError):
        return
    try:
        held = opened.numbers(POINTER_COLUMN).span(0, opened.documents)[::-1]
        wrong = [name for name in fields if opened.facet(Every(), name) != dict(counts[name])]
    except CustodyError as error:
        yield _finding(workspace, shard, "shard-damaged", error)
        return
    if not np.array_equal(held, np.concatenate(parts)):
        wrong.insert(0, "its pointers")
    if wrong:
        text = f"{opened.path}: expected the events of its logs, got others: {', '.join(wrong)}."
        yield _finding(workspace, shard, "shard-different", text)


def _finding(workspace: Workspace, shard: AddShard, kind: str, text: object) -> Finding:
    """A shard that is damaged costs no event: what it cannot answer is read from the logs."""
    return Finding(
        kind=kind,
        writer=workspace.writer,
        path=str(workspace.shard_path(shard)),
        message=str(text),
        first_event_id=shard.first_event_id,
        last_event_id=shard.last_event_id,
        name=shard.name,
    )
