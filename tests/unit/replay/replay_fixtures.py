"""A flow of two steps whose FlowFiles went through, for the tests of replay."""

from __future__ import annotations

from custody.flow import Component, FlowFile
from custody.model import Event
from custody.repository import Repository
from custody.repository.flow import Flow

LOAD = Component(id="dag.load", type="LoadOrders")
SORT = Component(id="dag.sort", type="SortOrders")


def fill(repository: Repository, count: int, *, together: int = 100) -> None:
    """Let FlowFiles enter the queue `orders`, where `sort` takes, changes and ends them."""
    with repository.flowfiles() as flow:
        flow.connect("orders", consumer="sort_orders", count_max=0)
        for first in range(0, count, together):
            with flow.session(LOAD) as session:
                for number in range(first, min(first + together, count)):
                    order = session.create({"filename": f"{number}.csv", "number": str(number)})
                    order = session.write_bytes(order, f"order {number}".encode())
                    session.transfer(order, "orders")
            with flow.session(SORT) as session:
                for order in session.get_many("orders", together):
                    changed = session.write_bytes(order, b"sorted " + session.read_bytes(order))
                    session.put_attribute(changed, "discard.reason", "done")
                    session.remove(order)


def drain(flow: Flow) -> list[tuple[FlowFile, bytes]]:
    """Take all FlowFiles of the queue `orders` out of the flow; return them with their contents."""
    drained = []
    while True:
        with flow.session(SORT) as session:
            taken = session.get_many("orders", 500)
            for flowfile in taken:
                drained.append((flowfile, session.read_bytes(flowfile)))
                session.remove(flowfile)
        if not taken:
            return drained


def found(repository: Repository, query: str) -> list[Event]:
    """The events of a query, oldest first."""
    return [stored.event for stored in repository.search(query, limit=100_000, oldest_first=True).events]
