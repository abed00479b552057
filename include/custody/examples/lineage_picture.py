"""A lineage as a picture: a box for each FlowFile, a chip for each type of its events, arrows from parents to children.

FlowFiles stand in rows by generation. Equal lineages give equal pictures: uuids and times are not in them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from html import escape

from custody.lineage import FlowFileNode, Lineage

CHIPS: Mapping[str, tuple[str, str]] = {
    "CREATE": ("CR", "#2f855a"),
    "RECEIVE": ("RE", "#2f855a"),
    "FETCH": ("FE", "#2f855a"),
    "FORK": ("FK", "#6b46c1"),
    "CLONE": ("CL", "#6b46c1"),
    "JOIN": ("JO", "#6b46c1"),
    "ROUTE": ("RO", "#4a5568"),
    "ATTRIBUTES_MODIFIED": ("AM", "#b7791f"),
    "CONTENT_MODIFIED": ("CM", "#b7791f"),
    "ADDINFO": ("AI", "#b7791f"),
    "SEND": ("SE", "#2b6cb0"),
    "DROP": ("DR", "#c53030"),
}
"""The two letters and the colour of each type of event; other types are shown in grey by their first letters."""
_OTHER = "#718096"
_OWN_NUMBER = re.compile(r"-[0-9a-f]{8}(?=\.|$)")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_BOX, _HEIGHT, _COLUMN, _ROW, _MARGIN = 116, 46, 128, 82, 16
_CHIP, _NAME_CHARACTERS, _SWEEPS = 18, 20, 6


def lineage_picture(lineage: Lineage) -> str:
    """Return a lineage as SVG."""
    rows = _rows(lineage)
    width = max(_COLUMN * max(map(len, rows), default=1), 50 * len(CHIPS)) + 2 * _MARGIN
    height = _ROW * len(rows) + 2 * _MARGIN + 40
    places = {
        uuid: (round(width / 2 + (place - (len(row) - 1) / 2) * _COLUMN), _MARGIN + number * _ROW)
        for number, row in enumerate(rows)
        for place, uuid in enumerate(row)
    }
    makers = _makers(lineage)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        *_arrows(lineage, places),
        *(part for uuid, place in places.items() for part in _box(lineage.nodes[uuid], makers.get(uuid, ""), place)),
        *_legend(height - 34),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _first_id(node: FlowFileNode) -> int:
    return min((event.event_id for event in node.events), default=1 << 62)


def _rows(lineage: Lineage) -> list[list[str]]:
    """Return the FlowFiles by generation, the longest way from a root; those that belong together side by side."""
    generation: dict[str, int] = {}
    # Each pass settles at least one generation; a cycle, which no flow makes, ends with the passes.
    for _ in lineage.nodes:
        before = dict(generation)
        for uuid, node in lineage.nodes.items():
            generation[uuid] = 1 + max((generation.get(parent, -1) for parent in node.parents), default=-1)
        if generation == before:
            break
    rows: dict[int, list[str]] = defaultdict(list)
    for uuid in sorted(lineage.nodes, key=lambda one: _first_id(lineage.nodes[one])):
        rows[generation[uuid]].append(uuid)
    ordered = [rows[number] for number in sorted(rows)]
    for sweep in range(_SWEEPS):
        place = {uuid: at - len(row) / 2 for row in ordered for at, uuid in enumerate(row)}
        for row in ordered:
            near = {
                uuid: [place[one] for one in (node.parents if sweep % 2 == 0 else node.children)]
                for uuid in row
                for node in [lineage.nodes[uuid]]
            }
            row.sort(key=lambda uuid: sum(near[uuid]) / len(near[uuid]) if near[uuid] else place[uuid])
    return ordered


def _makers(lineage: Lineage) -> dict[str, str]:
    """Return the component that made each FlowFile."""
    makers: dict[str, str] = {}
    for node in lineage.nodes.values():
        for event in node.events:
            makers.update((child, event.component_type) for child in event.child_uuids)
    for uuid, node in lineage.nodes.items():
        if node.events:
            makers.setdefault(uuid, node.events[0].component_type)
    return makers


def _arrows(lineage: Lineage, places: Mapping[str, tuple[int, int]]) -> Iterator[str]:
    for uuid, (x, y) in places.items():
        for child in sorted(lineage.nodes[uuid].children, key=lambda one: places[one]):
            to_x, to_y = places[child]
            top, middle = y + _HEIGHT, (y + _HEIGHT + to_y) // 2
            path = f"M{x} {top}C{x} {middle} {to_x} {middle} {to_x} {to_y}"
            yield f'<path d="{path}" fill="none" stroke="#a0aec0" stroke-width="1.2"/>'


def _box(node: FlowFileNode, maker: str, place: tuple[int, int]) -> Iterator[str]:
    x, y = place[0] - _BOX // 2, place[1]
    events = sorted(node.events, key=lambda event: event.event_id)
    name = events[-1].filename if events else None
    name = "" if name is None or _UUID.fullmatch(name) else _OWN_NUMBER.sub("", name)
    types = [event.event_type for event in events]
    yield f"<g><title>{escape(', '.join([maker, *types]))}</title>"
    yield (
        f'<rect x="{x}" y="{y}" width="{_BOX}" height="{_HEIGHT}" rx="4" fill="#f7fafc" stroke="#4a5568"/>'
        f'<text x="{x + 5}" y="{y + 13}" font-size="10" font-weight="bold">{escape(maker)}</text>'
        f'<text x="{x + 5}" y="{y + 25}" font-size="9" fill="#4a5568">{escape(_shortened(name))}</text>'
    )
    # Each type once: what was cloned twice says so by its arrows.
    for number, kind in enumerate(list(dict.fromkeys(types))[: _BOX // _CHIP]):
        yield _chip(x + 4 + number * _CHIP, y + 30, kind)
    yield "</g>"


def _shortened(name: str) -> str:
    return name if len(name) <= _NAME_CHARACTERS else f"{name[: _NAME_CHARACTERS - 1]}…"


def _chip(x: int, y: int, kind: str) -> str:
    letters, colour = CHIPS.get(kind, (kind[:2], _OTHER))
    width = _CHIP - 2
    return (
        f'<rect x="{x}" y="{y}" width="{width}" height="12" rx="2" fill="{colour}"/>'
        f'<text x="{x + width // 2}" y="{y + 9}" font-size="8" fill="#ffffff" text-anchor="middle">{letters}</text>'
    )


def _legend(y: int) -> Iterator[str]:
    columns: Sequence[str] = tuple(CHIPS)
    for number, kind in enumerate(columns):
        x, line = _MARGIN + number % 6 * 100, y + number // 6 * 16
        yield _chip(x, line, kind)
        label = kind.lower().replace("_", " ")
        yield f'<text x="{x + _CHIP + 2}" y="{line + 9}" font-size="8" fill="#4a5568">{label}</text>'
