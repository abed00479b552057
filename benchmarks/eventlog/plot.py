"""The figures as one SVG: a panel for each measure, a bar for each figure, log scale."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby

from benchmarks.append.plot import COLOURS, FONT
from benchmarks.eventlog.report import Figure, short

_COLOURS = {**COLOURS, "nifi": COLOURS["nifi-sync"], "duckdb": "#d55e00", "delta": "#56b4e9", "json": COLOURS["raw"]}
_LEFT, _BAR_WIDTH, _RIGHT, _ROW, _GAP, _TOP, _BELOW = 250, 420, 90, 19, 44, 44, 34


def svg(figures: Sequence[Figure], caption: str) -> str:
    """Return the plot; `caption` stands below it."""
    lines: list[str] = []
    y = _TOP
    for measure, group in groupby(figures, key=lambda one: one.measure):
        rows = list(group)
        lines += _panel(measure, rows, y)
        y += len(rows) * _ROW + _GAP
    width, height = _LEFT + _BAR_WIDTH + _RIGHT, y + _BELOW
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" {FONT} font-size="12" fill="#222">',
            f'<rect width="{width}" height="{height}" fill="#fff"/>',
            '<text x="12" y="22" font-size="16" font-weight="600">Event logs (log scale)</text>',
            *lines,
            f'<text x="12" y="{height - 12}" font-size="10" fill="#666">{escape(caption)}</text>',
            "</svg>",
            "",
        ]
    )


def _panel(measure: str, rows: Sequence[Figure], top: int) -> Iterator[str]:
    low = math.floor(math.log10(min(one.value for one in rows))) - 0.2
    high = math.log10(max(one.value for one in rows))
    yield f'<text x="12" y="{top + 16}" font-weight="600">{escape(measure)}</text>'
    for number, one in enumerate(rows):
        y = top + 24 + number * _ROW
        width = round(_BAR_WIDTH * (math.log10(one.value) - low) / (high - low), 1)
        label = f"{one.system}: {one.what}"
        title = f"{measure}, {label}: {short(one.value)}" + (f" ({one.note})" if one.note else "")
        yield f'<text x="{_LEFT - 8}" y="{y + 12}" text-anchor="end">{escape(label)}</text>'
        yield (
            f'<rect x="{_LEFT}" y="{y}" width="{width}" height="{_ROW - 4}" fill="{_COLOURS.get(one.system, "#222")}">'
            f"<title>{escape(title)}</title></rect>"
        )
        yield f'<text x="{_LEFT + width + 5}" y="{y + 12}">{short(one.value)}</text>'
