"""The attestations that a repository keeps: what each of them proves of the catalogs as they are now."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from custody.catalog.attest import Attestation, compare, read_attestation
from custody.config import Settings
from custody.errors import CustodyError, NotFoundError
from custody.vfs import FileSystem
from custody.workspace import Workspace


class KeptAttestation(msgspec.Struct, frozen=True, kw_only=True):
    """A file of the folder `catalog.attestations`, compared with the catalog that it is about; times in ms."""

    file: str
    state: str
    """`proven`: the revision is the attested one; `pruned`: it is kept no more, so less is proven;
    `contradicted`: the catalog is not what was attested; `unreadable`: the file is no attestation, or was changed;
    `elsewhere`: it is about another writer or database."""
    said: tuple[str, ...]
    """What is proven, what is not, and what contradicts it."""
    writer: str | None = None
    revision: int | None = None
    attested_ms: int | None = None
    commit_time_ms: int | None = None
    digest: str | None = None
    public_key: str | None = None


def list_attestations(settings: Settings, fs: FileSystem, workspaces: Mapping[str, Workspace]) -> list[KeptAttestation]:
    """Return the attestations in the folder `catalog.attestations`, the newest first; none where no folder is named.

    Signatures are checked by the key that each names: whose key that is, no file tells.

    Raises:
        NotFoundError: the folder is not there.
    """
    folder = settings.attestations
    if folder is None:
        return []
    if not fs.is_directory(folder):
        raise NotFoundError(
            f"catalog.attestations: {folder}: expected a folder of attestations, found none. Mount it, or unset it."
        )
    names = [name for name in fs.list(folder) if name.endswith(".json")]
    kept = [_compared(fs, folder / name, workspaces, settings.repository.database) for name in names]
    return sorted(kept, key=lambda one: (-(one.attested_ms or 0), one.file))


def _compared(fs: FileSystem, path: Path, workspaces: Mapping[str, Workspace], database: str) -> KeptAttestation:
    try:
        attestation = read_attestation(fs.read(path), path)
    except CustodyError as error:
        return KeptAttestation(file=path.name, state="unreadable", said=(str(error),))
    workspace = workspaces.get(attestation.writer)
    if workspace is None or attestation.database != database:
        text = f"it is about {attestation.writer}/{attestation.database}, which is not here"
        return _kept(path, attestation, "elsewhere", (text,))
    found = compare(workspace.catalog, attestation)
    if found.defects:
        return _kept(path, attestation, "contradicted", found.defects)
    is_kept = attestation.revision >= workspace.catalog.load().floor
    return _kept(path, attestation, "proven" if is_kept else "pruned", (*found.proven, *found.unproven))


def _kept(path: Path, attestation: Attestation, state: str, said: tuple[str, ...]) -> KeptAttestation:
    return KeptAttestation(
        file=path.name,
        state=state,
        said=said,
        writer=attestation.writer,
        revision=attestation.revision,
        attested_ms=attestation.attested_ms,
        commit_time_ms=attestation.commit_time_ms,
        digest=attestation.digest,
        public_key=attestation.public_key,
    )
