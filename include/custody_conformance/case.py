"""Cases as JSON objects, and files of cases: an array, or `{"defaults": {…}, "cases": […]}`.

`body` is kept as it is written, so that numbers keep their digits; `body_raw` is text that need not be JSON. Unknown
members describe the case for people and are ignored, unless their name is almost a known one.
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from custody.errors import InvalidInputError

EXPECT = "expect"
_BLANK = msgspec.Raw(b"null")
_ALIKE = 0.8
"""How similar a name is to the known one that was mistyped; 1 is equal."""
_MERGED = ("config", "clock", "request", "headers")


class Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The request of a notification: its method and path."""

    method: str = "POST"
    path: str = "/notify"


class Clock(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The time of arrival; `timestamp` is one that the event itself carries."""

    recv_time_ms: int = 0
    timestamp: str | None = None


class Sent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One of several notifications of a case."""

    body: msgspec.Raw = _BLANK
    body_raw: str | None = None
    at_ms: int | None = None
    headers: dict[str, str] = {}


class Case(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Notifications with a configuration, and what is expected of them."""

    id: str
    expect: dict[str, Any]
    title: str = ""
    category: str = ""
    config: dict[str, Any] = {}
    clock: Clock = Clock()
    request: Request = Request()
    headers: dict[str, str] = {}
    body: msgspec.Raw = _BLANK
    body_raw: str | None = None
    events: tuple[Sent, ...] = ()
    grouping_rules: dict[str, Any] = {}
    name_mappings: dict[str, Any] = {}
    faults: dict[str, str] = {}
    alternates: tuple[dict[str, Any], ...] = ()
    recommend: str = ""
    problem: str = ""
    """Why the case cannot be run; the other cases of its file can."""
    ignored: tuple[str, ...] = ()
    """Members that are not known and say nothing that is run: who wrote them described the case."""

    @property
    def sent(self) -> tuple[Sent, ...]:
        """The notifications in their order."""
        return self.events or (Sent(body=self.body, body_raw=self.body_raw),)

    def expected(self, profile: str) -> dict[str, Any]:
        """Return what a profile expects; nothing where it says nothing. `cygnus-*` means all that begin so."""
        if profile == EXPECT:
            return self.expect
        for item in self.alternates:
            named = str(item.get("profile", ""))
            if any(fnmatchcase(profile, part) for part in (named, *named.split("/"))):
                return item
        return {}

    def bytes_of(self, sent: Sent) -> bytes:
        """Return the body of a notification as it is sent; null is an empty one, a text is sent as it is."""
        if sent.body_raw is not None:
            return sent.body_raw.encode()
        raw = bytes(sent.body)
        if raw == b"null":
            return b""
        return msgspec.json.decode(raw, type=str).encode() if raw.startswith(b'"') else raw


class _File(msgspec.Struct, frozen=True):
    cases: list[msgspec.Raw]
    defaults: dict[str, dict[str, Any]] = {}
    ignored: tuple[str, ...] = ()


_FILE = msgspec.json.Decoder(_File)
_CASE = msgspec.json.Decoder(Case)


_OURS = {"problem", "ignored"}
_KNOWN = {field.name for field in msgspec.structs.fields(Case)} - _OURS
_KNOWN_OF_FILES = {"cases", "defaults"}
_KNOWN_OF_EVENTS = {field.name for field in msgspec.structs.fields(Sent)}


def read_cases(data: bytes, place: str) -> tuple[Case, ...]:
    """Return the cases of a file; `place` names it in messages. One that cannot be read says so in its `problem`.

    Raises:
        InvalidInputError: it holds no cases, or one without an id, or two with one id.
    """
    try:
        is_array = data.lstrip().startswith(b"[")
        file = _File(msgspec.json.decode(data, type=list[msgspec.Raw])) if is_array else _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"{place}: expected an array of cases, or an object with cases ({error})") from error
    unknown = set(file.defaults) - set(_MERGED)
    if unknown:
        raise InvalidInputError(f"{place}: defaults: expected {', '.join(_MERGED)}, got {', '.join(sorted(unknown))}")
    cases = tuple(_cases(file, place))
    ids = [case.id for case in cases]
    twice = sorted({identifier for identifier in ids if ids.count(identifier) > 1})
    if twice:
        raise InvalidInputError(f"{place}: expected each id once, got {', '.join(twice)} again")
    return cases


def _decode(data: bytes) -> _File:
    members = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    ignored = _ignored_members(members, _KNOWN_OF_FILES)
    file = _FILE.decode(msgspec.json.encode(members))
    return msgspec.structs.replace(file, ignored=tuple(f"{name} of the file" for name in ignored))


def _ignored_members(members: dict[str, msgspec.Raw], expected_names: set[str]) -> list[str]:
    """Remove unknown members and return their names.

    Raises:
        msgspec.ValidationError: a name is almost a known one: a mistyped expectation would never be checked.
    """
    unknown = sorted(set(members) - expected_names)
    for name in unknown:
        similar = get_close_matches(name, expected_names, n=1, cutoff=_ALIKE)
        if similar:
            raise msgspec.ValidationError(f"{name}: this member is not known; perhaps {similar[0]} is meant")
        del members[name]
    return unknown


def _ignored_in_events(members: dict[str, msgspec.Raw]) -> list[str]:
    """Do the same for the notifications of a case."""
    if "events" not in members:
        return []
    events = msgspec.json.decode(members["events"], type=list[dict[str, msgspec.Raw]])
    names = {name for event in events for name in _ignored_members(event, _KNOWN_OF_EVENTS)}
    members["events"] = msgspec.Raw(msgspec.json.encode(events))
    return sorted(f"{name} of events" for name in names)


def _cases(file: _File, place: str) -> Iterator[Case]:
    for number, raw in enumerate(file.cases):
        try:
            members = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
            for key, values in file.defaults.items():
                own = msgspec.json.decode(members.get(key, msgspec.Raw(b"{}")), type=dict[str, Any])
                # null takes a default of the file away.
                merged = {name: value for name, value in {**values, **own}.items() if value is not None}
                members[key] = msgspec.Raw(msgspec.json.encode(merged))
            # Read by itself, so that a case that cannot be read otherwise still gets a verdict under its name.
            identifier = msgspec.json.decode(members.get("id", b"null"), type=str)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InvalidInputError(f"{place}: case {number}: expected an object with an id ({error})") from error
        try:
            ignored = (*file.ignored, *_ignored_members(members, _KNOWN), *_ignored_in_events(members))
            case = _CASE.decode(msgspec.json.encode(members))
            yield msgspec.structs.replace(case, ignored=ignored)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            yield Case(id=identifier, expect={"status": 200}, problem=f"the case cannot be read: {error}")
