"""Reads the files that a catalog lists and compares them with what it says of them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from custody.catalog.footers import fingerprint, parse_footer, read_footer, stored_footer
from custody.catalog.objects import Objects
from custody.catalog.state import CatalogState
from custody.catalog.transaction_pb2 import AddFile
from custody.errors import CorruptionError, CustodyError

Progress = Callable[[int, int], None]
"""Is told (bytes done, bytes in all)."""


Part = Literal["file", "toc", "transaction", "checkpoint", "object", "tail"]
"""What a defect is about: `object` is one that does not belong here, `tail` the newest transactions, which are gone."""


@dataclass(frozen=True, slots=True)
class Defect:
    """One thing that is damaged or missing: which file, where in it as far as that is known, and what it is."""

    file: str
    offset: int | None
    message: str
    part: Part = "file"
    revision: int | None = None
    """Of an object of the catalog."""

    def __str__(self) -> str:
        at = "" if self.offset is None else f" @{self.offset}"
        return self.message if self.message.startswith(self.file) else f"{self.file}{at}: {self.message}"


class Findings(Protocol):
    """Where findings are collected."""

    files: int
    bytes: int
    defects: list[Defect]
    notices: list[str]


def scrub_files(objects: Objects, state: CatalogState, found: Findings, progress: Progress) -> None:
    """Read every live file and table of contents and add what is wrong with them to `found`."""
    total = sum(state.files[path].size_bytes for path in state.files)
    unknown = 0
    for path in sorted(state.files):
        file = state.files[path]
        found.files += 1
        unknown += not file.sha256
        found.defects += [*check_file(objects, file), *check_toc(objects, file)]
        found.bytes += file.size_bytes
        progress(found.bytes, total)
    if unknown:
        found.notices.append(f"{unknown} files have no digest in the catalog, only their footers were compared.")


def check_file(objects: Objects, file: AddFile) -> list[Defect]:
    """Read a live file and return what is wrong with it: its damaged blocks, or one defect of the whole."""
    key = objects.home + file.path
    where = objects.store.locate(key)
    try:
        data = objects.store.get(key)
    except CustodyError as error:
        return [Defect(where, None, str(error))]
    if len(data) != file.size_bytes:
        return [Defect(where, min(len(data), file.size_bytes), f"expected {file.size_bytes} bytes, got {len(data)}.")]
    if file.sha256 and hashlib.sha256(data).digest() != file.sha256:
        return _damaged_blocks(where, data)
    return _check_footer(where, data, file)


def check_toc(objects: Objects, file: AddFile) -> list[Defect]:
    """Read the table of contents beside a live file, if it has one, and return what is wrong with it."""
    if not file.toc_path:
        return []
    where = objects.store.locate(objects.home + file.toc_path)
    try:
        data = objects.store.get(objects.home + file.toc_path)
    except CustodyError as error:
        return [Defect(where, None, str(error), "toc")]
    if file.toc_sha256 and hashlib.sha256(data).digest() != file.toc_sha256:
        return [Defect(where, None, "expected another SHA-256: the table of contents was changed.", "toc")]
    return []


def _check_footer(where: str, data: bytes, file: AddFile) -> list[Defect]:
    """Compare what the catalog says of a whole file with the file: rows, columns, statistics."""
    try:
        footer = read_footer(lambda start, length: data[start:][:length], where)
        metadata = parse_footer(footer, where)
        kept = stored_footer(file)
    except CorruptionError as error:
        return [Defect(where, None, str(error))]
    if metadata.num_rows != file.rows:
        return [Defect(where, None, f"expected {file.rows} rows, got {metadata.num_rows}.")]
    if file.schema_fingerprint and fingerprint(metadata.schema.to_arrow_schema()) != file.schema_fingerprint:
        return [Defect(where, None, "expected the columns that the catalog names, got others.")]
    if kept is not None and not kept.equals(metadata):
        return [Defect(where, None, "expected the footer that the catalog keeps, got another one.")]
    return []


def _damaged_blocks(where: str, data: bytes) -> list[Defect]:
    """Name the blocks of a changed file whose pages do not fit their checksums, or the file when none is found."""
    try:
        log = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
    except (OSError, pa.ArrowException, ValueError) as error:
        return [Defect(where, None, f"expected another SHA-256; the footer is damaged: {error}")]
    found = []
    for number in range(log.metadata.num_row_groups):
        try:
            log.read_row_group(number)
        except (OSError, pa.ArrowException, ValueError) as error:
            chunk = log.metadata.row_group(number).column(0)
            start = min(chunk.data_page_offset, chunk.dictionary_page_offset or chunk.data_page_offset)
            found.append(Defect(where, start, f"block {number} is damaged: {error}"))
    return found or [Defect(where, None, "expected another SHA-256: the file was changed outside its blocks.")]
