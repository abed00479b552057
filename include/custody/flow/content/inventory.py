"""What lies in a content repository: its resource claims, one after the other, and what of a file can be read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from custody.errors import CorruptionError
from custody.flow.content.claims import ResourceClaim
from custody.flow.content.file import ClaimHeader, ContentRecord, read_header, scan
from custody.format.framing import Gap
from custody.format.names import ContentPaths, is_claim, is_section
from custody.vfs import FileSystem


@dataclass(frozen=True)
class ClaimFile:
    """One resource claim, read: its contents, and what of it belongs to none."""

    path: Path
    header: ClaimHeader
    contents: tuple[ContentRecord, ...]
    gaps: tuple[Gap, ...]
    data: memoryview

    @classmethod
    def read(cls, fs: FileSystem, path: Path) -> ClaimFile:
        """Find the contents of a file; their bytes are not checked.

        Raises:
            CorruptionError: its head cannot be read.
            FormatVersionError: it is of a newer version.
            StorageError: it cannot be opened.
        """
        data = fs.view(path)
        header, start = read_header(data, path)
        found = list(scan(data, header.key, start))
        contents = tuple(item for item in found if isinstance(item, ContentRecord))
        return cls(path, header, contents, tuple(item for item in found if isinstance(item, Gap)), data)

    @property
    def torn(self) -> Gap | None:
        """What lies behind the last content: the beginning of one that was never acknowledged, or a damaged one."""
        last = self.gaps[-1] if self.gaps else None
        return last if last is not None and last.offset + last.length == len(self.data) else None

    def damage(self) -> Iterator[tuple[int, CorruptionError]]:
        """Check every byte of every content; yield what is wrong, and where. The torn end is not judged here."""
        for gap in self.gaps:
            if gap is not self.torn:
                text = f"expected contents with their records, got {gap.length} other bytes."
                yield gap.offset, CorruptionError(f"{self.path} @{gap.offset}: {text}")
        for record in self.contents:
            try:
                for _ in record.whole(self.data, self.path) if record.erased_ms is None else ():
                    pass
            except CorruptionError as error:
                yield record.offset, error


def containers_of(fs: FileSystem, store: Path, writer: str) -> list[str]:
    """Return the content containers of a writer that are there."""
    home = ContentPaths(store, writer).home
    return [name for name in fs.list(home) if fs.is_directory(home / name)]


def sections_of(fs: FileSystem, store: Path, writer: str) -> Iterator[tuple[str, str]]:
    """Yield each container and section of a writer that is there."""
    home = ContentPaths(store, writer).home
    for container in containers_of(fs, store, writer):
        yield from ((container, section) for section in fs.list(home / container) if is_section(section))


def claims_in(fs: FileSystem, store: Path, writer: str, container: str, section: str) -> Iterator[ResourceClaim]:
    """Yield the resource claims of a section."""
    for name in fs.list(ContentPaths(store, writer).section(container, section)):
        if is_claim(name):
            yield ResourceClaim(writer, container, section, name)


def claims_on_disk(fs: FileSystem, store: Path, writer: str) -> Iterator[ResourceClaim]:
    """Yield all resource claims of a writer."""
    for container, section in sections_of(fs, store, writer):
        yield from claims_in(fs, store, writer, container, section)
