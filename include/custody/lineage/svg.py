"""The picture of a lineage: an SVG in layers from top to bottom, the same for the same diagram, of bounded size."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape, quoteattr

from custody.lineage.diagram import EVENT, Diagram, DiagramEdge, DiagramNode
from custody.lineage.identities import NodeKind

NODES_MAX = 2000
"""A picture of more shows nothing to a person, and browsers take minutes for it."""
_LABEL_MAX = 28
_WIDTH, _HEIGHT = 200, 34
_GAP_X, _GAP_Y = 24, 40
_NOT_XML = re.compile("[^\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_FILLS = {
    EVENT: "#eef3fb",
    NodeKind.FLOWFILE: "#e9f6ec",
    NodeKind.RUN: "#fbf1e2",
    NodeKind.JOB: "#fbf1e2",
    NodeKind.DATASET: "#eee9f8",
    NodeKind.UNKNOWN: "#f3f3f3",
}


def svg(diagram: Diagram) -> str:
    """Return the picture of a diagram; of more than `NODES_MAX` nodes it has the oldest, and says so."""
    nodes = diagram.nodes[:NODES_MAX]
    shown = {node.id for node in nodes}
    edges = [edge for edge in diagram.edges if edge.source in shown and edge.target in shown]
    layers = _in_layers(nodes, edges)
    widest = max((len(layer) for layer in layers), default=1)
    note = _note(diagram, len(nodes))
    width = widest * (_WIDTH + _GAP_X) + _GAP_X
    height = len(layers) * (_HEIGHT + _GAP_Y) + _GAP_Y + (_HEIGHT if note else 0)
    places = _places(layers, width)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="12" style="background:#fff">',
        '<defs><marker id="end" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 L8 4 L0 8 z" fill="#667"/></marker></defs>',
        # Several FlowFiles may go the same way.
        *(_line(places, *ends) for ends in dict.fromkeys((edge.source, edge.target) for edge in edges)),
        *(_box(places[node.id], node) for node in nodes),
    ]
    if note:
        parts.append(f'<text x="{_GAP_X}" y="{height - _HEIGHT // 2}">{_text(note)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _in_layers(nodes: Sequence[DiagramNode], edges: Sequence[DiagramEdge]) -> list[list[str]]:
    """Return the nodes by layer: each below all that it came from; within a layer near what it came from."""
    sources: dict[str, list[str]] = defaultdict(list)
    depths: dict[str, int] = {}
    order = {node.id: number for number, node in enumerate(nodes)}
    for edge in edges:
        # Invariant: a layer follows earlier nodes only, so that a cycle of contradictory events ends too.
        if order[edge.source] < order[edge.target]:
            sources[edge.target].append(edge.source)
    for node in nodes:
        depths[node.id] = max((depths[source] + 1 for source in sources[node.id]), default=0)
    layers: list[list[str]] = [[] for _ in range(max(depths.values(), default=-1) + 1)]
    for node in nodes:
        layers[depths[node.id]].append(node.id)
    column: dict[str, float] = {}
    for layer in layers:
        layer.sort(key=lambda place: (_middle(sources[place], column, order[place]), order[place]))
        column.update((place, number - len(layer) / 2) for number, place in enumerate(layer))
    return layers


def _middle(sources: Sequence[str], column: Mapping[str, float], default: int) -> float:
    return sum(column[source] for source in sources) / len(sources) if sources else float(default)


def _places(layers: Sequence[Sequence[str]], width: int) -> dict[str, tuple[int, int]]:
    places = {}
    for depth, layer in enumerate(layers):
        left = (width - len(layer) * (_WIDTH + _GAP_X) + _GAP_X) // 2
        for number, place in enumerate(layer):
            places[place] = left + number * (_WIDTH + _GAP_X), _GAP_Y // 2 + depth * (_HEIGHT + _GAP_Y)
    return places


def _line(places: Mapping[str, tuple[int, int]], source: str, target: str) -> str:
    (x1, y1), (x2, y2) = places[source], places[target]
    start, end = (x1 + _WIDTH // 2, y1 + _HEIGHT), (x2 + _WIDTH // 2, y2)
    middle = (start[1] + end[1]) // 2
    path = f"M{start[0]} {start[1]} C{start[0]} {middle} {end[0]} {middle} {end[0]} {end[1]}"
    return f'<path d="{path}" fill="none" stroke="#667" marker-end="url(#end)"/>'


def _box(place: tuple[int, int], node: DiagramNode) -> str:
    x, y = place
    dashes = ' stroke-dasharray="4 3"' if node.kind == NodeKind.UNKNOWN else ""
    if node.failed:
        dashes += ' stroke-width="3"'
    # Not a link: no browser knows the scheme; the reference is in the title.
    label = _text(_short(node.label))
    return (
        f"<g id={quoteattr(_plain(node.id))}><title>{_text(_title(node))}</title>"
        f'{_shape(x, y, node.kind)} fill="{_FILLS[node.kind]}" stroke="#667"{dashes}/>'
        f'<text x="{x + _WIDTH // 2}" y="{y + _HEIGHT // 2 + 4}" text-anchor="middle">{label}</text>'
        "</g>"
    )


def _shape(x: int, y: int, kind: str) -> str:
    """Return the beginning of the element that draws a kind: another outline each, so that no colour has to tell."""
    right, bottom, middle, slant = x + _WIDTH, y + _HEIGHT, y + _HEIGHT // 2, 12
    match kind:
        case NodeKind.RUN:
            corners = f"{x},{middle} {x + slant},{y} {right - slant},{y} {right},{middle} {right - slant},{bottom}"
            return f'<polygon points="{corners} {x + slant},{bottom}"'
        case NodeKind.JOB:
            return f'<polygon points="{x + slant},{y} {right},{y} {right - slant},{bottom} {x},{bottom}"'
        case NodeKind.DATASET:
            half, cap = _WIDTH // 2, 5
            lid = f"M{x} {y + cap} A{half} {cap} 0 0 1 {right} {y + cap} A{half} {cap} 0 0 1 {x} {y + cap}"
            return f'<path d="{lid} V{bottom - cap} A{half} {cap} 0 0 0 {right} {bottom - cap} V{y + cap}"'
        case _:
            radius = 3 if kind == EVENT else _HEIGHT // 2
            return f'<rect x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="{radius}"'


def _title(node: DiagramNode) -> str:
    said = {
        "FlowFile": node.flowfile_uuid,
        "component": node.component,
        "input": node.input_content,
        "output": node.output_content,
    }
    details = [f"{name} {_short(value, 200)}" for name, value in said.items() if value]
    return "; ".join([node.url or node.label[:200], *details, *(["failed"] if node.failed and node.url else [])])


def _short(text: str, most: int = _LABEL_MAX) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _note(diagram: Diagram, shown: int) -> str:
    left_out = len(diagram.nodes) - shown
    if left_out:
        return f"{left_out} more nodes are not drawn."
    return "" if diagram.is_complete else f"There is more: {len(diagram.cut)} FlowFiles go on behind a bound."


def _plain(text: str) -> str:
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)


def _text(text: str) -> str:
    return escape(_plain(text))
