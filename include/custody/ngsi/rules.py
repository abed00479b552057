"""Rules that choose names: grouping rules and name mappings, as Cygnus has them, with Java's regular expressions.

Only names of folders and files change by grouping. Mappings change names of folders and files, and the names and
types of attributes in the data; ids, types and paths in the data stay as they were notified.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

_FIELDS = ("entityId", "entityType", "servicePath")
_BACK_REFERENCE = re.compile(r"\$(\d)")
_Object = Mapping[str, object]


class Names(msgspec.Struct, frozen=True, gc=False):
    """The names that a destination is made from."""

    service: str
    path: str
    entity_id: str
    entity_type: str
    destination: str | None = None
    """The one that a grouping rule chose; it stands alone, without the type."""


@dataclass(frozen=True, slots=True)
class _GroupingRule:
    fields: tuple[str, ...]
    pattern: re.Pattern[str]
    destination: str
    path: str

    def matches(self, names: Names) -> bool:
        values = {"entityId": names.entity_id, "entityType": names.entity_type, "servicePath": names.path}
        return self.pattern.fullmatch("".join(values[name] for name in self.fields)) is not None


@dataclass(frozen=True, slots=True)
class GroupingRules:
    """The rules in their order; `discarded` says which ones cannot be used, and why."""

    rules: tuple[_GroupingRule, ...] = ()
    discarded: tuple[str, ...] = ()

    @classmethod
    def read(cls, document: _Object) -> GroupingRules:
        """Return the rules of a document `{"grouping_rules": […]}`; a rule that lacks something is discarded.

        Raises:
            ValueError: the document has another structure, or a regular expression cannot be read.
        """
        rules: list[_GroupingRule] = []
        discarded: list[str] = []
        for number, item in enumerate(_objects(document, "grouping_rules"), 1):
            reason = _lack(item)
            if reason:
                discarded.append(f"rule {item.get('id', number)}: {reason}")
            else:
                rules.append(
                    _GroupingRule(
                        fields=tuple(map(str, _sequence(item["fields"]))),
                        pattern=_pattern(f"grouping_rules[{number - 1}].regex", str(item["regex"])),
                        destination=str(item["destination"]),
                        path=str(item["fiware_service_path"]),
                    )
                )
        return cls(tuple(rules), tuple(discarded))

    def apply(self, names: Names) -> Names | None:
        """Return the names that the first rule gives whose expression matches the whole text; None if none does."""
        for rule in self.rules:
            if rule.matches(names):
                return msgspec.structs.replace(names, path=rule.path, destination=rule.destination)
        return None


def _lack(item: _Object) -> str:
    fields = _sequence(item.get("fields"))
    if not fields or not all(name in _FIELDS for name in fields):
        return f"fields: expected some of {', '.join(_FIELDS)}"
    for key in ("regex", "destination", "fiware_service_path"):
        if not isinstance(item.get(key), str) or not item[key]:
            return f"{key}: expected text"
    if not str(item["fiware_service_path"]).startswith("/"):
        return "fiware_service_path: expected a path that begins with /"
    return ""


@dataclass(frozen=True, slots=True)
class _AttributeMapping:
    name: re.Pattern[str]
    type: re.Pattern[str]
    new_name: str | None
    new_type: str | None


@dataclass(frozen=True, slots=True)
class _EntityMapping:
    id: re.Pattern[str]
    type: re.Pattern[str]
    new_id: str | None
    new_type: str | None
    attributes: tuple[_AttributeMapping, ...]


@dataclass(frozen=True, slots=True)
class _PathMapping:
    path: re.Pattern[str]
    new_path: str | None
    entities: tuple[_EntityMapping, ...]


@dataclass(frozen=True, slots=True)
class _ServiceMapping:
    service: re.Pattern[str]
    new_service: str | None
    paths: tuple[_PathMapping, ...]


class Mapped(msgspec.Struct, frozen=True, gc=False):
    """The names of an entity after mapping, and the mappings of its attributes."""

    names: Names
    attributes: tuple[_AttributeMapping, ...] = ()

    def attribute(self, name: str, type: str) -> tuple[str, str]:
        """Return the name and the type that an attribute gets; they take no back-references."""
        for mapping in self.attributes:
            if mapping.name.fullmatch(name) and mapping.type.fullmatch(type):
                return mapping.new_name or name, mapping.new_type or type
        return name, type


@dataclass(frozen=True, slots=True)
class NameMappings:
    """Mappings of services, in them of paths, in them of entities, in them of attributes; the first match counts."""

    services: tuple[_ServiceMapping, ...] = ()

    @classmethod
    def read(cls, document: _Object) -> NameMappings:
        """Return the mappings of a document `{"serviceMappings": […]}`.

        Raises:
            ValueError: the document has another structure, or a regular expression cannot be read.
        """
        return cls(
            tuple(
                _ServiceMapping(
                    _original(item, "originalService"),
                    _new(item, "newService"),
                    tuple(map(_path_mapping, _objects(item, "servicePathMappings"))),
                )
                for item in _objects(document, "serviceMappings")
            )
        )

    def apply(self, names: Names) -> Mapped:
        """Return the names of an entity after mapping; service, path and id take back-references such as $1."""
        for service in self.services:
            if match := service.service.fullmatch(names.service):
                names = msgspec.structs.replace(names, service=_expand(service.new_service, match))
                return _map_path(service, names)
        return Mapped(names)


def _map_path(service: _ServiceMapping, names: Names) -> Mapped:
    for path in service.paths:
        # The first match counts, whether or not something in it matches further down: no later mapping is tried.
        if match := path.path.fullmatch(names.path):
            return _map_entity(path, msgspec.structs.replace(names, path=_expand(path.new_path, match)))
    return Mapped(names)


def _map_entity(path: _PathMapping, names: Names) -> Mapped:
    for entity in path.entities:
        match = entity.id.fullmatch(names.entity_id)
        if match and entity.type.fullmatch(names.entity_type):
            new_id, new_type = _expand(entity.new_id, match), entity.new_type or names.entity_type
            return Mapped(msgspec.structs.replace(names, entity_id=new_id, entity_type=new_type), entity.attributes)
    return Mapped(names)


def _path_mapping(item: _Object) -> _PathMapping:
    return _PathMapping(
        _original(item, "originalServicePath"),
        _new(item, "newServicePath"),
        tuple(map(_entity_mapping, _objects(item, "entityMappings"))),
    )


def _entity_mapping(item: _Object) -> _EntityMapping:
    return _EntityMapping(
        _original(item, "originalEntityId"),
        _original(item, "originalEntityType"),
        _new(item, "newEntityId"),
        _new(item, "newEntityType"),
        tuple(
            _AttributeMapping(
                _original(inner, "originalAttributeName"),
                _original(inner, "originalAttributeType"),
                _new(inner, "newAttributeName"),
                _new(inner, "newAttributeType"),
            )
            for inner in _objects(item, "attributeMappings")
        ),
    )


def _original(item: _Object, key: str) -> re.Pattern[str]:
    value = item.get(key)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{key}: expected text, got {value!r}")
    return _pattern(key, value or "^(.*)")


def _new(item: _Object, key: str) -> str | None:
    value = item.get(key)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{key}: expected text, got {value!r}")
    return value or None


def _expand(new: str | None, match: re.Match[str]) -> str:
    """Return the new name with its back-references; one that names no group stays as it is."""
    if new is None:
        return match.string
    return _BACK_REFERENCE.sub(
        lambda mark: (match[int(mark[1])] or "") if int(mark[1]) <= match.re.groups else mark[0], new
    )


def _pattern(place: str, text: str) -> re.Pattern[str]:
    try:
        return re.compile(text, re.ASCII)  # Java's \d and \w know ASCII only
    except re.error as error:
        raise ValueError(f"{place}: expected a regular expression, got {text!r} ({error})") from error


def _objects(document: _Object, key: str) -> Iterator[_Object]:
    items = document.get(key) or []
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise ValueError(f"{key}: expected an array of objects")
    yield from items


def _sequence(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else ()
