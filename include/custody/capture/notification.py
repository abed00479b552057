"""What a context broker says: NGSIv2, NGSI-LD and NGSIv1 notifications as one frozen value, every value as written.

A notification holds entities, an entity attributes, an attribute a value and metadata. NGSI-LD's sub-attributes are
metadata here; those of a sub-attribute get both names, `reliability.observedAt`, so that nothing is lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

import msgspec

from custody.capture.exact import elements, members, optional_text
from custody.capture.ngsi_attributes import Attribute, Shape, read_attributes, read_legacy_attributes, shape_of
from custody.capture.times import parse_iso
from custody.capture.values import wrong
from custody.errors import InvalidInputError

_ENTITIES = "an array of objects"
_NOTHING_KNOWN = "data: expected a notification with data, contextResponses or an entity, got none of them"


class Version(StrEnum):
    """The language of a notification."""

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
class Broken:
    """An entity that cannot be read, and why."""

    index: int
    reason: str


@dataclass(frozen=True, slots=True)
class Notification:
    """A notification; names of headers are in lower case, times in ms since the epoch."""

    version: Version
    id: str | None
    """Of the notification itself, which only NGSI-LD has."""
    subscription: str | None
    service: str | None
    """Fiware-Service, else NGSILD-Tenant; None where the headers name none."""
    correlator: str | None
    notified_ms: int | None
    headers: Mapping[str, str]
    entities: tuple[Entity, ...]
    broken: tuple[Broken, ...]
    body_bytes: int

    @property
    def size(self) -> int:
        """How many entities it has, the broken ones counted."""
        return len(self.entities) + len(self.broken)

    def only(self, index: int) -> Notification:
        """Return the notification with one of its entities.

        Raises:
            InvalidInputError: it has no such entity, or that one cannot be read.
        """
        found = tuple(entity for entity in self.entities if entity.index == index)
        if not found:
            raise InvalidInputError(f"entity {index}: expected one of {self.size} entities that can be read")
        return replace(self, entities=found, broken=())


def read_notification(
    body: bytes, headers: Mapping[str, str], *, assumed: Version = Version.V2, shape: Shape | None = None
) -> Notification:
    """Return what a body says; an entity that cannot be read is among the broken ones.

    `assumed` is the language of a bare entity, which does not show it. Without a `shape` each entity shows its own.

    Raises:
        InvalidInputError: it is no notification, or its headers do not fit its entities; the message names the key.
        msgspec.DecodeError, UnicodeDecodeError, RecursionError: it is no JSON.
    """
    body.decode()  # parts that are not decoded here are not checked either
    document = members("body", msgspec.Raw(body))
    version, found = _entities(document, assumed)
    headers = {name.lower(): value for name, value in headers.items()}
    paths = _paths(headers.get("fiware-servicepath"), len(found))
    entities: list[Entity] = []
    broken: list[Broken] = []
    for index, raw in enumerate(found):
        try:
            entities.append(_entity(version, index, raw, paths[index], shape))
        except InvalidInputError as error:
            broken.append(Broken(index, str(error)))
    notified = optional_text("notifiedAt", document)
    return Notification(
        version=version,
        id=optional_text("id", document) if version is Version.LD and "data" in document else None,
        subscription=optional_text("subscriptionId", document),
        service=headers.get("fiware-service") or headers.get("ngsild-tenant") or None,
        correlator=headers.get("fiware-correlator") or None,
        notified_ms=None if notified is None else parse_iso("notifiedAt", notified),
        headers=headers,
        entities=tuple(entities),
        broken=tuple(broken),
        body_bytes=len(body),
    )


def _entities(document: dict[str, msgspec.Raw], assumed: Version) -> tuple[Version, list[msgspec.Raw]]:
    if "contextResponses" in document:
        responses = (members("contextResponses", item) for item in _objects("contextResponses", document))
        return Version.V1, [response.get("contextElement", msgspec.Raw(b"null")) for response in responses]
    if "data" in document:
        is_linked = "notifiedAt" in document or _is_notification(document)
        return (Version.LD if is_linked else Version.V2), _objects("data", document)
    if "id" in document:
        return assumed, [msgspec.Raw(msgspec.json.encode(document))]  # simplifiedNormalized, simplifiedKeyValues
    raise InvalidInputError(_NOTHING_KNOWN)


def _objects(key: str, document: dict[str, msgspec.Raw]) -> list[msgspec.Raw]:
    items = elements(key, _ENTITIES, document[key])
    if not all(bytes(item).startswith(b"{") for item in items):
        raise wrong(key, _ENTITIES, msgspec.json.decode(document[key]))
    return items


def _is_notification(document: dict[str, msgspec.Raw]) -> bool:
    raw = document.get("type")
    return raw is not None and bytes(raw) == b'"Notification"'


def _paths(header: str | None, count: int) -> list[str | None]:
    """Return the service path of each entity: the header names one for all, or one for each."""
    if not header:
        return [None] * count
    paths = [path.strip() for path in header.split(",")]
    if len(paths) == 1:
        return [paths[0]] * count
    if len(paths) != count:
        raise InvalidInputError(
            f"Fiware-ServicePath: expected 1 or {count} paths, got {len(paths)}; "
            "it does not match the number of notified context responses"
        )
    return list(paths)


def _entity(version: Version, index: int, raw: msgspec.Raw, path: str | None, shape: Shape | None) -> Entity:
    document = members("contextElement" if version is Version.V1 else "entity", raw)
    identifier = optional_text("id", document)
    if not identifier:
        raise InvalidInputError("id: expected a value, got none")
    if version is Version.V1:
        shape, attributes = Shape.NORMALIZED, read_legacy_attributes(document.get("attributes"))
    else:
        is_linked = version is Version.LD
        shape = shape or shape_of(document, is_linked=is_linked)
        attributes = read_attributes(document, shape, is_linked=is_linked)
    return Entity(
        index=index,
        id=identifier,
        type=_type(document, is_linked=version is Version.LD),
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
