"""What a request is worth: a notification that is taken, or a refusal with its HTTP status and the reason.

A pure function from method, target, headers and body; whoever listens asks it before anything is stored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from custody.capture.judge import NOT_JSON
from custody.capture.ngsi_attributes import Shape
from custody.capture.notification import Notification, Version, read_notification
from custody.config.ngsi import LEVEL_CHARACTERS_MAX, PATH_LEVELS_MAX, SERVICE_CHARACTERS_MAX
from custody.errors import InvalidInputError
from custody.ngsi.parameters import Parameters

_MEDIA_TYPES = ("application/json", "application/ld+json")
_STRICT = re.compile(r"application/json;\s*charset=utf-8", re.IGNORECASE)
_KEY_VALUES = {"keyvalues", "simplifiedkeyvalues"}
_ASKED_FOR = {"normalized": "normalized", "concise": "normalized", "simplified": "keyValues", "keyvalues": "keyValues"}
"""The formats of NGSI-LD, and what they are called in the parameter."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request is not taken, and the answer to it."""

    status: int
    reason: str
    headers: Mapping[str, str] = field(default_factory=dict)


def judge_request(
    method: str, target: str, headers: Mapping[str, str], body: bytes, parameters: Parameters
) -> Notification | Refusal:
    """Return the notification that a request carries, or why it is refused.

    Names of headers may be in any case. What follows a question mark in the target is not looked at: brokers of
    NGSI-LD put the id of the subscription there.
    """
    headers = {name.lower(): value for name, value in headers.items()}
    values = parameters.values
    if method.upper() != "POST":
        return Refusal(405, f"method not supported: expected POST, got {method[:20]}", {"Allow": "POST"})
    path = target.partition("?")[0]
    if path != values.notification_target:
        return Refusal(404, f"target not supported: expected {values.notification_target}, got {path[:80]}")
    media = _media_type(headers.get("content-type", ""), is_strict=values.strict_content_type)
    if media:
        return Refusal(415, media)
    if not body.strip():
        return Refusal(400, "empty body: expected a notification")
    if len(body) > values.notification_bytes_max:
        return Refusal(413, f"body: expected at most {values.notification_bytes_max} bytes, got {len(body)}")
    return _read(headers, body, parameters)


def _media_type(header: str, *, is_strict: bool) -> str:
    if is_strict:
        if _STRICT.fullmatch(header.strip()):
            return ""
        return f"content type not supported: expected application/json; charset=utf-8, got {header[:80] or 'none'}"
    media, *options = (part.strip().lower() for part in header.split(";"))
    charsets = [option.removeprefix("charset=").strip('"') for option in options if option.startswith("charset=")]
    if media in _MEDIA_TYPES and all(charset in ("utf-8", "utf8") for charset in charsets):
        return ""
    expected = " or ".join(_MEDIA_TYPES)
    return f"content type not supported: expected {expected} with charset utf-8 or none, got {header[:80] or 'none'}"


def _read(headers: Mapping[str, str], body: bytes, parameters: Parameters) -> Notification | Refusal:
    values = parameters.values
    problem = _header_problem(headers)
    if problem:
        return Refusal(400, problem)
    said = _said_format(headers)
    if said is not None and said not in values.attrs_formats:
        return _format_refusal(said, parameters)
    shape = None if said is None else Shape.KEY_VALUES if said.lower() in _KEY_VALUES else Shape.NORMALIZED
    assumed = Version.LD if values.ngsi_version == "ld" else Version.V2
    try:
        notification = read_notification(body, headers, assumed=assumed, shape=shape)
    except NOT_JSON as error:
        return Refusal(400, f"body: expected JSON ({error})")
    except InvalidInputError as error:
        return Refusal(400, str(error))
    if notification.broken:
        first = notification.broken[0]
        return Refusal(400, f"entity {first.index}: {first.reason}")
    shown = "legacy" if notification.version is Version.V1 else None
    if any(entity.shape is Shape.KEY_VALUES for entity in notification.entities):
        shown = "keyValues"
    if shown is not None and said is None and shown not in values.attrs_formats:
        return _format_refusal(shown, parameters)
    return notification


def _format_refusal(shown: str, parameters: Parameters) -> Refusal:
    expected = ", ".join(parameters.values.attrs_formats)
    return Refusal(400, f"attribute format {shown[:40]!r}: expected one of {expected} (ngsi.attrs_formats)")


def _said_format(headers: Mapping[str, str]) -> str | None:
    """Return the format that the headers name, as the parameter calls it; None where they name none."""
    linked, said = headers.get("ngsild-attribute-format"), headers.get("ngsiv2-attrsformat")
    if linked:
        return _ASKED_FOR.get(linked.strip().lower(), linked)
    if not said:
        return None
    said = said.strip()
    known = {name.lower(): name for name in ("legacy", "keyValues", "simplifiedNormalized", "simplifiedKeyValues")}
    if found := known.get(said.lower()):
        return found
    return "normalized" if "normalized" in said.lower() else said


def _header_problem(headers: Mapping[str, str]) -> str:
    service = headers.get("fiware-service") or headers.get("ngsild-tenant") or ""
    if len(service) > SERVICE_CHARACTERS_MAX:
        return f"Fiware-Service: expected at most {SERVICE_CHARACTERS_MAX} characters, got {len(service)}"
    for path in map(str.strip, (headers.get("fiware-servicepath") or "/").split(",")):
        if problem := _path_problem(path):
            return f"Fiware-ServicePath: expected {problem}, got {path[:80]!r}"
    return ""


def _path_problem(path: str) -> str:
    if not path.startswith("/"):
        return "a path that begins with /"
    if path == "/":
        return ""
    levels = path[1:].split("/")
    if len(levels) > PATH_LEVELS_MAX:
        return f"at most {PATH_LEVELS_MAX} levels"
    if not all(1 <= len(level) <= LEVEL_CHARACTERS_MAX for level in levels):
        return f"levels of 1 to {LEVEL_CHARACTERS_MAX} characters"
    return ""
