"""What came over HTTP becomes events: the body is judged with its headers, each entity that can be read is an event.

What cannot be read is kept with the headers that say something of it, laid around the body as the envelope that files
of notifications have too, so that it can be read again with them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from custody.capture import Accepted, Context, Place, Rejected
from custody.capture.judge import NOT_JSON, checked
from custody.capture.ngsi import Arrived, arrived_events, laid_apart
from custody.errors import InvalidInputError
from custody.model import Event, Problem, Severity
from custody.ngsi.request import Accepts, Refusal, judge_body

KEPT_HEADERS = (
    "content-type",
    "fiware-service",
    "fiware-servicepath",
    "fiware-correlator",
    "ngsild-tenant",
    "ngsiv2-attrsformat",
    "ngsild-attribute-format",
    "link",
)
"""Headers that say something of a notification and are kept beside it. None of them is a secret."""
KEPT_CODES = ("not-json", "bad-value")
"""Refusals of bodies that are kept: they are damaged, or from a broker that nobody expected. What the settings do not
want, or what holds nothing, is not."""
RECEIVED = "ngsi.received_ms"
"""The attribute of an event that says when it arrived, by our clock, where its time is another one: the broker's."""
_BLANKS = b" \t\r\n"
_PLACE = Place(None, 0)


@dataclass(frozen=True, slots=True)
class Arrival:
    """One notification as it came; `headers` in lower case, `received_ms` since the epoch."""

    body: bytes
    headers: Mapping[str, str]
    url: str
    host: str | None
    """Address of who sent it."""
    received_ms: int


@dataclass(frozen=True, slots=True)
class Read:
    """What an arrival holds: events that can be stored, and what goes to the quarantine."""

    events: Sequence[Event]
    rejected: Sequence[Rejected]
    refusal: Refusal | None
    """What to answer when there is nothing to store."""


def read_arrival(arrival: Arrival, accepts: Accepts) -> Read:
    """Return the events of a notification, one an entity; nothing is raised, whatever the bytes are."""
    found = judge_body(arrival.headers, arrival.body, accepts)
    if isinstance(found, Refusal):
        problem = Problem(Severity.ERROR, found.code, found.message)
        return Read((), _kept(arrival, [problem] if found.code in KEPT_CODES else []), found)
    events: list[Event] = []
    problems: list[Problem] = []
    arrived = Arrived(arrival.body.strip(_BLANKS), found, url=arrival.url)
    for item in arrived_events(arrived, Context(received_ms=arrival.received_ms)):
        outcome = item if isinstance(item, Problem) else checked(item, _PLACE, b"")
        if isinstance(outcome, Accepted):
            events.append(told(outcome.event, arrival))
        else:
            problems.append(outcome if isinstance(outcome, Problem) else outcome.problem)
    refusal = None if events else Refusal(400, problems[0].code, problems[0].message)
    return Read(events, _kept(arrival, problems), refusal)


def _kept(arrival: Arrival, problems: Sequence[Problem]) -> Sequence[Rejected]:
    raw = _raw(arrival) if problems else b""
    return [Rejected(_PLACE, problem, raw) for problem in problems]


def told(event: Event, arrival: Arrival) -> Event:
    """Return an event with what only the receiver knows: who sent it, when it came, and what the content is."""
    media_type = arrival.headers.get("content-type", "").partition(";")[0].strip().lower()
    added = {"mime.type": media_type} if media_type else {}
    if event.event_time != arrival.received_ms:
        added[RECEIVED] = str(arrival.received_ms)
    return msgspec.structs.replace(
        event,
        source_host=event.source_host or arrival.host,
        updated_attributes={**event.updated_attributes, **added},
    )


def kept_arrival(raw: bytes, url: str, received_ms: int) -> Arrival | None:
    """Return the arrival that was kept in the quarantine, None of bytes that are no notification even now.

    Who sent it was not kept.
    """
    try:
        body, headers = laid_apart(raw)
    except (*NOT_JSON, InvalidInputError):
        return None
    return Arrival(body, headers, url, None, received_ms)


def _raw(arrival: Arrival) -> bytes:
    """Return body and headers as one document, or the body alone when it is no JSON object.

    What is none could end the envelope and begin another one.
    """
    try:
        is_object = isinstance(msgspec.json.decode(arrival.body), dict)
    except NOT_JSON:
        is_object = False
    if not is_object:
        return arrival.body
    kept = {name: arrival.headers[name] for name in KEPT_HEADERS if name in arrival.headers}
    head = msgspec.json.encode({"headers": kept, "url": arrival.url})
    return b"".join((head[:-1], b',"body":', arrival.body, b"}"))
