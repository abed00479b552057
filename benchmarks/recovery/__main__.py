"""Time to recover: for how long a repository cannot be written after its writer was killed with SIGKILL.

Sealed journals that wait to be rolled over are made in bulk, then a real writer appends until its group is nearly as
large as one becomes, and is killed. A new process opens the repository, which seals what the dead one left, and
appends one event. Measured from its start, and from its first call, to the acknowledgement.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import click

from benchmarks.environment import LOCAL, library_path
from benchmarks.eventlog.bulk import tables, write_journals
from custody.config import load_settings
from custody.recovery import peek_leftovers
from custody.repository import Repository
from custody.vfs import PosixFileSystem

SETTINGS = "[journal]\nseal_seconds = 86400.0\nwaiting_bytes_max = 1000000000000\n"
GROUP_EVENTS = 250_000
PROBE_EVENTS = 40_000
WRITER = """
import sys
from pathlib import Path
from custody.repository import Repository
from tests.support import sample
events = sample(5000)
repository = Repository.open(Path(sys.argv[1]))
wanted = int(sys.argv[2])
journals = repository.settings.containers[0] / "main" / "journals"
with repository.writer() as writer:
    start = 0
    # Looked at after each append of a megabyte: a group that is full is sealed, and a new one is small.
    while sum(path.stat().st_size for path in journals.glob("*.journal")) < wanted:
        writer.append(events[start : start + 1000])
        start = (start + 1000) % len(events)
    print("full", flush=True)
    sys.stdin.read()
"""
OPENER = """
import json, sys, time
from pathlib import Path
from custody.recovery import find_leftovers
from custody.repository import Repository
from tests.support import event
started = time.monotonic()
repository = Repository.open(Path(sys.argv[1]))
with repository.writer() as writer:
    opened = time.monotonic()
    ids = writer.append([event(0)])
    acknowledged = time.monotonic()
    print(json.dumps({"open": opened - started, "acknowledged": acknowledged - started, "id": ids.start}), flush=True)
"""


def journal_bytes(root: Path) -> int:
    """Return the bytes of all journals."""
    return sum(path.stat().st_size for path in root.rglob("*") if path.suffix in (".journal", ".sealed"))


def measure(root: Path, gigabytes: float, open_megabytes: int) -> dict[str, object]:
    """Make the journals, kill the writer, open the repository; return sizes in bytes and times in seconds."""
    Repository.create(root)
    (root / "custody.toml").write_text(SETTINGS)
    settings = load_settings(root)
    fs = PosixFileSystem()
    wanted = int(gigabytes * (1 << 30)) - (open_megabytes << 20)
    rows = write_journals(fs, settings, tables(PROBE_EVENTS), group_events=GROUP_EVENTS)
    rows = max(int(rows * wanted / journal_bytes(root)), PROBE_EVENTS)
    shutil.rmtree(settings.containers[0])
    write_journals(fs, settings, tables(rows), group_events=GROUP_EVENTS)
    environment = {**os.environ, "PYTHONPATH": library_path()}
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(root), str(open_megabytes << 20)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"full\n"
        writer.kill()
    size, left = journal_bytes(root), peek_leftovers(settings).paths
    started = time.monotonic()
    command = [sys.executable, "-c", OPENER, str(root)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    document = json.loads(done.stdout)
    return {
        "journal_bytes": size,
        "sealed_groups": len({path.name.partition(".")[0] for path in root.rglob("*.sealed")}),
        "open_journals": len(left),
        "open_bytes": open_megabytes << 20,
        "events": document["id"],
        "seconds_to_open": round(document["open"], 3),
        "seconds_to_acknowledge": round(document["acknowledged"], 3),
        "seconds_of_the_process": round(time.monotonic() - started, 3),
    }


@click.command()
@click.option("--gigabytes", default=10.0, show_default=True, help="Journals in all, in GiB.")
@click.option("--open-megabytes", default=95, show_default=True, help="Of these, the dead writer's open group, in MiB.")
@click.option("--folder", type=click.Path(path_type=Path), default=LOCAL / "recovery", show_default=True)
@click.option("--output", type=click.Path(path_type=Path), help="Where that line goes, too.")
def main(gigabytes: float, open_megabytes: int, folder: Path, output: Path | None) -> None:
    """Print one line of JSON; what was made is removed."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        line = json.dumps(measure(folder, gigabytes, open_megabytes))
        click.echo(line)
        if output is not None:
            output.write_text(line + "\n")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
