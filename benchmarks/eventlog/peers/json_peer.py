"""NiFi's Site-to-Site JSON of the events, as one gzip stream of level 6: how large provenance is as it is exported."""

from __future__ import annotations

import zlib

import msgspec

from benchmarks.eventlog.measuring import Task, tell
from benchmarks.eventlog.peers.feed import batches
from custody.capture.nifi_json import event_to_json

_EVENTS_MAX = 500_000
_LEVEL = 6
_GZIP = 31
"""zlib's word for the largest window with gzip's header and trailer."""


def main(task: Task) -> None:
    """Count bytes; a stream of some hundred thousand events says what a longer one would."""
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
    encoder = msgspec.json.Encoder()
    events = plain = packed = 0
    for batch in batches(task):
        text = encoder.encode_lines([event_to_json(event) for event in batch])
        events, plain, packed = events + len(batch), plain + len(text), packed + len(packer.compress(text))
        if events >= _EVENTS_MAX:
            break
    packed += len(packer.flush())
    tell({"events": events, "bytes": {"plain": plain, "gzip": packed}})


if __name__ == "__main__":
    main(Task.given())
