"""FlowFiles as a producer holds them, and the component that works on them: frozen values.

Field names are those of an event. Times are milliseconds since the epoch, UTC; sizes are bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from custody.errors import InvalidInputError
from custody.made_types import made_at_import
from custody.model import INT64_MAX, ContentClaim

UUID = "uuid"
DIGEST_ATTRIBUTE = "content.sha256"
"""The attribute of an event that binds it to its content: the SHA-256 of the content, hexadecimal."""
ALTERNATE_IDENTIFIER = "alternate.identifier"
"""The attribute of a FlowFile that names it as another system does, such as `erp:batch-17`."""
# What one FlowFile does not hand on to another: a child has a name and a content of its own.
_OWN = (UUID, ALTERNATE_IDENTIFIER, "discard.reason", DIGEST_ATTRIBUTE)


class Component(msgspec.Struct, frozen=True, kw_only=True):
    """The reporter of events, such as one task of a DAG or one processor of a flow."""

    id: str
    type: str
    name: str | None = None
    process_group_id: str | None = None
    process_group_name: str | None = None


# Without the garbage collector: it cannot be part of a cycle, and a process may hold many thousands.
class FlowFile(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One piece of data at one moment. A change makes another value with the same uuid."""

    uuid: str
    attributes: dict[str, str] = {}
    size: int = 0
    entry_date: int
    """When it entered the flow."""
    lineage_start_date: int
    """When its oldest ancestor did."""
    content_claim: ContentClaim | None = None


made_at_import(FlowFile)


def new_flowfile(
    uuid: str,
    attributes: Mapping[str, str],
    *,
    size: int,
    content_claim: ContentClaim | None,
    now_ms: int,
    lineage_start_date: int | None = None,
) -> FlowFile:
    """Return a FlowFile that enters the flow now; it is named after its uuid unless an attribute says otherwise."""
    return FlowFile(
        uuid=uuid,
        # The uuid comes last: an attribute of that name cannot replace it.
        attributes={"filename": uuid, "path": "./", **attributes, UUID: uuid},
        size=checked_size(size),
        entry_date=now_ms,
        lineage_start_date=now_ms if lineage_start_date is None else lineage_start_date,
        content_claim=content_claim,
    )


def inherited(parents: Sequence[FlowFile]) -> dict[str, str]:
    """Return the attributes that all parents have with the same value; a child begins with them."""
    first, *others = (parent.attributes for parent in parents)
    return {
        name: value
        for name, value in first.items()
        if name not in _OWN and all(attributes.get(name) == value for attributes in others)
    }


def checked_attributes(changes: Mapping[str, object], *, can_remove: bool = False) -> dict[str, str | None]:
    """Return attributes to set; None removes one where that is allowed.

    Raises:
        InvalidInputError: a name or a value is no text, or it is the uuid, which never changes.
    """
    checked: dict[str, str | None] = {}
    for name, value in changes.items():
        if name == UUID:
            raise InvalidInputError(
                "attribute 'uuid': expected it left alone, got a change. A FlowFile keeps its uuid."
            )
        if not isinstance(name, str) or not name:
            raise InvalidInputError(f"attribute {name!r}: expected a name of at least one character, as text.")
        if not (isinstance(value, str) or (value is None and can_remove)):
            raise InvalidInputError(f"attribute {name!r}: expected text, got {value!r}.")
        checked[name] = value
    return checked


def given_attributes(attributes: Mapping[str, str] | None) -> dict[str, str]:
    """Return the attributes that a new FlowFile is given."""
    return {name: value for name, value in checked_attributes(attributes or {}).items() if value is not None}


def checked_size(size: int) -> int:
    """Return a size in bytes.

    Raises:
        InvalidInputError: it is negative, too large, or no whole number.
    """
    # By the exact type: Python's True is an int, and no size.
    if type(size) is not int or not 0 <= size <= INT64_MAX:
        raise InvalidInputError(f"size: expected 0 bytes or more, at most 2^63-1, got {size!r}.")
    return size


def of_other_content(attributes: Mapping[str, str]) -> dict[str, str]:
    """Return the attributes that a FlowFile keeps when its content becomes another one."""
    return {name: value for name, value in attributes.items() if name != DIGEST_ATTRIBUTE}


def digest_of(sha256: str | None) -> dict[str, str]:
    """Return the attribute that tells the digest of a content, hexadecimal; nothing where it is not known."""
    return {} if sha256 is None else {DIGEST_ATTRIBUTE: sha256}


def with_changes(attributes: Mapping[str, str], changes: Iterable[tuple[str, str | None]]) -> dict[str, str]:
    """Return attributes after changes."""
    merged: dict[str, str | None] = {**attributes, **dict(changes)}
    return {name: value for name, value in merged.items() if value is not None}
