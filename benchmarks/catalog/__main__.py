"""The benchmark's command: `PYTHONPATH=include python -m benchmarks.catalog` from the project's root.

The peers get an environment of their own under `.local`, from the pinned versions in `requirements.txt`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import click

from benchmarks.environment import LOCAL, ROOT, library_path, peers_python

LENGTHS = {"custody": [0, 1000, 10_000, 100_000], "delta": [0, 1000, 10_000], "iceberg": [0, 100, 500]}
QUICK = {"custody": [0, 1000], "delta": [0, 1000], "iceberg": [0, 20]}


@click.command(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.option(
    "--peer", type=click.Choice(tuple(LENGTHS)), multiple=True, default=tuple(LENGTHS), help="May be repeated."
)
@click.option("--times", default=300, help="Measured commits at each log length.")
@click.option("--quick", is_flag=True, help="Short logs and few commits: a test of the benchmark.")
@click.option("--scratch", type=click.Path(path_type=Path), default=LOCAL, help="The disk that is measured.")
@click.option("--output", type=click.Path(path_type=Path), default=LOCAL / "catalog.json", help="Where the results go.")
def main(peer: tuple[str, ...], times: int, quick: bool, scratch: Path, output: Path) -> None:
    """Measure catalogs beside each other, each in a process of its own, one after the other."""
    scratch.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {"machine": _machine()}
    for name in peer:
        python = Path(sys.executable) if name == "custody" else peers_python()
        lengths = ",".join(map(str, (QUICK if quick else LENGTHS)[name]))
        with tempfile.TemporaryDirectory(dir=scratch) as folder:
            module = f"benchmarks.catalog.{name}_peer"
            path = library_path() if name == "custody" else str(ROOT)
            done = subprocess.run(
                [python, "-m", module, folder, lengths, str(20 if quick else times)],
                cwd=ROOT,
                env=os.environ | {"PYTHONPATH": path},
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            )
        results[name] = json.loads(done.stdout.splitlines()[-1])
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(results, indent=1) + "\n")
    click.echo(table(results))


def _machine() -> dict[str, object]:
    return {"cpus": os.cpu_count(), "load": os.getloadavg(), "python": sys.version.split()[0]}


def table(results: dict[str, Any]) -> str:
    """Return the results for people."""
    lines = [f"machine: {results['machine']}", "", "catalog | log length | commits/s | p50 ms | p95 ms"]
    for name in LENGTHS:
        for length, speed in results.get(name, {}).get("commits", {}).items():
            lines.append(f"{name} | {length} | {speed['per_second']} | {speed['p50_ms']} | {speed['p95_ms']}")
    for name in LENGTHS:
        for length, speed in results.get(name, {}).get("opening", {}).items():
            lines.append(f"{name}, opening at {length}: " + ", ".join(f"{key} {value}" for key, value in speed.items()))
    return "\n".join(lines)


if __name__ == "__main__":
    main()
