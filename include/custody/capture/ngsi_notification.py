"""Notifications of context brokers: NGSIv2, NGSI-LD and NGSIv1 as one frozen value, every value as it was written.

A notification holds entities, an entity attributes, an attribute a value and metadata. NGSI-LD's sub-attributes are
metadata here; those of a sub-attribute get both names, `reliability.observedAt`, so that nothing is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from custody.capture.ngsi_attributes import Attribute, Shape, read_attributes, read_legacy_attributes, shape_of
from custody.capture.raw_json import array_elements, check_depth, object_members, optional_text
from custody.capture.values import parse_iso, wrong
from custody.errors import InvalidInputError

SHARED_CHARACTERS_MAX = 512
"""Longest id of a subscription or notification; NGSI-LD names them by URIs."""
_ENTITIES = "an array of objects"
_NOTHING_KNOWN = "data: expected a notification with data, contextResponses or an entity, got none of them"


class NgsiVersion(StrEnum):
    """The version of NGSI that a notification speaks."""

    V1 = "ngsi-v1"
    V2 = "ngsi-v2"
    LD = "ngsi-ld"


@dataclass(frozen=True, slots=True)
class Entity:
    """One entity of a notification; `type` is empty where there is none, `path` None where no header names it."""

    index: int
    id: str
    type: str
    path: str | None
    attributes: tuple[Attribute, ...]
    shape: Shape


@dataclass(frozen=True, slots=True)
class BrokenEntity:
    """An entity that cannot be read, and why."""

    index: int
    reason: str


@dataclass(frozen=True, slots=True)
class Notification:
    """A notification; names of headers are in lower case, times in ms since the epoch."""

    version: NgsiVersion
    id: str | None
    """Of the notification itself, which only NGSI-LD has."""
    subscription: str | None
    service: str | None
    """Fiware-Service, else NGSILD-Tenant; None where the headers name none."""
    correlator: str | None
    notified_ms: int | None
    headers: Mapping[str, str]
    entities: tuple[Entity, ...]
    broken: tuple[BrokenEntity, ...]
    body_bytes: int

    @property
    def size(self) -> int:
        """The number of its entities, the broken ones counted."""
        return len(self.entities) + len(self.broken)


@dataclass(frozen=True, slots=True)
class OpenedNotification:
    """A notification whose entities are still text, so that one of many is read without the others."""

    version: NgsiVersion
    document: Mapping[str, msgspec.Raw]
    entities: Sequence[msgspec.Raw]
    body_bytes: int

    def read(self, headers: Mapping[str, str], *, shape: Shape | None = None, only: int | None = None) -> Notification:
        """Return the notification, decoded; an entity that cannot be read is among the broken ones.

        Without a `shape`, each entity shows its own. With `only`, it is read as if it had this one entity.

        Raises:
            InvalidInputError: the headers do not fit the entities, a member is of another type, or there is no entity
                `only`; the message names the key.
        """
        headers = {name.lower(): value for name, value in headers.items()}
        path_of = _paths(headers.get("fiware-servicepath"), len(self.entities))
        if only is not None and not 0 <= only < len(self.entities):
            raise InvalidInputError(f"entity {only}: expected one of {len(self.entities)}")
        entities: list[Entity] = []
        broken: list[BrokenEntity] = []
        for index in range(len(self.entities)) if only is None else (only,):
            try:
                entities.append(_entity(self.version, index, self.entities[index], path_of(index), shape))
            except InvalidInputError as error:
                broken.append(BrokenEntity(index, str(error)))
        notified = optional_text("notifiedAt", self.document)
        has_id = self.version is NgsiVersion.LD and "data" in self.document
        return Notification(
            version=self.version,
            id=optional_text("id", self.document) if has_id else None,
            subscription=optional_text("subscriptionId", self.document),
            service=headers.get("fiware-service") or headers.get("ngsild-tenant") or None,
            correlator=headers.get("fiware-correlator") or None,
            notified_ms=None if notified is None else parse_iso("notifiedAt", notified),
            headers=headers,
            entities=tuple(entities),
            broken=tuple(broken),
            body_bytes=self.body_bytes,
        )


def open_notification(body: bytes, *, assumed: NgsiVersion = NgsiVersion.V2) -> OpenedNotification:
    """Return the notification of a body; `assumed` is the version of a bare entity, which does not show it.

    Raises:
        InvalidInputError: it is no notification; the message names the key.
        msgspec.DecodeError, UnicodeDecodeError, RecursionError: it is no JSON.
    """
    body.decode()  # the parts stay raw, so their UTF-8 is checked here for all of them
    document = object_members("body", msgspec.Raw(body))
    version, entities = _entities(document, assumed)
    return OpenedNotification(version, document, entities, len(body))


def read_notification(
    body: bytes, headers: Mapping[str, str], *, assumed: NgsiVersion = NgsiVersion.V2, shape: Shape | None = None
) -> Notification:
    """Return the whole notification of a body and its headers, checked as input from outside.

    Raises:
        InvalidInputError: as `open_notification` and `read`, or it is nested too deep, or an id is too long.
        msgspec.DecodeError, UnicodeDecodeError, RecursionError: it is no JSON.
    """
    # Before anything is decoded: a decoder needs a stack as deep as its input.
    check_depth(body)
    notification = open_notification(body, assumed=assumed).read(headers, shape=shape)
    check_shared(notification)
    return notification


def check_shared(notification: Notification) -> None:
    """Check that the ids which each event of a notification repeats are short: many entities would multiply them.

    Raises:
        InvalidInputError: one is longer; the message names the key.
    """
    for key, text in (("subscriptionId", notification.subscription), ("id", notification.id)):
        if text is not None and len(text) > SHARED_CHARACTERS_MAX:
            raise InvalidInputError(f"{key}: expected at most {SHARED_CHARACTERS_MAX} characters, got {len(text)}")


def _entities(document: dict[str, msgspec.Raw], assumed: NgsiVersion) -> tuple[NgsiVersion, list[msgspec.Raw]]:
    if "contextResponses" in document:
        responses = (object_members("contextResponses", item) for item in _objects("contextResponses", document))
        return NgsiVersion.V1, [response.get("contextElement", msgspec.Raw(b"null")) for response in responses]
    if "data" in document:
        is_linked = "notifiedAt" in document or _is_notification(document)
        return (NgsiVersion.LD if is_linked else NgsiVersion.V2), _objects("data", document)
    if "id" in document:
        return assumed, [msgspec.Raw(msgspec.json.encode(document))]  # simplifiedNormalized, simplifiedKeyValues
    raise InvalidInputError(_NOTHING_KNOWN)


def _objects(key: str, document: dict[str, msgspec.Raw]) -> list[msgspec.Raw]:
    items = array_elements(key, _ENTITIES, document[key])
    if not all(bytes(item).startswith(b"{") for item in items):
        raise wrong(key, _ENTITIES, msgspec.json.decode(document[key]))
    return items


def _is_notification(document: dict[str, msgspec.Raw]) -> bool:
    raw = document.get("type")
    return raw is not None and bytes(raw) == b'"Notification"'


def _paths(header: str | None, count: int) -> Callable[[int], str | None]:
    """Return a function from an entity's index to its service path: the header names one for all, or one for each."""
    if not header:
        return lambda _: None
    paths = [path.strip() for path in header.split(",")]
    if len(paths) == 1:
        return lambda _: paths[0]
    if len(paths) != count:
        raise InvalidInputError(
            f"Fiware-ServicePath: expected 1 or {count} paths, got {len(paths)}; "
            "it does not match the number of notified context responses"
        )
    return paths.__getitem__


def _entity(version: NgsiVersion, index: int, raw: msgspec.Raw, path: str | None, shape: Shape | None) -> Entity:
    document = object_members("contextElement" if version is NgsiVersion.V1 else "entity", raw)
    identifier = optional_text("id", document)
    if not identifier:
        raise InvalidInputError("id: expected a value, got none")
    if version is NgsiVersion.V1:
        shape, attributes = Shape.NORMALIZED, read_legacy_attributes(document.get("attributes"))
    else:
        is_linked = version is NgsiVersion.LD
        shape = shape or shape_of(document, is_linked=is_linked)
        attributes = read_attributes(document, shape, is_linked=is_linked)
    return Entity(
        index=index,
        id=identifier,
        type=_type(document, is_linked=version is NgsiVersion.LD),
        path=path,
        attributes=attributes,
        shape=shape,
    )


def _type(document: dict[str, msgspec.Raw], *, is_linked: bool) -> str:
    """Return the entity's type; NGSI-LD may give several, which are one text with commas."""
    raw = document.get("type")
    if is_linked and raw is not None and bytes(raw).lstrip().startswith(b"["):
        try:
            return ",".join(msgspec.json.decode(raw, type=list[str]))
        except msgspec.ValidationError:
            raise wrong("type", "text or an array of texts", msgspec.json.decode(raw)) from None
    return optional_text("type", document) or ""
