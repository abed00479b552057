"""Handing over contents: resource claims that nobody writes any more go from this machine's disks to the store.

May be called at any time and by several processes at once, also while the writer stores contents: of each claim and
length exactly one manifest counts. A file that grows all the same, as its process was stopped for long, is handed over
again under its new length.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from custody.catalog import writable_store_of
from custody.errors import ConflictError, CorruptionError, FormatVersionError, StorageError
from custody.flow.content import ClaimFile, ClaimPlaces, ResourceClaim, claims_on_disk
from custody.store import carried
from custody.vfs.base import refusal
from custody.workspace.workspace import Workspace

if TYPE_CHECKING:
    from custody.flow.content.handed_claims import HandedClaims

_QUIET_MS = 60_000
"""A live writer's file that got nothing for so long is handed over."""
_PARALLEL = 4
"""So many claims are sent at a time; each takes memory for two pieces."""


class HandedContents(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of one writer that were handed over; bytes are those of their files."""

    writer: str
    claims: int
    bytes: int
    problems: tuple[str, ...] = ()
    """Files that were not handed over, or not whole, as they are damaged or their names are taken, and why."""


class WaitingContents(msgspec.Struct, frozen=True, kw_only=True):
    """The files of contents that this machine's disks alone hold; those that are still written included."""

    claims: int
    bytes: int
    oldest_ms: int | None = None
    """When the file that is longest without a write got its last one; None where there is none."""


def hand_over_contents(workspace: Workspace) -> HandedContents:
    """Hand over the resource claims of a writer that nobody writes any more; those in the store are passed over.

    Durability: on return what was handed over can be read without this machine's disks.

    Raises:
        ConfigurationError: the store writes over names that are taken.
        StorageError: the store refuses.
        SupersededError: another attempt took over.
    """
    places = ClaimPlaces(workspace.fs, workspace.settings.content_store)
    handed = places.handed
    waiting = [] if handed is None else list(_waiting(workspace, places, is_settling=True))
    if handed is None or not waiting:
        return HandedContents(writer=workspace.writer, claims=0, bytes=0)
    writable_store_of(workspace.settings, workspace.fs)
    # Asked behind the listing: a process that begins later appends to none of the files that were listed.
    put = partial(_hand_over, workspace, handed, is_held=workspace.is_held())
    resources = [resource for resource, _ in waiting]
    if handed.is_remote:
        with ThreadPoolExecutor(min(_PARALLEL, len(resources))) as threads:
            done = list(threads.map(carried(put), resources))
    else:
        done = [put(resource) for resource in resources]
    return HandedContents(
        writer=workspace.writer,
        claims=sum(1 for item in done if isinstance(item, int)),
        bytes=sum(item for item in done if isinstance(item, int)),
        problems=tuple(item for item in done if isinstance(item, str)),
    )


def contents_waiting(workspace: Workspace) -> WaitingContents:
    """Return which files of contents would be lost with this machine's disks now; raises StorageError."""
    places = ClaimPlaces(workspace.fs, workspace.settings.content_store)
    waiting = list(_waiting(workspace, places))
    store, written = workspace.settings.content_store, []
    for resource, _ in waiting:
        with suppress(StorageError):  # it has just gone
            written.append(workspace.fs.modified_ms(resource.path(store)))
    return WaitingContents(
        claims=len(waiting), bytes=sum(size for _, size in waiting), oldest_ms=min(written, default=None)
    )


def _waiting(
    workspace: Workspace, places: ClaimPlaces, *, is_settling: bool = False
) -> Iterator[tuple[ResourceClaim, int]]:
    """Yield the claims on this machine's disks of which the store does not have all bytes, and their sizes.

    Of the others `is_settling` makes sure that the store has them for good.
    """
    store = workspace.settings.content_store
    stored = {} if places.handed is None else places.handed.listed(workspace.writer)
    for resource in claims_on_disk(workspace.fs, store, workspace.writer):
        try:
            size = workspace.fs.size(resource.path(store))
        except StorageError:
            continue  # it has just gone
        known = stored.get(resource)
        if known is None or (known.bytes or 0) < size:
            yield resource, size
        elif is_settling and places.handed is not None:
            places.handed.settle(known)


def _hand_over(
    workspace: Workspace, handed: HandedClaims, resource: ResourceClaim, *, is_held: bool
) -> int | str | None:
    """Hand over one claim; return its bytes, or why that cannot be; None while it is written, and when it has gone."""
    fs, path = workspace.fs, resource.path(workspace.settings.content_store)

    def is_there() -> None:
        # Late: what was deleted meanwhile, on this machine or with its disk, must not be declared.
        workspace.check()
        if not fs.exists(path):
            raise refusal("look at", path, errno.ENOENT)

    try:
        if is_held and fs.modified_ms(path) > workspace.clock.now_ms() - _QUIET_MS:
            return None
        file = ClaimFile.read(fs, path)
        # The beginning of a content that somebody is writing.
        if is_held and file.torn is not None:
            return None
        put = partial(handed.put, resource=resource, host=socket.gethostname(), check=is_there)
        # The store gets nothing that is damaged: what it has mends what a disk has, and never the other way round.
        for offset, damage in file.damage():
            # A power loss damages what was written last, and may leave its record: what was acknowledged lies before.
            if (whole := file.until(offset)).contents:
                put(whole, now_ms=workspace.clock.now_ms())
            raise damage
        return put(file, now_ms=workspace.clock.now_ms())
    except (CorruptionError, FormatVersionError, ConflictError) as error:
        return str(error)
    except StorageError as error:
        if error.errno != errno.ENOENT:
            raise
        return None
