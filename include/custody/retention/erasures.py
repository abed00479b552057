"""Erasure requests: durable orders to erase forgotten events to the last copy; a finished one is a certificate.

One JSON object a request, `ERASURES/<id>.json` in the store, replaced as a whole (docs/formats/erasure.md). It names
what was chosen as long as anything of it is left to do. A certificate does not: it has the names of the conditions, not
their values, and each copy that was removed or overwritten, with its place.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec

from custody.catalog import store_of
from custody.config import Settings
from custody.errors import CorruptionError, FormatVersionError, NotFoundError
from custody.format.checked_json import has_right_checksum, with_checksum
from custody.format.names import ERASURES
from custody.made_types import made_at_import
from custody.store import StoredFiles
from custody.vfs import FileSystem

_VERSION = 1
_NAME = re.compile(r"([0-9a-f]{32})\.json")

OPEN, HELD, CERTIFIED, DONE = "open", "held", "certified", "done"


class ErasedSelection(msgspec.Struct, frozen=True, kw_only=True):
    """The conditions of a request, all of which an event fulfils; times in ms since the epoch."""

    event_ids: tuple[int, ...] = ()
    flowfile_uuids: tuple[str, ...] = ()
    from_ms: int = 0
    to_ms: int = 0
    attributes: dict[str, str] = {}


class WriterErasure(msgspec.Struct, frozen=True, kw_only=True):
    """One writer's part of a request."""

    tombstone: str
    """The id of the tombstone that hides the events, 32 hexadecimal digits."""
    before_event_id: int
    """Events from this id on are not meant."""
    is_hidden: bool = False
    """Whether the tombstone was committed."""
    events: int = 0
    """How many events were meant when they were hidden."""
    unlisted_revision: int | None = None
    """The first revision of the catalog without the erased events; None while a live log has some."""
    unlisted_ms: int = 0
    """When that was known: readers of earlier revisions have `retention.grace` from then on."""
    floor: int = 0
    """The earliest revision since their history was deleted; 0 before that."""


class ErasedCopy(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """A copy that was removed or overwritten."""

    kind: str
    place: str
    how: str
    """`removed`, or `overwritten`: its bytes are zeros in the same place."""


class Erasure(msgspec.Struct, frozen=True, kw_only=True):
    """A request, and how far it is; times in ms since the epoch."""

    format_version: int = _VERSION
    id: str
    state: str = OPEN
    """`open`; `held`: all is done that no legal hold keeps; `certified`: the certificate is written and not yet noted
    in the catalogs; `done`."""
    reason: str
    who: str = ""
    requested_ms: int
    conditions: tuple[str, ...]
    """The names of the conditions, without their values."""
    selection: ErasedSelection | None = None
    """None once nothing of it is left to do."""
    is_limited: bool = False
    """Whether the conditions mean events alone: other files are then not searched for their values."""
    writers: dict[str, WriterErasure] = {}
    contents: dict[str, list[tuple[int, int]]] = {}
    """Offset and length of the contents of erased events, by resource claim; empty once they are erased."""
    digests: tuple[str, ...] = ()
    """SHA-256 of these contents, hexadecimal; empty once they are erased."""
    keys: tuple[str, ...] = ()
    """Objects that were deleted, or written over, in a bucket that may keep versions; empty at the end."""
    copies: tuple[ErasedCopy, ...] = ()
    waiting: tuple[str, ...] = ()
    """Why the request is not done, as of the last look."""
    held: dict[str, int] = {}
    """How many of the events each legal hold keeps, as of the last look."""
    kept: tuple[str, ...] = ()
    """What custody has and does not erase, and why."""
    out_of_reach: tuple[str, ...] = ()
    """Where copies may be that custody cannot reach."""
    finished_ms: int | None = None

    @property
    def events(self) -> int:
        """How many events were meant when they were hidden."""
        return sum(part.events for part in self.writers.values())

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to do."""
        return self.state == DONE

    def with_writer(self, writer: str, **changes: object) -> Erasure:
        """Return the request with other values for one writer."""
        part = msgspec.structs.replace(self.writers[writer], **changes)
        return msgspec.structs.replace(self, writers={**self.writers, writer: part})

    def with_copies(self, copies: Iterable[ErasedCopy]) -> Erasure:
        """Return the request with more copies that were, or are about to be, removed or overwritten; each once."""
        return msgspec.structs.replace(self, copies=tuple(sorted({*self.copies, *copies})))


made_at_import(Erasure)
_ERASURE = msgspec.json.Decoder(Erasure)


def new_erasure(
    selection: ErasedSelection,
    writers: Mapping[str, int],
    reason: str,
    who: str,
    now_ms: int,
    *,
    is_of_all_writers: bool = True,
) -> Erasure:
    """Return a request; `writers` are the ends of the events that are meant, each an id, by writer."""
    conditions = [f"attribute {name}" for name in sorted(selection.attributes)]
    conditions += ["FlowFile uuid"] if selection.flowfile_uuids else []
    conditions += ["event id"] if selection.event_ids else []
    conditions += ["time"] if selection.from_ms or selection.to_ms else []
    is_limited = bool(selection.event_ids or selection.from_ms or selection.to_ms) or not is_of_all_writers
    return Erasure(
        id=uuid.uuid4().hex,
        reason=reason,
        who=who,
        requested_ms=now_ms,
        conditions=tuple(conditions),
        selection=selection,
        is_limited=is_limited,
        writers={
            writer: WriterErasure(tombstone=uuid.uuid4().hex, before_event_id=before)
            for writer, before in sorted(writers.items())
        },
    )


class _Files(Protocol):
    """What requests need of where they lie: a `FileSystem` has it, and `StoredFiles`."""

    def list(self, folder: Path) -> list[str]: ...

    def exists(self, path: Path) -> bool: ...

    def read(self, path: Path) -> bytes: ...

    def make_directory(self, folder: Path) -> None: ...

    def write_durably(self, path: Path, data: bytes) -> None: ...


@dataclass(frozen=True, slots=True)
class ErasureStore:
    """The requests of a repository."""

    files: _Files
    folder: Path

    @classmethod
    def of(cls, settings: Settings, fs: FileSystem) -> ErasureStore:
        """Return those of a repository: in the store's folder, or in its object store."""
        if not settings.is_store_remote:
            return cls(fs, settings.store / ERASURES)
        files = StoredFiles(store_of(settings, fs))
        return cls(files, files.path(ERASURES))

    def ids(self) -> list[str]:
        """Return the ids of all requests."""
        matches = (_NAME.fullmatch(name) for name in self.files.list(self.folder))
        return sorted(match[1] for match in matches if match is not None)

    def all(self) -> list[Erasure]:
        """Return all requests, the oldest first; raises as `get`."""
        return sorted(map(self.get, self.ids()), key=lambda item: (item.requested_ms, item.id))

    def get(self, erasure_id: str) -> Erasure:
        """Return one request.

        Raises:
            NotFoundError: there is none of this id.
            CorruptionError: the file was changed, or is none.
            FormatVersionError: it is of another version.
        """
        name = f"{erasure_id}.json"
        path = self.folder / name
        if _NAME.fullmatch(name) is None or not self.files.exists(path):
            raise NotFoundError(f"no erasure {erasure_id[:64]!r}. List them: custody erasures")
        return decode_erasure(self.files.read(path), path)

    def save(self, erasure: Erasure) -> None:
        """Write a request; durability: on return it survives power loss."""
        self.files.make_directory(self.folder)
        self.files.write_durably(self.folder / f"{erasure.id}.json", encode_erasure(erasure))

    def locate(self, erasure: Erasure) -> Path:
        """Return where a request lies, for messages."""
        return self.folder / f"{erasure.id}.json"


def decode_erasure(data: bytes, path: Path) -> Erasure:
    """Return a request; raises as `ErasureStore.get`."""
    try:
        if not has_right_checksum(data):
            raise msgspec.DecodeError("other bytes than its checksum says")
        erasure = _ERASURE.decode(data)
    except msgspec.DecodeError as error:
        raise CorruptionError(f"{path}: expected an erasure, got {error}. Use a backup of the file.") from error
    if erasure.format_version != _VERSION:
        raise FormatVersionError(f"{path}: expected format_version {_VERSION}, got {erasure.format_version}.")
    return erasure


def encode_erasure(erasure: Erasure) -> bytes:
    """Return the bytes of a request."""
    return with_checksum(msgspec.json.encode(erasure, order="sorted"))
