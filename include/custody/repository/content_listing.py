"""Listing and cleaning of the content repository, one line a file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from custody.clock import Clock
from custody.config import ContentStore, Settings
from custody.errors import CustodyError
from custody.flow.content import ClaimFile, ClaimPlaces, ContentContainers, ResourceClaim
from custody.retention import drop_unused, unused_claims
from custody.vfs import FileSystem
from custody.workspace import Workspace

if TYPE_CHECKING:
    from custody.flow.content.handed_claims import StoredClaim


class ListedClaim(msgspec.Struct, frozen=True, kw_only=True):
    """A resource claim on a disk, in the store, or in both; sizes in bytes."""

    writer: str
    claim: str
    """Writer, container, section and identifier; of a container that is missing the first two."""
    bytes: int
    contents: int
    problem: str | None = None
    """Why its contents cannot be listed, None when they can. Their bytes are not checked: that is `custody verify`."""
    place: Literal["disk", "store", "both"] = "disk"
    """Where it is; what an interrupted hand-over left in the store does not count."""


class CleanedContents(msgspec.Struct, frozen=True, kw_only=True):
    """Files of contents that no event refers to; bytes on disks and in the store."""

    claims: tuple[str, ...]
    bytes: int
    is_applied: bool


def clean_contents(
    workspaces: Sequence[Workspace], settings: Settings, fs: FileSystem, clock: Clock, *, apply: bool
) -> CleanedContents:
    """Find the files that no event refers to and that are old enough; delete them with `apply`."""
    unused = unused_claims(workspaces, settings, clock)
    # Before the removal. Another pass may have removed some of them since they were listed.
    paths = [item.path(settings.content_store) for item in unused]
    size = sum(fs.size(path) for path in paths if fs.exists(path))
    size += sum(stored.size_bytes for stored in unused.values() if stored is not None)
    if apply:
        drop_unused(workspaces, settings, fs, clock)
    names = tuple(f"{item.writer}/{item.container}/{item.section}/{item.identifier}" for item in unused)
    return CleanedContents(claims=names, bytes=size, is_applied=apply)


def list_claims(fs: FileSystem, store: ContentStore, writer: str) -> Iterator[ListedClaim]:
    """Yield the resource claims of a writer, and its containers that are missing.

    A claim that is deleted meanwhile is left out.
    """
    places = ClaimPlaces(fs, store)
    for resource, stored in places.listed(writer):
        listed = _listed(fs, places, resource, resource.path(store), stored)
        if listed is not None:
            yield listed
    for name, missing in ContentContainers(fs, store, writer).missing():
        yield ListedClaim(writer=writer, claim=f"{writer}/{name}", bytes=0, contents=0, problem=str(missing))


def _listed(
    fs: FileSystem, places: ClaimPlaces, resource: ResourceClaim, path: Path, stored: StoredClaim | None
) -> ListedClaim | None:
    problem, count, size = None, 0, 0
    length = None if stored is None else stored.bytes
    is_on_disk = fs.exists(path)
    try:
        if is_on_disk:
            count, size = len(ClaimFile.read(fs, path).contents), fs.size(path)
        elif length is not None and places.handed is not None:
            count, size = places.handed.manifest(resource, length).claim.contents, length
        elif stored is not None:
            problem, size = (
                "an interrupted hand-over left it, and its file is not on this machine's disks",
                stored.size_bytes,
            )
        else:
            return None
    except CustodyError as error:
        if not places.exists(resource):
            return None
        problem = str(error)
    name = f"{resource.writer}/{resource.container}/{resource.section}/{resource.identifier}"
    place: Literal["disk", "store", "both"] = "store" if not is_on_disk else "disk" if length is None else "both"
    return ListedClaim(writer=resource.writer, claim=name, bytes=size, contents=count, problem=problem, place=place)
