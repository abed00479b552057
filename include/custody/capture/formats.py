"""The input formats, and their detection by the content of a file, never by its name."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from enum import StrEnum

from custody.capture import avro, custody_json, ngsi_notification, nifi_json, nifi_rest, openlineage
from custody.capture.encodings import GZIP

DETECT_BYTES = 1 << 16
"""How much of a file's beginning is examined."""
_GZIP_HEADER = 31
# Possessive (`*+`): a text without an end costs one pass and no backtracking.
_TOKEN = re.compile(rb'"((?:[^"\\]|\\.)*+)"(\s*+:)?|[\[\]{}]', re.DOTALL)


class Format(StrEnum):
    """The format of an input file; the values are used on the command line and in the quarantine."""

    NIFI = "nifi"
    NIFI_REST = "nifi-rest"
    NIFI_AVRO = "nifi-avro"
    OPENLINEAGE = "openlineage"
    NGSI = "ngsi"
    CUSTODY = "custody"


_KEYS = {
    Format.NIFI: nifi_json.KEYS,
    Format.NIFI_REST: nifi_rest.KEYS,
    Format.OPENLINEAGE: openlineage.KEYS,
    Format.NGSI: ngsi_notification.KEYS,
    Format.CUSTODY: custody_json.KEYS,
}


def detect(head: bytes) -> Format:
    """Return the format of a file by its beginning, gzip or not; `nifi` where nothing tells.

    The keys of the first object decide: it is the format that most of them belong to. Its values, names of attributes
    among them, do not count.
    """
    if head.startswith(GZIP):
        try:
            head = zlib.decompressobj(_GZIP_HEADER).decompress(head, DETECT_BYTES)
        # The reader meets the same damage, and rejects the file with the reason.
        except zlib.error:
            return Format.NIFI
    if head.startswith(avro.MAGIC):
        return Format.NIFI_AVRO
    keys = set(_first_keys(head[:DETECT_BYTES]))
    # A bare entity of NGSI has no key of its own but these two; NiFi's DTOs have an `id`, too.
    if keys >= {"id", "type"} and not keys & {"eventId", "flowFileUuid", "eventType"}:
        return Format.NGSI
    # Of equal counts the first one wins: `nifi`.
    return max(_KEYS, key=lambda format: len(keys & _KEYS[format]))


def _first_keys(head: bytes) -> Iterator[str]:
    """Yield the keys of the first outermost object."""
    depth, is_inside = 0, False
    for token in _TOKEN.finditer(head):
        mark = token[0]
        if mark in (b"{", b"["):
            depth += 1
            if mark == b"{" and not is_inside:
                depth, is_inside = 1, True
        elif mark in (b"}", b"]"):
            depth -= 1
            if is_inside and depth == 0:
                return
        elif is_inside and depth == 1 and token[2] is not None:
            yield token[1].decode("utf-8", "replace")
