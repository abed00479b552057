"""`custody plan`: what a repository becomes with so many events a day for so many years."""

from __future__ import annotations

from pathlib import Path

import click

from custody.cli.options import json_option
from custody.cli.output import print_json, print_table, size_text
from custody.config import load_settings
from custody.errors import InvalidInputError
from custody.repository.capacity_plan import SAMPLE, CapacityLimit, CapacityPlan, Workload, plan_capacity
from custody.repository.request_plan import Prices, Requests


@click.command()
@click.option("--events-per-day", type=float, required=True, help="Events that come in a day, of all writers.")
@click.option("--years", type=float, required=True, help="For how long.")
@click.option(
    "--event-bytes",
    type=float,
    default=SAMPLE.journal,
    show_default=True,
    help="Bytes of an event in a journal; those in logs and shards are in proportion.",
)
@click.option("--retention-days", type=float, help="Days that events are kept; all of them by default.")
@click.option("--history-days", type=float, help="Days of catalog.history_age_max; all history by default.")
@click.option("--writers", type=int, default=1, show_default=True, help="Writers that share the events evenly.")
@click.option("--pass-seconds", type=float, default=60.0, show_default=True, help="Seconds from a pass to the next.")
@click.option(
    "--memory-gib", type=float, default=8.0, show_default=True, help="Memory that a reader, or a step, may take."
)
@click.option(
    "--cores",
    type=float,
    default=1.0,
    show_default=True,
    help="Cores that do the rollover of all writers: of Spark's executors, or --workers of custody run --local.",
)
@click.option("--price-per-gb-month", type=float, help="What an object store takes for 10⁹ bytes a month.")
@click.option("--price-per-1000-gets", type=float, help="What it takes for 1,000 gets, ranges and looks.")
@click.option("--price-per-1000-puts", type=float, help="What it takes for 1,000 puts, copies and listings.")
@json_option
@click.pass_obj
def plan(
    repository: Path,
    events_per_day: float,
    years: float,
    event_bytes: float,
    retention_days: float | None,
    history_days: float | None,
    writers: int,
    pass_seconds: float,
    memory_gib: float,
    cores: float,
    price_per_gb_month: float | None,
    price_per_1000_gets: float | None,
    price_per_1000_puts: float | None,
    as_json: bool,
) -> None:
    """Say what a repository becomes with so many events a day, what breaks first, and what helps.

    It simulates the passes of a day with the settings of the repository, or of the environment where there is none:
    nothing is read or written. Sizes are those of simulated NiFi events. Requests are those to an object store;
    with the three prices of a service it says what they and the storage cost.

    \b
    Example:
      custody plan --events-per-day 1e6 --years 5
      custody plan --events-per-day 1e9 --years 5 --writers 16 --cores 2 --retention-days 400 --json
    """
    workload = Workload(
        events_per_day=events_per_day,
        years=years,
        event_bytes=event_bytes,
        retention_days=retention_days,
        history_days=history_days,
        writers=writers,
        pass_seconds=pass_seconds,
        cores=cores,
    )
    prices = _prices(price_per_gb_month, price_per_1000_gets, price_per_1000_puts)
    planned = plan_capacity(load_settings(repository, is_needed=False), workload, memory_gib * (1 << 30), prices)
    if as_json:
        print_json(planned)
        return
    print_table(f"{years:g} years of {events_per_day:,.0f} events a day", ("what", "much#"), _rows(planned))
    click.echo()
    title = "requests of a question to an object store: reads + writes"
    print_table(title, ("question", "shards#", "cold#", "new process#", "again#", "another term#"), _questions(planned))
    click.echo()
    rows = [_limit_row(item) for item in planned.limits]
    print_table("what breaks first", ("what", "much#", "bound#", "breaks after"), rows)
    for item in planned.limits:
        if item.breaks_after_days is not None:
            click.echo(f"{item.name}: {item.remedy}.")


def _rows(planned: CapacityPlan) -> list[tuple[str, str]]:
    return [
        ("journals a day", size_text(round(planned.events_per_day * planned.event_bytes))),
        ("groups a day", _number(planned.groups_per_day)),
        ("transactions a day", _number(planned.transactions_per_day)),
        ("checkpoints a day", _number(planned.checkpoints_per_day)),
        ("live events", _number(planned.live_events)),
        ("live logs, and as many shards", _number(planned.live_logs)),
        ("bytes of a log", size_text(round(planned.log_bytes))),
        ("files", _number(planned.files)),
        ("logs and shards", size_text(round(planned.live_bytes))),
        ("replaced logs that the history lists", size_text(round(planned.kept_old_bytes))),
        ("catalogs", size_text(round(planned.catalog_bytes))),
        ("all on disk", size_text(round(planned.disk_bytes))),
        ("least memory of a reader", size_text(round(planned.state_bytes))),
        ("memory of a compaction", size_text(round(planned.compaction_bytes))),
        ("memory of open shards", size_text(round(planned.open_shards_bytes))),
        ("CPU of a search without times, first of a process", _seconds(planned.search_seconds.first)),
        ("CPU of another one", _seconds(planned.search_seconds.again)),
        ("cores of the rollover", f"{planned.rollover_cores:.1f}"),
        ("requests of writing a day, that read", _number(planned.writing_requests_per_day.reads)),
        ("requests of writing a day, that write or list", _number(planned.writing_requests_per_day.writes)),
        *_costs(planned),
    ]


def _costs(planned: CapacityPlan) -> list[tuple[str, str]]:
    cost = planned.cost
    if cost is None:
        return []
    return [
        ("price of the storage a month, at the end", _price(cost.storage_a_month)),
        ("price of writing a month", _price(cost.writing_a_month)),
        *((f"price of 1,000 of: {name}", _price(price)) for name, price in cost.thousand_questions.items()),
    ]


def _questions(planned: CapacityPlan) -> list[tuple[str, ...]]:
    return [
        (item.name, _number(item.shards), *map(_requests, (item.cold, item.new_process, item.again, item.another)))
        for item in planned.questions
    ]


def _prices(gb_month: float | None, gets: float | None, puts: float | None) -> Prices | None:
    given = {"price-per-gb-month": gb_month, "price-per-1000-gets": gets, "price-per-1000-puts": puts}
    if all(price is None for price in given.values()):
        return None
    for name, price in given.items():
        if price is None or not 0 <= price < float("inf"):
            raise InvalidInputError(f"{name}: expected all three prices, each 0 or more, got {price}.")
    return Prices(gb_month=gb_month or 0.0, thousand_gets=gets or 0.0, thousand_puts=puts or 0.0)


def _requests(requests: Requests) -> str:
    return f"{_number(requests.reads)} + {_number(requests.writes)}"


def _seconds(seconds: float) -> str:
    return f"{seconds:,.2f} s" if seconds < 10 else f"{seconds:,.0f} s"


def _price(price: float) -> str:
    return f"{price:,.2f}"


def _limit_row(item: CapacityLimit) -> tuple[str, str, str, str]:
    days = item.breaks_after_days
    when = "holds" if days is None else "at once" if days < 1 else f"{days:,.0f} days"
    return item.name, _amount(item.value, item.unit), _amount(item.bound, item.unit), when


def _amount(value: float, unit: str) -> str:
    if unit == "bytes":
        return size_text(round(value))
    return f"{value:.1f}" if value < 10 else _number(value)


def _number(value: float) -> str:
    return f"{value:,.0f}"
