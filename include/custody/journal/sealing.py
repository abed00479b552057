"""Sealing: a journal gets its end record and its final name, and nothing is appended to it any more.

The caller holds the writer's lock, so that the journal cannot grow meanwhile. The end record counts the events of the
journal and names their greatest id. So pending events are counted by reading the end records alone: when no rollover
ran for hours, gigabytes may be pending, of which only the journals that still grow are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from custody.errors import CorruptionError
from custody.format.framing import MARK, Frame, frames
from custody.format.names import ContainerPaths, JournalName
from custody.journal.groups import Group, groups
from custody.journal.journal_file import END_DECODER, KIND_END, JournalDamage, JournalEnd, JournalFile, end_record
from custody.vfs import TEMPORARY_SUFFIX, FileSystem, WritableFile


@dataclass(frozen=True, slots=True)
class SealedJournal:
    """A dead writer's journal after sealing."""

    path: Path
    """Its name from now on; the old name when the journal was removed."""
    lost_bytes: int
    """Bytes of a torn tail, which were cut: as far as can be told, an append that was never acknowledged."""
    removed: bool
    """The journal held nothing at all."""
    damage: tuple[JournalDamage, ...] = ()
    """Unreadable parts; they stay in the file, which is rolled over without them."""
    may_have_lost: bool = False
    """Whether ids that were returned may be lost: it is damaged, or was not synced by every append, or what was cut may
    have been whole once."""


KeepCut = Callable[[Path, int, bytes, str], object]
"""Keeps a durable copy of bytes that are about to be cut; gets the file, their offset, the bytes, and what they are."""


def discard_cut(path: Path, offset: int, data: bytes, what: str) -> None:
    """Keep no copy of what is cut."""


def cut_durably(fs: FileSystem, path: Path, length: int) -> None:
    """Cut a file, durably before anything is written behind the cut.

    A crash that keeps parts of both, of what was cut and of what replaces it, would leave what looks like a record that
    was whole and is damaged.
    """
    fs.truncate(path, length)
    fs.sync_file(path)


def finish(fs: FileSystem, path: Path, file: WritableFile, end: JournalEnd | None) -> Path:
    """Close and seal a journal that is open as `file`; `end` is None when its end record is there already.

    Durability: on return its content and its final name survive power loss.

    Raises:
        CorruptionError: a sealed journal of that name exists.
    """
    try:
        if end is not None:
            # The end record is durable before the name changes. A crash in between leaves an open journal with an end
            # record, which the next start only renames.
            file.write(end_record(end))
        file.sync()
    finally:
        file.close()
    return _seal(fs, path)


def _seal(fs: FileSystem, path: Path) -> Path:
    name = JournalName.parse(path.name)
    if name is None or name.sealed:
        raise ValueError(f"{path} is not an open journal")
    target = path.with_name(str(JournalName(name.first_event_id, name.number, sealed=True)))
    # A rename would replace it without a word; the writer's lock is held, so nobody makes it in between.
    if fs.exists(target):
        raise CorruptionError(
            f"{path}: expected to be sealed as {target.name}, which exists. "
            "One of the two was copied here by hand; move it elsewhere."
        )
    fs.rename(path, target)
    fs.sync_directory(path.parent)
    return target


def seal_abandoned(
    fs: FileSystem,
    containers: Iterable[Path],
    writer: str,
    keep_cut: KeepCut,
    on_uncertain: Callable[[], None] = lambda: None,
) -> list[SealedJournal]:
    """Seal what a dead writer left open: keep a copy of the torn tail and cut it, count what is left, sync, rename.

    An empty journal is removed, and so are those that never got their name. A damaged one is sealed as it is: its
    intact records are rolled over, and the rest is reported then.

    `keep_cut` is called before anything is cut or removed that a journal held. `on_uncertain` is called before a
    journal is sealed that may have lost ids which callers got: sealed, it does not show that any more, so that what is
    known of ids has to be durable by then.
    """
    containers = tuple(containers)
    _remove_unnamed(fs, containers, writer)
    abandoned = groups(fs, containers, writer)
    return [_seal_one(fs, path, keep_cut, on_uncertain) for group in abandoned for path in group.open]


def _seal_one(fs: FileSystem, path: Path, keep_cut: KeepCut, on_uncertain: Callable[[], None]) -> SealedJournal:
    journal = JournalFile.read(fs, path)
    torn = journal.torn
    lost = torn.lost_bytes if torn is not None else 0
    may_have_lost = bool(journal.damage) or (journal.header is not None and journal.header.sync != "always")
    may_have_lost = may_have_lost or (torn is not None and not torn.is_certain)
    if may_have_lost:
        on_uncertain()
    if torn is not None:
        # Before the cut: if the quarantine refuses, the journal stays as it is.
        keep_cut(path, torn.offset, journal.cut_bytes, str(torn))
    if journal.is_empty:
        fs.remove(path)
        fs.sync_directory(path.parent)
        return SealedJournal(path, lost, removed=True, may_have_lost=may_have_lost)
    if torn is not None:
        cut_durably(fs, path, journal.intact_bytes)
    elif journal.end is None:
        # What a dead process left can be seen before it is durable: an end behind it must not outlive it.
        fs.sync_file(path)
    sealed = finish(fs, path, fs.append(path), journal.counted() if journal.end is None else None)
    return SealedJournal(sealed, lost, removed=False, damage=journal.damage, may_have_lost=may_have_lost)


# An end record is a few hundred bytes; the rest leaves room for bytes behind it that a crash or a person added.
_END_BYTES_MAX = 4096


def read_end(fs: FileSystem, path: Path) -> JournalEnd | None:
    """Return what a sealed journal says of itself in its last record, None when it has none; nothing else is read."""
    # The end record is small and last; the search for its mark also passes over what was damaged behind it.
    data = fs.view(path)[-_END_BYTES_MAX:]
    at = bytes(data).rfind(MARK)
    last = next(frames(data, at), None) if at >= 0 else None
    if isinstance(last, Frame) and last.kind == KIND_END:
        return END_DECODER.decode(last.payload)
    return None


def _remove_unnamed(fs: FileSystem, containers: Iterable[Path], writer: str) -> None:
    for root in containers:
        folder = ContainerPaths(root, writer).journals
        for name in fs.list(folder):
            # A journal gets its name before its first event: nothing here was acknowledged, and the lock is held, so
            # nobody writes it now.
            if name.endswith(TEMPORARY_SUFFIX):
                fs.remove(folder / name)


@dataclass(frozen=True, slots=True)
class PendingEvents:
    """The number of events in some groups; a sealed journal counts as it was sealed, whatever was damaged since."""

    events: int
    next_event_id: int
    """One more than the greatest id; 0 when there is no event."""


def count_pending(fs: FileSystem, groups: Iterable[Group]) -> PendingEvents:
    """Count the events of some groups.

    Raises:
        StorageError: a journal is gone: it was sealed or swept in this moment.
    """
    paths = [path for group in groups for path in (*group.sealed, *group.open)]
    # Read as a whole: journals that are still open, and sealed ones that lost their end.
    ends = [read_end(fs, path) or JournalFile.read(fs, path).counted() for path in paths]
    last = max((end.last_event_id for end in ends if end.last_event_id is not None), default=-1)
    return PendingEvents(sum(end.events for end in ends), last + 1)
