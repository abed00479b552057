"""Seconds of custody in Airflow: `python -m benchmarks.airflow [parse|sensors|starts|idle|lag ...]`.

Prints Markdown tables, each with the load of the machine, which others may use as well.
"""

from __future__ import annotations

import click

from benchmarks.airflow import live, quick
from benchmarks.airflow.cost import load, table

PARTS = ("parse", "sensors", "starts", "idle", "lag")


@click.command()
@click.argument("parts", nargs=-1, type=click.Choice(PARTS))
@click.option("--minutes", default=10.0, show_default=True, help="How long the producer writes for `lag`.")
@click.option("--batch", default=100, show_default=True, help="Events that the producer appends at once.")
@click.option("--pause", default=0.5, show_default=True, help="Seconds between two appends.")
@click.option(
    "--times", default=3, show_default=True, help="How often `parse` and `starts` measure; medians are shown."
)
@click.option("--triggers", default=300, show_default=True, help="Sensors that wait for `sensors`.")
@click.option("--seconds", default=60.0, show_default=True, help="How long they wait.")
@click.option("--logs", default=200, show_default=True, help="Live logs of the repository that they look at.")
def main(
    parts: tuple[str, ...],
    minutes: float,
    batch: int,
    pause: float,
    times: int,
    triggers: int,
    seconds: float,
    logs: int,
) -> None:
    """Measure the parts that are named, or all."""
    for part in parts or PARTS:
        before = load()
        if part == "parse":
            rows = [[name, value] for name, value in quick.parse(times).items()]
            text = table(["read by Airflow", "seconds"], rows)
        elif part == "sensors":
            rows = [[name, value] for name, value in quick.sensors(triggers, seconds, logs).items()]
            text = table([f"{triggers} sensors that wait, {logs} logs", "measured"], rows)
        elif part == "starts":
            rows = [[name, cost.wall, cost.cpu] for name, cost in quick.starts(times).items()]
            text = table(["spark-submit", "seconds", "CPU seconds"], rows)
        elif part == "idle":
            text = table(
                ["nothing to do", "CPU seconds", "seconds"],
                [[name, *values] for name, *values in _idle_rows()],
            )
        else:
            text = _lag(minutes, batch, pause)
        click.echo(f"{part}; load before {before}, after {load()} (1 / 5 minutes)\n\n{text}\n")


def _idle_rows() -> list[tuple[str, float, object]]:
    found = live.idle()
    return [
        *((f"a minute in which {name}", cpu, 60.0) for name, cpu in found.minute_cpu.items()),
        ("a run that its sensor skips, on top", found.run_cpu, found.run_wall),
    ]


def _lag(minutes: float, batch: int, pause: float) -> str:
    found = live.lag(minutes, batch, pause)
    whole = table(
        ["acknowledged to indexed", "p50", "p95", "max", "events", "runs"],
        [[f"{minutes:g} minutes", found.p50, found.p95, found.longest, found.events, found.runs]],
    )
    steps = [[name, *seconds] for name, seconds in found.steps.items()]
    return f"{whole}\n\n{table(['step (medians)', 'task', 'start-up', 'work'], steps)}"


if __name__ == "__main__":
    main()
