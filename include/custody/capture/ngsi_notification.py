"""Notifications of context brokers, NGSIv2, NGSI-LD and NGSIv1: one frozen value, and a RECEIVE event for each entity.

An element is the body of a notification, or an object `{"headers": {…}, "body": {…}}` that keeps the HTTP headers
beside it, and may say when and where it arrived (`receivedAt`, `url`). The event says what arrived from where, how
many bytes and with which SHA-256; the values of the entity's attributes are the payload, not the event.

A notification holds entities, an entity attributes, an attribute a value and metadata, in four notations: those of the
three versions, and values alone. Every value stays as it was written. NGSI-LD's sub-attributes become metadata, and so
does every other member that stands beside the value of an attribute or among its metadata, whatever its form; those of
a sub-attribute or a metadatum get both names, `reliability.observedAt`. So nothing is lost.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum

import msgspec

from custody.capture.raw_json import (
    JSON_NULL,
    JsonKind,
    RawJson,
    array_elements,
    check_depth,
    object_members,
    optional_text,
    to_raw_json,
)
from custody.capture.validate import Context
from custody.capture.values import parse_iso, wrong
from custody.errors import InvalidInputError
from custody.format.identifiers import digest_ordinal, uuid_of_name
from custody.model import Event, EventProblem, EventType, Severity

_NOT_ATTRIBUTES = ("id", "type", "@context")
_V2_KEYS = {"type", "value", "metadata"}
_VALUE_KEYS = ("value", "object", "languageMap", "json", "vocab", "valueList", "objectList")
"""The member that holds the value of an attribute in NGSI-LD; which one depends on its type."""
_TYPES = {
    "value": "Property",
    "object": "Relationship",
    "languageMap": "LanguageProperty",
    "json": "JsonProperty",
    "vocab": "VocabProperty",
    "valueList": "ListProperty",
    "objectList": "ListRelationship",
}
_TIMES = ("observedAt", "createdAt", "modifiedAt", "deletedAt", "expiresAt")
_PLAIN = {**dict.fromkeys(_TIMES, "DateTime"), "unitCode": "Text", "datasetId": "Text", "scope": "Text"}
"""Members of NGSI-LD that are values by themselves, never attributes, and the type that they get."""
_NAME_CHARACTERS_MAX = 256
"""Of a metadatum whose own metadata repeat its name; one with a longer name is kept as a whole."""
_DEFAULT_TYPES = {
    JsonKind.NULL: "None",
    JsonKind.BOOLEAN: "Boolean",
    JsonKind.NUMBER: "Number",
    JsonKind.STRING: "Text",
    JsonKind.ARRAY: "StructuredValue",
    JsonKind.OBJECT: "StructuredValue",
}
"""The types that NGSIv2 gives to values that come without one."""


class Shape(StrEnum):
    """Whether attributes come as objects with their types, or as values alone."""

    NORMALIZED = "normalized"
    KEY_VALUES = "keyValues"


class Metadatum(msgspec.Struct, frozen=True, gc=False):
    """One piece of metadata of an attribute."""

    name: str
    type: str
    value: RawJson


class Attribute(msgspec.Struct, frozen=True, gc=False):
    """One attribute of an entity; a missing type is empty, a missing value null."""

    name: str
    type: str
    value: RawJson
    metadata: tuple[Metadatum, ...] = ()


def shape_of(entity: dict[str, msgspec.Raw], *, is_linked: bool) -> Shape:
    """Return the shape that an entity of NGSIv2 or NGSI-LD shows."""
    ignored = {*_NOT_ATTRIBUTES, *(_PLAIN if is_linked else ())}
    values = [raw for name, raw in entity.items() if name not in ignored]
    return Shape.NORMALIZED if all(_is_normalized(raw, is_linked=is_linked) for raw in values) else Shape.KEY_VALUES


def _is_normalized(raw: msgspec.Raw, *, is_linked: bool) -> bool:
    start = bytes(raw).lstrip()[:1]
    if start == b"[":
        items = array_elements("", "", raw)
        return is_linked and bool(items) and all(_is_normalized(item, is_linked=True) for item in items)
    if start != b"{":
        return False
    keys = set(object_members("", raw))
    if is_linked:
        return bool(keys & set(_VALUE_KEYS))
    return bool(keys) and ("value" in keys or keys <= _V2_KEYS)


def read_attributes(entity: dict[str, msgspec.Raw], shape: Shape, *, is_linked: bool) -> tuple[Attribute, ...]:
    """Return the attributes of an entity of NGSIv2 or NGSI-LD in their order.

    Raises:
        InvalidInputError: one cannot be read; the message names it and its part.
    """
    return tuple(
        attribute
        for name, raw in entity.items()
        if name not in _NOT_ATTRIBUTES
        for attribute in _attributes(name, raw, shape, is_linked=is_linked)
    )


def _attributes(name: str, raw: msgspec.Raw, shape: Shape, *, is_linked: bool) -> Iterator[Attribute]:
    if not is_linked and shape is Shape.NORMALIZED:
        yield _version_2(name, raw)
        return
    value = to_raw_json(raw)
    if is_linked and name in _PLAIN:
        yield Attribute(name, _PLAIN[name], value)
    elif shape is Shape.NORMALIZED:
        for item in _instances(name, raw):
            yield _linked(name, item)
    else:
        yield Attribute(name, _DEFAULT_TYPES[value.kind], value)


def _version_2(name: str, raw: msgspec.Raw) -> Attribute:
    document = object_members(name, raw)
    return Attribute(name, _text(name, "type", document), _value(document), tuple(_metadata(document)))


def _metadata(document: dict[str, msgspec.Raw]) -> Iterator[Metadatum]:
    """Yield the metadata of an attribute or a metadatum: in its `metadata`, and what stands beside its value."""
    for part, raw in document.items():
        if part == "metadata":
            yield from _metadata_member(part, raw)
        elif part not in ("type", "value"):
            yield from _metadatum(part, raw)


def _metadata_member(name: str, raw: msgspec.Raw) -> Iterator[Metadatum]:
    """Yield the metadata in a member of that name; one that has a type and a value is itself a metadatum."""
    kind = to_raw_json(raw).kind
    if kind is JsonKind.NULL:
        return
    parts = object_members(name, raw) if kind is JsonKind.OBJECT else {}
    if kind is not JsonKind.OBJECT or ("value" in parts and _type_of(parts)):
        yield from _metadatum(name, raw)
        return
    for key, item in parts.items():
        yield from _metadatum(key, item)


def _metadatum(name: str, raw: msgspec.Raw) -> Iterator[Metadatum]:
    """Yield a metadatum and its own metadata; whatever has another form than that is a value by itself."""
    value = to_raw_json(raw)
    document = object_members(name, raw) if value.kind is JsonKind.OBJECT else {}
    # An empty object is a metadatum that has neither.
    is_one = value.kind is JsonKind.OBJECT and (not document or document.keys() & {"type", "value"})
    kind = _type_of(document) if is_one else None
    if kind is None:
        yield Metadatum(name, _PLAIN.get(name, _DEFAULT_TYPES[value.kind]), value)
        return
    more = list(_metadata(document))
    if more and len(name) > _NAME_CHARACTERS_MAX:
        yield Metadatum(name, _DEFAULT_TYPES[value.kind], value)
        return
    yield Metadatum(name, kind, _value(document))
    yield from _under(name, more)


def _under(name: str, metadata: Sequence[Metadatum]) -> Iterator[Metadatum]:
    """Yield the metadata of a metadatum, each under both names."""
    for inner in metadata:
        yield Metadatum(f"{name}.{inner.name}", inner.type, inner.value)


def _type_of(document: dict[str, msgspec.Raw]) -> str | None:
    """Return the type of a metadatum, empty where it has none; None where it is no text."""
    try:
        return optional_text("type", document) or ""
    except InvalidInputError:
        return None


def _linked(name: str, raw: msgspec.Raw) -> Attribute:
    value = to_raw_json(raw)
    if value.kind is not JsonKind.OBJECT:  # concise: a property without sub-attributes is its value
        return Attribute(name, "Property", value)
    document = object_members(name, raw)
    key = next((key for key in _VALUE_KEYS if key in document), None)
    if key is None and ("coordinates" in document or "type" not in document):
        return Attribute(name, "GeoProperty" if "coordinates" in document else "Property", value)
    kind = _text(name, "type", document) or _TYPES[key or "value"]
    # Concise notation leaves the type out; a geometry shows by its coordinates.
    if key == "value" and "type" not in document and b'"coordinates"' in bytes(document[key]):
        kind = "GeoProperty"
    parts = {part: item for part, item in document.items() if part not in ("type", key, "@context")}
    return Attribute(
        name,
        kind,
        JSON_NULL if key is None else to_raw_json(document[key]),
        tuple(metadatum for part, item in parts.items() for metadatum in _sub_attributes(part, item)),
    )


def _sub_attributes(name: str, raw: msgspec.Raw) -> Iterator[Metadatum]:
    if name in _PLAIN:
        yield Metadatum(name, _PLAIN[name], to_raw_json(raw))
        return
    for item in _instances(name, raw):
        attribute = _linked(name, item)
        if attribute.metadata and len(name) > _NAME_CHARACTERS_MAX:
            yield Metadatum(name, attribute.type, to_raw_json(item))
            continue
        yield Metadatum(name, attribute.type, attribute.value)
        yield from _under(name, attribute.metadata)


def _instances(name: str, raw: msgspec.Raw) -> list[msgspec.Raw]:
    """Return the instances of an attribute, which their datasetId tells apart; an array of values is one value."""
    items = array_elements(name, "an array", raw) if bytes(raw).lstrip().startswith(b"[") else []
    return items if items and all(bytes(item).lstrip().startswith(b"{") for item in items) else [raw]


def read_legacy_attributes(raw: msgspec.Raw | None) -> tuple[Attribute, ...]:
    """Return the attributes of NGSIv1, an array of objects with name, type, value and metadatas.

    Raises:
        InvalidInputError: one cannot be read; the message names it and its part.
    """
    if raw is None or bytes(raw) == b"null":
        return ()
    attributes = []
    for index, item in enumerate(array_elements("attributes", "an array of objects", raw)):
        place = f"attributes[{index}]"
        document = object_members(place, item)
        metadatas = document.get("metadatas")
        parts = [] if metadatas is None else array_elements(f"{place}.metadatas", "an array of objects", metadatas)
        metadata = []
        for number, part in enumerate(parts):
            inner = f"{place}.metadatas[{number}]"
            content = object_members(inner, part)
            name = _name(inner, content)
            metadata.append(Metadatum(name, _text(inner, "type", content), _value(content)))
            more = _beside(content, ("name", "type", "value"))
            if more and len(name) > _NAME_CHARACTERS_MAX:
                metadata[-1] = Metadatum(name, _DEFAULT_TYPES[JsonKind.OBJECT], to_raw_json(part))
            else:
                metadata += _under(name, more)
        metadata += _beside(document, ("name", "type", "value", "metadatas"))
        attributes.append(
            Attribute(_name(place, document), _text(place, "type", document), _value(document), tuple(metadata))
        )
    return tuple(attributes)


def _beside(document: dict[str, msgspec.Raw], known: Sequence[str]) -> list[Metadatum]:
    """Return what NGSIv1 does not know of an attribute or a metadatum, as metadata."""
    others = ((part, raw) for part, raw in document.items() if part not in known)
    return [item for part, raw in others for item in _metadatum(part, raw)]


def _value(document: dict[str, msgspec.Raw]) -> RawJson:
    raw = document.get("value")
    return JSON_NULL if raw is None else to_raw_json(raw)


def _name(place: str, document: dict[str, msgspec.Raw]) -> str:
    name = _text(place, "name", document)
    if not name:
        raise InvalidInputError(f"{place}.name: expected a value, got none")
    return name


def _text(place: str, key: str, document: dict[str, msgspec.Raw]) -> str:
    try:
        return optional_text(key, document) or ""
    except InvalidInputError as error:
        raise InvalidInputError(f"{place}.{error}") from error


SHARED_CHARACTERS_MAX = 512
"""Longest id of a subscription or notification; NGSI-LD names them by URIs."""
_ENTITIES = "an array of objects"
_BARE_VALUES = (
    "these are values alone (attrsFormat values): ids, types and names are in the subscription only, so nobody can "
    "tell whose they are. Set the subscription's attrsFormat to normalized"
)
_NOTHING_KNOWN = "data: expected a notification with data, contextResponses or an entity, got none of them"


class NgsiVersion(StrEnum):
    """The version of NGSI that a notification speaks."""

    V1 = "ngsi-v1"
    V2 = "ngsi-v2"
    LD = "ngsi-ld"


class Entity(msgspec.Struct, frozen=True, gc=False):
    """One entity of a notification; `type` is empty where there is none, `path` None where no header names it."""

    index: int
    id: str
    type: str
    path: str | None
    attributes: tuple[Attribute, ...]
    shape: Shape


class BrokenEntity(msgspec.Struct, frozen=True, gc=False):
    """An entity that cannot be read, and why."""

    index: int
    reason: str


class Notification(msgspec.Struct, frozen=True, gc=False):
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


class OpenedNotification(msgspec.Struct, frozen=True, gc=False):
    """A notification whose entities are still text, so that one of many is read without the others."""

    version: NgsiVersion
    document: Mapping[str, msgspec.Raw]
    entities: Sequence[msgspec.Raw]
    body_bytes: int
    is_geojson: bool = False
    """Whether its entities are features of GeoJSON."""

    def read(
        self,
        headers: Mapping[str, str],
        *,
        shape: Shape | None = None,
        only: int | None = None,
        without_values: bool = False,
    ) -> Notification:
        """Return the notification, decoded; an entity that cannot be read is among the broken ones.

        Without a `shape`, each entity shows its own. With `only`, it is read as if it had this one entity. With
        `without_values`, attributes are checked, and left out where that is all that was asked.

        Raises:
            InvalidInputError: the headers do not fit the entities, a member is of another type, or there is no entity
                `only`; the message names the key.
        """
        headers = {name.lower(): value for name, value in headers.items()}
        path_of = service_paths(headers.get("fiware-servicepath"), len(self.entities))
        if only is not None and not 0 <= only < len(self.entities):
            raise InvalidInputError(f"entity {only}: expected one of {len(self.entities)}")
        is_plain = without_values and self.version is NgsiVersion.V2 and shape is None
        entities: list[Entity] = []
        broken: list[BrokenEntity] = []
        for index in range(len(self.entities)) if only is None else (only,):
            try:
                raw = self.entities[index]
                named = _checked_entity(raw) if is_plain else None
                if named is not None:
                    entities.append(Entity(index, *named, path_of(index), (), Shape.NORMALIZED))
                    continue
                entity = _of_feature(raw) if self.is_geojson else raw
                entities.append(_entity(self.version, index, entity, path_of(index), shape))
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
    features = _features(document)
    if features is not None:
        return OpenedNotification(NgsiVersion.LD, document, features, len(body), is_geojson=True)
    version, entities = _entities(document, assumed)
    return OpenedNotification(version, document, entities, len(body))


def read_notification(
    body: bytes,
    headers: Mapping[str, str],
    *,
    assumed: NgsiVersion = NgsiVersion.V2,
    shape: Shape | None = None,
    without_values: bool = False,
) -> Notification:
    """Return the whole notification of a body and its headers, checked as input from outside; else as `read`.

    Raises:
        InvalidInputError: as `open_notification` and `read`, or it is nested too deep, or an id is too long.
        msgspec.DecodeError, UnicodeDecodeError, RecursionError: it is no JSON.
    """
    # Before anything is decoded: a decoder needs a stack as deep as its input.
    check_depth(body)
    notification = open_notification(body, assumed=assumed).read(headers, shape=shape, without_values=without_values)
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


def _features(document: dict[str, msgspec.Raw]) -> list[msgspec.Raw] | None:
    """Return the features of a notification in GeoJSON, None of any other one."""
    if not bytes(document.get("data", b"")).lstrip().startswith(b"{"):
        return None
    collection = object_members("data", document["data"])
    if bytes(collection.get("type", b"")) == b'"Feature"':
        return [document["data"]]
    if bytes(collection.get("type", b"")) != b'"FeatureCollection"' or "features" not in collection:
        return None
    return array_elements("data.features", "an array of features", collection["features"])


def _of_feature(raw: msgspec.Raw) -> msgspec.Raw:
    """Return the entity of a feature: its properties, under its id.

    The geometry repeats the value of one of them, and adds nothing.

    Raises:
        InvalidInputError: it is no feature with properties, or its geometry belongs to none of them.
    """
    feature = object_members("feature", raw)
    if bytes(feature.get("type", b"")) != b'"Feature"' or "properties" not in feature:
        raise InvalidInputError("feature: expected one of GeoJSON with id, type and properties, got something else")
    properties = object_members("properties", feature["properties"])
    if "id" in properties:
        raise InvalidInputError("properties.id: expected the id in the feature alone, got a second one")
    geometry = feature.get("geometry", msgspec.Raw(b"null"))
    if bytes(geometry) != b"null" and msgspec.json.decode(geometry) not in _values_of(properties):
        raise InvalidInputError(
            "geometry: expected the value of one of the properties, got another one; nothing says whose it is"
        )
    return msgspec.Raw(msgspec.json.encode({"id": feature.get("id", msgspec.Raw(b"null")), **properties}))


def _values_of(properties: Mapping[str, msgspec.Raw]) -> list[object]:
    """Return the values of the attributes of a feature, normalized or not, each instance by itself."""
    values: list[object] = []
    for raw in properties.values():
        attribute = msgspec.json.decode(raw)
        instances = attribute if isinstance(attribute, list) else [attribute]
        values += [item["value"] if isinstance(item, dict) and "value" in item else item for item in instances]
    return values


def _objects(key: str, document: dict[str, msgspec.Raw]) -> list[msgspec.Raw]:
    items = array_elements(key, _ENTITIES, document[key])
    if not all(bytes(item).startswith(b"{") for item in items):
        error = wrong(key, _ENTITIES, msgspec.json.decode(document[key]))
        if key == "data" and all(bytes(item).startswith(b"[") for item in items):
            raise InvalidInputError(f"{error}; {_BARE_VALUES}")
        raise error
    return items


def _is_notification(document: dict[str, msgspec.Raw]) -> bool:
    raw = document.get("type")
    return raw is not None and bytes(raw) == b'"Notification"'


def service_paths(header: str | None, count: int) -> Callable[[int], str | None]:
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


class _CheckedMetadatum(msgspec.Struct, gc=False):
    type: str | None = None


class CheckedAttribute(msgspec.Struct, gc=False):
    """An attribute of NGSIv2 that is in order, without what an event does not need."""

    value: msgspec.Raw
    type: str | None = None
    metadata: dict[str, _CheckedMetadatum] | None = None


CheckedEntity = dict[str, CheckedAttribute | str]
"""The members of an entity of NGSIv2; `whole_entity` says whether they are those of one in order."""
_CHECKED = msgspec.json.Decoder(CheckedEntity)


def _checked_entity(raw: msgspec.Raw) -> tuple[str, str] | None:
    """Return id and type of an entity of NGSIv2 whose attributes are normalized and in order, in one look.

    None of any other one, which has to be looked at part by part.
    """
    try:
        document = _CHECKED.decode(raw)
    except msgspec.ValidationError:
        return None
    return whole_entity(document)


def whole_entity(document: CheckedEntity) -> tuple[str, str] | None:
    """Return id and type of an entity of NGSIv2 whose attributes are normalized and in order; None of any other one."""
    identifier, kind = document.pop("id", None), document.pop("type", "")
    document.pop("@context", None)
    # Each value is a text or an attribute, whose class is exact.
    if type(identifier) is not str or not identifier or type(kind) is not str or str in map(type, document.values()):
        return None
    return identifier, kind


def _type(document: dict[str, msgspec.Raw], *, is_linked: bool) -> str:
    """Return the entity's type; NGSI-LD may give several, which are one text with commas."""
    raw = document.get("type")
    if is_linked and raw is not None and bytes(raw).lstrip().startswith(b"["):
        try:
            return ",".join(msgspec.json.decode(raw, type=list[str]))
        except msgspec.ValidationError:
            raise wrong("type", "text or an array of texts", msgspec.json.decode(raw)) from None
    return optional_text("type", document) or ""


SOURCE_FORMAT = "ngsi"
KEYS = frozenset(["subscriptionId", "data", "contextResponses", "originator", "notifiedAt", "headers", "body"])
"""Keys that tell this format from others; a bare entity has `id` and `type`."""
VERSION, SHAPE = "ngsi.version", "ngsi.format"
SERVICE, SERVICE_PATH = "ngsi.service", "ngsi.service_path"
ENTITY_ID, ENTITY_TYPE = "ngsi.entity.id", "ngsi.entity.type"
ENTITY_INDEX, CORRELATOR = "ngsi.entity.index", "ngsi.correlator"
DIGEST, TIME_SOURCE, SUBSCRIPTION = "ngsi.payload.sha256", "ngsi.time", "ngsi.subscription_id"
FROM_ENVELOPE, FROM_ARRIVAL = "envelope", "arrival"
UNNAMED = "ngsi.unnamed"
"""Attributes of an event from which, with the body, the entity can be read again. `ngsi.unnamed` says which of service
and path no header named, so that they are defaults."""
COMPONENT = PLATFORM = IDENTITY = "ngsi"
"""The component of events without a subscription, the platform of all, and the kind of names that they are known by."""
DEFAULT_SERVICE = "default"
DEFAULT_PATH = "/"


class _Envelope(msgspec.Struct):
    body: msgspec.Raw
    headers: dict[str, str] = {}
    received_at: str | int | None = msgspec.field(default=None, name="receivedAt")
    url: str | None = None


_ENVELOPE = msgspec.json.Decoder(_Envelope)


class ArrivedNotification(msgspec.Struct, frozen=True, gc=False):
    """A notification, with what is known of its arrival."""

    body: bytes
    """The body as it was sent, without blanks around it."""
    notification: Notification
    received: int | None = None
    """Time of arrival in ms since the epoch, if the envelope has it."""
    url: str | None = None
    """The URL that it was posted to."""


def read_element(raw: bytes, context: Context) -> Sequence[Event | EventProblem]:
    """Return an event for each entity of a notification, and a problem for each entity that cannot be read.

    Raises:
        InvalidInputError: it is no notification, or its headers do not fit its entities.
    """
    return arrived_events(_arrived(raw), context)


def arrived_events(arrived: ArrivedNotification, context: Context) -> Sequence[Event | EventProblem]:
    """Return an event for each entity of a notification, and a problem for each entity that cannot be read."""
    notification = arrived.notification
    outcomes: dict[int, Event | EventProblem] = {
        broken.index: EventProblem(Severity.ERROR, "bad-value", f"entity {broken.index}: {broken.reason}")
        for broken in notification.broken
    }
    digest = hashlib.sha256(arrived.body).hexdigest()
    outcomes |= {entity.index: _event(arrived, entity, digest, context) for entity in notification.entities}
    return [outcomes[index] for index in sorted(outcomes)]


def split_envelope(raw: bytes) -> tuple[bytes, dict[str, str]]:
    """Return the body of an element, and the headers of its envelope; raises as `read_element`."""
    envelope = _open_envelope(raw)
    return bytes(envelope.body), {name.lower(): value for name, value in envelope.headers.items()}


def _open_envelope(raw: bytes) -> _Envelope:
    # Only checks the UTF-8: parts that stay raw are checked nowhere else.
    raw.decode()
    envelope = _Envelope(msgspec.Raw(raw))
    document = object_members("body", envelope.body)
    if "body" in document and bytes(document.get("headers", b"")).startswith(b"{"):
        try:
            envelope = _ENVELOPE.decode(raw)
        except msgspec.ValidationError as error:
            raise InvalidInputError(f"envelope: expected headers and body ({error})") from error
    return envelope


def _arrived(raw: bytes) -> ArrivedNotification:
    envelope = _open_envelope(raw)
    received = envelope.received_at
    return ArrivedNotification(
        body=bytes(envelope.body),
        # An event says nothing of the values.
        notification=read_notification(bytes(envelope.body), envelope.headers, without_values=True),
        received=parse_iso("receivedAt", received) if isinstance(received, str) else received,
        url=envelope.url,
    )


def _event(arrived: ArrivedNotification, entity: Entity, digest: str, context: Context) -> Event:
    notification = arrived.notification
    service, path = notification.service or DEFAULT_SERVICE, entity.path or DEFAULT_PATH
    time, time_source = _time(arrived)
    subscription = notification.subscription
    parts = (service, path, subscription, notification.id, notification.correlator)
    identity = identity_of(*parts, entity.index, entity.id, entity.type, digest, time)
    attributes: dict[str, str | None] = {
        VERSION: notification.version.value,
        SHAPE: entity.shape.value,
        SERVICE: service,
        SERVICE_PATH: path,
        ENTITY_ID: entity.id,
        ENTITY_TYPE: entity.type,
        ENTITY_INDEX: str(entity.index),
        DIGEST: digest,
        TIME_SOURCE: time_source,
    }
    unnamed = [name for name, value in ((SERVICE, notification.service), (SERVICE_PATH, entity.path)) if not value]
    if unnamed:
        attributes[UNNAMED] = ",".join(unnamed)
    if subscription is not None:
        attributes[SUBSCRIPTION] = subscription
    if notification.correlator is not None:
        attributes[CORRELATOR] = notification.correlator
    return Event(
        event_type=EventType.RECEIVE,
        event_time=context.received_ms if time is None else time,
        component_id=subscription or COMPONENT,
        component_type=notification.version.value,
        flowfile_uuid=uuid_of_name(IDENTITY, *identity),
        file_size=len(arrived.body),
        transit_uri=arrived.url or source_uri(subscription),
        source_system_flowfile_identifier=notification.id,
        updated_attributes=attributes,
        platform=PLATFORM,
        source_format=SOURCE_FORMAT,
        source_node=context.node or source_node(service),
        source_ordinal=digest_ordinal([IDENTITY, *identity], time),
    )


def identity_of(
    service: str,
    path: str,
    subscription: str | None,
    notification: str | None,
    correlator: str | None,
    index: int,
    entity: str,
    kind: str,
    digest: str,
    time: int | None,
) -> list[str | None]:
    """Return the texts of which the uuid and the ordinal of an event are made; the time is None where it has no own."""
    # Part of the ordinals and uuids that are stored: with another list, a notification read again would count as new. A
    # copy arrives at another time, so that time is left out.
    said = None if time is None else str(time)
    return [service, path, subscription, notification, correlator, str(index), entity, kind, digest, said]


def _time(arrived: ArrivedNotification) -> tuple[int | None, str]:
    """Return the time of a notification and where it comes from; NGSIv2 and NGSIv1 bodies carry none."""
    if arrived.received is not None:
        return arrived.received, FROM_ENVELOPE
    if arrived.notification.notified_ms is not None:
        return arrived.notification.notified_ms, "notifiedAt"
    return None, FROM_ARRIVAL


def source_node(service: str) -> str:
    """Return the source of events of a service."""
    return f"ngsi:{service}"


def source_uri(subscription: str | None) -> str:
    """Return where a notification came from, if nobody says to which URL it was posted."""
    if subscription is not None and ":" in subscription:
        return subscription  # NGSI-LD's are URIs
    return f"ngsi:subscription/{subscription}" if subscription else "ngsi:notification"
