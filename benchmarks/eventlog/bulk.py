"""Sample events in bulk, as columns: a base of sample events, told again and again as another stretch of time.

The base is what `custody.sample` makes, read by capture. Each further tile is the base with every FlowFile, event and
fragment renamed (a uuid wherever it stands, the same way in all columns, so that lineages stay whole), its times
after those of the tile before, and each node's ordinals going on. Components, nodes, attribute names and texts stay
what they are, as in a real flow.

`python -m benchmarks.eventlog.bulk FOLDER --events 1000000` makes a repository whose journals wait to be rolled
over.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import click
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from custody.config import Settings
from custody.format.names import ContainerPaths, JournalName
from custody.journal.encoding import batch_record
from custody.journal.journal_file import JournalEnd, JournalHeader, end_record, write_header
from custody.model import EVENT_SCHEMA, to_batch
from custody.repository import Repository
from custody.vfs import FileSystem, PosixFileSystem, WritableFile, temporary
from tests.support import sample

BASE_EVENTS = 20_000
_UUID_BYTES = 36
_DASHES = (8, 13, 18, 23)
# Version and variant stay, so that a uuid stays one.
_CHANGED = np.array([place for place in range(_UUID_BYTES) if place not in (*_DASHES, 14, 19)])
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
_URIS = ("content_uri", "previous_content_uri")
_TIMES = ("event_time", "flowfile_entry_date", "lineage_start_date")

Bytes = npt.NDArray[np.uint8]
Places = npt.NDArray[np.int64]


def tables(
    rows: int, base: int = BASE_EVENTS, seed: int = 7, *, first_event_id: int = 0, first_tile: int = 0
) -> Iterator[pa.Table]:
    """Yield tables of EVENT_SCHEMA with `rows` events in all, ids from the first on in order, `base` events a table.

    Each tile tells the base as another stretch of time, so that what goes on begins at the next tile.
    """
    template = _template(base, seed)
    for start in range(0, rows, base):
        tile = template.tile(first_tile + start // base, first_event_id + start)
        yield tile.slice(0, min(base, rows - start))


def write_journals(
    fs: FileSystem,
    settings: Settings,
    events: Iterable[pa.Table],
    *,
    writer: str = "main",
    group_events: int = 1_000_000,
    journals: int = 4,
    batch_events: int = 1000,
) -> int:
    """Write events as sealed journals, as a writer's threads would have; return the number of events.

    The batches of a group go round its journals and over all containers, so that ids interleave between the files.
    """
    total = 0
    with ExitStack() as last:
        files: list[WritableFile] = []
        ends: list[JournalEnd] = []
        number = 0
        for is_first, table in _pieces(events, group_events):
            if is_first:
                last.close()
                first = table.column("event_id")[0].as_py()
                ends = [JournalEnd(events=0)] * journals
                files = last.enter_context(_sealed(fs, settings, writer, first, ends))
                number = 0
            for batch in table.to_batches(max_chunksize=batch_events):
                first = batch.column(0)[0].as_py()
                files[number % journals].write(batch_record(batch.remove_column(0), first))
                ends[number % journals] = ends[number % journals].with_events(first, batch.num_rows)
                number += 1
            total += table.num_rows
    return total


@contextmanager
def _sealed(
    fs: FileSystem, settings: Settings, writer: str, first_event_id: int, ends: list[JournalEnd]
) -> Iterator[list[WritableFile]]:
    """Let a caller fill the journals of one group and count in `ends` what they hold; they are sealed after that."""
    header = JournalHeader(
        writer=writer, database=settings.repository.database, first_event_id=first_event_id, created_ms=0
    )
    named: list[tuple[Path, Path]] = []
    with ExitStack() as opened:
        files = []
        for number in range(len(ends)):
            folder = ContainerPaths(settings.containers[number % len(settings.containers)], writer).journals
            fs.make_directory(folder)
            target = folder / str(JournalName(first_event_id, number, sealed=True))
            named.append((temporary(target), target))
            files.append(opened.enter_context(fs.create(named[-1][0])))
            write_header(files[-1], header)
        yield files
        for file, end in zip(files, ends, strict=True):
            file.write(end_record(end))
            file.sync()
    for partial, target in named:
        fs.rename(partial, target)


@dataclass(frozen=True)
class _Texts:
    """A column's characters and where the uuids stand in them."""

    offsets: pa.Buffer
    validity: pa.Buffer | None
    data: Bytes
    places: Places
    rows: int

    @classmethod
    def of(cls, array: pa.Array, unchanged: npt.NDArray[np.bytes_]) -> _Texts:
        array = pa.concat_arrays([array])  # begins at offset 0
        validity, offsets, characters = array.buffers()
        data = np.frombuffer(characters or b"", np.uint8)
        places = _uuids(data)
        text = data[places[:, None] + np.arange(_UUID_BYTES)].copy().view(f"S{_UUID_BYTES}").ravel()
        return cls(offsets, validity, data, places[~np.isin(text, unchanged)], len(array))

    def renamed(self, table: Bytes) -> pa.Array:
        """Return the column with each digit of each uuid replaced by table[place, digit]."""
        data = self.data.copy()
        where = self.places[:, None] + _CHANGED
        data[where] = table[np.arange(len(_CHANGED)), data[where]]
        return pa.Array.from_buffers(pa.string(), self.rows, [self.validity, self.offsets, pa.py_buffer(data)])


class _Template:
    """The base and how to tell it again."""

    def __init__(self, base: pa.Table, seed: int) -> None:
        self._base = base
        self._seed = seed
        columns = {name: base.column(name).combine_chunks() for name in base.column_names}
        ids = [columns[name] for name in ("component_id", "process_group_id", "source_node")]
        unchanged = np.unique(
            np.concatenate([ids_.drop_null().to_numpy(zero_copy_only=False).astype("S36") for ids_ in ids])
        )
        self._columns = columns
        self._texts = {
            name: _Texts.of(_text_of(column), unchanged)
            for name, column in columns.items()
            if _text_of(column) is not None and name not in _URIS
        }
        self._uri_parts = {
            name: [
                pc.struct_field(pc.extract_regex(columns[name], r"^(?P<head>.*/)[0-9]+(?P<tail>/content/.*)$"), part)
                for part in ("head", "tail")
            ]
            for name in _URIS
        }
        times = columns["event_time"].cast(pa.int64())
        self._span_ms = pc.max(times).as_py() - pc.min(times).as_py() + 1
        bounds = pc.min_max(columns["source_ordinal"]).as_py()
        self._ordinals = bounds["max"] - bounds["min"] + 1

    def tile(self, number: int, first_event_id: int) -> pa.Table:
        rows = self._base.num_rows
        changed: dict[str, pa.Array] = {
            "event_id": pa.array(np.arange(first_event_id, first_event_id + rows)),
            "source_ordinal": pc.add(self._columns["source_ordinal"], number * self._ordinals),
        }
        for name in _TIMES:
            column = self._columns[name]
            changed[name] = pc.add(column.cast(pa.int64()), number * self._span_ms).cast(column.type)
        ordinals = changed["source_ordinal"].cast(pa.string())
        for name, (head, tail) in self._uri_parts.items():
            changed[name] = pc.binary_join_element_wise(head, ordinals, tail, "")
        table = self._digits(number)
        for name, texts in self._texts.items():
            column = self._columns[name]
            if len(texts.places):
                changed[name] = _with_text(column, texts.renamed(table))
        arrays = [changed.get(name, self._columns[name]) for name in EVENT_SCHEMA.names]
        return pa.Table.from_arrays(arrays, schema=EVENT_SCHEMA)

    def _digits(self, number: int) -> Bytes:
        """Return (places, 256): what each digit becomes in a tile; in the first one it stays."""
        generator = np.random.default_rng([self._seed, number])
        keys = generator.integers(0, 16, len(_CHANGED)) if number else np.zeros(len(_CHANGED), np.int64)
        table = np.tile(np.arange(256, dtype=np.uint8), (len(_CHANGED), 1))
        for place, key in enumerate(keys):
            table[place, _HEX] = _HEX[np.arange(16) ^ key]
        return table


@cache
def _template(base: int, seed: int) -> _Template:
    return _Template(pa.Table.from_batches([to_batch(sample(base, seed=seed), 0)]), seed)


def _text_of(column: pa.Array) -> pa.Array | None:
    """Return the characters that a column's uuids stand in."""
    if pa.types.is_string(column.type):
        return column
    if pa.types.is_map(column.type):
        return column.items
    return column.values if pa.types.is_list(column.type) else None


def _with_text(column: pa.Array, text: pa.Array) -> pa.Array:
    if pa.types.is_map(column.type):
        return pa.MapArray.from_arrays(column.offsets, column.keys, text, type=column.type)
    if pa.types.is_list(column.type):
        return pa.ListArray.from_arrays(column.offsets, text, type=column.type)
    return text


def _uuids(data: Bytes) -> Places:
    """Return where a uuid begins."""
    if len(data) < _UUID_BYTES:
        return np.zeros(0, np.int64)
    dash = data == ord("-")
    last = len(data) - _UUID_BYTES + 1
    is_kept = np.ones(last, bool)
    for place in _DASHES:
        is_kept &= dash[place : place + last]
    places = np.flatnonzero(is_kept)
    digits = np.zeros(256, bool)
    digits[_HEX] = True
    rest = np.delete(np.arange(_UUID_BYTES), _DASHES)
    are_uuids: npt.NDArray[np.bool_] = digits[data[places[:, None] + rest]].all(axis=1)
    found_places: Places = places[are_uuids]
    return found_places


def _pieces(events: Iterable[pa.Table], rows: int) -> Iterator[tuple[bool, pa.Table]]:
    """Cut a stream of tables after every so many rows; yield whether a piece is the first behind a cut."""
    done = 0
    for table in events:
        rest = table
        while rest.num_rows:
            piece = rest.slice(0, rows - done)
            yield done == 0, piece
            done = (done + piece.num_rows) % rows
            rest = rest.slice(piece.num_rows)


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--events", type=click.IntRange(min=1), default=1_000_000, show_default=True)
@click.option("--group-events", type=click.IntRange(min=1), default=1_000_000, show_default=True)
@click.option("--batch-events", type=click.IntRange(min=1), default=1000, show_default=True)
@click.option("--journals", type=click.IntRange(min=1), default=4, show_default=True)
def main(folder: Path, events: int, group_events: int, batch_events: int, journals: int) -> None:
    """Make a repository in FOLDER whose sealed journals hold many events."""
    repository = Repository.create(folder)
    done = write_journals(
        PosixFileSystem(),
        repository.settings,
        tables(events),
        group_events=group_events,
        batch_events=batch_events,
        journals=journals,
    )
    click.echo(f"{done} events wait in {folder}")


if __name__ == "__main__":
    main()
