"""HTTP requests with notifications: accepted or refused, and made into events; pure functions.

Each refusal has an HTTP status and a reason. A listener calls `judge_head` before it reads the body, and `judge_body`
before it stores anything; `judge_request` is both. The checks follow the FIWARE listeners where these agree, with a
precise status where they answer 500 or nothing.

`read_arrival` makes an event of each entity that can be read. An unreadable notification goes to the quarantine in the
envelope that files of notifications have too, with the headers that matter, so that it can be read again with them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from custody.capture import Accepted, Context, InputPlace, Rejected
from custody.capture.ngsi_notification import (
    ArrivedNotification,
    NgsiVersion,
    Notification,
    Shape,
    arrived_events,
    check_shared,
    open_notification,
    split_envelope,
)
from custody.capture.raw_json import check_depth
from custody.capture.validate import NOT_JSON, validate_event
from custody.config.ngsi import (
    CORRELATOR_CHARACTERS_MAX,
    LEVEL_CHARACTERS_MAX,
    PATH_LEVELS_MAX,
    SERVICE_CHARACTERS_MAX,
    NgsiSection,
)
from custody.errors import InvalidInputError
from custody.model import Event, EventProblem, Severity

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
"""Headers that matter for a notification and are kept beside it. None of them is a secret."""
KEPT_CODES = ("not-json", "bad-value", "format")
"""Refusals whose bodies are kept: they are damaged, from an unexpected kind of broker, or of a format that the settings
do not take yet. Other bodies that the settings do not allow, and empty ones, are not kept."""
RECEIVED = "ngsi.received_ms"
"""The attribute of an event with its time of arrival by our clock, where the event's own time is the broker's."""
_BLANKS = b" \t\r\n"
_PLACE = InputPlace(None, 0)
_MEDIA_TYPES = ("application/json", "application/ld+json")
_GEO_MEDIA_TYPE = "application/geo+json"
_STRICT = re.compile(r"application/json;\s*charset=utf-8", re.IGNORECASE)
_NORMALIZED, _KEY_VALUES, _LEGACY, _VALUES, _GEO = "normalized", "keyValues", "legacy", "values", "geoJson"
_NAMED = {name.lower(): name for name in (_LEGACY, _KEY_VALUES, "simplifiedNormalized", "simplifiedKeyValues")}
_FORMATS = {**_NAMED, _NORMALIZED: _NORMALIZED, "concise": _NORMALIZED, "simplified": _KEY_VALUES}
"""What the headers call a format, in lower case, and what the parameter does. Brokers of NGSI-LD use both headers."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason why a request is refused: HTTP status, word for counters, text for people, headers of the answer."""

    status: int
    code: str
    message: str
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Accepts:
    """The rules of a listener: the parameters `ngsi.notification_target` and those below it."""

    target: str
    bytes_max: int
    formats: tuple[str, ...]
    entities_max: int = 1000
    is_strict: bool = False
    """Nothing but `application/json; charset=utf-8`."""
    assumed: NgsiVersion = NgsiVersion.V2
    """The language of a bare entity."""

    @classmethod
    def of(cls, section: NgsiSection) -> Accepts:
        """Return the rules of the settings."""
        return cls(
            section.notification_target,
            section.notification_bytes_max,
            section.attrs_formats,
            section.notification_entities_max,
            section.strict_content_type,
            NgsiVersion.LD if section.ngsi_version == "ld" else NgsiVersion.V2,
        )


def judge_request(
    method: str, target: str, headers: Mapping[str, str], body: bytes, accepts: Accepts
) -> Notification | Refusal:
    """Return the notification that a request carries, or why it is refused; names of headers may be in any case."""
    return judge_head(method, target, headers, accepts) or judge_body(headers, body, accepts)


def judge_head(method: str, target: str, headers: Mapping[str, str], accepts: Accepts) -> Refusal | None:
    """Return why a request is refused whatever its body is, None where the body decides.

    The query of the target is ignored: brokers of NGSI-LD put the subscription's id there.
    """
    headers = _lowered(headers)
    path = target.partition("?")[0]
    if path != accepts.target:
        return Refusal(404, "not-found", f"target not supported: expected {accepts.target}, got {path[:80]}")
    if method.upper() != "POST":
        message = f"method not supported: expected POST, got {method[:20]}"
        return Refusal(405, "method", message, {"Allow": "POST"})
    media = _media_type(headers.get("content-type", ""), accepts)
    if media:
        return Refusal(415, "content-type", f"content type not supported: expected {media}")
    service = headers.get("fiware-service") or headers.get("ngsild-tenant") or ""
    if len(service) > SERVICE_CHARACTERS_MAX:
        message = f"Fiware-Service: expected at most {SERVICE_CHARACTERS_MAX} characters, got {len(service)}"
        return Refusal(400, "service", message)
    # Refused where it is too long, not cut: two that begin alike would become one.
    correlator = headers.get("fiware-correlator") or ""
    if len(correlator) > CORRELATOR_CHARACTERS_MAX:
        message = f"Fiware-Correlator: expected at most {CORRELATOR_CHARACTERS_MAX} characters, got {len(correlator)}"
        return Refusal(400, "correlator", message)
    for path in map(str.strip, (headers.get("fiware-servicepath") or "/").split(",")):
        if problem := _path_problem(path):
            return Refusal(400, "service-path", f"Fiware-ServicePath: expected {problem}, got {path[:80]!r}")
    named = _named_format(headers)
    # A format that could be taken is refused when its body is there, which is kept.
    is_unknown = named is not None and named not in (*accepts.formats, _NORMALIZED, *_NAMED.values())
    return _format_refusal(named or "", accepts) if is_unknown else None


def judge_body(headers: Mapping[str, str], body: bytes, accepts: Accepts) -> Notification | Refusal:
    """Return the notification in the body of a request whose head was accepted, or why there is none.

    A notification with some entities that can be read is taken; the others are among its broken ones.
    """
    headers = _lowered(headers)
    if not body.strip():
        return Refusal(400, "empty", "empty body: expected a notification")
    # The receiver bounds a body while it reads it; this check is for everybody else who calls it.
    if len(body) > accepts.bytes_max:
        reason = f"body: expected at most {accepts.bytes_max} bytes (ngsi.notification_bytes_max)"
        return Refusal(413, "too-large", reason)
    named = _named_format(headers)
    if named is not None and named not in accepts.formats:
        return _format_refusal(named, accepts)
    shape = None if named is None else Shape.KEY_VALUES if named.endswith("eyValues") else Shape.NORMALIZED
    try:
        # Before anything is decoded: no sender decides how deep the decoder's stack gets.
        check_depth(body)
        opened = open_notification(body, assumed=accepts.assumed)
        if opened.is_geojson and _GEO not in accepts.formats:
            return _format_refusal(_GEO, accepts)
        # Counted before entities are read: each becomes an event that repeats what all of them share.
        if len(opened.entities) > accepts.entities_max:
            reason = f"expected at most {accepts.entities_max} entities (ngsi.notification_entities_max), got "
            return Refusal(413, "entities", f"{reason}{len(opened.entities)}")
        notification = opened.read(headers, shape=shape)
        check_shared(notification)
    except NOT_JSON as error:
        return Refusal(400, "not-json", f"body: expected JSON ({error})")
    except InvalidInputError as error:
        return Refusal(400, "bad-value", str(error))
    if not notification.entities:
        return _entity_refusal(notification)
    shown = _shown_format(notification)
    if named is None and shown not in accepts.formats and shown != _NORMALIZED:
        return _format_refusal(shown, accepts)
    return notification


@dataclass(frozen=True, slots=True)
class Arrival:
    """One notification as it arrived; names of `headers` in lower case, `received_ms` since the epoch."""

    body: bytes
    headers: Mapping[str, str]
    url: str
    host: str | None
    """Address of the sender."""
    received_ms: int


@dataclass(frozen=True, slots=True)
class Read:
    """The content of an arrival: events that can be stored, and pieces for the quarantine."""

    events: Sequence[Event]
    rejected: Sequence[Rejected]
    refusal: Refusal | None
    """The answer where there is nothing to store."""


def read_arrival(arrival: Arrival, accepts: Accepts) -> Read:
    """Return the events of a notification, one an entity; nothing is raised, whatever the bytes are."""
    judged = judge_body(arrival.headers, arrival.body, accepts)
    if isinstance(judged, Refusal):
        problem = EventProblem(Severity.ERROR, judged.code, judged.message)
        return Read((), _kept(arrival, [problem] if judged.code in KEPT_CODES else []), judged)
    events: list[Event] = []
    problems: list[EventProblem] = []
    arrived = ArrivedNotification(arrival.body.strip(_BLANKS), judged, url=arrival.url)
    for item in arrived_events(arrived, Context(received_ms=arrival.received_ms)):
        outcome = item if isinstance(item, EventProblem) else validate_event(item, _PLACE, b"")
        if isinstance(outcome, Accepted):
            events.append(with_arrival(outcome.event, arrival))
        else:
            problems.append(outcome if isinstance(outcome, EventProblem) else outcome.problem)
    # One event to store is enough for success: brokers do not send a refused notification again.
    refusal = None if events else Refusal(400, problems[0].code, problems[0].message)
    return Read(events, _kept(arrival, problems), refusal)


def with_arrival(event: Event, arrival: Arrival) -> Event:
    """Return an event with what only the receiver knows: sender, time of arrival, type of the content."""
    media_type = arrival.headers.get("content-type", "").partition(";")[0].strip().lower()
    added = {"mime.type": media_type} if media_type else {}
    # Rows and batches follow our own clock: a broker with a wrong one must not hold anything up.
    if event.event_time != arrival.received_ms:
        added[RECEIVED] = str(arrival.received_ms)
    return msgspec.structs.replace(
        event,
        source_host=event.source_host or arrival.host,
        updated_attributes={**event.updated_attributes, **added},
    )


def kept_arrival(raw: bytes, url: str, received_ms: int) -> Arrival | None:
    """Return the arrival that was kept in the quarantine, None of bytes that are no notification even now.

    The sender was not kept.
    """
    try:
        body, headers = split_envelope(raw)
    except (*NOT_JSON, InvalidInputError):
        return None
    return Arrival(body, headers, url, None, received_ms)


def _kept(arrival: Arrival, problems: Sequence[EventProblem]) -> Sequence[Rejected]:
    raw = _raw(arrival) if problems else b""
    return [Rejected(_PLACE, problem, raw) for problem in problems]


def _raw(arrival: Arrival) -> bytes:
    """Return body and headers as one document, or the body alone when it is no JSON object.

    Other bytes could end the envelope and begin another one.
    """
    try:
        is_object = isinstance(msgspec.json.decode(arrival.body), dict)
    except NOT_JSON:
        is_object = False
    if not is_object:
        return arrival.body
    kept_headers = {name: arrival.headers[name] for name in KEPT_HEADERS if name in arrival.headers}
    head = msgspec.json.encode({"headers": kept_headers, "url": arrival.url})
    return b"".join((head[:-1], b',"body":', arrival.body, b"}"))


def _lowered(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def _media_type(header: str, accepts: Accepts) -> str:
    """Return what was expected instead of a Content-Type, nothing where it is taken."""
    got = header[:80] or "none"
    if accepts.is_strict:
        return "" if _STRICT.fullmatch(header.strip()) else f"application/json; charset=utf-8, got {got}"
    media, *options = (part.strip().lower() for part in header.split(";"))
    charsets = [option.removeprefix("charset=").strip('"') for option in options if option.startswith("charset=")]
    taken = (*_MEDIA_TYPES, _GEO_MEDIA_TYPE) if _GEO in accepts.formats else _MEDIA_TYPES
    if media in taken and all(charset in ("utf-8", "utf8") for charset in charsets):
        return ""
    more = f" (GeoJSON is taken with {_GEO} in ngsi.attrs_formats)" if media == _GEO_MEDIA_TYPE else ""
    return f"{' or '.join(taken)} with charset utf-8 or none, got {got}{more}"


def _named_format(headers: Mapping[str, str]) -> str | None:
    """Return the format that the headers name, as the parameter calls it; None where they name none."""
    linked, said = (headers.get(name, "").strip() for name in ("ngsild-attribute-format", "ngsiv2-attrsformat"))
    name = linked or said
    if not name:
        return None
    # Brokers that translate name the translation, too: x-ngsiv2-normalized-compacted.
    return _FORMATS.get(name.lower()) or (_NORMALIZED if not linked and _NORMALIZED in name.lower() else name)


def _shown_format(notification: Notification) -> str:
    if any(entity.shape is Shape.KEY_VALUES for entity in notification.entities):
        return _KEY_VALUES
    return _LEGACY if notification.version is NgsiVersion.V1 else _NORMALIZED


def _entity_refusal(notification: Notification) -> Refusal:
    if not notification.broken:
        return Refusal(400, "empty", "data: expected an entity, got none")
    first = notification.broken[0]
    return Refusal(400, "bad-value", f"entity {first.index}: {first.reason}")


def _format_refusal(shown: str, accepts: Accepts) -> Refusal:
    expected = f"expected one of {', '.join(accepts.formats)} (ngsi.attrs_formats)"
    if shown == _VALUES:
        expected += "; values alone name neither entity nor attribute, so that they can never be taken"
    return Refusal(400, "format", f"attribute format {shown[:40]!r}: {expected}")


def _path_problem(path: str) -> str:
    """Return what was expected instead of a service path, nothing where it is taken."""
    if not path.startswith("/"):
        return "a path that begins with /"
    levels = path[1:].split("/")
    if len(levels) > PATH_LEVELS_MAX:
        return f"at most {PATH_LEVELS_MAX} levels"
    if path != "/" and not all(1 <= len(level) <= LEVEL_CHARACTERS_MAX for level in levels):
        return f"levels of 1 to {LEVEL_CHARACTERS_MAX} characters"
    return ""
