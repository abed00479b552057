"""What an object costs that goes in parts, beside one that goes in one request.

`PYTHONPATH=include python -m benchmarks.store.uploads --mib 512`

The store is moto's S3 server in a process of its own. Each put is a process of its own, in turns; the object is a
mapped file, as logs are. Memory is that of the process without pages of files. Prints medians and minima.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

import click

from benchmarks.environment import LOCAL
from custody.store.remote import open_remote
from custody.vfs import PosixFileSystem
from tests.behaviour.s3 import BUCKET, s3_environment, s3_server


def put(path: Path, url: str, multipart_bytes: int) -> None:
    """Put a file, and print what it cost this process."""
    store = open_remote(url, multipart_bytes=multipart_bytes)
    before, seen, is_done = _own_mib(), [0.0], threading.Event()

    def watch() -> None:
        while not is_done.wait(0.01):
            seen.append(_own_mib() - before)

    watching = threading.Thread(target=watch)
    watching.start()
    wall, cpu = time.monotonic(), time.process_time()
    assert store.put_if_absent("main/object", PosixFileSystem().view(path))
    cost = {"wall": time.monotonic() - wall, "cpu": time.process_time() - cpu}
    is_done.set()
    watching.join()
    cost["memory"] = max(seen)
    click.echo(json.dumps(cost))


def _own_mib() -> float:
    """Return the memory of this process without pages of files, which the system takes back as it needs."""
    lines = Path("/proc/self/status").read_text().splitlines()
    [line] = (line for line in lines if line.startswith("RssAnon"))
    return int(line.split()[1]) / 1024


@click.command(help=__doc__, context_settings={"show_default": True})
@click.option("--mib", type=click.IntRange(min=1), default=512, help="Size of the object.")
@click.option("--times", type=click.IntRange(min=1), default=5, help="Each is put so often.")
@click.option("--child", type=(click.Path(path_type=Path), str, int), hidden=True)
def main(mib: int, times: int, child: tuple[Path, str, int] | None) -> None:
    """Put one file in both ways."""
    if child is not None:
        put(*child)
        return
    LOCAL.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=LOCAL) as folder, s3_server() as url:
        path = Path(folder) / "object"
        with path.open("wb") as file:
            for _ in range(mib):
                file.write(os.urandom(1 << 20))
        costs: dict[int, list[dict[str, float]]] = {5 << 30: [], 64 << 20: []}
        for _ in range(times):
            for multipart_bytes, measured in costs.items():
                child_arguments = [str(path), f"s3://{BUCKET}/{uuid4().hex}", str(multipart_bytes)]
                done = subprocess.run(
                    [sys.executable, "-m", "benchmarks.store.uploads", "--child", *child_arguments],
                    env={**os.environ, **s3_environment(url)},
                    capture_output=True,
                    check=True,
                )
                measured.append(json.loads(done.stdout))
        click.echo("| put | wall s | CPU s | memory MiB |\n| --- | --- | --- | --- |")
        for multipart_bytes, measured in costs.items():
            name = "one request" if multipart_bytes > mib << 20 else "parts"
            columns = [[cost[key] for cost in measured] for key in ("wall", "cpu", "memory")]
            cells = [f"{statistics.median(values):.1f} (least {min(values):.1f})" for values in columns]
            click.echo(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
