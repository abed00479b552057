"""Listing and cleaning of the content repository, one line a file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from custody.clock import Clock
from custody.config import ContentStore, Settings
from custody.errors import CustodyError
from custody.flow.content import ClaimFile, ContentContainers, claims_on_disk
from custody.retention import drop_unused, unused_claims
from custody.vfs import FileSystem
from custody.workspace import Workspace


class ListedClaim(msgspec.Struct, frozen=True, kw_only=True):
    """A resource claim on disk; sizes in bytes."""

    writer: str
    claim: str
    """Writer, container, section and identifier; of a container that is missing the first two."""
    bytes: int
    contents: int
    problem: str | None = None
    """Why its contents cannot be listed, None when they can. Their bytes are not checked: that is `custody verify`."""


class CleanedContents(msgspec.Struct, frozen=True, kw_only=True):
    """Files of contents that no event refers to; bytes on disk."""

    claims: tuple[str, ...]
    bytes: int
    is_applied: bool


def clean_contents(
    workspaces: Sequence[Workspace], settings: Settings, fs: FileSystem, clock: Clock, *, apply: bool
) -> CleanedContents:
    """Find the files that no event refers to and that are old enough; delete them with `apply`."""
    unused = unused_claims(workspaces, settings, clock)
    paths = [item.path(settings.content_store) for item in unused]
    # Before the removal. Another pass may have removed some of them since they were listed.
    size = sum(fs.size(path) for path in paths if fs.exists(path))
    if apply:
        drop_unused(workspaces, settings, fs, clock)
    names = tuple(f"{item.writer}/{item.container}/{item.section}/{item.identifier}" for item in unused)
    return CleanedContents(claims=names, bytes=size, is_applied=apply)


def list_claims(fs: FileSystem, store: ContentStore, writer: str) -> Iterator[ListedClaim]:
    """Yield the resource claims of a writer, and its containers that are missing.

    A claim that is deleted meanwhile is left out.
    """
    for resource in claims_on_disk(fs, store, writer):
        path = resource.path(store)
        problem, count = None, 0
        try:
            count = len(ClaimFile.read(fs, path).contents)
        except CustodyError as error:
            if not fs.exists(path):
                continue
            problem = str(error)
        name = f"{resource.writer}/{resource.container}/{resource.section}/{resource.identifier}"
        yield ListedClaim(writer=writer, claim=name, bytes=fs.size(path), contents=count, problem=problem)
    for name, missing in ContentContainers(fs, store, writer).missing():
        yield ListedClaim(writer=writer, claim=f"{writer}/{name}", bytes=0, contents=0, problem=str(missing))
