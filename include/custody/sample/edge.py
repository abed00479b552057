"""The flows `edge-transfer` and `bulk-export`: other instances' FlowFiles, and very large files.

Transfers arrive by site-to-site with the identifier they had at the edge, and are forwarded;
duplicates are discarded. Exports are only pointers: the file itself is uploaded from disk and then
deleted there.
"""

from typing import Final

from custody.sample import session
from custody.sample.node import Node
from custody.sample.simulation import Process, ProcessGroup

_EDGE: Final = ProcessGroup("edge-transfer")
_PORT: Final = _EDGE.component("Remote Output Port", "edge-out")
_DETECT: Final = _EDGE.component("DetectDuplicate", "Detect duplicates")
_FORWARD: Final = _EDGE.component("Remote Input Port", "core-in")

_EXPORT: Final = ProcessGroup("bulk-export")
_LIST: Final = _EXPORT.component("ListFile", "List exports")
_UPLOAD: Final = _EXPORT.component("PutS3Object", "Upload export")
_DELETE: Final = _EXPORT.component("DeleteFile", "Delete uploaded file")


def transfers(node: Node) -> Process:
    """Start one process a FlowFile from the edge, for ever."""
    while True:
        yield node.draw(1_000, 7_000)
        node.spawn(_transfer(node))


def _transfer(node: Node) -> Process:
    took_ms = node.draw(5, 80)
    yield took_ms
    site = f"edge{node.draw(1, 9)}.example.com"
    remote_uuid = node.new_uuid()
    item = node.create(
        node.draw(300, 60_000),
        {"filename": f"capture-{remote_uuid[:8]}.bin", "s2s.host": site, "s2s.port": "10443"},
        took_ms,
    )
    node.record(
        "RECEIVE",
        _PORT,
        item,
        took_ms,
        details=f"Remote DN=CN={site}, OU=NIFI",
        transit_uri=f"nifi://{site}:10443/{remote_uuid}",
        remote_id=f"urn:nifi:{remote_uuid}",
    )

    took_ms = node.draw(1, 10)
    yield node.queued() + took_ms
    if node.chance(0.06):
        details = f"Discard reason: duplicate of {item.attributes['filename']}"
        node.emit("DROP", _DETECT, item, took_ms, details=details)
        return
    node.record("ROUTE", _DETECT, item, took_ms)

    took_ms = node.draw(10, 150)
    yield node.queued() + took_ms
    uri = f"nifi://core.example.com:10443/{item.uuid}"
    session.deliver(node, _FORWARD, item, took_ms, uri)


def exports(node: Node) -> Process:
    """Start one process an exported file, for ever."""
    number = 0
    while True:
        yield node.draw(6_000, 18_000)
        number += 1
        node.spawn(_export(node, number))


def _export(node: Node, number: int) -> Process:
    yield 2
    filename = f"export-{number:05d}.parquet"
    size = node.draw(200_000_000, 4_000_000_000)
    pointer = node.create(
        0,
        {"filename": filename, "absolute.path": "/data/exports/", "file.size": str(size)},
        2,
    )
    node.record("CREATE", _LIST, pointer, 2)

    took_ms = size // 400_000
    yield node.queued() + took_ms
    pointer.update({"s3.bucket": "exports", "s3.key": filename})
    node.record(
        "UPLOAD",
        _UPLOAD,
        pointer,
        took_ms,
        details=f"{size} bytes",
        transit_uri=f"https://exports.s3.example.com/{filename}",
    )

    took_ms = node.draw(1, 9)
    yield node.queued() + took_ms
    uri = f"file:/data/exports/{filename}"
    node.emit("REMOTE_INVOCATION", _DELETE, pointer, took_ms, details="Object deleted", transit_uri=uri)
    session.drop(node, _DELETE, pointer, took_ms, "success")
