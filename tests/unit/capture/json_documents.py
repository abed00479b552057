"""Events in site-to-site form, one of each type, written by hand."""

from __future__ import annotations

from typing import Any

NODE = "0b2c7d1e-1111-4222-8333-444455556666"
_URI = "http://nifi-1.example:8443/nifi-api/provenance-events/{}/content/{}?clusterNodeId=" + NODE

_SPECIAL: dict[str, dict[str, Any]] = {
    "CREATE": {"details": "made by a timer"},
    "RECEIVE": {"transitUri": "https://shop.example:8443/orders?day=1&x=[2]", "durationMillis": 51},
    "FETCH": {"transitUri": "sftp://files.example/in/naïve résumé.txt"},
    "SEND": {"transitUri": "hdfs://lake/orders/2026", "remoteIdentifier": "urn:nifi:other:17"},
    "UPLOAD": {"transitUri": "s3://bucket/key"},
    "REMOTE_INVOCATION": {"details": "purged"},
    "DOWNLOAD": {"details": "by admin"},
    "DROP": {"details": "auto terminated by success relationship"},
    "EXPIRE": {"details": "older than 1 day"},
    "FORK": {"childIds": ["c-1", "c-2"], "parentIds": ["e-9"]},
    "JOIN": {"parentIds": ["p-1", "p-2", "p-3"], "childIds": ["e-10"]},
    "CLONE": {"childIds": ["c-3"], "parentIds": ["e-11"]},
    "CONTENT_MODIFIED": {"previousEntitySize": 7, "entitySize": 0},
    "ATTRIBUTES_MODIFIED": {"updatedAttributes": {"mime.type": "text/plain", "gone": None}},
    "ROUTE": {"details": "matched \N{SNOWMAN}"},
    "ADDINFO": {"alternateIdentifier": "urn:x-custody:42"},
    "REPLAY": {"parentIds": ["p-4"], "childIds": ["e-16"]},
    "UNKNOWN": {"componentType": "Unknown"},
}


def document(kind: str, **changes: Any) -> dict[str, Any]:
    """The event of a type as NiFi would export it: keys in its order, all present ones with a value."""
    number = list(_SPECIAL).index(kind)
    basic: dict[str, Any] = {
        "eventId": f"5f0c0000-0000-4000-8000-{number:012d}",
        "eventOrdinal": 1000 + number,
        "eventType": kind,
        "timestampMillis": 1_772_409_600_123 + number,
        "timestamp": f"2026-03-02T00:00:00.{123 + number:03d}Z",
        "durationMillis": -1,
        "lineageStart": 1_772_409_500_000,
        "componentId": f"0170100{number % 10}-1000-1000-0000-000000000000",
        "componentType": "InvokeHTTP",
        "componentName": f"Schritt {number}: Prüfung",
        "processGroupId": "root-group",
        "processGroupName": "NiFi Flow",
        "entityId": f"e-{number}",
        "entityType": "org.apache.nifi.flowfile.FlowFile",
        "entitySize": 10 * number,
        "previousEntitySize": number,
        "updatedAttributes": {},
        "previousAttributes": {"filename": f"file {number}.json", "path": "./"},
        "actorHostname": "nifi-1.example",
        "contentURI": _URI.format(number, "output"),
        "previousContentURI": _URI.format(number, "input"),
        "parentIds": [],
        "childIds": [],
        "platform": "nifi",
        "application": "NiFi Flow",
    }
    return {**basic, **_SPECIAL[kind], **changes}


KINDS = list(_SPECIAL)
