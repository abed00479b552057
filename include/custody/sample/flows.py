"""The flows that every node of the simulated NiFi runs.

Each flow is an endless process that starts another process for every FlowFile that enters it. Which processors there
are, how long they take and what they do is made up here; `SimNode` turns their acts into events.
"""

from typing import Final

from custody.sample.node import SimNode
from custody.sample.simulation import ProcessGroup, SimFlowFile, SimProcess

# The flow `orders-ingest`, from Kafka to bundles in HDFS: consume → tag → route by region (now and then with a copy for
# the archive) → split → normalise → bundle → put. Parts of many orders meet in one bundle, so lineages fork and join.
# An operator sometimes replays the routing of an order that is still waiting.

_ORDERS: Final = ProcessGroup("orders-ingest")
_CONSUME_ORDERS: Final = _ORDERS.component("ConsumeKafka", "Consume orders")
_TAG_SOURCE: Final = _ORDERS.component("UpdateAttribute", "Tag source")
_ROUTE_BY_REGION: Final = _ORDERS.component("RouteOnAttribute", "Route by region")
_ARCHIVE_COPY: Final = _ORDERS.component("PutFile", "Archive copy")
_SPLIT_LINES: Final = _ORDERS.component("SplitJson", "Split order lines")
_NORMALISE_LINE: Final = _ORDERS.component("JoltTransformJSON", "Normalise line")
_REPAIR_LINE: Final = _ORDERS.component("ReplaceText", "Repair line")
_BUNDLE_LINES: Final = _ORDERS.component("MergeContent", "Bundle lines")
_IDENTIFY_BUNDLE: Final = _ORDERS.component("UpdateAttribute", "Identify bundle")
_PUT_BUNDLE: Final = _ORDERS.component("PutHDFS", "Land bundle")

_REGIONS: Final = ("emea", "amer", "apac")
_BUNDLE_PARTS: Final = 12


def orders(node: SimNode) -> SimProcess:
    """Start one process an order, for ever."""
    bundle: list[SimFlowFile] = []
    offset = node.draw(10_000, 90_000)
    while True:
        yield node.draw(900, 2_900)
        offset += 1
        node.spawn(_order(node, bundle, offset))


def _order(node: SimNode, bundle: list[SimFlowFile], offset: int) -> SimProcess:
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
    node.record("RECEIVE", _CONSUME_ORDERS, order, took_ms, transit_uri=broker)

    took_ms = node.draw(0, 2)
    yield node.queued() + took_ms
    order.update({"source.system": "shop", "order.region": node.simulation.pick(_REGIONS)})
    node.record("ATTRIBUTES_MODIFIED", _TAG_SOURCE, order, took_ms)
    yield from _routed_order(node, bundle, order)


def _routed_order(node: SimNode, bundle: list[SimFlowFile], order: SimFlowFile) -> SimProcess:
    took_ms = node.draw(0, 2)
    yield node.queued() + took_ms
    # Kept for a replay, which begins with the attributes from before this step.
    before = order.attributes
    order.update({"RouteOnAttribute.Route": before["order.region"]})
    node.emit("ROUTE", _ROUTE_BY_REGION, order, took_ms)
    if node.chance(0.2):
        copy = node.clone(_ROUTE_BY_REGION, order, took_ms)
        node.spawn(_archived_copy(node, copy))
    order.commit()

    if node.chance(0.05):
        yield node.draw(2_000, 9_000)
        again = node.replay(_ROUTE_BY_REGION, order, before)
        node.spawn(_routed_order(node, bundle, again))

    took_ms = node.draw(2, 12)
    yield node.queued() + took_ms
    for part in node.split(_SPLIT_LINES, order, took_ms, node.draw(2, 5)):
        node.spawn(_order_line(node, bundle, part), node.draw(1, 40))


def _archived_copy(node: SimNode, copy: SimFlowFile) -> SimProcess:
    # The archive's disk is slow, and its queue has an expiration.
    if node.chance(0.25):
        yield from node.expire(_ARCHIVE_COPY, copy)
        return
    took_ms = node.draw(5, 90)
    yield node.draw(200, 6_000) + took_ms
    path = f"/data/archive/{copy.attributes['order.region']}"
    copy.update({"absolute.path": path})
    uri = f"file:{path}/{copy.attributes['filename']}"
    node.deliver(_ARCHIVE_COPY, copy, took_ms, uri)


def _order_line(node: SimNode, bundle: list[SimFlowFile], line: SimFlowFile) -> SimProcess:
    took_ms = node.draw(1, 9)
    yield node.queued() + took_ms
    if node.chance(0.03):
        details = "Transform failed: unexpected token"
        node.record("ROUTE", _NORMALISE_LINE, line, took_ms, details=details)
        yield from node.expire(_REPAIR_LINE, line)
        return
    line.size = line.size * node.draw(70, 95) // 100
    line.update({"mime.type": "application/json"})
    node.record("CONTENT_MODIFIED", _NORMALISE_LINE, line, took_ms)

    bundle.append(line)
    if len(bundle) >= _BUNDLE_PARTS:
        # The list is shared by all orders of the node, so it is emptied before the next wait lets others add to it.
        lines = bundle.copy()
        bundle.clear()
        yield from _bundled_lines(node, lines)


def _bundled_lines(node: SimNode, lines: list[SimFlowFile]) -> SimProcess:
    took_ms = node.draw(5, 40)
    yield node.queued() + took_ms
    # Ordinals go up within a node, so no other bundle of it has this name.
    number = node.next_ordinal
    bundle = node.merge(_BUNDLE_LINES, lines, took_ms, f"orders-{number}.json")

    if node.chance(0.5):
        took_ms = node.draw(0, 2)
        yield node.queued() + took_ms
        identifier = f"shop:bundle-{number}"
        bundle.update({"alternate.identifier": identifier})
        node.record("ADDINFO", _IDENTIFY_BUNDLE, bundle, took_ms, alternate_id=identifier)

    took_ms = node.draw(15, 250)
    yield node.queued() + took_ms
    bundle.update({"absolute.hdfs.path": "/landing/orders"})
    uri = f"hdfs://namenode.example.com:8020/landing/orders/{bundle.attributes['filename']}"
    node.deliver(_PUT_BUNDLE, bundle, took_ms, uri)


# The flow `web-logs`: posted or fetched log files are compressed and put into an object store, which refuses now and
# then. A refused file is routed to failure, counted by RetryFlowFile, and tried again after a growing pause; operators
# look at files that wait. Some never get through and end unsent.

_WEB_LOGS: Final = ProcessGroup("web-logs")
_LISTEN_FOR_LOGS: Final = _WEB_LOGS.component("ListenHTTP", "Listen for logs")
_STRIP_HEADERS: Final = _WEB_LOGS.component("UpdateAttribute", "Strip headers")
_LIST_LOGS: Final = _WEB_LOGS.component("ListSFTP", "List log files")
_FETCH_LOG: Final = _WEB_LOGS.component("FetchSFTP", "Fetch log file")
_COMPRESS_LOG: Final = _WEB_LOGS.component("CompressContent", "Compress")
_PUT_LOG: Final = _WEB_LOGS.component("PutS3Object", "Store in bucket")
_COUNT_ATTEMPTS: Final = _WEB_LOGS.component("RetryFlowFile", "Count attempts")
_LOG_LOST_FILE: Final = _WEB_LOGS.component("LogMessage", "Log lost file")

_ATTEMPTS: Final = 4
_RETRY_PAUSE_MS: Final = 1_500
_REFUSALS: Final = ("503 Slow Down", "500 Internal Error", "Read timed out")


def web_logs(node: SimNode) -> SimProcess:
    """Start one process a log file, for ever."""
    number = node.draw(1_000, 9_000)
    while True:
        yield node.draw(500, 2_300)
        number += 1
        entry = _posted_log if node.chance(0.6) else _listed_log
        node.spawn(entry(node, number))


def _posted_log(node: SimNode, number: int) -> SimProcess:
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
    node.record("RECEIVE", _LISTEN_FOR_LOGS, log, took_ms, transit_uri=uri, details=f"Remote host={client}")

    took_ms = node.draw(0, 2)
    yield node.queued() + took_ms
    log.update({"http.headers.User-Agent": None, "http.headers.Content-Type": None, "log.kind": "access"})
    node.record("ATTRIBUTES_MODIFIED", _STRIP_HEADERS, log, took_ms)
    yield from _compressed_log(node, log)


def _listed_log(node: SimNode, number: int) -> SimProcess:
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
    node.record("CREATE", _LIST_LOGS, log, took_ms)

    took_ms = node.draw(30, 700)
    yield node.queued() + took_ms
    log.size = size
    log.update({"log.kind": "error"})
    uri = f"sftp://{host}:22/var/log/{log.attributes['filename']}"
    node.record("FETCH", _FETCH_LOG, log, took_ms, transit_uri=uri)
    yield from _compressed_log(node, log)


def _compressed_log(node: SimNode, log: SimFlowFile) -> SimProcess:
    took_ms = node.draw(8, 160)
    yield node.queued() + took_ms
    log.size = max(1, log.size * node.draw(8, 20) // 100)
    filename = f"{log.attributes['filename']}.gz"
    log.update({"filename": filename, "mime.type": "application/gzip"})
    node.record("CONTENT_MODIFIED", _COMPRESS_LOG, log, took_ms)
    yield from _stored_with_retries(node, log)


def _stored_with_retries(node: SimNode, log: SimFlowFile) -> SimProcess:
    for attempt in range(1, _ATTEMPTS + 1):
        took_ms = node.draw(20, 400)
        yield node.queued() + took_ms
        # A store that refused once is likely to refuse again.
        if not node.chance(0.12 if attempt == 1 else 0.55):
            _store(node, log, took_ms)
            return
        refusal = node.simulation.pick(_REFUSALS)
        log.update({"s3.exception": refusal})
        node.record("ROUTE", _PUT_LOG, log, took_ms, details=f"Attempt {attempt} failed: {refusal}")
        yield from _wait_to_retry(node, log, attempt)
    if node.chance(0.5):
        yield from node.expire(_LOG_LOST_FILE, log)
    else:
        node.drop(_LOG_LOST_FILE, log, 1, "success")


def _store(node: SimNode, log: SimFlowFile, took_ms: int) -> None:
    key = f"{log.attributes['log.kind']}/{log.attributes['filename']}"
    etag = node.new_uuid()[:8]
    log.update({"s3.bucket": "web-logs", "s3.key": key, "s3.etag": etag, "s3.exception": None})
    node.deliver(_PUT_LOG, log, took_ms, f"https://web-logs.s3.example.com/{key}")


def _wait_to_retry(node: SimNode, log: SimFlowFile, attempt: int) -> SimProcess:
    took_ms = node.draw(0, 2)
    yield node.queued() + took_ms
    log.update({"flowfile.retries": str(attempt)})
    node.record("ROUTE", _COUNT_ATTEMPTS, log, took_ms)
    if node.chance(0.5):
        yield node.draw(200, 1_000)
        node.download(log)
    yield _RETRY_PAUSE_MS * attempt


# The flows `sensor-readings` and `heartbeat`: many small FlowFiles with short lives. Readings come over MQTT, are
# converted, some are enriched from a database, and end in it. Heartbeats are made inside the flow and posted to a
# monitor.

_SENSORS: Final = ProcessGroup("sensor-readings")
_SUBSCRIBE: Final = _SENSORS.component("ConsumeMQTT", "Subscribe to sensors")
_CONVERT_READING: Final = _SENSORS.component("ConvertRecord", "Convert to Avro")
_LOOK_UP_CALIBRATION: Final = _SENSORS.component("ExecuteSQL", "Look up calibration")
_LOAD_READINGS: Final = _SENSORS.component("PutDatabaseRecord", "Load readings")
_MARK_LOADED: Final = _SENSORS.component("PutSQL", "Mark batch loaded")

_HEARTBEAT: Final = ProcessGroup("heartbeat")
_MAKE_HEARTBEAT: Final = _HEARTBEAT.component("GenerateFlowFile", "Make heartbeat")
_POST_HEARTBEAT: Final = _HEARTBEAT.component("InvokeHTTP", "Post heartbeat")

_DATABASE: Final = "jdbc:postgresql://telemetry-db.example.com:5432/telemetry"
_MONITOR: Final = "https://monitor.example.com/api/heartbeat"


def readings(node: SimNode) -> SimProcess:
    """Start one process a message from the sensors, for ever."""
    number = 0
    while True:
        yield node.draw(200, 1_600)
        number += 1
        node.spawn(_reading(node, number))


def _reading(node: SimNode, number: int) -> SimProcess:
    took_ms = node.draw(1, 6)
    yield took_ms
    records = node.draw(1, 40)
    reading = node.create(
        records * node.draw(60, 120),
        {
            "filename": f"reading-{number}",
            "mqtt.broker": "tcp://mqtt.example.com:1883",
            "mqtt.topic": f"plant/{node.draw(1, 9)}/temperature",
            "mqtt.qos": "1",
        },
        took_ms,
    )
    node.record("RECEIVE", _SUBSCRIBE, reading, took_ms, transit_uri="tcp://mqtt.example.com:1883")

    took_ms = node.draw(1, 8)
    yield node.queued() + took_ms
    reading.size = reading.size * node.draw(35, 60) // 100
    reading.update({"mime.type": "application/avro-binary", "record.count": str(records)})
    node.record("CONTENT_MODIFIED", _CONVERT_READING, reading, took_ms)

    if node.chance(0.1):
        took_ms = node.draw(4, 60)
        yield node.queued() + took_ms
        reading.size += records * 12
        reading.update({"executesql.row.count": str(records)})
        # This processor really reports a phrase where an address belongs.
        phrase = f"Retrieved {records} rows"
        node.record("FETCH", _LOOK_UP_CALIBRATION, reading, took_ms, transit_uri=phrase)
    yield from _loaded_reading(node, reading)


def _loaded_reading(node: SimNode, reading: SimFlowFile) -> SimProcess:
    took_ms = node.draw(3, 50)
    yield node.queued() + took_ms
    if not node.chance(0.15):
        node.deliver(_LOAD_READINGS, reading, took_ms, _DATABASE)
        return
    node.record("SEND", _LOAD_READINGS, reading, took_ms, transit_uri=_DATABASE)
    took_ms = node.draw(2, 20)
    yield node.queued() + took_ms
    node.emit(
        "REMOTE_INVOCATION",
        _MARK_LOADED,
        reading,
        took_ms,
        details="Updated 1 row",
        transit_uri=_DATABASE,
    )
    node.drop(_MARK_LOADED, reading, took_ms, "success")


def heartbeats(node: SimNode) -> SimProcess:
    """Start one process a heartbeat, for ever."""
    while True:
        yield 10_000
        node.spawn(_heartbeat(node))


def _heartbeat(node: SimNode) -> SimProcess:
    yield 1
    beat = node.create(64, {"filename": f"heartbeat-{node.simulation.now_ms}"}, 1)
    node.record("CREATE", _MAKE_HEARTBEAT, beat, 1)

    took_ms = node.draw(10, 120)
    yield node.queued() + took_ms
    beat.update({"invokehttp.request.url": _MONITOR})
    if node.chance(0.1):
        beat.update({"invokehttp.status.code": "502"})
        node.emit("ROUTE", _POST_HEARTBEAT, beat, took_ms, details="Status 502 from monitor")
        node.drop(_POST_HEARTBEAT, beat, took_ms, "Retry")
        return
    beat.update({"invokehttp.status.code": "200"})
    node.deliver(_POST_HEARTBEAT, beat, took_ms, _MONITOR, "Original")


# The flows `edge-transfer` and `bulk-export`: FlowFiles of other instances, and very large files. Transfers arrive by
# Site-to-Site with the identifier that they had at the edge, and are forwarded; duplicates are discarded. Exports are
# only pointers: the file itself is uploaded from disk and then deleted there.

_EDGE: Final = ProcessGroup("edge-transfer")
_EDGE_PORT: Final = _EDGE.component("Remote Output Port", "edge-out")
_DETECT_DUPLICATES: Final = _EDGE.component("DetectDuplicate", "Detect duplicates")
_CORE_PORT: Final = _EDGE.component("Remote Input Port", "core-in")

_EXPORT: Final = ProcessGroup("bulk-export")
_LIST_EXPORTS: Final = _EXPORT.component("ListFile", "List exports")
_UPLOAD_EXPORT: Final = _EXPORT.component("PutS3Object", "Upload export")
_DELETE_UPLOADED: Final = _EXPORT.component("DeleteFile", "Delete uploaded file")


def transfers(node: SimNode) -> SimProcess:
    """Start one process a FlowFile from the edge, for ever."""
    while True:
        yield node.draw(1_000, 7_000)
        node.spawn(_transfer(node))


def _transfer(node: SimNode) -> SimProcess:
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
        _EDGE_PORT,
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
        node.emit("DROP", _DETECT_DUPLICATES, item, took_ms, details=details)
        return
    node.record("ROUTE", _DETECT_DUPLICATES, item, took_ms)

    took_ms = node.draw(10, 150)
    yield node.queued() + took_ms
    uri = f"nifi://core.example.com:10443/{item.uuid}"
    node.deliver(_CORE_PORT, item, took_ms, uri)


def exports(node: SimNode) -> SimProcess:
    """Start one process an exported file, for ever."""
    number = 0
    while True:
        yield node.draw(6_000, 18_000)
        number += 1
        node.spawn(_export(node, number))


def _export(node: SimNode, number: int) -> SimProcess:
    yield 2
    filename = f"export-{number:05d}.parquet"
    size = node.draw(200_000_000, 4_000_000_000)
    pointer = node.create(
        0,
        {"filename": filename, "absolute.path": "/data/exports/", "file.size": str(size)},
        2,
    )
    node.record("CREATE", _LIST_EXPORTS, pointer, 2)

    # 400 MB/s.
    took_ms = size // 400_000
    yield node.queued() + took_ms
    pointer.update({"s3.bucket": "exports", "s3.key": filename})
    node.record(
        "UPLOAD",
        _UPLOAD_EXPORT,
        pointer,
        took_ms,
        details=f"{size} bytes",
        transit_uri=f"https://exports.s3.example.com/{filename}",
    )

    took_ms = node.draw(1, 9)
    yield node.queued() + took_ms
    uri = f"file:/data/exports/{filename}"
    node.emit("REMOTE_INVOCATION", _DELETE_UPLOADED, pointer, took_ms, details="Object deleted", transit_uri=uri)
    node.drop(_DELETE_UPLOADED, pointer, took_ms, "success")
