"""The figures as a picture: for each shape, how long half of the questions took, by peer; the axis is logarithmic."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import median

_WIDTH, _LEFT, _ROW, _TOP = 760, 110, 26, 50
_COLORS = ("#0b6e4f", "#c1440e", "#3d5a80", "#8d6a9f", "#7d7d7d", "#b08900", "#2a9d8f", "#6b3e26")
_LEAST, _MOST = 0.01, 10_000.0


def draw(path: Path, times: dict[str, dict[str, list[float]]], events: int) -> None:
    """Write an SVG with a point a peer and shape."""
    shapes = list(next(iter(times.values())))
    height = _TOP + _ROW * len(shapes) + 40
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" font-family="sans-serif">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{_LEFT}" y="16" font-size="13">Half of the questions took at most (ms), {events:,} events</text>',
    ]
    for place, name in enumerate(times):
        left = _LEFT + place * 100
        out.append(f'<circle cx="{left}" cy="32" r="5" fill="{_COLORS[place]}"/>')
        out.append(f'<text x="{left + 9}" y="36" font-size="12">{name}</text>')
    bottom = _TOP + _ROW * len(shapes)
    for power in range(-2, 5):
        x = _place(10.0**power)
        out.append(f'<line x1="{x:.1f}" y1="{_TOP - 6}" x2="{x:.1f}" y2="{bottom}" stroke="#ddd"/>')
        out.append(f'<text x="{x:.1f}" y="{bottom + 16}" font-size="11" text-anchor="middle">{10.0**power:g}</text>')
    for row, shape in enumerate(shapes):
        y = _TOP + _ROW * row + _ROW / 2
        out.append(f'<text x="4" y="{y + 4}" font-size="12">{shape}</text>')
        for place, found in enumerate(times.values()):
            if shape not in found:
                continue
            x = _place(median(found[shape]))
            out.append(f'<circle cx="{x:.1f}" cy="{y}" r="5" fill="{_COLORS[place]}" fill-opacity="0.85"/>')
    path.write_text("\n".join([*out, "</svg>"]))


def _place(milliseconds: float) -> float:
    held = min(max(milliseconds, _LEAST), _MOST)
    return _LEFT + (_WIDTH - _LEFT - 20) * math.log10(held / _LEAST) / math.log10(_MOST / _LEAST)
