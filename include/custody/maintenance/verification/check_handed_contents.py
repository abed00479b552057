"""Checks of contents that were handed over: each manifest, and the pieces that it names, as the store has them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from custody.errors import CorruptionError, FormatVersionError, NotFoundError
from custody.flow.content import ClaimPlaces, ResourceClaim
from custody.maintenance.findings import Finding, Level
from custody.workspace import Workspace

if TYPE_CHECKING:
    from custody.flow.content.handed_claims import HandedClaims, StoredClaim


def check_handed_section(workspace: Workspace, name: str, level: Level) -> Iterator[Finding]:
    """Yield what is wrong with the claims of a section, `<container>/<section>`, that the store has.

    What a disk has of them does not count. At the level QUICK the manifests and the sizes of pieces count, else their
    digests. A claim that is removed meanwhile is left out.
    """
    handed = ClaimPlaces(workspace.fs, workspace.settings.content_store).handed
    container, _, section = name.partition("/")
    for resource, stored in sorted(
        ({} if handed is None else handed.listed(workspace.writer, container, section)).items()
    ):
        if handed is not None:
            yield from _check_claim(workspace, handed, resource, stored, level)


def _check_claim(
    workspace: Workspace, handed: HandedClaims, resource: ResourceClaim, stored: StoredClaim, level: Level
) -> Iterator[Finding]:
    where = handed.locate(resource)
    if not stored.manifests:
        text = f"{where}: has pieces and no manifest: a hand-over is under way, or was interrupted."
        yield Finding.of("handed-content-unfinished", where, text, writer=workspace.writer, name=resource.text)
    for length in sorted(stored.manifests):
        try:
            manifest = handed.manifest(resource, length)
        except NotFoundError:
            continue
        except (CorruptionError, FormatVersionError) as error:
            yield _damaged(workspace, resource, handed.locate_object(resource, length), error)
            continue
        if stored.pieces.get(length, 0) != length:
            text = f"{where} @0: expected pieces of {length} bytes, got {stored.pieces.get(length, 0)}."
            if handed.look_up(resource) is not None:
                yield _damaged(workspace, resource, where, text)
            continue
        start = 0
        for piece in manifest.claim.pieces if level is not Level.QUICK else ():
            try:
                data = handed.read_piece(resource, length, start)
            except NotFoundError:
                data = b""
            found = hashlib.sha256(data).hexdigest()
            if found != piece.sha256 and handed.look_up(resource) is not None:
                at = handed.locate_object(resource, length, start)
                expected = f"{piece.bytes} bytes with the SHA-256 {piece.sha256}"
                text = f"{at} @0: expected {expected}, got {len(data)} with {found}."
                yield _damaged(workspace, resource, at, text)
            start += piece.bytes


def _damaged(workspace: Workspace, resource: ResourceClaim, where: str, text: object) -> Finding:
    return Finding.of("handed-content-damaged", where, text, writer=workspace.writer, offset=0, name=resource.text)
