"""Notifications and parameters for the tests of this room."""

from __future__ import annotations

import json
from typing import Any

from custody.capture.ngsi_notification import Notification
from custody.ngsi.http_notification import Accepts, judge_request
from custody.ngsi.parameters import Parameters
from custody.ngsi.records import ReceiveTime, Record, records

NOW_MS = 1_772_600_767_089
HEADERS = {"Content-Type": "application/json", "Fiware-Service": "parks", "Fiware-ServicePath": "/north"}


def parameters(**names: object) -> Parameters:
    return Parameters.from_names({"hdfs_username": "warden", "hive": False, **names})


def body(attributes: dict[str, Any], id: str = "Bench1", type: str = "Bench") -> bytes:
    return json.dumps({"subscriptionId": "1", "data": [{"id": id, "type": type, **attributes}]}).encode()


def attribute(value: object, type: str = "Text", **metadata: object) -> dict[str, object]:
    return {"type": type, "value": value, "metadata": {k: {"type": "Text", "value": v} for k, v in metadata.items()}}


def notification(data: bytes, used: Parameters, **headers: str) -> Notification:
    found = judge_request("POST", "/notify", {**HEADERS, **headers}, data, Accepts.of(used.values))
    assert isinstance(found, Notification), found
    return found


def recorded(data: bytes, used: Parameters, at_ms: int = NOW_MS) -> list[Record]:
    found = list(records(notification(data, used), ReceiveTime.at(at_ms, used), used))
    assert all(isinstance(item, Record) for item in found), found
    return [item for item in found if isinstance(item, Record)]
