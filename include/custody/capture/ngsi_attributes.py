"""The attributes of an entity in their four notations: NGSIv1, NGSIv2, NGSI-LD, and values alone.

Every value stays as it was written. Sub-attributes of NGSI-LD become metadata.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from custody.capture.raw_json import (
    JSON_NULL,
    JsonKind,
    RawJson,
    array_elements,
    object_members,
    optional_text,
    to_raw_json,
)
from custody.errors import InvalidInputError

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


@dataclass(frozen=True, slots=True)
class Metadatum:
    """One piece of metadata of an attribute."""

    name: str
    type: str
    value: RawJson


@dataclass(frozen=True, slots=True)
class Attribute:
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
    value = to_raw_json(raw)
    if is_linked and name in _PLAIN:
        yield Attribute(name, _PLAIN[name], value)
    elif is_linked and shape is Shape.NORMALIZED:
        many = value.kind is JsonKind.ARRAY  # instances that their datasetId tells apart
        for item in array_elements(name, "an array", raw) if many else [raw]:
            yield _linked(name, item)
    elif shape is Shape.NORMALIZED:
        yield _version_2(name, raw)
    else:
        yield Attribute(name, _DEFAULT_TYPES[value.kind], value)


def _version_2(name: str, raw: msgspec.Raw) -> Attribute:
    document = object_members(name, raw)
    metadata = document.get("metadata")
    parts = {} if metadata is None or bytes(metadata) == b"null" else object_members(f"{name}.metadata", metadata)
    return Attribute(
        name,
        _text(name, "type", document),
        _value(document),
        tuple(_metadatum(f"{name}.metadata.{key}", key, item) for key, item in parts.items()),
    )


def _metadatum(place: str, name: str, raw: msgspec.Raw) -> Metadatum:
    document = object_members(place, raw)
    return Metadatum(name, _text(place, "type", document), _value(document))


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
    for item in array_elements(name, "an array", raw) if bytes(raw).lstrip().startswith(b"[") else [raw]:
        attribute = _linked(name, item)
        yield Metadatum(name, attribute.type, attribute.value)
        for inner in attribute.metadata:
            yield Metadatum(f"{name}.{inner.name}", inner.type, inner.value)


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
            metadata.append(Metadatum(_name(inner, content), _text(inner, "type", content), _value(content)))
        attributes.append(
            Attribute(_name(place, document), _text(place, "type", document), _value(document), tuple(metadata))
        )
    return tuple(attributes)


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
