"""The figures as one SVG: a panel for each number of threads, a group of bars for each batch size, log scale.

Written by hand so that the project needs no plotting library.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape

from benchmarks.append.grid import Plan, Series
from benchmarks.append.peers.base import About

# Colours that colour-blind readers can tell apart.
COLOURS = {
    "custody": "#0072b2",
    "custody-columns": "#56b4e9",
    "raw": "#7f7f7f",
    "sqlite": "#e69f00",
    "nifi-sync": "#009e73",
    "nifi-nosync": "#cc79a7",
}
_BAR, _GROUP_GAP, _PANEL_GAP = 17, 14, 26
_LEFT, _TOP, _HEIGHT, _BELOW = 64, 116, 320, 74
FONT = 'font-family="system-ui, sans-serif"'


def short(rate: float) -> str:
    """Return a rate with three digits: 940, 12.3k, 1.05M."""
    for factor, unit in ((1e6, "M"), (1e3, "k")):
        if rate >= factor * 0.9995:
            return f"{rate / factor:.3g}{unit}"
    return f"{rate:.3g}"


class _Scale:
    """Events per second to pixels, on a log scale of whole decades."""

    def __init__(self, rates: Sequence[float]) -> None:
        self.low = math.floor(math.log10(min(rates)))
        self.high = max(math.ceil(math.log10(max(rates))), self.low + 1)

    def y(self, rate: float) -> float:
        share = (math.log10(rate) - self.low) / (self.high - self.low)
        return round(_TOP + _HEIGHT * (1 - min(max(share, 0.0), 1.0)), 1)

    def decades(self) -> list[float]:
        return [10.0**power for power in range(self.low, self.high + 1)]


def svg(plan: Plan, peers: Sequence[About], series: Sequence[Series], caption: str) -> str:
    """Return the plot; `caption` stands below it."""
    by_place = {(one.peer, one.cell.threads, one.cell.batch_events): one for one in series}
    scale = _Scale([rate for one in series for rate in one.rates])
    group = len(peers) * _BAR + _GROUP_GAP
    panel = len(plan.batch_events) * group + _GROUP_GAP
    width = _LEFT + len(plan.threads) * (panel + _PANEL_GAP)
    height = _TOP + _HEIGHT + _BELOW
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" {FONT} font-size="12" fill="#222">',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        f'<text x="{_LEFT}" y="24" font-size="16" font-weight="600">'
        "Acknowledged events per second (log scale; bar: median, line: lowest to highest round)</text>",
        *_legend(peers),
        f'<text x="{_LEFT}" y="{height - 12}" font-size="11" fill="#666">{escape(caption)}</text>',
    ]
    for number, threads in enumerate(plan.threads):
        left = _LEFT + number * (panel + _PANEL_GAP)
        lines += _axes(scale, left, panel, threads, labelled=number == 0)
        for place, batch in enumerate(plan.batch_events):
            x = left + _GROUP_GAP + place * group
            middle = x + len(peers) * _BAR / 2
            lines.append(f'<text x="{middle}" y="{_TOP + _HEIGHT + 18}" text-anchor="middle">{batch}</text>')
            for order, peer in enumerate(peers):
                lines += _bar(scale, by_place[peer.key, threads, batch], peer, x + order * _BAR)
        lines.append(
            f'<text x="{left + panel / 2}" y="{_TOP + _HEIGHT + 36}" text-anchor="middle" fill="#666">'
            "events a batch</text>"
        )
    return "\n".join([*lines, "</svg>", ""])


def _paint(peer: About) -> str:
    colour = COLOURS.get(peer.key, "#222")
    return f'fill="{colour}"' if peer.durable else f'fill="#fff" stroke="{colour}" stroke-dasharray="3 2"'


def _legend(peers: Sequence[About]) -> Iterator[str]:
    x = _LEFT
    for peer in peers:
        label = peer.label if peer.durable else f"{peer.label} (not durable)"
        yield f'<rect x="{x}" y="38" width="12" height="12" {_paint(peer)}/>'
        yield f'<text x="{x + 18}" y="48">{escape(label)}</text>'
        x += 18 + 7 * len(label) + 24


def _axes(scale: _Scale, left: int, width: int, threads: int, *, labelled: bool) -> Iterator[str]:
    plural = "thread" if threads == 1 else "threads"
    yield (
        f'<text x="{left + width / 2}" y="{_TOP - 40}" text-anchor="middle" font-weight="600">{threads} {plural}</text>'
    )
    for rate in scale.decades():
        y = scale.y(rate)
        yield f'<line x1="{left}" x2="{left + width}" y1="{y}" y2="{y}" stroke="#ddd"/>'
        if labelled:
            yield f'<text x="{left - 8}" y="{y + 4}" text-anchor="end" fill="#666">{short(rate)}</text>'


def _bar(scale: _Scale, one: Series, peer: About, x: float) -> Iterator[str]:
    top, bottom = scale.y(one.median), _TOP + _HEIGHT
    middle = x + _BAR / 2
    lowest, highest = scale.y(min(one.rates)), scale.y(max(one.rates))
    title = f"{peer.label}, {one.cell}: {one.median:,.0f} events/s"
    yield (
        f'<rect x="{x + 1}" y="{top}" width="{_BAR - 2}" height="{bottom - top:.1f}" {_paint(peer)}>'
        f"<title>{escape(title)}</title></rect>"
    )
    yield f'<line x1="{middle}" x2="{middle}" y1="{lowest}" y2="{highest}" stroke="#222"/>'
    yield (
        f'<text x="{middle + 3}" y="{highest - 5}" font-size="10" '
        f'transform="rotate(-90 {middle + 3} {highest - 5})">{short(one.median)}</text>'
    )
