"""`custody verify` and `custody attest`: checks that all is as it was written; signs heads, to prove that later."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click
import msgspec

from custody.catalog import Catalog, Verification, verify
from custody.catalog.attest import Attestation, attest, compare, public_key, read_attestation
from custody.catalog.attest import new_key as generate_key
from custody.cli.catalog_cmd import load_catalog, load_catalogs
from custody.cli.findings_output import bar, deep_option, level_of, print_findings, quick_option, verdict
from custody.cli.options import json_option, writer_option
from custody.cli.output import print_json, print_table, size_text, stderr, stdout
from custody.cli.scrub_cmd import print_scrub
from custody.clock import SystemClock
from custody.config import Settings, load_settings
from custody.errors import ConfigurationError, CorruptionError, NotFoundError, StorageError
from custody.maintenance.findings import STORE_REFUSED, Finding, Level
from custody.maintenance.scrub import read_scrub
from custody.maintenance.verification import VerificationReport, verify_repository
from custody.maintenance.verification import orphans as orphans_of
from custody.maintenance.verification.verifier import VerifyProgress
from custody.ngsi_sink.check_destinations import check_destinations
from custody.vfs import PosixFileSystem
from custody.workspace import Workspace


@click.command("verify")
@quick_option
@deep_option
@click.option("--orphans", is_flag=True, help="Only list what belongs to nothing, with its size and who removes it.")
@click.option("--last", is_flag=True, help="Look at nothing; print what the scrub found and how far it is.")
@click.option("--against", type=click.Path(path_type=Path), help="An attestation that the catalog has to go on from.")
@click.option("--key", "trusted", help="Public key that the attestation has to be signed with, 64 hexadecimal digits.")
@click.option("--chain-only", is_flag=True, help="Read the catalog, nothing else.")
@writer_option
@json_option
@click.pass_obj
def verify_all(
    repository: Path,
    quick: bool,
    deep: bool,
    orphans: bool,
    last: bool,
    against: Path | None,
    trusted: str | None,
    chain_only: bool,
    writer: str | None,
    as_json: bool,
) -> None:
    """Look at everything on containers and store, and name each defect, what it costs and what mends it.

    Journals, writer states, staged units, event logs, index shards, catalog and quarantine, the ids over all of them,
    and what belongs to nothing. Nothing is changed. Without --quick and --deep every byte is compared with its
    checksum. docs/damage.md has the table of what can be found.

    Exit code 0 when nothing is damaged (known losses, notices and orphans are no damage), 20 when something is, 17 when
    the object store refused to let something be read, 12 when the attestation of --against proves nothing, because its
    revision was pruned.

    \b
    Example:
      custody -r demo verify
      custody -r demo verify --deep --json
      custody -r demo verify --against head.json
    """
    level = level_of(quick=quick, deep=deep)
    settings = load_settings(repository)
    if last:
        print_scrub(settings, read_scrub(settings, PosixFileSystem()), as_json=as_json)
        return
    attestation = None
    if against is not None:
        attestation = read_attestation(PosixFileSystem().read(against), against, trusted)
        writer = writer or attestation.writer
    if orphans:
        settings.require_folder("the list of what belongs to nothing (custody catalog gc finds what no revision lists)")
    if chain_only:
        _verify_catalogs(load_catalogs(repository, writer), attestation, files=not chain_only, as_json=as_json)
        return
    workspaces = [item for item in Workspace.all(settings) if writer in (None, item.writer)]
    if writer is not None and not workspaces:
        raise NotFoundError(f"writer {writer!r}: has nothing in this repository.")
    with bar() as show:
        checked = _check(workspaces, settings, level, show, only_orphans=orphans)
    documents = [_writer_document(workspace, checked, attestation) for workspace in workspaces]
    if checked.of(None) and writer is None:
        documents.append(_finding_lists(None, None, checked.of(None)))
    if as_json:
        print_json(documents)
    else:
        _print_all(workspaces, checked, documents, only_orphans=orphans)
    _exit(documents)
    if any(finding.kind == STORE_REFUSED for finding in checked.findings):
        sys.exit(StorageError.exit_code)


def _exit(documents: Sequence[Mapping[str, Any]]) -> None:
    """End the process with the exit code of what was found, if anything was, or if an attestation proves nothing."""
    if any(document["defects"] for document in documents):
        sys.exit(CorruptionError.exit_code)
    if any("proven" in document and not document["proven"] for document in documents):
        sys.exit(NotFoundError.exit_code)


def _check(
    workspaces: list[Workspace], settings: Settings, level: Level, show: VerifyProgress, *, only_orphans: bool
) -> VerificationReport:
    if only_orphans:
        return VerificationReport(level=level, findings=list(orphans_of(workspaces, settings, PosixFileSystem())))
    checked = verify_repository(workspaces, settings, PosixFileSystem(), level, show)
    checked.findings += check_destinations(settings, PosixFileSystem())
    return checked


def _writer_document(
    workspace: Workspace, checked: VerificationReport, attestation: Attestation | None
) -> dict[str, Any]:
    verification = checked.catalogs.get(workspace.writer, Verification())
    files = [] if verification.state is None else list(verification.state.files.values())
    counts = {
        "revisions": verification.revisions,
        "checkpoints": verification.checkpoints,
        "files": len(files),
        "bytes": sum(file.size_bytes for file in files),
    }
    document = _finding_lists(workspace.writer, workspace.database, checked.of(workspace.writer)) | counts
    if attestation is not None:
        compared = compare(workspace.catalog, attestation)
        kind, where = "catalog-attested", str(workspace.catalog.objects)
        contradicted = [Finding(kind=kind, writer=workspace.writer, path=where, message=t) for t in compared.defects]
        # Also here, so that the verdict counts them.
        checked.findings += contradicted
        document["defects"] = [*map(_defect, contradicted), *document["defects"]]
        document["attested_revision"] = attestation.revision
        # What a chain with defects proves nobody should rely on.
        document["proven"] = [] if document["defects"] else list(compared.proven)
        document["not_proven"] = list(compared.unproven)
    return document


def _finding_lists(writer: str | None, database: str | None, findings: list[Finding]) -> dict[str, Any]:
    return {
        "writer": writer,
        "database": database,
        "defects": [_defect(item) for item in findings if item.severity == "damage"],
        "notices": [item.message for item in findings if item.severity == "notice"],
        "known_losses": [item.document() for item in findings if item.severity == "loss"],
        "orphans": [item.document() for item in findings if item.severity == "orphan"],
    }


def _defect(item: Finding) -> dict[str, Any]:
    """Return a defect for machines; `file` is its path, as catalog verify calls it."""
    document = item.document()
    return {"file": document.pop("path"), **document}


def _print_all(
    workspaces: list[Workspace], checked: VerificationReport, documents: list[dict[str, Any]], *, only_orphans: bool
) -> None:
    writers = {workspace.writer for workspace in workspaces}
    findings = [item for item in checked.findings if item.writer is None or item.writer in writers]
    rows = [document for document in documents if document.get("revisions") or document.get("files")]
    if rows and not only_orphans:
        _print_counts("", rows)
    print_findings(findings)
    for document in documents:
        for kind, word in (("proven", "proven"), ("not_proven", "not proven")):
            for text in document.get(kind, []):
                stderr().print(f"{word}: {text}", markup=False)
    if only_orphans:
        stdout().print("" if findings else "nothing belongs to nothing", end="" if findings else "\n")
        return
    scope = f"{checked.pieces} check units, {size_text(checked.bytes)} checked, level {checked.level}"
    stdout().print(f"{scope}: {verdict(findings)}" if checked.bytes else f"nothing to check yet: {verdict(findings)}")


def _print_counts(title: str, documents: Sequence[dict[str, Any]]) -> None:
    counted = ("revisions", "checkpoints", "files", "bytes")
    columns = ("writer", *(f"{name}#" for name in counted))
    print_table(title, columns, [[document[name] for name in ("writer", *counted)] for document in documents])


@click.command("verify")
@writer_option
@json_option
@click.pass_obj
def verify_chain(repository: Path, writer: str | None, as_json: bool) -> None:
    """Read the whole catalog, not the files that it lists, and name each defect. Exit code 20 when there is one.

    \b
    Example:
      custody -r demo catalog verify
    """
    _verify_catalogs([load_catalog(repository, writer)[1]], None, files=False, as_json=as_json)


@click.command("attest")
@click.option("--new-key", type=click.Path(path_type=Path), help="Make a key, keep it in this new file, sign with it.")
@click.option("--key", type=click.Path(path_type=Path), help="File of the private key to sign with.")
@click.option("--out", type=click.Path(path_type=Path), help="File for the attestation; default: stdout.")
@writer_option
@click.pass_obj
def attest_head(repository: Path, new_key: Path | None, key: Path | None, out: Path | None, writer: str | None) -> None:
    """Sign the newest revision, for an auditor to keep; `custody verify --against` checks it later.

    Keep attestation and public key where who can write to the store cannot.

    \b
    Example:
      custody -r demo attest --new-key auditor.pem --out head.json
      custody -r demo attest --key auditor.pem --out head.json
    """
    fs = PosixFileSystem()
    if (key is None) == (new_key is None):
        raise click.UsageError("name a key with --key, or make one with --new-key FILE")
    pem = generate_key() if key is None else fs.read(key)
    # Signed before the key is written: if there is nothing to sign, no key is left behind.
    attestation = msgspec.json.encode(attest(load_catalog(repository, writer)[1], pem, SystemClock())) + b"\n"
    if new_key is not None:
        _keep_key(new_key, pem)
        stderr().print(f"made the key {new_key}, its public key is {public_key(pem)}", markup=False)
    if out is None:
        click.echo(attestation.decode(), nl=False)
        return
    fs.write_durably(out, attestation)
    stderr().print(f"signed the newest revision in {out}; later: custody verify --against {out}", markup=False)


def _keep_key(path: Path, pem: bytes) -> None:
    """Write a new private key that only its owner can read."""
    # Before the file is made: with a later change of its rights others could read the key for a moment.
    former = os.umask(0o177)
    try:
        if not PosixFileSystem().publish_if_absent(path.absolute(), pem):
            raise ConfigurationError(f"{path}: exists. A key is never overwritten; name another file.")
    finally:
        os.umask(former)


def _verify_catalogs(
    catalogs: Sequence[Catalog], attestation: Attestation | None, *, files: bool, as_json: bool
) -> None:
    documents = []
    for catalog in catalogs:
        with bar() as show:
            verification = verify(catalog, files=files, progress=partial(show, catalog.objects.writer))
        documents.append(_document(catalog, verification, attestation))
    if as_json:
        print_json(documents)
    else:
        for document in documents:
            _print(document)
    _exit(documents)


def _document(catalog: Catalog, verification: Verification, attestation: Attestation | None) -> dict[str, Any]:
    defects: list[dict[str, str | int | None]] = [
        {"file": defect.file, "offset": defect.offset, "message": str(defect)} for defect in verification.defects
    ]
    compared = None if attestation is None else compare(catalog, attestation)
    if compared is not None:
        wrong: list[dict[str, str | int | None]] = [
            {"file": str(catalog.objects), "offset": None, "message": text} for text in compared.defects
        ]
        defects = [*wrong, *defects]
    document: dict[str, Any] = {
        "writer": catalog.objects.writer,
        "database": catalog.objects.database,
        "revision": None if verification.state is None else verification.state.revision,
        "digest": None if verification.state is None else verification.state.digest.hex(),
        "revisions": verification.revisions,
        "checkpoints": verification.checkpoints,
        "files": verification.files,
        "bytes": verification.bytes,
        "defects": defects,
        "notices": verification.notices,
    }
    if attestation is not None and compared is not None:
        document["attested_revision"] = attestation.revision
        # What a chain with defects proves nobody should rely on.
        document["proven"] = [] if defects else list(compared.proven)
        document["not_proven"] = list(compared.unproven)
    return document


def _print(document: dict[str, Any]) -> None:
    _print_counts("", [document])
    for kind, word in (
        ("defects", "defect"),
        ("notices", "notice"),
        ("proven", "proven"),
        ("not_proven", "not proven"),
    ):
        entries = document.get(kind, [])
        for entry in entries if isinstance(entries, list) else []:
            text = entry["message"] if isinstance(entry, dict) else entry
            stderr().print(f"{word}: {text}", markup=False)
    if not document["defects"]:
        scope = f"{document['revisions']} revisions, {document['files']} files, {size_text(document['bytes'])} checked"
        stdout().print(f"{scope}: nothing wrong")
