"""An order that a flow unpacked, cut into parts and sorted: contents, a lineage of generations, and what to replay."""

from __future__ import annotations

from typing import Any

from custody.flow import Component
from custody.repository import Repository

LOAD, UNPACK, SPLIT, SORT = (
    Component(id=f"dag.{name.lower()}", type=name, name=name) for name in ("Load", "Unpack", "Split", "Sort")
)
PARTS = 3
PART = b'{"part": 1, "of": "an order"}'
SORTED = b'{"part": 1, "of": "an order", "is": "sorted"}'
SORTED_QUERY = "component_id:dag.sort AND event_type:DROP"


def cut_and_sort(repository: Repository) -> None:
    """Let a flow do so; its events wait for a rollover."""
    with repository.flowfiles(wait_seconds=60) as flow:
        for queue in ("bundles", "orders", "parts"):
            flow.connect(queue)
        with flow.session(LOAD) as session:
            bundle = session.create({"filename": "orders-of-today"})
            session.transfer(session.write_bytes(bundle, PART), "bundles")
        with flow.session(UNPACK) as session:
            bundle = _taken(session, "bundles")
            order, other = session.clone(bundle), session.clone(bundle)
            session.transfer(order, "orders")
            session.remove(other)
            session.remove(bundle)
        with flow.session(SPLIT) as session:
            order = _taken(session, "orders")
            for part in [session.clone(order) for _ in range(PARTS)]:
                session.transfer(part, "parts")
            session.remove(order)
        with flow.session(SORT) as session:
            for _ in range(PARTS):
                session.remove(session.write_bytes(_taken(session, "parts"), SORTED))


def bundle_of(repository: Repository) -> str:
    """The uuid of what the order came in: of a lineage of a part, it lies behind the bound of one generation."""
    [made] = repository.search("component_id:dag.load AND event_type:CREATE").events
    return made.event.flowfile_uuid


def queued(repository: Repository) -> int:
    """How many FlowFiles wait in queues."""
    return sum(queue.count for queue in repository.status().queues)


def _taken(session: Any, queue: str) -> Any:
    taken = session.get(queue)
    assert taken is not None
    return taken
