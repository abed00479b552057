"""Seconds of custody in Airflow: `python -m benchmarks.airflow [parse|sensors|starts|pass|idle|lag|exports ...]`.

Prints Markdown tables, each with the load of the machine, which others may use as well.
"""

from __future__ import annotations

from pathlib import Path

import click

from benchmarks.airflow import exports, live, quick
from benchmarks.airflow.cost import load, table

PARTS = ("parse", "sensors", "starts", "pass", "idle", "lag", "exports")


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
@click.option("--events", default=10_000, show_default=True, help="Events of the run that `pass` measures.")
@click.option("--exported", default=1_000_000, show_default=True, help="Events of the repository for `exports`.")
@click.option("--turns", default=5, show_default=True, help="Of `exports`: alone, beside other work and each form.")
@click.option("--api-workers", default=1, show_default=True, help="Processes of the API server for `exports`.")
@click.option("--repository", type=click.Path(path_type=Path), help="An existing one for `exports`.")
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
    events: int,
    exported: int,
    turns: int,
    api_workers: int,
    repository: Path | None,
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
        elif part == "pass":
            text = _passes(events)
        elif part == "idle":
            text = _idle()
        elif part == "exports":
            # As long in all as the sensors wait.
            found = exports.exports(exported, seconds / turns, turns, api_workers, repository)
            text = table(["ms", "beside", "median", "99 of 100 below", "most", "requests"], [[*one] for one in found])
        else:
            text = _lag(minutes, batch, pause)
        click.echo(f"{part}; load before {before}, after {load()} (1 / 5 minutes)\n\n{text}\n")


def _idle() -> str:
    idle = live.idle()
    minutes: list[tuple[str, float, float]] = [
        (f"a minute in which {name}", cpu, 60.0) for name, cpu in idle.minute_cpu.items()
    ]
    minutes.append(("a run that its sensor skips, on top", idle.run_cpu, idle.run_wall))
    whole = table(["nothing to do", "CPU seconds", "seconds"], minutes)
    return f"{whole}\n\n{_by_component(idle.minute_parts)}"


def _passes(events: int) -> str:
    costs = live.passes(events)
    rows = [[name, cost.cpu, cost.wall] for name, cost in costs.items()]
    whole = table([f"a run over {events} events", "CPU seconds, net of idle", "seconds"], rows)
    steps = [[f"{step}, {name}", *seconds] for name, cost in costs.items() for step, seconds in cost.steps.items()]
    parts = _by_component({name: cost.parts for name, cost in costs.items()})
    return f"{whole}\n\n{table(['step', 'task', 'start-up', 'work'], steps)}\n\n{parts}"


def _by_component(parts: dict[str, dict[str, float]]) -> str:
    components = sorted({component for seconds in parts.values() for component in seconds})
    rows = [[name, *(seconds.get(component, 0.0) for component in components)] for name, seconds in parts.items()]
    return table(["CPU seconds by component", *components], rows)


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
