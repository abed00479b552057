"""The flows `sensor-readings` and `heartbeat`: many small FlowFiles with short lives.

Readings come over MQTT, are converted, some are enriched from a database, and end in it.
Heartbeats are made inside the flow and posted to a monitor.
"""

from typing import Final

from custody.sample import session
from custody.sample.node import Node
from custody.sample.simulation import FlowFile, Process, ProcessGroup

_SENSORS: Final = ProcessGroup("sensor-readings")
_CONSUME: Final = _SENSORS.component("ConsumeMQTT", "Subscribe to sensors")
_CONVERT: Final = _SENSORS.component("ConvertRecord", "Convert to Avro")
_LOOKUP: Final = _SENSORS.component("ExecuteSQL", "Look up calibration")
_LOAD: Final = _SENSORS.component("PutDatabaseRecord", "Load readings")
_MARK: Final = _SENSORS.component("PutSQL", "Mark batch loaded")

_HEARTBEAT: Final = ProcessGroup("heartbeat")
_GENERATE: Final = _HEARTBEAT.component("GenerateFlowFile", "Make heartbeat")
_INVOKE: Final = _HEARTBEAT.component("InvokeHTTP", "Post heartbeat")

_DATABASE: Final = "jdbc:postgresql://telemetry-db.example.com:5432/telemetry"
_MONITOR: Final = "https://monitor.example.com/api/heartbeat"


def readings(node: Node) -> Process:
    """Start one process a message from the sensors, for ever."""
    number = 0
    while True:
        yield node.draw(200, 1_600)
        number += 1
        node.spawn(_reading(node, number))


def _reading(node: Node, number: int) -> Process:
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
    node.record("RECEIVE", _CONSUME, reading, took_ms, transit_uri="tcp://mqtt.example.com:1883")

    took_ms = node.draw(1, 8)
    yield node.queued() + took_ms
    reading.size = reading.size * node.draw(35, 60) // 100
    reading.update({"mime.type": "application/avro-binary", "record.count": str(records)})
    node.record("CONTENT_MODIFIED", _CONVERT, reading, took_ms)

    if node.chance(0.1):
        took_ms = node.draw(4, 60)
        yield node.queued() + took_ms
        reading.size += records * 12
        reading.update({"executesql.row.count": str(records)})
        # This processor really reports a phrase where an address belongs.
        phrase = f"Retrieved {records} rows"
        node.record("FETCH", _LOOKUP, reading, took_ms, transit_uri=phrase)
    yield from _loaded(node, reading)


def _loaded(node: Node, reading: FlowFile) -> Process:
    took_ms = node.draw(3, 50)
    yield node.queued() + took_ms
    if not node.chance(0.15):
        session.deliver(node, _LOAD, reading, took_ms, _DATABASE)
        return
    node.record("SEND", _LOAD, reading, took_ms, transit_uri=_DATABASE)
    took_ms = node.draw(2, 20)
    yield node.queued() + took_ms
    node.emit(
        "REMOTE_INVOCATION",
        _MARK,
        reading,
        took_ms,
        details="Updated 1 row",
        transit_uri=_DATABASE,
    )
    session.drop(node, _MARK, reading, took_ms, "success")


def heartbeats(node: Node) -> Process:
    """Start one process a heartbeat, for ever."""
    while True:
        yield 10_000
        node.spawn(_heartbeat(node))


def _heartbeat(node: Node) -> Process:
    yield 1
    beat = node.create(64, {"filename": f"heartbeat-{node.simulation.now_ms}"}, 1)
    node.record("CREATE", _GENERATE, beat, 1)

    took_ms = node.draw(10, 120)
    yield node.queued() + took_ms
    beat.update({"invokehttp.request.url": _MONITOR})
    if node.chance(0.1):
        beat.update({"invokehttp.status.code": "502"})
        node.emit("ROUTE", _INVOKE, beat, took_ms, details="Status 502 from monitor")
        session.drop(node, _INVOKE, beat, took_ms, "Retry")
        return
    beat.update({"invokehttp.status.code": "200"})
    session.deliver(node, _INVOKE, beat, took_ms, _MONITOR, "Original")
