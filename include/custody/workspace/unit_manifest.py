"""Staged units: sealed groups that were merged and cut into the events of future logs, and the manifest of each.

Layout (docs/formats/staging.md): a folder `staging/<first group>/` with one Arrow file a log and the file `unit`:
8 bytes preamble, then one frame with a JSON document. The folder gets its name when everything in it is durable, and
loses it before any of it is removed, so a folder with a unit's name is always a whole unit.
"""

from __future__ import annotations

from bisect import bisect_right
from pathlib import Path
from uuid import UUID

import msgspec

from custody.errors import CorruptionError, FormatVersionError
from custody.eventlog import LogMetadata, StagedLog
from custody.format.framing import Frame, frame, frames
from custody.format.names import staged_log
from custody.model import READER_VERSION, SCHEMA_VERSION, schema_of

# Part of the format: seven bytes for the kind of file, the eighth for its version.
PREAMBLE = b"CUSTUNT\x01"
# The kind of the only frame; part of the format.
_KIND = 1


class UnitManifest(msgspec.Struct, frozen=True, kw_only=True):
    """The groups that were merged, and the logs that they become; no log when no event of them is whole."""

    writer: str
    database: str
    schema_version: int = SCHEMA_VERSION
    reader_version: int = READER_VERSION
    """Writers of schema version 2 and later always store it."""
    transaction: UUID
    groups: tuple[int, ...]
    logs: tuple[StagedLog, ...]
    incarnation: str = ""
    """The incarnation of the writer that wrote the journals; empty where nothing names it."""
    revision: int | msgspec.UnsetType = msgspec.UNSET
    """The revision at which the unit is to become live; absent in units of older releases."""
    digests: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    """Of a unit in an object store: the SHA-256 of the events of each log, by which they are named."""

    @property
    def first_group(self) -> int:
        """The group that the unit is named after."""
        return self.groups[0]

    def encode(self) -> bytes:
        """Return the file's bytes."""
        return PREAMBLE + frame(_KIND, msgspec.json.encode(self))

    def groups_of(self, log: StagedLog) -> tuple[int, ...]:
        """Return the groups whose events a log holds; one without events goes with the log before its place."""
        number = self.logs.index(log)
        # A group whose events spread over several logs counts for each of them.
        starts = [0, *(bisect_right(self.groups, later.first_event_id) - 1 for later in self.logs[1:])]
        if number + 1 == len(self.logs):
            return self.groups[starts[number] :]
        # Up to where the next log begins: a group without events in between would belong to no log, and never count as
        # live.
        stop = max(bisect_right(self.groups, log.last_event_id), starts[number + 1])
        return self.groups[starts[number] : stop]

    def metadata(self, log: StagedLog) -> LogMetadata:
        """Return the metadata of one of the logs."""
        return LogMetadata(
            writer=self.writer,
            database=self.database,
            table="events",
            partition=log.partition,
            first_event_id=log.first_event_id,
            last_event_id=log.last_event_id,
            first_event_time_ms=log.first_event_time_ms,
            last_event_time_ms=log.last_event_time_ms,
            rows=log.rows,
            groups=self.groups_of(log),
            transaction=self.transaction,
            schema_version=self.schema_version,
            reader_version=self.reader_version,
            revision=self.revision,
        )

    @staticmethod
    def decode(data: bytes, path: Path) -> UnitManifest:
        """Return the manifest of a file's bytes.

        Raises:
            FormatVersionError: the file, or its events, are of another version.
            CorruptionError: the bytes are not what was written.
        """
        # The version comes before the checksum: another version may frame its document in another way.
        if data[:7] == PREAMBLE[:7] and data[7:8] not in (b"", PREAMBLE[7:8]):
            raise FormatVersionError(f"{path} @7: expected unit manifest version 1, got {data[7:8]!r}.")
        records = list(frames(data, len(PREAMBLE))) if data.startswith(PREAMBLE) else []
        if len(records) != 1 or not isinstance(records[0], Frame):
            raise CorruptionError(
                f"{path} @0: expected a unit's manifest with its checksum, got other bytes. "
                f"Remove the folder {path.parent}; the next rollover makes it again from the journals."
            )
        manifest = _MANIFEST.decode(records[0].payload)
        schema_of(manifest.schema_version, path, manifest.reader_version)
        return manifest


_MANIFEST = msgspec.json.Decoder(UnitManifest)


def staged_path(folder: Path, log: StagedLog) -> Path:
    """Return where a unit keeps the events of one of its logs."""
    return folder / staged_log(log.first_event_id)
