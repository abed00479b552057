"""OpenLineage's events of runs as columns: many of them at once, without an object for each.

Usual is an event of a run whose members have the types that the specification gives them. Its event is that of
`openlineage`; `column_batch` says what becomes of the others, such as events about a dataset alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from custody.capture.canonical_json import canonical_json, digest_of
from custody.capture.column_batch import ColumnBatch, EventTable, column_batch, reader_of_pieces
from custody.capture.json_shapes import (
    ROWS_MIN,
    CutTexts,
    ShapedTexts,
    Template,
    parts_to_cut,
    text_shape_of,
)
from custody.capture.json_splitter import JsonElement
from custody.capture.openlineage import (
    FORMER_ORDINAL_NAME,
    JOB_NAME,
    JOB_NAMESPACE,
    KEPT_AFTER,
    KEPT_BEFORE,
    KIND,
    MAKES_OUTPUTS,
    ORDINAL_NAME,
    PLATFORM,
    RUN_ATTRIBUTES,
    RUN_ID,
    SOURCE_FORMAT,
    SOURCE_PREFIX,
    USUAL_UUID,
    RunEventSaid,
    RunFacts,
    component_type_of,
    dataset_uuid,
    details_of,
    kept_text,
    kind_of,
    read_element,
    run_facts,
    run_uuid,
    type_of_run,
)
from custody.capture.raw_json import check_depth
from custody.capture.text_columns import bounds_of_texts, bytes_of_texts, texts_between, views_of_texts
from custody.capture.time_columns import iso_times
from custody.capture.validate import NOT_JSON, Context, Rejected
from custody.errors import InvalidInputError
from custody.format.identifier_columns import ordinals_of_names
from custody.model import EVENT_SCHEMA, EventType, column_of
from custody.model.attribute_columns import attribute_column, constant_column
from custody.model.plain_arrays import offsets_of

_RUN_EVENT = msgspec.json.Decoder(RunEventSaid)
_NAME = msgspec.json.Encoder()
_SHAPES_MAX = 256
"""Shapes of events whose meaning is kept."""
_USUAL_UUIDS = f"^{USUAL_UUID.pattern}$"
_LIST = EVENT_SCHEMA.field("parent_uuids").type
_FACTS = pa.schema(
    [
        ("event_type", pa.string()),
        ("time", pa.int64()),
        *((name, pa.string()) for name in ("kind", "said_time", "namespace", "name", "run_id", "flowfile_uuid")),
        ("parents", _LIST),
        ("children", _LIST),
        *((name, pa.string()) for name in ("producer", "parent_run_id", "process_group_id", "process_group_name")),
        ("filename", pa.string()),
        ("component_type", pa.string()),
        ("file_size", pa.int64()),
        ("details", pa.string()),
        ("ordinal", pa.int64()),
        ("kept", pa.string()),
    ]
)
"""`RunFacts` of events, with their ordinals and the texts of them that are kept."""
_Row = tuple[RunFacts, bytes, str]
"""What an event says, the name of its ordinal, and its text that is kept."""
_Numbers = npt.NDArray[np.int64]
_Flags = npt.NDArray[np.bool_]


def read_openlineage_columns(pieces: Sequence[JsonElement | Rejected], context: Context) -> ColumnBatch:
    """Return the outcomes of some elements of a text, those that the splitter rejected among them."""
    numbers = [number for number, piece in enumerate(pieces) if isinstance(piece, JsonElement)]
    raws = [pieces[number].raw for number in numbers]
    shaped, left = _of_shapes(raws)
    alone = [(place, row) for place in left if (row := _row(raws[place])) is not None]
    places = np.concatenate([*(part.rows for part in shaped), np.array([place for place, _ in alone], np.int64)])
    order = np.argsort(places, kind="stable")

    def table() -> EventTable:
        facts = _facts_of_rows([row for _, row in alone])
        if not shaped:
            return _table(facts), None
        of_shapes, is_odd = _facts_of_shapes(shaped, raws)
        if not alone:
            return _table(of_shapes), is_odd
        facts = pa.concat_tables([of_shapes, facts]).combine_chunks().take(pa.array(order))
        return _table(facts), np.append(is_odd, np.zeros(len(alone), np.bool_))[order]

    of_places = np.array(numbers, np.int64)[places[order]]
    return column_batch(table, of_places, len(pieces), reader_of_pieces(pieces, context, read_element))


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
    parts = [_attribute(told, name) for name in (JOB_NAMESPACE, JOB_NAME, RUN_ID, KIND)]
    said = told.column("source_event_id")
    names = _plain_former_names(parts, said) or _former_names(parts, said)
    return FormerOrdinals(rows, ordinals_of_names(names, told.column("event_time").cast(pa.int64()).to_pylist()))


def _former_names(parts: Sequence[pa.StringArray], said: pa.StringArray) -> Sequence[bytes]:
    """Return the names of former ordinals: JSON of the parts, and what the id at the source says behind two of them."""
    rows = zip(*(part.to_pylist() for part in parts), said.to_pylist(), strict=True)
    return [
        _NAME.encode([FORMER_ORDINAL_NAME, *of_event, text.removeprefix(f"{of_event[2]}/{of_event[3]}/")])
        for *of_event, text in rows
    ]


def _plain_former_names(parts: Sequence[pa.StringArray], said: pa.StringArray) -> Sequence[memoryview] | None:
    """Return `_former_names` where JSON has all texts as they are and each id begins with the two parts, else None."""
    if any(part.null_count for part in parts):
        return None
    before = pc.binary_join_element_wise(*parts[2:], "", "/")
    bounds = bounds_of_texts(said)
    # Each id in two pieces; one that is shorter than what is looked for is another one as well.
    ends = np.minimum(bounds[:-1] + np.diff(bounds_of_texts(before)), bounds[1:])
    pieces = texts_between(np.append(np.column_stack([bounds[:-1], ends]).ravel(), bounds[-1]), said.buffers()[2])
    begins = pa.array(np.arange(0, len(pieces), 2))
    if not pieces.take(begins).equals(before):
        return None
    joined = pc.binary_join_element_wise(*parts, pieces.take(pc.add(begins, 1)), '","')
    characters = bytes_of_texts(joined)
    quotes = np.count_nonzero(characters == ord('"'))
    if quotes > 2 * len(parts) * len(said) or ((characters < ord(" ")) | (characters == ord("\\"))).any():
        return None
    return list(views_of_texts(pc.binary_join_element_wise(f'["{FORMER_ORDINAL_NAME}","', joined, '"]', "")))


def _attribute(events: pa.RecordBatch, name: str) -> pa.StringArray:
    # The last, as everywhere where a name comes twice; Arrow looks for the first one with eight times the effort.
    return pc.map_lookup(events.column("updated_attributes"), name, "last")


def _row(raw: bytes) -> _Row | None:
    """Return what an element says; None for one that is not usual."""
    try:
        check_depth(raw)
        facts = run_facts(_RUN_EVENT.decode(raw))
        # It decodes all of the element, what the types above pass over too.
        return facts, _ordinal_name(digest_of(raw)), kept_text(raw)
    except (*NOT_JSON, InvalidInputError):
        return None


def _ordinal_name(digest: str) -> bytes:
    return _NAME.encode([ORDINAL_NAME, digest])


def _facts_of_rows(rows: Sequence[_Row]) -> pa.Table:
    """Return what events say as columns; raises as Arrow does."""
    facts, names, kept = zip(*rows, strict=True) if rows else ((), (), ())
    values = zip(*facts, strict=True) if facts else [()] * len(RunFacts._fields)
    said: dict[str, Sequence[Any]] = dict(zip(RunFacts._fields, values, strict=True))
    ordinals = ordinals_of_names(names, said["time"])
    columns = {name: column_of(_FACTS.field(name), of_events) for name, of_events in said.items()}
    return pa.table([*columns.values(), pa.array(ordinals), pa.array(kept, pa.string())], schema=_FACTS)


class _Places(NamedTuple):
    """Where a shape has what an event says of its run; -1 for what it does not say."""

    kind: int
    said_time: int
    namespace: int
    name: int
    run_id: int
    producer: int
    parent_namespace: int
    parent_name: int
    parent_run_id: int
    error: int
    integration: int
    job_type: int
    filename: int


class _SaidColumns(NamedTuple):
    """What events say of their runs, at `_Places`."""

    kind: pa.StringArray
    said_time: pa.StringArray
    namespace: pa.StringArray
    name: pa.StringArray
    run_id: pa.StringArray
    producer: pa.StringArray
    parent_namespace: pa.StringArray
    parent_name: pa.StringArray
    parent_run_id: pa.StringArray
    error: pa.StringArray
    integration: pa.StringArray
    job_type: pa.StringArray
    filename: pa.StringArray


class _DatasetColumns(NamedTuple):
    """What events say of datasets on one side, one event behind the other."""

    counts: _Numbers
    """How many each event names, shape (events,)."""
    namespace: pa.StringArray
    name: pa.StringArray
    version: pa.StringArray
    size: pa.StringArray


class _RunShape(NamedTuple):
    """What is known of all events of a shape."""

    places: _Places
    inputs: _Numbers
    """Where it has what an event says of each dataset, in the order of `_DatasetColumns`, shape (datasets, 4)."""
    outputs: _Numbers
    canonical: Template
    kept: Template
    is_compact: bool
    """Whether nothing but what is around it is added to the text that is kept."""


@lru_cache(maxsize=_SHAPES_MAX)
def _run_shape(skeleton: bytes) -> _RunShape | None:
    """Return what is known of a shape; None for one whose events are not usual."""
    shape = text_shape_of(skeleton)
    if shape is None:
        return None
    try:
        check_depth(shape.marked)
        said = _RUN_EVENT.decode(shape.marked)
        job, run, place = said.job, said.run, shape.place
        parent = run.facets.parent if run.facets else None
        error = run.facets.error if run.facets else None
        job_type = job.facets.job_type if job.facets else None
        named = said.outputs or said.inputs
        places = _Places(
            kind=place(said.event_type),
            said_time=place(said.event_time),
            namespace=place(job.namespace),
            name=place(job.name),
            run_id=place(run.run_id),
            producer=place(said.producer),
            parent_namespace=place(parent.job.namespace if parent else None),
            parent_name=place(parent.job.name if parent else None),
            parent_run_id=place(parent.run.run_id if parent else None),
            error=place(error.message if error else None),
            integration=place(job_type.integration if job_type else None),
            job_type=place(job_type.job_type if job_type else None),
            filename=place(named[0].name if named else None),
        )
        inputs, outputs = (
            np.array(
                [
                    (place(one.namespace), place(one.name), place(one.version), place(one.size_said))
                    for one in side or ()
                ],
                np.int64,
            ).reshape(-1, 4)
            for side in (said.inputs, said.outputs)
        )
        canonical, kept = canonical_json(shape.marked), kept_text(shape.marked).encode()
        is_compact = kept == f"{KEPT_BEFORE}{shape.marked.decode()}{KEPT_AFTER}".encode()
        return _RunShape(places, inputs, outputs, shape.template(canonical), shape.template(kept), is_compact)
    except (*NOT_JSON, InvalidInputError, ValueError):
        return None


class _ShapedEvents(NamedTuple):
    """What events say whose shapes several elements have."""

    rows: _Numbers
    """Their numbers among all elements."""
    said: _SaidColumns
    inputs: _DatasetColumns
    outputs: _DatasetColumns
    names: Sequence[bytes]
    """Of their ordinals."""
    kept: pa.StringArray | None
    """The texts of them that are kept; None where they are those of the elements with what is around them."""


def _of_shapes(raws: Sequence[bytes]) -> tuple[list[_ShapedEvents], list[int]]:
    """Return what events of known shapes say, and the numbers of the other elements."""
    parts: list[_ShapedEvents] = []
    is_left = np.ones(len(raws), np.bool_)
    for begin, end in parts_to_cut(raws):
        cut = CutTexts(raws[begin:end])
        of_groups = [(_run_shape(group.skeleton), group.rows) for group in cut.groups if len(group.rows) >= ROWS_MIN]
        known = [(shape, rows) for shape, rows in of_groups if shape is not None]
        if known:
            part = _said(ShapedTexts(cut, [rows for _, rows in known]), [shape for shape, _ in known], begin)
            is_left[part.rows] = False
            parts.append(part)
    return parts, np.flatnonzero(is_left).tolist()


def _said(texts: ShapedTexts, shapes: Sequence[_RunShape], begin: int) -> _ShapedEvents:
    """Return what events say; the number of the first of all texts is `begin`."""
    names = [b""] * len(texts.rows)
    for rows, canonical in texts.filled([shape.canonical for shape in shapes]):
        for row, text in zip(rows.tolist(), views_of_texts(canonical), strict=True):
            names[row] = _ordinal_name(hashlib.sha256(text).hexdigest())
    return _ShapedEvents(
        begin + texts.rows,
        _SaidColumns._make(texts.values([shape.places for shape in shapes])),
        _said_datasets(texts, [shape.inputs for shape in shapes]),
        _said_datasets(texts, [shape.outputs for shape in shapes]),
        names,
        None if all(shape.is_compact for shape in shapes) else _filled_kept(texts, shapes),
    )


def _said_datasets(texts: ShapedTexts, places: Sequence[_Numbers]) -> _DatasetColumns:
    counts, values = texts.lists(places)
    return _DatasetColumns(counts, *values)


def _filled_kept(texts: ShapedTexts, shapes: Sequence[_RunShape]) -> pa.StringArray:
    """Return the texts of events that are kept: `kept_text` of all at once."""
    filled = list(texts.filled([shape.kept for shape in shapes]))
    order = np.argsort(np.concatenate([rows for rows, _ in filled]))
    return pa.concat_arrays([kept for _, kept in filled]).take(pa.array(order))


def _facts_of_shapes(parts: Sequence[_ShapedEvents], raws: Sequence[bytes]) -> tuple[pa.Table, _Flags]:
    """Return what events say as columns, and which of them are not usual; this is `run_facts` of all at once."""
    said = _SaidColumns._make(map(pa.concat_arrays, zip(*(part.said for part in parts), strict=True)))
    kinds = _of_distinct(_kind_or_none, said.kind)
    times, is_time = iso_times(said.said_time)
    is_odd = kinds.is_null().to_numpy(zero_copy_only=False) | ~is_time
    kinds = kinds.fill_null(kind_of(None))
    own = said.run_id
    if not pc.all(pc.match_substring_regex(own, _USUAL_UUIDS)).as_py():
        own = _of_distinct(run_uuid, own)
    makes_outputs = pc.is_in(kinds, pa.array(MAKES_OUTPUTS, pa.string())).to_numpy(zero_copy_only=False)
    inputs, _ = _datasets([part.inputs for part in parts])
    outputs, sizes = _datasets([part.outputs for part in parts])
    outputs = outputs.of_rows(makes_outputs)
    has_relatives = (inputs.counts > 0) | (outputs.counts > 0)
    types = _of_distinct(_type_of_run, kinds, pa.array(has_relatives))
    groups = pc.binary_join_element_wise(said.parent_namespace, said.parent_name, "/")
    columns = {
        "event_type": types,
        "time": pa.array(times),
        "kind": kinds,
        "said_time": said.said_time,
        "namespace": said.namespace,
        "name": said.name,
        "run_id": said.run_id,
        "flowfile_uuid": own,
        "parents": inputs.or_itself(own, has_relatives),
        "children": outputs.or_itself(own, has_relatives),
        "producer": said.producer,
        "parent_run_id": said.parent_run_id,
        "process_group_id": groups,
        "process_group_name": said.parent_name,
        "filename": said.filename,
        "component_type": _of_distinct(component_type_of, said.integration, said.job_type),
        "file_size": pa.array(sizes * makes_outputs),
        "details": _of_distinct(details_of, kinds, said.error),
        "ordinal": pa.array(ordinals_of_names(list(chain.from_iterable(part.names for part in parts)), times.tolist())),
        "kept": _kept(parts, raws),
    }
    return pa.table(columns, schema=_FACTS), is_odd


def _kept(parts: Sequence[_ShapedEvents], raws: Sequence[bytes]) -> pa.StringArray:
    """Return the texts of events that are kept."""
    if all(part.kept is None for part in parts):
        return _compact_kept([raws[row] for part in parts for row in part.rows.tolist()])
    return pa.concat_arrays([part.kept or _compact_kept([raws[row] for row in part.rows.tolist()]) for part in parts])


def _compact_kept(raws: Sequence[bytes]) -> pa.StringArray:
    """Return the texts that are kept of events without blanks between their parts: `kept_text` of all at once."""
    before, after = KEPT_BEFORE.encode(), KEPT_AFTER.encode()
    bounds = offsets_of(np.fromiter(map(len, raws), np.int64, len(raws)) + len(before) + len(after))
    return texts_between(bounds, b"".join((before, (after + before).join(raws), after)))


class _Relatives(NamedTuple):
    """The datasets on one side of events, each once."""

    counts: _Numbers
    """Of each event, shape (events,)."""
    uuids: pa.StringArray
    """Of all, those of one event behind those of another."""

    def of_rows(self, is_kept: _Flags) -> _Relatives:
        """Return those of some events, and none of the others."""
        if is_kept.all():
            return self
        return _Relatives(self.counts * is_kept, self.uuids.filter(pa.array(np.repeat(is_kept, self.counts))))

    def or_itself(self, own: pa.StringArray, has_relatives: _Flags) -> pa.ListArray:
        """Return a list of each event: of its datasets; of itself where it has some on the other side alone."""
        is_itself = has_relatives & (self.counts == 0)
        offsets = offsets_of(self.counts + is_itself)
        uuids = self.uuids
        if is_itself.any():
            places = np.arange(len(uuids) + np.count_nonzero(is_itself))
            is_own = np.zeros(len(places), np.bool_)
            is_own[offsets[:-1][is_itself]] = True
            places[~is_own] = np.arange(len(uuids))
            places[is_own] = len(uuids) + np.flatnonzero(is_itself)
            uuids = pa.concat_arrays([uuids, own]).take(pa.array(places))
        return pa.ListArray.from_arrays(pa.array(offsets), uuids, type=_LIST)


def _datasets(parts: Sequence[_DatasetColumns]) -> tuple[_Relatives, _Numbers]:
    """Return the datasets on one side of events, and of each event the sum of their sizes, shape (events,)."""
    counts = np.concatenate([part.counts for part in parts])
    namespaces, names, versions, sizes = map(pa.concat_arrays, zip(*(part[1:] for part in parts), strict=True))
    uuids = _of_distinct(_dataset_uuid, namespaces, names, versions)
    sums = np.append(0, np.cumsum(sizes.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)))
    bounds = np.append(0, np.cumsum(counts))
    encoded = uuids.dictionary_encode()
    events = np.repeat(np.arange(len(counts)), counts)
    keys = events * (len(encoded.dictionary) + 1) + encoded.indices.to_numpy()
    _, first = np.unique(keys, return_index=True)
    if len(first) < len(keys):
        first.sort()
        uuids, events = uuids.take(pa.array(first)), events[first]
        counts = np.bincount(events, minlength=len(counts))
    return _Relatives(counts, uuids), np.diff(sums[bounds])


def _dataset_uuid(namespace: str, name: str, version: str | None) -> str:
    return dataset_uuid(namespace, name, version or None)


def _type_of_run(kind: str, has_relatives: bool) -> EventType:
    return type_of_run(kind, has_relatives=has_relatives)


def _kind_or_none(said: str | None) -> str | None:
    try:
        return kind_of(said)
    except InvalidInputError:
        return None


def _of_distinct(make: Callable[..., str | None], *columns: pa.Array) -> pa.StringArray:
    """Return what is made of the values of each row, once for those that are the same."""
    encoded = [column.dictionary_encode(null_encoding="encode") for column in columns]
    values = [one.dictionary.to_pylist() for one in encoded]
    codes = encoded[0].indices.to_numpy().astype(np.int64)
    for one in encoded[1:]:
        codes = codes * len(one.dictionary) + one.indices.to_numpy()
    _, first, numbers = np.unique(codes, return_index=True, return_inverse=True)
    of_columns = (
        [of_column[number] for number in one.indices.to_numpy()[first]]
        for one, of_column in zip(encoded, values, strict=True)
    )
    return pa.array([make(*row) for row in zip(*of_columns, strict=True)], pa.string()).take(pa.array(numbers))


def _table(facts: pa.Table) -> pa.Table:
    """Return the events as columns; raises as Arrow does."""
    said = facts.combine_chunks().to_batches()[0] if facts.num_rows else pa.RecordBatch.from_pylist([], _FACTS)
    namespaces, names, run_ids, kinds = (said.column(name) for name in ("namespace", "name", "run_id", "kind"))
    values = (kinds, namespaces, names, run_ids, *map(said.column, ("producer", "parent_run_id", "filename")))
    columns = {
        "event_type": said.column("event_type"),
        "event_time": said.column("time"),
        "component_id": pc.binary_join_element_wise(namespaces, names, "/"),
        "component_type": said.column("component_type"),
        "component_name": names,
        "process_group_id": said.column("process_group_id"),
        "process_group_name": said.column("process_group_name"),
        "flowfile_uuid": said.column("flowfile_uuid"),
        "file_size": said.column("file_size"),
        "details": said.column("details"),
        "parent_uuids": said.column("parents"),
        "child_uuids": said.column("children"),
        "updated_attributes": attribute_column(dict(zip(RUN_ATTRIBUTES, values, strict=True))),
        "platform": constant_column(PLATFORM, len(said)),
        "source_format": constant_column(SOURCE_FORMAT, len(said)),
        "source_node": pc.binary_join_element_wise(pa.scalar(SOURCE_PREFIX), namespaces, ""),
        "source_ordinal": said.column("ordinal"),
        "source_event_id": pc.binary_join_element_wise(run_ids, kinds, said.column("said_time"), "/"),
        "extra": said.column("kept"),
    }
    return pa.table(columns)
