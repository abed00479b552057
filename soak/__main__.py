"""The soak's command, from the project's root: `PYTHONPATH=include python -m soak`, or `make soak`."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from benchmarks.append.machine import Machine
from soak.airflow import PROJECT, AirflowPipeline
from soak.pipeline import LoopPipeline
from soak.processes import DRIVER, WORKER, WRITER
from soak.report import document, page
from soak.soak import Plan, Soak

_LOCAL = PROJECT / ".local" / "soak"


@click.command(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.option("--minutes", type=click.FloatRange(min=0.2), default=30.0, help="How long it runs.")
@click.option("--seed", type=int, default=1, help="The same seed plans the same kills.")
@click.option("--rate", type=click.FloatRange(min=1), default=120.0, help="Events a second, of all producers.")
@click.option("--producers", type=click.IntRange(min=1, max=8), default=3, help="Processes that append.")
@click.option("--limit", "limit_mib", type=click.IntRange(min=1), default=24, help="MiB, as retention.bytes_max.")
@click.option("--kill-writer", type=click.FloatRange(min=1), default=20.0, help="Seconds between kills, on average.")
@click.option("--kill-driver", type=click.FloatRange(min=1), default=90.0, help="The same, of Spark's drivers.")
@click.option("--kill-worker", type=click.FloatRange(min=1), default=150.0, help="The same, of Airflow's workers.")
@click.option("--without-airflow", is_flag=True, help="`custody run all` and `custody retention apply` in a loop.")
@click.option("--folder", type=click.Path(path_type=Path), default=_LOCAL, help="Where it runs; emptied first.")
@click.option("--report", type=click.Path(path_type=Path), default=PROJECT / "docs" / "soak.md", help="Its page.")
def main(
    minutes: float,
    seed: int,
    rate: float,
    producers: int,
    limit_mib: int,
    kill_writer: float,
    kill_driver: float,
    kill_worker: float,
    without_airflow: bool,
    folder: Path,
    report: Path,
) -> None:
    """Let producers, pipeline and readers run, kill at random, judge, write the report. Exit code 1: it failed."""
    plan = Plan(
        seconds=minutes * 60,
        seed=seed,
        rate=rate,
        producers=producers,
        limit_bytes=limit_mib << 20,
        every={WRITER: kill_writer, DRIVER: kill_driver, WORKER: kill_worker},
    )
    folder = folder.resolve()
    soak = Soak(plan, folder, LoopPipeline if without_airflow else AirflowPipeline, _say)
    outcome = soak.run()
    machine = Machine.look(folder)
    (folder / "result.json").write_bytes(document(outcome, machine))
    report.write_text(page(outcome, machine))
    for line in outcome.problems():
        _say(f"PROBLEM {line}")
    _say(f"{'held' if outcome.holds else 'DID NOT HOLD'}; the report is {report}")
    sys.exit(0 if outcome.holds else 1)


def _say(text: str) -> None:
    click.echo(f"{time.strftime('%H:%M:%S')} {text}", err=True)


if __name__ == "__main__":
    main()
