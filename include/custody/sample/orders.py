"""The flow `orders-ingest`: from Kafka to bundles in HDFS.

Consume → tag → route by region (now and then with a copy for the archive) → split → normalise →
bundle → put. Parts of many orders meet in one bundle, so lineages fork and join. An operator
sometimes replays the routing of an order that is still waiting.
"""

from typing import Final

from custody.sample import session
from custody.sample.node import Node
from custody.sample.simulation import FlowFile, Process, ProcessGroup

_GROUP: Final = ProcessGroup("orders-ingest")
_CONSUME: Final = _GROUP.component("ConsumeKafka", "Consume orders")
_TAG: Final = _GROUP.component("UpdateAttribute", "Tag source")
_ROUTE: Final = _GROUP.component("RouteOnAttribute", "Route by region")
_ARCHIVE: Final = _GROUP.component("PutFile", "Archive copy")
_SPLIT: Final = _GROUP.component("SplitJson", "Split order lines")
_NORMALISE: Final = _GROUP.component("JoltTransformJSON", "Normalise line")
_REPAIR: Final = _GROUP.component("ReplaceText", "Repair line")
_MERGE: Final = _GROUP.component("MergeContent", "Bundle lines")
_IDENTIFY: Final = _GROUP.component("UpdateAttribute", "Identify bundle")
_PUT: Final = _GROUP.component("PutHDFS", "Land bundle")

_REGIONS: Final = ("emea", "amer", "apac")
_BUNDLE_PARTS: Final = 12


def arrivals(node: Node) -> Process:
    """Start one process an order, for ever."""
    bundle: list[FlowFile] = []
    offset = node.draw(10_000, 90_000)
    while True:
        yield node.draw(900, 2_900)
        offset += 1
        node.spawn(_order(node, bundle, offset))


def _order(node: Node, bundle: list[FlowFile], offset: int) -> Process:
    took_ms = node.draw(2, 15)
    yield took_ms
    partition = node.draw(0, 7)
    order = node.create(
        node.draw(900, 24_000),
        {
            "filename": f"order-{partition}-{offset}.json",
            "kafka.topic": "orders",
            "kafka.partition": str(partition),
            "kafka.offset": str(offset),
        },
        took_ms,
    )
    broker = f"kafka://broker{partition % 3 + 1}.example.com:9092/orders"
    node.record("RECEIVE", _CONSUME, order, took_ms, transit_uri=broker)

    took_ms = node.draw(0, 2)
    yield node.queued() + took_ms
    order.update({"source.system": "shop", "order.region": node.simulation.pick(_REGIONS)})
    node.record("ATTRIBUTES_MODIFIED", _TAG, order, took_ms)
    yield from _routed(node, bundle, order)


def _routed(node: Node, bundle: list[FlowFile], order: FlowFile) -> Process:
    took_ms = node.draw(0, 2)
    yield node.queued() + took_ms
    before = order.attributes
    order.update({"RouteOnAttribute.Route": before["order.region"]})
    node.emit("ROUTE", _ROUTE, order, took_ms)
    if node.chance(0.2):
        copy = session.clone(node, _ROUTE, order, took_ms)
        node.spawn(_archived(node, copy))
    order.commit()

    if node.chance(0.05):
        yield node.draw(2_000, 9_000)
        again = session.replay(node, _ROUTE, order, before)
        node.spawn(_routed(node, bundle, again))

    took_ms = node.draw(2, 12)
    yield node.queued() + took_ms
    for part in session.split(node, _SPLIT, order, took_ms, node.draw(2, 5)):
        node.spawn(_line(node, bundle, part), node.draw(1, 40))


def _archived(node: Node, copy: FlowFile) -> Process:
    # The archive's disk is slow, and its queue has an expiration.
    if node.chance(0.25):
        yield from session.expire(node, _ARCHIVE, copy)
        return
    took_ms = node.draw(5, 90)
    yield node.draw(200, 6_000) + took_ms
    path = f"/data/archive/{copy.attributes['order.region']}"
    copy.update({"absolute.path": path})
    uri = f"file:{path}/{copy.attributes['filename']}"
    session.deliver(node, _ARCHIVE, copy, took_ms, uri)


def _line(node: Node, bundle: list[FlowFile], line: FlowFile) -> Process:
    took_ms = node.draw(1, 9)
    yield node.queued() + took_ms
    if node.chance(0.03):
        details = "Transform failed: unexpected token"
        node.record("ROUTE", _NORMALISE, line, took_ms, details=details)
        yield from session.expire(node, _REPAIR, line)
        return
    line.size = line.size * node.draw(70, 95) // 100
    line.update({"mime.type": "application/json"})
    node.record("CONTENT_MODIFIED", _NORMALISE, line, took_ms)

    bundle.append(line)
    if len(bundle) >= _BUNDLE_PARTS:
        lines = bundle.copy()
        bundle.clear()
        yield from _bundled(node, lines)


def _bundled(node: Node, lines: list[FlowFile]) -> Process:
    took_ms = node.draw(5, 40)
    yield node.queued() + took_ms
    number = node.next_ordinal
    bundle = session.merge(node, _MERGE, lines, took_ms, f"orders-{number}.json")

    if node.chance(0.5):
        took_ms = node.draw(0, 2)
        yield node.queued() + took_ms
        identifier = f"shop:bundle-{number}"
        bundle.update({"alternate.identifier": identifier})
        node.record("ADDINFO", _IDENTIFY, bundle, took_ms, alternate_id=identifier)

    took_ms = node.draw(15, 250)
    yield node.queued() + took_ms
    bundle.update({"absolute.hdfs.path": "/landing/orders"})
    uri = f"hdfs://namenode.example.com:8020/landing/orders/{bundle.attributes['filename']}"
    session.deliver(node, _PUT, bundle, took_ms, uri)
