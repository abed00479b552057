"""Erasure of contents: those of erased events are removed with their file, or overwritten where others share it.

A content stays as long as another event refers to it, and its file as long as a FlowFile in a queue may; both are
looked at under the lock of the FlowFile repository, so that none is claimed meanwhile. Each step can be repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from custody.clock import Clock
from custody.config import Settings
from custody.errors import CustodyError
from custody.flow.content import OPEN_SECONDS_MAX, ClaimPlaces, ContentContainers, ResourceClaim
from custody.flow.content.claim_file import CLAIM_SCHEME, ClaimFile, ContentRecord, erasing
from custody.flowfile_repository import claimed_contents
from custody.maintenance import ClaimSpans, all_spans
from custody.retention.erasures import ErasedCopy
from custody.vfs import FileSystem
from custody.workspace import Workspace

if TYPE_CHECKING:
    from custody.flow.content.handed_claims import StoredClaim

_WRITTEN_MS = int(2 * OPEN_SECONDS_MAX * 1000)
"""A live writer appends to no file that is older than half of this."""


@dataclass
class ErasedContents:
    """What became of the contents: why some wait, which stay, and keys of objects that were written or deleted."""

    waiting: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)


def erase_contents(
    workspaces: Sequence[Workspace],
    settings: Settings,
    fs: FileSystem,
    clock: Clock,
    contents: Mapping[str, Iterable[Sequence[int]]],
    erased_ms: int,
    note: Callable[[Sequence[ErasedCopy]], None],
) -> ErasedContents:
    """Erase contents that nothing refers to any more.

    Args:
        workspaces: all writers.
        settings: those of the repository.
        fs: where its disks are.
        clock: tells which files a live writer may still append to.
        contents: offset and length, by resource claim as text.
        erased_ms: the time that records of erased contents get: always the same for one request.
        note: is told what is about to be removed or overwritten, and has to keep that durably.

    Durability: on return what `note` was told is done and survives power loss.

    Raises:
        CustodyError: an event, or the log of FlowFiles, cannot be read, so nobody knows what it refers to.
    """
    done = ErasedContents()
    spans = {_resource(text): {(at, at + size) for at, size in parts} for text, parts in contents.items()}
    if not spans:
        return done
    references = all_spans(workspaces, spans.keys())
    held = {workspace.writer for workspace in workspaces if workspace.is_held()}
    places = ClaimPlaces(fs, settings.content_store)
    # Until the last one is gone no FlowFile can claim one of them.
    with claimed_contents(fs, settings.flowfiles_home) if spans else nullcontext(frozenset[str]()) as claimed:
        for resource, wanted in sorted(spans.items()):
            if resource.text in claimed:
                done.waiting.append(f"contents in {resource.text}: a FlowFile in a queue refers to the file")
                continue
            one = _OneClaim(settings, fs, places, resource, wanted, references.get(resource, set()), erased_ms)
            written_ms = places.written_ms(resource, places.stored(resource))
            if resource.writer in held and written_ms is not None and written_ms > clock.now_ms() - _WRITTEN_MS:
                done.waiting.append(
                    f"contents in {resource.text}: a live writer may append to the file for some minutes"
                )
                continue
            try:
                done.keys += one.erase(note)
            except CustodyError as error:
                done.waiting.append(f"contents in {resource.text}: {error}")
            done.kept += one.kept
    for writer in sorted({resource.writer for resource in spans}):
        # A process that died may have removed files without making that durable.
        places.settle_all(writer)
    return done


@dataclass
class _OneClaim:
    settings: Settings
    fs: FileSystem
    places: ClaimPlaces
    resource: ResourceClaim
    wanted: Collection[tuple[int, int]]
    references: Collection[tuple[int, int]]
    erased_ms: int
    kept: list[str] = field(default_factory=list)

    def erase(self, note: Callable[[Sequence[ErasedCopy]], None]) -> list[str]:
        """Erase what can be; return keys of objects.

        Raises:
            ContentContainerMissingError: the disk of the file is away.
            CorruptionError: the file, or its manifest in the store, cannot be read.
        """
        resource, is_here = self.resource, self.places.is_on_disk(self.resource)
        if not is_here:
            # Gone only if the disk is there on which it would lie.
            ContentContainers(self.fs, self.settings.content_store, resource.writer).get(resource.container).check()
        file = ClaimFile.read(self.fs, self._path) if is_here else None
        records = self._records(file)
        going = [record for record in records if self._goes(record)]
        if not going:
            return []
        if all(record in going or record.erased_ms is not None or not record.length for record in records):
            return self._remove(note, is_here=is_here)
        return self._overwrite(note, file, going)

    def _records(self, file: ClaimFile | None) -> Sequence[ContentRecord]:
        stored, handed = self._stored, self.places.handed
        if stored is not None and stored.pieces.keys() - stored.manifests:
            self.kept.append(f"{self._where}: an interrupted hand-over left pieces; custody content clean removes them")
        if file is not None:
            return file.contents
        if handed is None or stored is None or stored.bytes is None:
            return ()
        return handed.manifest(self.resource, stored.bytes).contents

    def _remove(self, note: Callable[[Sequence[ErasedCopy]], None], *, is_here: bool) -> list[str]:
        """Remove the whole file, all of whose contents go."""
        handed, keys = self.places.handed, list[str]()
        copies = [ErasedCopy(kind="content", place=str(self._path), how="removed")] if is_here else []
        if handed is not None and self._stored is not None:
            copies.append(ErasedCopy(kind="content in the store", place=self._where, how="removed"))
            keys = handed.keys_of(self.resource)
        note(copies)
        self.places.remove([self.resource])
        self.places.settle([self._path.parent])
        return keys

    def _overwrite(
        self, note: Callable[[Sequence[ErasedCopy]], None], file: ClaimFile | None, going: Sequence[ContentRecord]
    ) -> list[str]:
        places = {"content": str(self._path)} if file is not None else {}
        if self._stored is not None:
            places["content in the store"] = self._where
        note(
            [
                ErasedCopy(kind=kind, place=f"{place} @{record.offset}, {record.length} bytes", how="overwritten")
                for kind, place in places.items()
                for record in going
            ]
        )
        # The file first: a hand-over that begins now takes the new bytes.
        if file is not None:
            data = bytearray(file.data)
            for record in going:
                for change in erasing(record, file.header.key, self.erased_ms):
                    change.apply(data, 0)
            self.fs.write_durably(self._path, bytes(data))
        handed = self.places.handed
        if handed is None or self._stored is None:
            return []
        return sorted(handed.overwrite(self.resource, self._goes, self.erased_ms))

    @cached_property
    def _path(self) -> Path:
        return self.resource.path(self.settings.content_store)

    @cached_property
    def _stored(self) -> StoredClaim | None:
        return self.places.stored(self.resource)

    @property
    def _where(self) -> str:
        handed = self.places.handed
        return self.resource.text if handed is None else handed.locate(self.resource)

    def _goes(self, record: ContentRecord) -> bool:
        """Whether a content is that of an erased event, and nothing else refers to any of its bytes."""
        if record.erased_ms is not None or not record.length or not _overlaps(record, self.wanted):
            return False
        if _overlaps(record, self.references):
            text = f"content {self.resource.text} @{record.offset}: other events, or earlier revisions, refer to it"
            if text not in self.kept:
                self.kept.append(text)
            return False
        return True


def _overlaps(record: ContentRecord, spans: Collection[tuple[int, int]]) -> bool:
    return any(begin < record.end and record.offset < end for begin, end in spans)


def _resource(text: str) -> ResourceClaim:
    writer, _, rest = text.removeprefix(CLAIM_SCHEME).partition("/")
    container, section, identifier = rest.split("/")
    return ResourceClaim(writer, container, section, identifier)


def spans_as_contents(spans: ClaimSpans) -> dict[str, list[tuple[int, int]]]:
    """Return offset and length of contents, by resource claim as text."""
    return {
        resource.text: sorted((begin, end - begin) for begin, end in found) for resource, found in sorted(spans.items())
    }
