"""The report of a run: the systems' figures side by side, and the aims that custody set itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

BYTES, WRITE, COLD, WARM, ORDER, FLAT = (
    "bytes per event",
    "written events/s and core",
    "point read, cold, ms",
    "point read, warm, ms",
    "read in order, events/s and core",
    "point read, a tenth of the events, ms",
)
_BYTES_SHARE_MAX = 0.5
_WRITE_LEAST = 250_000
_POINT_MS_MAX = 0.4
_COLD_MS_MAX = 1.5
_POINT_TIMES_LEAST = 10.0
_ORDER_LEAST = 1_500_000
_GROWTH_MAX = 1.25

NOT_IN_NIFI = frozenset(
    {
        *("component_name", "process_group_id", "process_group_name", "content_uri", "previous_content_uri"),
        *("entity_type", "platform", "application", "extra"),
        *("source_format", "source_node", "source_host", "source_ordinal", "source_event_id"),
    }
)
"""Columns of the sample's events that NiFi's own repository does not store."""

Found = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of one system; `note` says what else it is."""

    measure: str
    system: str
    what: str
    value: float
    note: str = ""


@dataclass(frozen=True, slots=True)
class Aim:
    """What custody wants to reach, and what it reached; None: what it is compared with was not measured."""

    aim: str
    measure: str
    value: float | None
    met: bool | None


def figures(results: Found) -> list[Figure]:
    """Return all figures, by measure."""
    return [*_bytes(results), *_writes(results), *_points(results), *_orders(results)]


def _bytes(results: Found) -> Iterator[Figure]:
    parts = {
        "custody": ("log", "toc"),
        "json": ("gzip",),
        "nifi": ("log", "toc"),
        "delta": ("data", "log"),
        "sqlite": ("table",),
    }
    labels = {"json": "NiFi JSON, gzip 6", "nifi": ".prov.gz + toc", "sqlite": "JSON rows"}
    for system, names in parts.items():
        if system in results:
            one = results[system]
            each = {name: size / one["events"] for name, size in one["bytes"].items()}
            note = ", ".join(f"{name} {size:.1f}" for name, size in each.items())
            what = labels.get(system, " + ".join(names))
            yield Figure(BYTES, system, what, sum(each[name] for name in names), note)
    columns = results.get("custody", {}).get("column_bytes", {})
    if columns and "nifi" in results:
        shared = sum(size for name, size in columns.items() if name not in NOT_IN_NIFI)
        note = "without names of components, content addresses, origin"
        yield Figure(BYTES, "custody", "columns that NiFi has too", shared / results["custody"]["events"], note)


def _writes(results: Found) -> Iterator[Figure]:
    rows = (
        ("custody", "rollover + compress", "steps"),
        ("custody", "rollover", "rollover"),
        ("custody", "compress", "compress"),
        ("nifi", "compress after rollover", "compress"),
        ("nifi", "register + compress", "register_and_compress"),
        ("delta", "write_deltalake", None),
    )
    for system, what, key in rows:
        if system in results:
            one = results[system]["write"] if key is None else results[system]["write"][key]
            note = f"{one['per_second']:,} by the clock" if system != "nifi" else "threads' own CPU time"
            yield Figure(WRITE, system, what, one["per_core_second"], note)


def _points(results: Found) -> Iterator[Figure]:
    names = (("cold", COLD), ("warm", WARM), ("warm_uncached", WARM))
    for key, measure in names:
        for system in ("custody", "duckdb", "sqlite", "nifi"):
            one = results.get(system, {}).get("points", {}).get(key)
            if one:
                what = "p50, no cache of blocks" if key == "warm_uncached" else "p50"
                note = f"p99 {one['p99_ms']:.3f}"
                if key == "cold":
                    note += f", {one['disk_bytes_per_read'] / 1024:,.0f} KiB read from disk"
                yield Figure(measure, system, what, one["p50_ms"], note)
    early = results.get("custody", {}).get("points_early")
    if early:
        for key, what in (("warm", "p50"), ("warm_uncached", "p50, no cache of blocks")):
            yield Figure(FLAT, "custody", what, early[key]["p50_ms"], f"of {early['events']:,} events")


def _orders(results: Found) -> Iterator[Figure]:
    for system in ("custody", "duckdb", "nifi"):
        for what, one in results.get(system, {}).get("in_order", {}).items():
            note = f"{one['per_second']:,} by the clock"
            yield Figure(ORDER, system, f"to {what}" if system != "nifi" else what, one["per_core_second"], note)


def aims(results: Found) -> list[Aim]:
    """Return how custody does against its aims; point reads are judged without its cache of blocks."""
    values = {(one.measure, one.system, one.what): one.value for one in figures(results)}
    uncached = "p50, no cache of blocks"
    size = values.get((BYTES, "custody", "log + toc"))
    nifi = values.get((BYTES, "nifi", ".prov.gz + toc"))
    point = values.get((WARM, "custody", uncached))
    duckdb = values.get((WARM, "duckdb", "p50"))
    early = values.get((FLAT, "custody", uncached))
    return [
        _at_most("at most half of NiFi's .prov.gz + toc", BYTES, _ratio(size, nifi), _BYTES_SHARE_MAX),
        _at_least(
            "at least 250,000 by rollover + compress",
            WRITE,
            values.get((WRITE, "custody", "rollover + compress")),
            _WRITE_LEAST,
        ),
        _at_most("p50 at most 0.4 ms", WARM, point, _POINT_MS_MAX),
        _at_most("p50 at most 1.5 ms", COLD, values.get((COLD, "custody", "p50")), _COLD_MS_MAX),
        _at_least("at least 10 times as fast as DuckDB", WARM, _ratio(duckdb, point), _POINT_TIMES_LEAST),
        _at_least("at least 1,500,000 to Arrow", ORDER, values.get((ORDER, "custody", "to arrow")), _ORDER_LEAST),
        _at_most("flat: of all events ÷ of a tenth at most 1.25", FLAT, _ratio(point, early), _GROWTH_MAX),
    ]


def _ratio(over: float | None, under: float | None) -> float | None:
    return None if over is None or not under else over / under


def _at_most(aim: str, measure: str, value: float | None, bound: float) -> Aim:
    return Aim(aim, measure, value, None if value is None else value <= bound)


def _at_least(aim: str, measure: str, value: float | None, bound: float) -> Aim:
    return Aim(aim, measure, value, None if value is None else value >= bound)


def document(results: Found, facts: Mapping[str, object]) -> dict[str, object]:
    """Return the results as JSON values."""
    return {
        "format": 1,
        **facts,
        "figures": [asdict(one) for one in figures(results)],
        "aims": [asdict(one) for one in aims(results)],
        "found": results,
    }


def table(results: Found, caption: str) -> Table:
    """Return all figures; an aim stands where its measure begins."""
    figures_table = Table(title="custody's event logs beside others, on the same events", caption=caption)
    for name in ("measure", "system", "what"):
        figures_table.add_column(name)
    figures_table.add_column("figure", justify="right")
    figures_table.add_column("more")
    figures_table.add_column("aim: reached")
    waiting: dict[str, list[str]] = {}
    for aim in aims(results):
        value = "not measured" if aim.value is None else short(aim.value)
        mark = {True: "met", False: "MISSED", None: "–"}[aim.met]
        waiting.setdefault(aim.measure, []).append(f"{aim.aim}: {value}, {mark}")
    before = None
    for one in figures(results):
        if before not in (None, one.measure):
            figures_table.add_section()
        aim_text = "\n".join(waiting.pop(one.measure, []))
        shown = one.measure if one.measure != before else ""
        figures_table.add_row(shown, one.system, one.what, short(one.value), one.note, aim_text)
        before = one.measure
    return figures_table


def short(value: float) -> str:
    """Return a figure with as many digits as it deserves."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.1f}" if value >= 100 else f"{value:.3g}"
