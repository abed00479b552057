"""Files of NiFi's JSON made durable events: `PYTHONPATH=include python -m benchmarks.ingest`.

custody checks each event, looks whether it is stored, and syncs each batch to its journal. Beside it, on the same files
and in processes of their own: the same library element by element, DuckDB and pyarrow that read JSON and write Parquet
without checks or syncs, and the parser alone. With `--format` the files are Avro of NiFi, OpenLineage or NGSI.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import click

from benchmarks.append.machine import Machine
from benchmarks.environment import LOCAL, ROOT, library_path
from benchmarks.ingest.inputs import inputs as input_files

PEERS = ("custody", "custody, one by one", "DuckDB", "pyarrow", "msgspec, untyped", "fastavro")
PEERS_OF = {
    "nifi": PEERS[:-1],
    # Neither DuckDB nor pyarrow reads Avro without what is fetched from elsewhere.
    "avro": ("custody", "fastavro"),
    "openlineage": ("custody", "DuckDB", "pyarrow", "msgspec, untyped"),
    # A value that is now a number and now a text is nothing that pyarrow reads.
    "ngsi": ("custody", "DuckDB", "msgspec, untyped"),
}
_HEADING = f"{'':22}{'µs of CPU an event':>20}{'µs of wall':>14}{'MiB':>8}"


@click.command(help=__doc__, context_settings={"show_default": True})
@click.option("--format", type=click.Choice(tuple(PEERS_OF)), default="nifi", help="What the files hold.")
@click.option("--files", type=click.IntRange(min=1), default=500, help="Files.")
@click.option("--events", type=click.IntRange(min=1), default=1000, help="Events of a file.")
@click.option("--rounds", type=click.IntRange(min=1), default=5, help="How often each is measured; medians count.")
@click.option("--peer", "names", multiple=True, type=click.Choice(PEERS), help="Only these; may be repeated.")
@click.option("--scratch", type=click.Path(path_type=Path), default=LOCAL, help="The disk that is measured.")
@click.option("--output", type=click.Path(path_type=Path), help="A file for the results, as JSON.")
def main(
    format: str, files: int, events: int, rounds: int, names: tuple[str, ...], scratch: Path, output: Path | None
) -> None:
    if unfit := [name for name in names if name not in PEERS_OF[format]]:
        fit = ", ".join(map(repr, PEERS_OF[format]))
        raise click.UsageError(f"--peer {unfit[0]!r}: expected one that reads {format}, which are {fit}.")
    scratch.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="ingest-", dir=scratch))
    try:
        machine = Machine.look(folder)
        inputs = folder / "files"
        inputs.mkdir()
        size = 0
        for name, data in input_files(format, files, events):
            (inputs / name).write_bytes(data)
            size += len(data)
        click.echo(f"{machine}\n{files} files of {events} events, {size / files / events:.0f} bytes an event")
        measured = _measure(names or PEERS_OF[format], inputs, folder / "made", rounds)
        click.echo(_HEADING)
        for name, one in measured.items():
            cpu, wall = (1e6 * statistics.median(one[key]) / files / events for key in ("cpu", "wall"))
            click.echo(f"{name:22}{cpu:>20.1f}{wall:>14.1f}{max(one['memory']) / (1 << 20):>8.0f}")
        if output is not None:
            results = {"format": format, "files": files, "events": events, "load": os.getloadavg(), "peers": measured}
            output.write_text(json.dumps(results, indent=1))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _measure(names: tuple[str, ...], inputs: Path, made: Path, rounds: int) -> dict[str, dict[str, list[float]]]:
    """Return CPU and wall in seconds and memory in bytes, of each round; rounds of all peers take turns."""
    measured: dict[str, dict[str, list[float]]] = {name: {"cpu": [], "wall": [], "memory": []} for name in names}
    environment = {**os.environ, "PYTHONPATH": library_path()}
    for _ in range(rounds):
        for name, lists in measured.items():
            shutil.rmtree(made, ignore_errors=True)
            made.mkdir()
            command = [sys.executable, "-m", "benchmarks.ingest.sides", name, str(inputs), str(made)]
            done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
            for key, value in json.loads(done.stdout).items():
                lists[key].append(value)
    return measured


if __name__ == "__main__":
    main()
