"""The rows of a query in SQL as JSON lines, CSV or Arrow: bounded, and read before the first byte is sent.

So the status tells whether the query went well, and headers what CSV and Arrow cannot say: whether rows were left out.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import msgspec
import pyarrow as pa

from custody.serving.api_export import csv_cell
from custody.sql.plain_values import plain_rows

BYTES_MAX = 64 << 20
"""Of the rows of one answer, as columns in memory."""
# Proxies take headers of some kilobytes.
_NOTICES_MAX = 5


class SqlForm(StrEnum):
    """What rows are answered as."""

    JSON = "json"
    NDJSON = "ndjson"
    CSV = "csv"
    ARROW = "arrow"


@dataclass(frozen=True, slots=True)
class FirstRows:
    """The first rows of a result; `is_cut` where there are more than were asked for, or than there is room for."""

    table: pa.Table
    is_cut: bool

    @classmethod
    def of(
        cls, schema: pa.Schema, batches: Iterable[pa.RecordBatch], limit: int, bytes_max: int = BYTES_MAX
    ) -> FirstRows:
        """Read at most `limit` rows, and no batch that would make them more than so many bytes."""
        taken: list[pa.RecordBatch] = []
        rows = size = 0
        for batch in batches:
            if rows + batch.num_rows > limit:
                taken.append(batch.slice(0, limit - rows))
                return cls(pa.Table.from_batches(taken, schema), True)
            if size + batch.nbytes > bytes_max:
                return cls(pa.Table.from_batches(taken, schema), True)
            taken.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
        return cls(pa.Table.from_batches(taken, schema), False)


def notices_header(notices: Sequence[str]) -> dict[str, str]:
    """Return the header that says what could not be read, as a list in JSON of plain ASCII; none without notices."""
    return {"Custody-Notices": json.dumps([notice[:500] for notice in notices[:_NOTICES_MAX]])} if notices else {}


def _json_lines(found: FirstRows) -> bytes:
    names = found.table.schema.names
    rows = (dict(zip(names, row, strict=True)) for row in plain_rows(found.table.to_batches()))
    return msgspec.json.Encoder().encode_lines(rows)


def _csv(found: FirstRows) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow([csv_cell(name) for name in found.table.schema.names])
    for row in plain_rows(found.table.to_batches()):
        writer.writerow([csv_cell(_one_cell(value)) for value in row])
    return text.getvalue().encode()


def _one_cell(value: object) -> object:
    return msgspec.json.encode(value).decode() if isinstance(value, dict | list) else value


def _arrow(found: FirstRows) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, found.table.schema) as stream:
        stream.write_table(found.table)
    return sink.getvalue()


ENCODERS: dict[SqlForm, tuple[str, Callable[[FirstRows], bytes]]] = {
    SqlForm.NDJSON: ("application/x-ndjson", _json_lines),
    SqlForm.CSV: ("text/csv; charset=utf-8", _csv),
    SqlForm.ARROW: ("application/vnd.apache.arrow.stream", _arrow),
}
"""Media type and encoder of each form but JSON, which is a document."""
