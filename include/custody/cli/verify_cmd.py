"""`custody verify` and `custody attest`: is the record what was written, and can that be shown later?"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click
import msgspec
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

from custody.catalog import (
    Attestation,
    Catalog,
    Verification,
    attest,
    compare,
    new_key,
    public_key,
    read_attestation,
    verify,
)
from custody.cli.catalog_cmd import catalog as catalog_group
from custody.cli.catalogs import opened, opened_all
from custody.cli.output import json_option, print_json, print_table, stderr, writer_option
from custody.clock import SystemClock
from custody.errors import ConfigurationError
from custody.vfs import PosixFileSystem

_CORRUPT = 20


@click.command("verify")
@click.option("--against", type=click.Path(path_type=Path), help="An attestation that the catalog has to go on from.")
@click.option("--key", "trusted", help="Public key that the attestation has to be signed with, 64 hexadecimal digits.")
@click.option("--chain-only", is_flag=True, help="Read the catalog, not the files that it lists.")
@writer_option
@json_option
@click.pass_obj
def verify_all(
    repository: Path, against: Path | None, trusted: str | None, chain_only: bool, writer: str | None, as_json: bool
) -> None:
    """Read the whole catalog and every live file, and name each defect. Exit code 20 when there is one.

    Every transaction has to carry its predecessor's digest, every checkpoint to say what the transactions give, every
    file to have its SHA-256. Without --writer the catalogs of all writers are read.

    \b
    Example:
      custody -r demo verify
      custody -r demo verify --against head.json
    """
    attestation = None
    if against is not None:
        attestation = read_attestation(PosixFileSystem().read(against), against, trusted)
        writer = writer or attestation.writer
    _run(opened_all(repository, writer), attestation, files=not chain_only, as_json=as_json)


@catalog_group.command("verify")
@writer_option
@json_option
@click.pass_obj
def verify_chain(repository: Path, writer: str | None, as_json: bool) -> None:
    """Read the whole catalog, not the files that it lists, and name each defect. Exit code 20 when there is one.

    \b
    Example:
      custody -r demo catalog verify
    """
    _run([opened(repository, writer)[1]], None, files=False, as_json=as_json)


@click.command("attest")
@click.option("--new-key", type=click.Path(path_type=Path), help="Make a key, write it to this new file, and stop.")
@click.option("--key", type=click.Path(path_type=Path), help="File of the private key to sign with.")
@click.option("--out", type=click.Path(path_type=Path), help="File for the attestation; default: stdout.")
@writer_option
@click.pass_obj
def attest_head(repository: Path, new_key: Path | None, key: Path | None, out: Path | None, writer: str | None) -> None:
    """Sign the newest revision, for an auditor to keep; `custody verify --against` checks it later.

    Keep attestation and public key where who can write to the store cannot.

    \b
    Example:
      custody -r demo attest --new-key auditor.pem
      custody -r demo attest --key auditor.pem --out head.json
    """
    fs = PosixFileSystem()
    if new_key is not None:
        print_json({"key": str(new_key), "public_key": _make_key(new_key)})
        return
    if key is None:
        raise click.UsageError("name a key with --key, or make one with --new-key FILE")
    made = msgspec.json.encode(attest(opened(repository, writer)[1], fs.read(key), SystemClock())) + b"\n"
    if out is None:
        click.echo(made.decode(), nl=False)
    else:
        fs.write_durably(out, made)


def _make_key(path: Path) -> str:
    """Write a new private key that only its owner can read; return its public key."""
    pem = new_key()
    former = os.umask(0o177)
    try:
        if not PosixFileSystem().publish_if_absent(path.absolute(), pem):
            raise ConfigurationError(f"{path}: exists. A key is never overwritten; name another file.")
    finally:
        os.umask(former)
    return public_key(pem)


def _run(catalogs: Sequence[Catalog], attestation: Attestation | None, *, files: bool, as_json: bool) -> None:
    documents = []
    for catalog in catalogs:
        with _bar(catalog.objects.writer) as bar:
            found = verify(catalog, files=files, progress=bar)
        documents.append(_document(catalog, found, attestation))
    if as_json:
        print_json(documents)
    else:
        for document in documents:
            _print(document)
    if any(document["defects"] for document in documents):
        sys.exit(_CORRUPT)


def _document(catalog: Catalog, found: Verification, attestation: Attestation | None) -> dict[str, object]:
    defects: list[dict[str, str | int | None]] = [
        {"file": defect.file, "offset": defect.offset, "message": str(defect)} for defect in found.defects
    ]
    compared = None if attestation is None else compare(catalog, attestation)
    if compared is not None:
        wrong: list[dict[str, str | int | None]] = [
            {"file": str(catalog.objects), "offset": None, "message": text} for text in compared.defects
        ]
        defects = [*wrong, *defects]
    document: dict[str, object] = {
        "writer": catalog.objects.writer,
        "database": catalog.objects.database,
        "revisions": found.revisions,
        "checkpoints": found.checkpoints,
        "files": found.files,
        "bytes": found.bytes,
        "defects": defects,
        "notices": found.notices,
    }
    if attestation is not None and compared is not None:
        document["attested_revision"] = attestation.revision
        # What a chain with defects proves nobody should rely on.
        document["proven"] = [] if defects else list(compared.proven)
        document["not_proven"] = list(compared.unproven)
    return document


def _print(document: dict[str, object]) -> None:
    counted = ("writer", "revisions", "checkpoints", "files", "bytes")
    columns = [f"{name}#" if name != "writer" else name for name in counted]
    print_table("", columns, [[document[name] for name in counted]])
    for kind, word in (
        ("defects", "defect"),
        ("notices", "notice"),
        ("proven", "proven"),
        ("not_proven", "not proven"),
    ):
        found = document.get(kind, [])
        for entry in found if isinstance(found, list) else []:
            text = entry["message"] if isinstance(entry, dict) else entry
            stderr().print(f"{word}: {text}", markup=False)


@contextmanager
def _bar(title: str) -> Iterator[Callable[[int, int], None]]:
    """Show how far the reading of files is, on a terminal only."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with Progress(*columns, console=stderr(), transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task(title, total=None)

        def show(done: int, total: int) -> None:
            progress.update(task, completed=done, total=total)

        yield show
