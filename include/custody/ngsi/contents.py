"""What records add to which files, in bytes: lines of text, or a file of Parquet for each day."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from custody.ngsi import parquet
from custody.ngsi.parameters import Parameters
from custody.ngsi.records import Record, Unplaced
from custody.ngsi.rendering import Known, file_text, render


@dataclass(frozen=True, slots=True)
class Contents:
    """What some records add: bytes by path, in the order in which they were met first."""

    files: Mapping[str, bytes]
    columns: Known
    """All columns of the destinations in column modes that these records are for."""
    unplaced: Mapping[int, Unplaced]
    """Records that could not be written, by their place among the records."""
    sources: Mapping[str, Sequence[int]]
    """Which records each file has rows of, by their place among the records."""


def contents(records: Sequence[Record], parameters: Parameters, known: Known, *, part: str) -> Contents:
    """Return what records add to files; `part` names files of Parquet, of which each batch makes new ones."""
    if parameters.format != "parquet":
        rendered = render(records, parameters, known)
        files = {path: file_text(lines).encode() for path, lines in rendered.files.items()}
        return Contents(files, rendered.columns, rendered.unplaced, rendered.sources)
    folders: dict[str, list[int]] = {}
    for number, record in enumerate(records):
        path = f"{record.placed.destination.location}/dt={parquet.day(record)}/{part}.parquet"
        folders.setdefault(path, []).append(number)
    made = {
        path: parquet.file_bytes(parquet.table((records[number] for number in its), parameters))
        for path, its in folders.items()
    }
    return Contents(made, {}, {}, folders)
