"""The flow `web-logs`: posted or fetched log files, compressed and put into an object store.

The store refuses now and then. A refused file is routed to failure, counted by RetryFlowFile, and
tried again after a growing pause; operators look at files that wait. Some never get through and
end unsent.
"""

from typing import Final

from custody.sample import session
from custody.sample.node import Node
from custody.sample.simulation import FlowFile, Process, ProcessGroup

_GROUP: Final = ProcessGroup("web-logs")
_LISTEN: Final = _GROUP.component("ListenHTTP", "Listen for logs")
_STRIP: Final = _GROUP.component("UpdateAttribute", "Strip headers")
_LIST: Final = _GROUP.component("ListSFTP", "List log files")
_FETCH: Final = _GROUP.component("FetchSFTP", "Fetch log file")
_COMPRESS: Final = _GROUP.component("CompressContent", "Compress")
_PUT: Final = _GROUP.component("PutS3Object", "Store in bucket")
_RETRY: Final = _GROUP.component("RetryFlowFile", "Count attempts")
_ALERT: Final = _GROUP.component("LogMessage", "Log lost file")

_ATTEMPTS: Final = 4
_PAUSE_MS: Final = 1_500
_REFUSALS: Final = ("503 Slow Down", "500 Internal Error", "Read timed out")


def arrivals(node: Node) -> Process:
    """Start one process a log file, for ever."""
    number = node.draw(1_000, 9_000)
    while True:
        yield node.draw(500, 2_300)
        number += 1
        entry = _posted if node.chance(0.6) else _listed
        node.spawn(entry(node, number))


def _posted(node: Node, number: int) -> Process:
    took_ms = node.draw(4, 120)
    yield took_ms
    client = f"web{node.draw(1, 12)}.example.com"
    log = node.create(
        node.draw(20_000, 900_000),
        {
            "filename": f"access-{number}.log",
            "restlistener.remote.source.host": client,
            "restlistener.request.uri": "/logs",
            "http.headers.User-Agent": "log-shipper/4.2",
            "http.headers.Content-Type": "text/plain",
        },
        took_ms,
    )
    uri = f"http://{node.host}:9090/logs"
    node.record("RECEIVE", _LISTEN, log, took_ms, transit_uri=uri, details=f"Remote host={client}")

    took_ms = node.draw(0, 2)
    yield node.queued() + took_ms
    log.update({"http.headers.User-Agent": None, "http.headers.Content-Type": None, "log.kind": "access"})
    node.record("ATTRIBUTES_MODIFIED", _STRIP, log, took_ms)
    yield from _compressed(node, log)


def _listed(node: Node, number: int) -> Process:
    took_ms = node.draw(1, 30)
    yield took_ms
    host = f"ftp{node.draw(1, 3)}.example.com"
    size = node.draw(50_000, 4_000_000)
    log = node.create(
        0,
        {
            "filename": f"error-{number}.log",
            "sftp.remote.host": host,
            "sftp.remote.port": "22",
            "file.size": str(size),
        },
        took_ms,
    )
    node.record("CREATE", _LIST, log, took_ms)

    took_ms = node.draw(30, 700)
    yield node.queued() + took_ms
    log.size = size
    log.update({"log.kind": "error"})
    uri = f"sftp://{host}:22/var/log/{log.attributes['filename']}"
    node.record("FETCH", _FETCH, log, took_ms, transit_uri=uri)
    yield from _compressed(node, log)


def _compressed(node: Node, log: FlowFile) -> Process:
    took_ms = node.draw(8, 160)
    yield node.queued() + took_ms
    log.size = max(1, log.size * node.draw(8, 20) // 100)
    filename = f"{log.attributes['filename']}.gz"
    log.update({"filename": filename, "mime.type": "application/gzip"})
    node.record("CONTENT_MODIFIED", _COMPRESS, log, took_ms)
    yield from _stored(node, log)


def _stored(node: Node, log: FlowFile) -> Process:
    for attempt in range(1, _ATTEMPTS + 1):
        took_ms = node.draw(20, 400)
        yield node.queued() + took_ms
        # A store that refused once is likely to refuse again.
        if not node.chance(0.12 if attempt == 1 else 0.55):
            _put(node, log, took_ms)
            return
        refusal = node.simulation.pick(_REFUSALS)
        log.update({"s3.exception": refusal})
        node.record("ROUTE", _PUT, log, took_ms, details=f"Attempt {attempt} failed: {refusal}")
        yield from _waited(node, log, attempt)
    if node.chance(0.5):
        yield from session.expire(node, _ALERT, log)
    else:
        session.drop(node, _ALERT, log, 1, "success")


def _put(node: Node, log: FlowFile, took_ms: int) -> None:
    key = f"{log.attributes['log.kind']}/{log.attributes['filename']}"
    etag = node.new_uuid()[:8]
    log.update({"s3.bucket": "web-logs", "s3.key": key, "s3.etag": etag, "s3.exception": None})
    session.deliver(node, _PUT, log, took_ms, f"https://web-logs.s3.example.com/{key}")


def _waited(node: Node, log: FlowFile, attempt: int) -> Process:
    took_ms = node.draw(0, 2)
    yield node.queued() + took_ms
    log.update({"flowfile.retries": str(attempt)})
    node.record("ROUTE", _RETRY, log, took_ms)
    if node.chance(0.5):
        yield node.draw(200, 1_000)
        session.download(node, log)
    yield _PAUSE_MS * attempt
