"""Somebody who can write to the store and the containers and has no key: catalogs are forged with right checksums."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from custody.catalog import Action, Catalog, Note, Transaction
from custody.catalog.checkpoints import write_checkpoint
from custody.catalog.codec import decode, digest, encode
from custody.catalog.state import EMPTY, Draft
from custody.cli.main import cli
from custody.clock import SystemClock
from custody.config import load_settings
from custody.repository import Repository
from custody.store import LocalStore
from custody.vfs import PosixFileSystem
from tests.support import append, event, run_steps


def build(root: Path, passes: int = 3, events: int = 10) -> Repository:
    """A repository whose events became live in several passes, each with a log and a shard of its own."""
    repository = Repository.create(root)
    for number in range(passes):
        append(repository, [event(number * events + each) for each in range(events)])
        run_steps(repository.settings)
    return Repository(load_settings(root))


def run(root: Path, *arguments: object) -> Result:
    result = CliRunner().invoke(cli, ["--repository", str(root), *map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def document(root: Path, *arguments: object) -> tuple[int, Any]:
    """The exit code of a command, and what it prints for machines."""
    result = run(root, *arguments, "--json")
    return result.exit_code, json.loads(result.stdout)


def findings(root: Path, *options: str) -> set[str]:
    """The kinds of what `custody verify` calls damage."""
    code, writers = document(root, "verify", *options)
    kinds = {defect["kind"] for writer in writers for defect in writer["defects"]}
    assert code == (20 if kinds else 0)
    return kinds


def attested(root: Path, folder: Path, *, writer: str | None = None) -> tuple[Path, str]:
    """Sign the newest revision; the attestation and the public key, both out of the attacker's reach."""
    of = () if writer is None else ("--writer", writer)
    made = run(root, "attest", "--new-key", folder / "auditor.pem", "--out", folder / "head.json", *of)
    assert made.exit_code == 0, made.output
    return folder / "head.json", json.loads((folder / "head.json").read_text())["public_key"]


@dataclass
class Attacker:
    """Writes to a repository's folder; never to the auditor's."""

    root: Path
    writer: str = "main"

    @property
    def home(self) -> Path:
        return self.root / "store" / self.writer / "provenance"

    @property
    def catalog(self) -> Catalog:
        """Opened anew each time, without second copies: these are the attacker's to write, or not."""
        store = LocalStore(PosixFileSystem(), self.root / "store")
        return Catalog(store, self.writer, "provenance", SystemClock())

    def objects(self, suffix: str = "txn") -> list[Path]:
        return sorted((self.home / "transactions").glob(f"*/*.{suffix}"))

    def rewrite(self, revision: int, change: Callable[[Transaction], None], suffix: str = "txn") -> None:
        """Change one object and give it its right checksum; its successor still has the old digest."""
        [path] = [path for path in self.objects(suffix) if int(path.parent.name) == revision]
        message = decode(path.read_bytes(), path)
        change(message)
        path.write_bytes(encode(message))

    def forge(self, revision: int, change: Callable[[Transaction], None]) -> None:
        """Change an old transaction, note the broken link as lost, and let a checkpoint tell what it would have said.

        Nobody follows the chain across it any more: readers begin at the checkpoint.
        """
        self.forget_checkpoints()
        self.excuse(revision, revision + 1)
        self.rewrite(revision, change)
        draft = Draft(EMPTY)
        for path in self.objects():
            draft.follow(decode(path.read_bytes(), path), digest(path.read_bytes()))
        write_checkpoint(self.catalog.objects, draft.state())

    def link_again(self, revision: int) -> None:
        """Give all transactions behind a revision the digests of their predecessors, as they are now."""
        before = b""
        for path in self.objects():
            message = decode(path.read_bytes(), path)
            if message.revision > revision:
                message.previous_digest = before
                path.write_bytes(encode(message))
            before = digest(path.read_bytes())

    def commit(self, *actions: Action) -> int:
        return self.catalog.commit(actions).revision

    def excuse(self, *revisions: int) -> int:
        """Commit the note that a repair leaves of revisions that nobody can read."""
        return self.commit(Action(note=Note(kind=Note.REPAIRED, text="damaged", lost_revisions=revisions)))

    def forget_checkpoints(self) -> None:
        for path in (*self.objects("ckpt"), *(self.home / "transactions").glob("*/*.statistics.parquet")):
            path.unlink()
        (self.home / "transactions" / "newest-checkpoint").unlink(missing_ok=True)

    def forget_witnesses(self) -> None:
        """Remove what containers, store and the repository's folder have seen of the writer."""
        for path in [*self.root.rglob("WITNESS*"), *self.root.glob(f"witness/{self.writer}.*")]:
            if self.writer in (*path.parts, path.name.partition(".")[0]):
                path.unlink()

    def remove_log(self, path: str) -> None:
        for suffix in ("parquet", "toc"):
            (self.home / path).with_suffix(f".{suffix}").unlink()

    def remove_shards(self, names: Sequence[str]) -> None:
        for name in names:
            for folder in self.root.glob(f"**/{self.writer}/index/{name}"):
                shutil.rmtree(folder)
