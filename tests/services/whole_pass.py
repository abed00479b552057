"""A pass and its readers on a server of an object store: the case that every kind of server has to stand."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from custody.repository import Repository
from custody.store import counted
from custody.store.remote import open_remote
from tests.behaviour.answers import build
from tests.behaviour.test_object_store import Pair
from tests.support import INCLUDE, append, numbered, run_steps, sample

EVENTS = sample(300)
TEXTS = ("", "event_type:SEND", f"flowfile_uuid:{EVENTS[7].flowfile_uuid}")


@contextmanager
def pair_at(location: str, environment: Mapping[str, str], local: Path, remote: Path) -> Iterator[Pair]:
    """Build the same history twice: a repository in a folder, and one at a location; give both."""
    build(local)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        patch.setenv("CUSTODY__REPOSITORY__STORE", location)
        build(remote)
        yield Pair(local, remote, open_remote(location))


def custody(root: Path, *arguments: str) -> str:
    """Run a command in a process of its own; return what it printed."""
    command = [sys.executable, "-c", "from custody.cli.main import main; main()", "-r", str(root), *arguments]
    environ = {**os.environ, "PYTHONPATH": str(INCLUDE)}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def check_whole_pass(folder: Path, location: str, multipart_bytes: int) -> None:
    """Hand over on one machine, run a pass on another; a third one answers by ranges as a folder does.

    The environment has the credentials, and names no store.
    """
    local, producer, worker, reader = (folder / name for name in ("local", "producer", "worker", "reader"))
    for root in (local, producer, worker, reader):
        root.mkdir()
        (root / "custody.toml").write_text(
            ""
            if root == local
            else f'[repository]\nstore = "{location}"\nstaging = "store"\nmultipart_bytes = {multipart_bytes}\n'
            '[journal]\nhandoff = "store"\n[eventlog]\nblock_bytes_max = 8192\n'
        )
    for root in (local, producer):
        for start in range(0, len(EVENTS), 100):
            append(Repository.open(root), EVENTS[start : start + 100])
    run_steps(Repository.open(local).settings)
    custody(producer, "handoff")
    # Machines that wrote none of it: one answers from what was handed over and makes it live, another one reads logs.
    assert Repository.open(worker).search("", limit=0).total == len(EVENTS)
    custody(worker, "run", "all", "--local")
    custody(producer, "verify")
    expected, given = Repository.open(local), Repository.open(reader)
    with counted() as counter:
        assert given.get(123) == expected.get(123)
    assert counter.traffic.requests["range"] == 1
    for text in TEXTS:
        found, wanted = given.search(text, limit=1000), expected.search(text, limit=1000)
        assert (found.total, found.events) == (wanted.total, wanted.events)
        assert found.total
    assert not list((reader / "work").glob("*/*/data/**/*.parquet")), "no log was fetched whole"
    assert list(given.events(count=1000)) == list(expected.events(count=1000)) == numbered(EVENTS)
    assert given.status().pending.sealed_groups == 0
