"""Which requests are notifications, by their heads: what the brokers' listeners check, and the status for the rest.

The checks follow the FIWARE listeners where these agree, with a precise status where they answer 500 or nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from email.message import Message

KEPT_HEADERS = (
    "fiware-service",
    "fiware-servicepath",
    "fiware-correlator",
    "ngsild-tenant",
    "ngsiv2-attrsformat",
    "ngsild-attribute-format",
    "link",
)
"""Headers that say something of a notification and are kept beside it. None of them is a secret."""
_MEDIA_TYPES = ("application/json", "application/ld+json")
_SERVICE_CHARACTERS_MAX = 50
_LEVELS_MAX = 10
_LEVEL_CHARACTERS_MAX = 50


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request is no notification: a status of HTTP, a word for counters, a text for people."""

    status: int
    code: str
    message: str


def refusal_of_type(content_type: str | None, *, strict: bool) -> Refusal | None:
    """Return why a Content-Type is not taken, None when it is."""
    if not content_type:
        return Refusal(415, "content-type", f"Content-Type: expected {' or '.join(_MEDIA_TYPES)}, got none")
    parsed = Message()
    parsed["Content-Type"] = content_type
    charset = parsed.get_param("charset")
    if parsed.get_content_type() not in _MEDIA_TYPES or "/" not in content_type:
        return Refusal(415, "content-type", f"Content-Type: expected {' or '.join(_MEDIA_TYPES)}, got {content_type!r}")
    if charset is None and not strict:
        return None
    if str(charset).lower() not in ("utf-8", "utf8"):
        return Refusal(415, "charset", f"Content-Type: expected the charset utf-8, got {content_type!r}")
    return None


def refusal_of_head(headers: Mapping[str, str], *, key_values: bool) -> Refusal | None:
    """Return why a request's headers make no notification, None when they may."""
    for name in ("fiware-service", "ngsild-tenant"):
        if len(headers.get(name, "")) > _SERVICE_CHARACTERS_MAX:
            return Refusal(400, "service", f"{name}: expected at most {_SERVICE_CHARACTERS_MAX} characters")
    for path in headers.get("fiware-servicepath", "").split(","):
        if path.strip() and not _is_service_path(path.strip()):
            return Refusal(
                400,
                "service-path",
                f"Fiware-ServicePath: expected / and at most {_LEVELS_MAX} levels of at most "
                f"{_LEVEL_CHARACTERS_MAX} characters, got {path.strip()[:80]!r}",
            )
    return None if key_values else _refusal_of_format(headers)


def _is_service_path(path: str) -> bool:
    levels = path.removeprefix("/").split("/")
    return (
        path.startswith("/")
        and len(levels) <= _LEVELS_MAX
        and all(len(level) <= _LEVEL_CHARACTERS_MAX for level in levels)
        and (path == "/" or all(levels))
    )


def _refusal_of_format(headers: Mapping[str, str]) -> Refusal | None:
    version_2 = headers.get("ngsiv2-attrsformat", "").strip()
    if version_2 and version_2.lower() != "legacy" and "normalized" not in version_2.lower():
        return _untyped("Ngsiv2-AttrsFormat", version_2)
    linked = headers.get("ngsild-attribute-format", "").strip()
    return _untyped("Ngsild-Attribute-Format", linked) if linked.lower() == "simplified" else None


def _untyped(name: str, value: str) -> Refusal:
    return Refusal(
        400, "format", f"{name}: expected a format with types, got {value[:40]!r}. receiver.key_values takes others"
    )
