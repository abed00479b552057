"""Events as files in a folder or a bucket: one file a delivery, named by its writer and its first event.

A delivery that comes again after a crash begins at the same event: it replaces the file, which is then the same or
longer. So files never overlap, but where somebody rewound the export.
"""

from __future__ import annotations

from typing import Self

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from custody.capture.nifi_json import event_to_json
from custody.config import ExportTarget, Settings
from custody.errors import StorageError
from custody.export.receiver import EventBatch, UnavailableError
from custody.store import ObjectStore
from custody.store.opening import open_store
from custody.vfs import FileSystem
from custody.workspace.run_reports import file_uri

_ID_DIGITS = 20


class FileReceiver:
    """A store that takes a file for each batch."""

    def __init__(self, store: ObjectStore, format: str) -> None:
        self._store, self._format = store, format

    @classmethod
    def open(cls, target: ExportTarget, settings: Settings, fs: FileSystem) -> Self:
        """Return the store that the settings name; a relative folder lies in the repository's."""
        return cls(open_store(target.url, fs, settings.root), target.format)

    def deliver(self, batch: EventBatch) -> str:
        """Write a file and return its URI.

        Durability: on return it survives power loss, as far as the store's promise goes.
        """
        key = f"{batch.writer}/{batch.first_event_id:0{_ID_DIGITS}d}.{self._format}"
        data = _parquet(batch.table) if self._format == "parquet" else _lines(batch)
        try:
            self._store.put(key, data)
        except StorageError as error:
            raise UnavailableError(str(error)) from error
        return file_uri(self._store.locate(key))

    def close(self) -> None:
        """Nothing stays open."""


def _lines(batch: EventBatch) -> bytes:
    encoder = msgspec.json.Encoder()
    return b"".join(encoder.encode(event_to_json(event)) + b"\n" for event in batch.events())


def _parquet(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    data: bytes = sink.getvalue().to_pybytes()
    return data
