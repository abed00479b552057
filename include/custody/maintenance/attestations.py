"""The attestations that a repository keeps: what each of them proves of the catalogs as they are now."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from custody.catalog import Verification, verify
from custody.catalog.attest import Attestation, compare_walk, read_attestation
from custody.config import Settings
from custody.errors import CustodyError, NotFoundError
from custody.vfs import FileSystem
from custody.workspace import Workspace


class KeptAttestation(msgspec.Struct, frozen=True, kw_only=True):
    """A file of the folder `catalog.attestations`, compared with the catalog that it is about; times in ms."""

    file: str
    state: str
    """`proven`: the revision is the attested one; `pruned`: it is kept no more, so nothing is proven;
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


def read_attestations(settings: Settings, fs: FileSystem) -> list[tuple[Path, Attestation | CustodyError]]:
    """Return the files in the folder `catalog.attestations`, each with what it says, or why it says nothing.

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
    return [(folder / name, _read(fs, folder / name)) for name in sorted(fs.list(folder)) if name.endswith(".json")]


def list_attestations(settings: Settings, fs: FileSystem, workspaces: Mapping[str, Workspace]) -> list[KeptAttestation]:
    """Return the attestations in the folder `catalog.attestations`, the newest first; none where no folder is named.

    The chain of each catalog that one is about is walked once. Signatures are checked by the key that each names: whose
    key that is, no file tells.

    Raises:
        NotFoundError: the folder is not there.
    """
    read = read_attestations(settings, fs)
    walks: dict[str, Verification] = {}
    for writer, workspace in workspaces.items():
        at = {one.revision for _, one in read if isinstance(one, Attestation) and one.writer == writer}
        if at:
            walks[writer] = verify(workspace.catalog, files=False, states_at=at)
    kept = [
        KeptAttestation(file=path.name, state="unreadable", said=(str(one),))
        if isinstance(one, CustodyError)
        else _compared(path, one, workspaces, walks, settings.repository.database)
        for path, one in read
    ]
    return sorted(kept, key=lambda one: (-(one.attested_ms or 0), one.file))


def _read(fs: FileSystem, path: Path) -> Attestation | CustodyError:
    try:
        return read_attestation(fs.read(path), path)
    except CustodyError as error:
        return error


def _compared(
    path: Path,
    attestation: Attestation,
    workspaces: Mapping[str, Workspace],
    walks: Mapping[str, Verification],
    database: str,
) -> KeptAttestation:
    workspace = workspaces.get(attestation.writer)
    if workspace is None or attestation.database != database:
        text = f"it is about {attestation.writer}/{attestation.database}, which is not here"
        return _kept(path, attestation, "elsewhere", (text,))
    found = compare_walk(workspace.catalog, walks[attestation.writer], attestation)
    if found.defects:
        return _kept(path, attestation, "contradicted", found.defects)
    return _kept(path, attestation, "proven" if found.proven else "pruned", (*found.proven, *found.unproven))


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
