"""`custody.shard`: the manifest of a shard's folder. A reader trusts nothing else in the folder without it.

Layout: a preamble, then three framed records (`custody.format.framing`): a description in JSON; the CRC-32 of each page
of each file (`custody.index.paged_file`); and the zones, the smallest and greatest number of each number column in
each ZONE_DOCUMENTS documents. Docs: docs/formats/index-shard.md.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from custody.errors import CorruptionError, FormatVersionError
from custody.format.framing import Frame, Gap, frame, frames
from custody.index.fields import ATTRIBUTE_PREFIX, NUMBER_FIELDS, TIME_FIELDS, IndexedFields
from custody.index.paged_file import Checksums, ShardFile, pages_of
from custody.index.terms import TERM_BYTES_MAX

NAME = "custody.shard"
_MAGIC = b"CUSTSHD"
VERSION_OF_WHOOSH, VERSION_PACKED = 1, 2
"""Version 1 is of folders that Whoosh can open, version 2 of packed shards."""
PREAMBLE_BYTES = len(_MAGIC) + 1
# Part of the format: the manifest holds one pair of bounds for so many documents.
ZONE_DOCUMENTS = 1024
# Kinds of records on disk, in this order: add, never change.
_DESCRIPTION, _PAGES, _ZONES = 1, 2, 3
Zones = npt.NDArray[np.int64]


Count = Annotated[int, msgspec.Meta(ge=0)]


class PackedField(msgspec.Struct, frozen=True, kw_only=True):
    """A field of a packed shard that has terms; places are in bytes from the beginning of the file."""

    number: Count
    """Part of the keys of its terms in the filter."""
    kind: Literal["uuids", "texts"]
    terms: Count
    place: Count
    """Where its heads of lists begin, then its terms."""
    lists: Count
    """Where its lists begin."""
    places: Count | None
    """Where the places of its words begin; None where it is no text."""


class PackedFile(msgspec.Struct, frozen=True, kw_only=True):
    """Where the parts of a packed shard lie in its file."""

    fields: dict[str, PackedField]
    """In the order in which they lie."""
    columns: dict[str, Count]
    filter_place: Count
    filter_bytes: Count


class TermFacts(Protocol):
    """What tells which terms a shard knows of."""

    @property
    def fields(self) -> Mapping[str, int]:
        """The fields that have terms, by their numbers in the dictionary."""

    @property
    def cut(self) -> Mapping[str, int] | None:
        """As `Description.cut`."""

    def whole_below(self, name: str) -> int | None:
        """As `Description.whole_below`."""


def whole_below(cut: Mapping[str, int] | None, name: str) -> int | None:
    """Return what `Description.whole_below` says of the values that were cut."""
    if cut is None:
        # Such a term has at least so many: a character takes up to 4 bytes, and none is kept in part.
        return TERM_BYTES_MAX // 4 - 1
    return cut.get(name)


class Description(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of a shard and their layout. Names of fields are custody's."""

    documents: Count
    first_event_id: int
    last_event_id: int
    segment: str
    """The prefix of the names of the segment's files."""
    layout: Literal["bulk", "stock", "packed"]
    """Whoosh's files, with posting lists pickled at computable places or as Whoosh's own writer does; or packed."""
    attributes: tuple[str, ...]
    standard: tuple[str, ...]
    """The standard fields that are indexed."""
    ranges: tuple[str, ...]
    """The number fields that have terms, too."""
    fields: dict[str, int]
    """The fields that have terms, by their numbers in the dictionary."""
    terms: int
    order_type: str | msgspec.UnsetType = msgspec.UNSET
    """Of Whoosh's files, type of the array of the terms' places: H, i, I or q."""
    packed: PackedFile | msgspec.UnsetType = msgspec.UNSET
    """Of a packed shard, where all lies in its file."""
    absent: dict[str, int]
    """How many documents have no number, for each number field."""
    files: tuple[ShardFile, ...]
    cut: dict[str, int] | None = None
    """The fields with terms that are only the beginning of their values, and the characters of the shortest of these.
    None: built when nobody noted it; each term was the first TERM_BYTES_MAX bytes of its value."""

    def whole_below(self, name: str) -> int | None:
        """Return how long a term of a field must be, in characters, that it may be cut; None when none is."""
        return whole_below(self.cut, name)

    @property
    def searched(self) -> frozenset[str]:
        """The fields that can be asked for; in any other the shard finds nothing, though its events may have it."""
        attributes = (ATTRIBUTE_PREFIX + name for name in self.attributes)
        return frozenset((*self.standard, *attributes, *TIME_FIELDS, *NUMBER_FIELDS))

    def is_of(self, indexed: IndexedFields) -> bool:
        """Whether a shard that is built now would have the same fields."""
        # A packed shard has less than was asked for where Whoosh is to open it. The other way round it has all.
        if indexed.layout == "whoosh" and self.layout == "packed":
            return False
        own_fields = (self.attributes, self.standard, self.ranges)
        their_fields = (indexed.attributes, indexed.standard, indexed.ranges)
        return all(set(own) == set(other) for own, other in zip(own_fields, their_fields, strict=True))


_ABOUT = msgspec.json.Decoder(Description)


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The description and what goes with it.

    `checksums` holds one CRC-32 a page of PAGE_BYTES, file after file; `zones[field]` the smallest and the greatest
    number in each ZONE_DOCUMENTS documents, shape (2, zones), the smallest above the greatest where there is none.
    """

    description: Description
    checksums: Checksums
    zones: dict[str, Zones]
    digest: bytes = b""
    """Of the file that it was read from, 16 bytes: of two shards with the same one, all bytes are the same."""

    def encode(self) -> bytes:
        """Return the file's bytes."""
        # By name: the record holds no names, and the reader sorts `absent` in the same way.
        names = sorted(self.zones)
        zones = b"".join(self.zones[name].astype("<i8").tobytes() for name in names)
        records = [
            frame(_DESCRIPTION, msgspec.json.encode(self.description)),
            frame(_PAGES, self.checksums.astype("<u4").tobytes()),
            frame(_ZONES, zones),
        ]
        version = VERSION_PACKED if self.description.layout == "packed" else VERSION_OF_WHOOSH
        return _MAGIC + bytes([version]) + b"".join(records)

    @classmethod
    def decode(cls, data: bytes | memoryview, path: Path) -> Manifest:
        """Return the manifest of a file's bytes.

        Raises:
            FormatVersionError: it is of another version.
            CorruptionError: it is not whole, or does not fit itself.
        """
        version = _version(data, path)
        records = list(frames(data, PREAMBLE_BYTES))
        about = _described(version, records[0] if records else None, path)
        kinds = [item.kind if isinstance(item, Frame) else None for item in records]
        if kinds != [_DESCRIPTION, _PAGES, _ZONES]:
            raise _other_bytes(path)
        _, pages, zones = (bytes(item.payload) for item in records if isinstance(item, Frame))
        count = -(-about.documents // ZONE_DOCUMENTS)
        # The description says how long the other two records have to be, so that none can be cut or swapped unseen. And
        # zones bound the number of documents, for which readers take memory.
        if (
            (about.documents and not about.absent)
            or len(pages) != 4 * sum(pages_of(file.size) for file in about.files)
            or len(zones) != (16 * count * len(about.absent))
        ):
            raise CorruptionError(f"{path}: expected checksums and zones of the files described, got another number.")
        bounds = np.frombuffer(zones, "<i8").reshape(len(about.absent), 2, count)
        return cls(
            description=about,
            checksums=np.frombuffer(pages, "<u4"),
            zones=dict(zip(sorted(about.absent), bounds, strict=True)),
            digest=hashlib.blake2b(data, digest_size=16).digest(),
        )


def described(data: bytes | memoryview, path: Path) -> Description:
    """Return the description alone, for which the first bytes of the file are enough; raises as `Manifest.decode`."""
    # Lazily: the frames behind the description may not be in memory yet, as the file is mapped.
    return _described(_version(data, path), next(iter(frames(data, PREAMBLE_BYTES)), None), path)


def _version(data: bytes | memoryview, path: Path) -> int | None:
    """Return the version of a manifest; None for other bytes."""
    head = bytes(data[:PREAMBLE_BYTES])
    version = head[-1] if head[:-1] == _MAGIC else None
    if version not in (None, VERSION_OF_WHOOSH, VERSION_PACKED):
        raise FormatVersionError(
            f"{path} @{len(_MAGIC)}: expected a shard of version {VERSION_OF_WHOOSH} or {VERSION_PACKED}, "
            f"got {version}."
        )
    return version


def _described(version: int | None, first: Frame | Gap | None, path: Path) -> Description:
    if version is None or not isinstance(first, Frame) or first.kind != _DESCRIPTION:
        raise _other_bytes(path)
    try:
        about = _ABOUT.decode(bytes(first.payload))
    except msgspec.DecodeError as error:
        raise CorruptionError(f"{path} @{PREAMBLE_BYTES}: expected a shard's description, got {error}.") from error
    if not (version == VERSION_PACKED) == (about.layout == "packed") == bool(about.packed):
        raise CorruptionError(f"{path} @{PREAMBLE_BYTES}: expected a layout of version {version}, got {about.layout}.")
    return about


def _other_bytes(path: Path) -> CorruptionError:
    return CorruptionError(f"{path} @0: expected a shard's description with its checksums, got other bytes.")
