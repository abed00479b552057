"""custody's costs as they grow, from the results of all runs in a folder: two pictures in one SVG.

Left: what indexing an event costs, piece after piece; flat means that it does not matter how much is there already.
Right: how long a question takes against the shards that it visits, the others being pruned by their times.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

_WIDTH, _HEIGHT, _LEFT, _TOP, _PANEL = 900, 340, 60, 60, 370
_COLORS = ("#0b6e4f", "#c1440e", "#3d5a80", "#8d6a9f", "#b08900", "#7d7d7d")


@dataclass(frozen=True, slots=True)
class Line:
    """Points that belong together; both axes are logarithmic."""

    name: str
    points: Sequence[tuple[float, float]]


def draw_growth(folder: Path) -> None:
    """Write `growth.svg` beside the results."""
    runs = [json.loads(path.read_text()) for path in folder.glob("results-*.json")]
    runs = sorted((run for run in runs if "custody" in run["peers"]), key=lambda run: int(run["events"]))
    indexing, visiting = [], []
    for run in runs:
        custody, shard = run["peers"]["custody"], run["shard"]
        points = [((n + 1) * shard, seconds / shard * 1e6) for n, seconds in enumerate(custody["pieces"])]
        indexing.append(Line(f"{run['events']:,} events", points))
        kinds = sorted({kind for times_by_kind in custody["visits"].values() for kind in times_by_kind})
        for kind in kinds:
            visits = [(int(count), median(times_by_kind[kind])) for count, times_by_kind in custody["visits"].items()]
            visiting.append(Line(f"{kind}, {run['events']:,} events", sorted(visits)))
    panels = [
        *_panel(0, "µs of CPU to index an event, by the events indexed so far", indexing),
        *_panel(1, "ms of half of the questions, by the shards visited", visiting),
    ]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT + 20 * 6}" '
        'font-family="sans-serif"><rect width="100%" height="100%" fill="white"/>'
    )
    (folder / "growth.svg").write_text("\n".join([head, *panels, "</svg>"]))


def _panel(number: int, title: str, lines: list[Line]) -> list[str]:
    points = [point for line in lines for point in line.points]
    if not points:
        return []
    left = _LEFT + number * (_PANEL + 70)
    xs, ys = [x for x, _ in points], [y for _, y in points]
    x_low, x_high = _decades(min(xs), max(xs))
    y_low, y_high = _decades(min(ys), max(ys))

    def place(x: float, y: float) -> tuple[float, float]:
        across = (math.log10(x) - x_low) / (x_high - x_low)
        up = (math.log10(y) - y_low) / (y_high - y_low)
        return left + across * _PANEL, _HEIGHT - 30 - up * (_HEIGHT - 30 - _TOP)

    out = [f'<text x="{left}" y="30" font-size="13">{title}</text>']
    for power in range(x_low, x_high + 1):
        x, y = place(10.0**power, 10.0**y_low)
        out.append(f'<line x1="{x:.1f}" y1="{_TOP}" x2="{x:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        out.append(f'<text x="{x:.1f}" y="{y + 16:.1f}" font-size="11" text-anchor="middle">{10.0**power:,.0f}</text>')
    for power in range(y_low, y_high + 1):
        x, y = place(10.0**x_low, 10.0**power)
        out.append(f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{x + _PANEL:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        out.append(f'<text x="{x - 4:.1f}" y="{y + 4:.1f}" font-size="11" text-anchor="end">{10.0**power:g}</text>')
    for index, line in enumerate(lines):
        color = _COLORS[index % len(_COLORS)]
        places = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*point) for point in line.points))
        out.append(f'<polyline points="{places}" fill="none" stroke="{color}"/>')
        for point in line.points:
            x, y = place(*point)
            out.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{color}"/>')
        y = _HEIGHT + 14 + 18 * index
        out.append(f'<text x="{left}" y="{y}" font-size="12" fill="{color}">{line.name}</text>')
    return out


def _decades(low: float, high: float) -> tuple[int, int]:
    """Return the powers of ten that numbers lie between."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    return first, max(last, first + 1)
