"""Checks of live event logs and index shards.

A log must be there and be what the catalog lists; else the damaged blocks are named, with the events that they held.
A shard must be there and whole; a deep check compares its answers with those of its logs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from custody.catalog import AddFile, AddShard, CatalogState, Defect, verify_file, verify_toc
from custody.errors import CorruptionError, CustodyError, FormatVersionError, NotFoundError, StripeMissingError
from custody.eventlog import Damage, EventLog, source_bounds
from custody.format.names import split_stripe
from custody.index import (
    FilterFile,
    OpenShard,
    build_shard,
    list_filter_files,
    shard_differences,
    shard_filter,
)
from custody.maintenance.findings import Finding, Level
from custody.maintenance.rewriting import open_event_log
from custody.model import Event, is_newer, to_events
from custody.rollover import bounds_of_shard, require_whole_shard
from custody.vfs.memory import MemoryFileSystem
from custody.workspace import Workspace

_READ_BYTES = 8 << 20


def check_log(workspace: Workspace, state: CatalogState, path: str, level: Level) -> Iterator[Finding]:
    """Yield what is wrong with a live log and with the table of contents beside it."""
    file = state.files[path]
    files = workspace.catalog.objects.files
    try:
        files.require(path)
    except StripeMissingError:
        return  # one finding names the whole stripe
    if files.copies is not None:
        yield from _stored_log(workspace, file, level)
        return
    if not files.exists(path):
        yield _whole(workspace, file, "log-missing", verify_file(workspace.catalog.objects, file)[0])
        return
    toc_is_there = files.exists(file.toc_path)
    if level is Level.QUICK:
        # Only a log whose size is wrong is read at this level.
        if workspace.fs.size(files.path(path)) != file.size_bytes:
            yield from _explained(workspace, state, file, verify_file(workspace.catalog.objects, file))
        # Its bytes are not read at this level: it is enough that it is there.
        tocs = [] if toc_is_there else verify_toc(workspace.catalog.objects, file)
    else:
        yield from _explained(workspace, state, file, verify_file(workspace.catalog.objects, file))
        tocs = verify_toc(workspace.catalog.objects, file)
    for defect in tocs:
        yield Finding.of("toc-damaged", defect.file, defect, writer=workspace.writer, name=file.path)
    if level is Level.DEEP:
        yield from _decoded(workspace, file)


def _stored_log(workspace: Workspace, file: AddFile, level: Level) -> Iterator[Finding]:
    """Yield what is wrong with a log of an object store: read there, as a copy on this machine proves nothing."""
    objects = workspace.catalog.objects
    info, toc = objects.files.head(file.path), objects.files.head(file.toc_path)
    if info is None:
        defects = verify_file(objects, file)
        yield _whole(workspace, file, "log-missing", defects[0])
    elif level is not Level.QUICK or info.size_bytes != file.size_bytes:
        defects = verify_file(objects, file)
        if defects:
            yield _whole(workspace, file, "log-damaged", defects[0], "it is damaged in the store")
    else:
        defects = []
    for defect in verify_toc(objects, file) if level is not Level.QUICK or toc is None else ():
        yield Finding.of("toc-damaged", defect.file, defect, writer=workspace.writer, name=file.path)
    if level is Level.DEEP and not defects:
        yield from _decoded(workspace, file)


def check_stripes(workspace: Workspace, state: CatalogState | None) -> Iterator[Finding]:
    """Yield the stripes that are not there, each with the events out of reach, and records that are damaged."""
    stripes = workspace.catalog.objects.files.stripes
    for where, text in stripes.damage() if stripes is not None else ():
        yield Finding.of("stripe-damaged", where, text, writer=workspace.writer, offset=0)
    for name, error in workspace.catalog.objects.files.missing():
        paths = [] if state is None else [path for path in state.files if split_stripe(path)[0] == name]
        events = sum(state.files[path].rows for path in paths) if state is not None else 0
        text = f"{error} {len(paths)} live logs lie on it."
        yield Finding.of("stripe-missing", f"stripe {name}", text, writer=workspace.writer, events=events, name=name)


def check_versions(workspace: Workspace, state: CatalogState) -> Iterator[Finding]:
    """Yield one notice for each newer schema version that live logs have."""
    newer: dict[int, list[AddFile]] = {}
    for file in state.files.values():
        if is_newer(file.schema_version):
            newer.setdefault(file.schema_version, []).append(file)
    for version, files in sorted(newer.items()):
        text = (
            f"{len(files)} logs were written by a newer custody, with schema version {version}; "
            "columns that it added are not looked at, and the logs are not written anew."
        )
        yield Finding.of("log-newer", workspace.log_place(files[0].path), text, writer=workspace.writer)


def damaged_blocks(workspace: Workspace, file: AddFile) -> tuple[EventLog | None, list[Damage]]:
    """Return a live log and its damaged blocks; no log when none of its blocks can be found."""
    log = open_event_log(workspace, file)
    damaged: list[Damage] = []
    try:
        log.load()
        log.whole_blocks(damaged.append)
    except (CustodyError, OSError, pa.ArrowException, ValueError):
        return None, []
    return log, damaged


def sha256_of(workspace: Workspace, path: str) -> bytes:
    """Return the digest of a file of the database's folder; it is read in pieces."""
    whole = hashlib.sha256()
    view = workspace.fs.view(workspace.log_path(path))
    for start in range(0, len(view), _READ_BYTES):
        whole.update(view[start : start + _READ_BYTES])
    return whole.digest()


def _explained(workspace: Workspace, state: CatalogState, file: AddFile, defects: list[Defect]) -> Iterator[Finding]:
    """Yield what the change of a log means for its events."""
    if not defects:
        return
    digest = sha256_of(workspace, file.path)
    # Logs that changed places are whole: a repair only has to move them back.
    other = next((path for path in state.files if state.files[path].sha256 == digest), None)
    if other is not None and other != file.path:
        yield _whole(workspace, file, "log-foreign", defects[0], f"it holds the bytes of {other}")
        return
    log, damaged = damaged_blocks(workspace, file)
    if log is None:
        yield _whole(workspace, file, "log-damaged", defects[0], "none of its blocks can be found")
    elif not damaged:
        yield _whole(workspace, file, "log-changed", defects[0], "its blocks are whole", events=0)
    else:
        for damage in damaged:
            yield _block(workspace, file, log, damage)


def _block(workspace: Workspace, file: AddFile, log: EventLog, damage: Damage) -> Finding:
    block = log.toc.blocks[damage.block]
    text = f"block {damage.block} is damaged: {damage.problem}"
    where, offset = workspace.log_place(file.path), int(block["offset"])
    return Finding.of(
        "log-damaged",
        where,
        f"{where} @{offset}: {text}.",
        writer=workspace.writer,
        offset=offset,
        events=int(block["rows"]),
        ids=(damage.first_event_id, damage.last_event_id),
        name=file.path,
    )


def _whole(
    workspace: Workspace, file: AddFile, kind: str, defect: Defect, what: str = "", events: int | None = None
) -> Finding:
    return Finding.of(
        kind,
        defect.file,
        f"{defect} {what}".strip(),
        writer=workspace.writer,
        offset=defect.offset,
        events=file.rows if events is None else events,
        ids=(file.first_event_id, file.last_event_id) if events is None else (None, None),
        name=file.path,
    )


def _decoded(workspace: Workspace, file: AddFile) -> Iterator[Finding]:
    """Decode all events and compare them with what the catalog says of them."""
    log = open_event_log(workspace, file)
    damaged: list[Damage] = []
    try:
        log.load()
        wrong = _contradictions(file, log, damaged)
        if not damaged:
            log.check(log.metadata)  # the table beside it, the one within it and the footer say the same
    except (CustodyError, OSError, pa.ArrowException, ValueError) as error:
        wrong = [str(error)]
    # Changed bytes have findings of their own; named here is a log that is as listed and contradicts the catalog.
    if wrong and not damaged and not verify_file(workspace.catalog.objects, file):
        defect = Defect(str(log.path), None, wrong[0])
        yield _whole(workspace, file, "log-changed", defect, "its bytes are those that were listed", events=0)


def _contradictions(file: AddFile, log: EventLog, damaged: list[Damage]) -> list[str]:
    last, rows, wrong = -1, 0, []
    ordinals: dict[str, tuple[int, int]] = {}
    low, high = file.last_event_time_ms, file.first_event_time_ms
    for table in log.tables(range(len(log.toc.blocks)), None, damaged.append):
        ids = table.column("event_id").to_numpy()
        if len(ids) and (ids[0] <= last or (np.diff(ids) <= 0).any()):
            wrong.append(f"expected event ids that go up, got {int(ids[0])} behind {last}, or others.")
        last, rows = int(ids[-1]), rows + len(ids)
        bounds = pc.min_max(table.column("event_time").cast(pa.int64())).as_py()
        low, high = min(low, bounds["min"]), max(high, bounds["max"])
        copied = log.copied(ids)
        if copied.events and copied.events != _rows_of(table, ids, copied.missing):
            wrong.append(f"expected the copies of the events {ids[0]} to {ids[-1]} to be those events, got others.")
        for batch in table.select(["source_node", "source_ordinal"]).to_batches():
            for node, least, greatest in source_bounds(batch):
                first, end = ordinals.get(node, (least, greatest))
                ordinals[node] = min(first, least), max(end, greatest)
    listed = (file.rows, file.last_event_id, file.first_event_time_ms, file.last_event_time_ms)
    if not damaged and (rows, last, low, high) != listed:
        wrong.append(f"expected rows, last id and times {listed}, got {(rows, last, low, high)}.")
    known = {each.node: (each.first_ordinal, each.last_ordinal) for each in file.sources}
    for node, (first, end) in sorted(ordinals.items()):
        # A repeated event is looked for in the logs whose ranges have its number: a wider one costs a look.
        if node not in known or first < known[node][0] or end > known[node][1]:
            wrong.append(f"expected numbers of the source {node!r} within {known.get(node)}, got {first} to {end}.")
    return wrong


def _rows_of(table: pa.Table, ids: npt.NDArray[np.int64], left_out: npt.NDArray[np.int64]) -> list[Event]:
    """Return the events of a table but some."""
    return to_events(table.filter(pa.array(~np.isin(ids, left_out))) if len(left_out) else table)


def check_shard(workspace: Workspace, state: CatalogState, name: str, level: Level) -> Iterator[Finding]:
    """Yield what is wrong with a live shard; a shard of other settings is not wrong."""
    shard = state.shards[name]
    try:
        opened = require_whole_shard(workspace, shard, every_byte=level is not Level.QUICK)
    except NotFoundError as error:
        yield _shard_finding(workspace, shard, "shard-missing", error)
        return
    except CustodyError as error:
        yield _shard_finding(workspace, shard, "shard-damaged", error)
        return
    if level is Level.DEEP:
        yield from _compared(workspace, state, shard, opened)


def _compared(workspace: Workspace, state: CatalogState, shard: AddShard, opened: OpenShard) -> Iterator[Finding]:
    """Compare a shard with one that is built of its logs in memory; damaged logs are reported by their own check."""
    about = opened.description
    logs = [open_event_log(workspace, state.files[path]) for path in shard.log_paths if path in state.files]
    if len(logs) < len(shard.log_paths):
        return
    fs, place = MemoryFileSystem(), Path("/", opened.path.name)
    try:
        build_shard(
            fs,
            place,
            (table for log in logs for table in log.tables(range(len(log.toc.blocks)))),
            about.attributes,
            standard=about.standard,
            ranges=about.ranges,
            layout="packed" if about.layout == "packed" else "whoosh",
            writer=None if about.layout == "packed" else about.layout,
            attribute_characters=workspace.settings.query.attribute_characters_max,
        )
    except (CustodyError, OSError, pa.ArrowException, ValueError, KeyError):
        return
    try:
        wrong = shard_differences(opened, OpenShard(fs, place))
    except CustodyError as error:
        yield _shard_finding(workspace, shard, "shard-damaged", error)
        return
    if wrong:
        text = f"{opened.path}: expected the events of its logs, got others: {', '.join(wrong)}."
        yield _shard_finding(workspace, shard, "shard-different", text)


def check_filters(workspace: Workspace, level: Level) -> Iterator[Finding]:
    """Yield the files of filters that are damaged, or that say something else than the shards of which they were made.

    While a file is damaged, searches ask more shards; where it says something else, they find less.
    """
    live = _live_shards(workspace) if level is not Level.QUICK else {}
    for folder in workspace.filter_folders():
        for path, file in list_filter_files(workspace.fs, folder):
            try:
                if isinstance(file, CustodyError):
                    raise file
                if level is not Level.QUICK:
                    file.require_all()
                    _compare_with_shards(workspace, file, live)
            except CorruptionError as error:
                yield Finding.of("filters-damaged", path, error, writer=workspace.writer)


def _live_shards(workspace: Workspace) -> Mapping[str, AddShard]:
    try:
        return workspace.state().shards
    except CustodyError:
        return {}  # the check of the catalog says so


def _compare_with_shards(workspace: Workspace, file: FilterFile, live: Mapping[str, AddShard]) -> None:
    """Raise CorruptionError when a file says of a live shard what the shard itself does not.

    The shards are opened, and their filters read; a shard that is damaged has a finding of its own.
    """
    bounds = {name: tuple(row) for name, row in zip(file.names, file.bounds.tolist(), strict=True)}
    for name in file.names:
        shard = live.get(name)
        # Readers pass over what a file says of a shard with other bounds.
        if shard is None or bounds[name] != bounds_of_shard(shard):
            continue
        try:
            own = shard_filter(require_whole_shard(workspace, shard, every_byte=False), bounds_of_shard(shard))
        except (NotFoundError, CorruptionError, FormatVersionError):
            continue
        [kept] = file.filters([name])
        if (own.digest, own.kind, own.counts) != (kept.digest, kept.kind, kept.counts) or not np.array_equal(
            own.blocks, kept.blocks
        ):
            raise CorruptionError(f"{file.path}: says of shard {name} what the shard does not say.")


def _shard_finding(workspace: Workspace, shard: AddShard, kind: str, text: object) -> Finding:
    """Return a finding without events: what a damaged shard cannot answer is read from the logs."""
    ids = (shard.first_event_id, shard.last_event_id)
    return Finding.of(kind, workspace.shard_path(shard), text, writer=workspace.writer, ids=ids, name=shard.name)
