"""Producers that deliver over the network, and what became of each batch: as threads of a few processes."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from custody.sample import SampleOptions, sample_files
from tests.nifi_client import HttpSender, RawSender, Sender, SendError, attributes, packed

EVENTS, SITE_TO_SITE, RAW = "events", "site-to-site", "site-to-site raw"
DOORS = (EVENTS, SITE_TO_SITE, RAW)
# Where they stand in a template, each of the length of what replaces it.
_PRODUCER, _BATCH, _ORDINAL = "beefbeef", "0b0b0b0b0b0b", "9090909"
_PAUSE_SECONDS = 0.05


@dataclass(slots=True)
class Delivered:
    """What one producer did: the numbers of its batches, and how long each took from the first try to the answer."""

    producer: int
    acknowledged: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    refused: int = 0
    """Tries that were answered with anything but success, or not at all; the batch was sent again."""


def uuid_of(producer: int, batch: int, event: int) -> str:
    """Return the FlowFile of an event, which no other event has."""
    return f"{producer:08x}-{event:04x}-4000-8000-{batch:012x}"


def deliver(door: str, url: str, producers: range, batch: int, until: float) -> list[Delivered]:
    """Let producers deliver batches of so many events, one after the other each, until a moment of `time.time()`.

    The URL is that of a server of custody; of a NiFi, which is asked by RAW alone, `nifi://HOST:SOCKET/ID_OF_PORT`.
    """
    template = _template(batch) if door == EVENTS else _nifi_template(batch)
    with ThreadPoolExecutor(len(producers)) as pool:
        return list(pool.map(lambda number: _one(door, url, number, template, until), producers))


def _one(door: str, url: str, producer: int, template: bytes, until: float) -> Delivered:
    done = Delivered(producer)
    send = _by_post(url) if door == EVENTS else _by_site_to_site(_sender(door, url))
    number = 0
    while time.time() < until:
        number += 1
        body = template.replace(_PRODUCER.encode(), b"%08x" % producer).replace(_BATCH.encode(), b"%012x" % number)
        body = body.replace(_ORDINAL.encode(), b"%07d" % (1_000_000 + number))
        begun = time.monotonic()
        while not send(body):
            done.refused += 1
            time.sleep(_PAUSE_SECONDS)
            if time.time() > until + 30:
                return done
        done.acknowledged.append(number)
        done.seconds.append(time.monotonic() - begun)
    return done


def _by_post(url: str) -> Callable[[bytes], bool]:
    place = urlsplit(url)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=60)

    def send(body: bytes) -> bool:
        with suppress(OSError, http.client.HTTPException):
            connection.request("POST", "/events", body, {"Content-Type": "application/x-ndjson"})
            answer = connection.getresponse()
            answer.read()
            return answer.status == 200
        connection.close()
        return False

    return send


class _KnownSender(RawSender):
    """The client by RAW for a NiFi without the web server that would tell it where the socket is."""

    def discovered(self) -> tuple[str, int, str]:
        place = urlsplit(self.finder.url)
        return place.hostname or "", place.port or 0, place.path.lstrip("/")


def _sender(door: str, url: str) -> Sender:
    if door == SITE_TO_SITE:
        return HttpSender(f"{url}/nifi", timeout=60.0)
    return _KnownSender(url) if url.startswith("nifi:") else RawSender(f"{url}/nifi")


def _by_site_to_site(sender: Sender) -> Callable[[bytes], bool]:
    def send(body: bytes) -> bool:
        with suppress(SendError):
            sender.send([packed(attributes(), body)])
            return True
        return False

    return send


def _template(batch: int) -> bytes:
    lines = [
        {
            "event_type": "SEND",
            "event_time": 1_772_409_600_000 + number,
            "component_id": f"job.{_PRODUCER}",
            "component_type": "Orders",
            "flowfile_uuid": f"{_PRODUCER}-{number:04x}-4000-8000-{_BATCH}",
            "file_size": 10 + number,
            "transit_uri": f"sftp://shop.example/{_BATCH}/orders.csv",
            "updated_attributes": {"filename": f"orders-{number}.csv", "order.region": "emea"},
        }
        for number in range(batch)
    ]
    return b"\n".join(json.dumps(line).encode() for line in lines)


def _nifi_template(batch: int) -> bytes:
    """Return events of a NiFi as its reporting task sends them, of a node and with ordinals of their own."""
    [data, *_] = (data for _, data in sample_files(SampleOptions(events=max(batch, 100), nodes=1, batch_size=batch)))
    events = json.loads(data)[:batch]
    for number, item in enumerate(events):
        item |= {
            "entityId": f"{_PRODUCER}-{number:04x}-4000-8000-{_BATCH}",
            "platform": "nifi",
            "eventId": f"{_PRODUCER}-{number:04x}-4000-9000-{_BATCH}",
            "eventOrdinal": int(f"{_ORDINAL}{number:04d}"),
            "parentIds": [],
            "childIds": [],
        }
    # The sample's one node becomes one of each producer: ordinals are told apart by it.
    return json.dumps(events).replace("nifi1-of1.", f"nifi-{_PRODUCER}.").encode()
