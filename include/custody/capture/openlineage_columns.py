"""OpenLineage's events of runs as columns: many of them at once, without an object for each.

Usual is an event of a run whose members have the types that the specification gives them. Its event is that of
`openlineage`; `column_batch` says what becomes of the others, such as events about a dataset alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from custody.capture.canonical_json import digest_of
from custody.capture.column_batch import ColumnBatch, EventTable, batch_of_pieces
from custody.capture.json_splitter import JsonElement
from custody.capture.openlineage import (
    FORMER_ORDINAL_NAME,
    JOB_NAME,
    JOB_NAMESPACE,
    KIND,
    ORDINAL_NAME,
    PLATFORM,
    RUN_ATTRIBUTES,
    RUN_ID,
    SOURCE_FORMAT,
    SOURCE_PREFIX,
    RunEventSaid,
    RunFacts,
    kept_text,
    read_element,
    run_facts,
)
from custody.capture.raw_json import check_depth
from custody.capture.validate import NOT_JSON, Context, Rejected
from custody.errors import InvalidInputError
from custody.format.identifier_columns import ordinals_of_names
from custody.model import EVENT_SCHEMA, column_of
from custody.model.attribute_columns import attribute_column, constant_column

_RUN_EVENT = msgspec.json.Decoder(RunEventSaid)
_NAME = msgspec.json.Encoder()
_Row = tuple[RunFacts, bytes, str]
"""What an event says, the name of its ordinal, and its text that is kept."""


def read_openlineage_columns(pieces: Sequence[JsonElement | Rejected], context: Context) -> ColumnBatch:
    """Return the outcomes of some elements of a text, those that the splitter rejected among them."""
    return batch_of_pieces(pieces, context, _rows, _table, read_element)


class FormerOrdinals(NamedTuple):
    """The numbers that an older custody gave events of runs."""

    rows: npt.NDArray[np.int64]
    """Of the events that had one."""
    ordinals: npt.NDArray[np.int64]


def former_ordinals(events: pa.RecordBatch) -> FormerOrdinals:
    """Return the `former_ordinal` of each event that has one, by the columns of events."""
    rows = np.flatnonzero(pc.fill_null(pc.equal(events.column("source_format"), SOURCE_FORMAT), False).to_numpy(False))
    if not len(rows):
        return FormerOrdinals(rows, rows)
    of_format = events if len(rows) == len(events) else events.take(pa.array(rows))
    run_ids = _attribute(of_format, RUN_ID)
    is_told = pc.and_(run_ids.is_valid(), of_format.column("source_event_id").is_valid())
    is_told = is_told.to_numpy(zero_copy_only=False)
    # A filter copies all that it leaves, and nearly always all of them are told.
    rows, told = rows[is_told], of_format if is_told.all() else of_format.filter(pa.array(is_told))
    parts = [_attribute(told, name).to_pylist() for name in (JOB_NAMESPACE, JOB_NAME, RUN_ID, KIND)]
    said = told.column("source_event_id").to_pylist()
    names = [
        _NAME.encode([FORMER_ORDINAL_NAME, *of_event, text.removeprefix(f"{of_event[2]}/{of_event[3]}/")])
        for *of_event, text in zip(*parts, said, strict=True)
    ]
    times = told.column("event_time").cast(pa.int64()).to_pylist()
    return FormerOrdinals(rows, ordinals_of_names(names, times))


def _attribute(events: pa.RecordBatch, name: str) -> pa.StringArray:
    # The last, as everywhere where a name comes twice; Arrow looks for the first one with eight times the effort.
    return pc.map_lookup(events.column("updated_attributes"), name, "last")


def _rows(raw: bytes) -> Sequence[_Row]:
    """Return what an element says; nothing of one that is not usual."""
    try:
        check_depth(raw)
        facts = run_facts(_RUN_EVENT.decode(raw))
        # It decodes all of the element, what the types above pass over too.
        return ((facts, _NAME.encode([ORDINAL_NAME, digest_of(raw)]), kept_text(raw)),)
    except (*NOT_JSON, InvalidInputError):
        return ()


def _table(rows: Sequence[_Row]) -> EventTable:
    """Return the events as columns; raises as Arrow does."""
    count = len(rows)
    facts, names, kept = zip(*rows, strict=True) if rows else ((), (), ())
    values = zip(*facts, strict=True) if facts else [()] * len(RunFacts._fields)
    said: Mapping[str, Sequence[Any]] = dict(zip(RunFacts._fields, values, strict=True))
    kinds, namespaces, job_names, run_ids, times_said, producers, parent_run_ids, filenames = (
        pa.array(said[name], pa.string())
        for name in ("kind", "namespace", "name", "run_id", "said_time", "producer", "parent_run_id", "filename")
    )
    attributes = (kinds, namespaces, job_names, run_ids, producers, parent_run_ids, filenames)
    columns = {
        "event_type": pa.array(said["event_type"], pa.string()),
        "event_time": pa.array(said["time"], pa.int64()),
        "component_id": pc.binary_join_element_wise(namespaces, job_names, "/"),
        "component_type": pa.array(said["component_type"], pa.string()),
        "component_name": job_names,
        "process_group_id": pa.array(said["process_group_id"], pa.string()),
        "process_group_name": pa.array(said["process_group_name"], pa.string()),
        "flowfile_uuid": pa.array(said["flowfile_uuid"], pa.string()),
        "file_size": pa.array(said["file_size"], pa.int64()),
        "details": pa.array(said["details"], pa.string()),
        "parent_uuids": column_of(EVENT_SCHEMA.field("parent_uuids"), said["parents"]),
        "child_uuids": column_of(EVENT_SCHEMA.field("child_uuids"), said["children"]),
        "updated_attributes": attribute_column(dict(zip(RUN_ATTRIBUTES, attributes, strict=True))),
        "platform": constant_column(PLATFORM, count),
        "source_format": constant_column(SOURCE_FORMAT, count),
        "source_node": pc.binary_join_element_wise(pa.scalar(SOURCE_PREFIX), namespaces, ""),
        "source_ordinal": pa.array(ordinals_of_names(names, said["time"])),
        "source_event_id": pc.binary_join_element_wise(run_ids, kinds, times_said, "/"),
        "extra": pa.array(kept, pa.string()),
    }
    return pa.table(columns), None
