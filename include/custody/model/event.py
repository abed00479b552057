"""The provenance event: one thing that happened to one FlowFile, as a frozen value; and the answer of an append.

Field names follow NiFi's ProvenanceEventRecord where it has one; the `source_*` fields say where custody got the
event from, so that an event ingested twice is known by (source_node, source_ordinal). Times are milliseconds since
the epoch, UTC; sizes and offsets are bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import msgspec

from custody.made_types import made_at_import

UNASSIGNED = -1


class EventType(StrEnum):
    """The event types that NiFi knows, in its order; an event may carry another name."""

    CREATE = "CREATE"
    RECEIVE = "RECEIVE"
    FETCH = "FETCH"
    SEND = "SEND"
    UPLOAD = "UPLOAD"
    REMOTE_INVOCATION = "REMOTE_INVOCATION"
    DOWNLOAD = "DOWNLOAD"
    DROP = "DROP"
    EXPIRE = "EXPIRE"
    FORK = "FORK"
    JOIN = "JOIN"
    CLONE = "CLONE"
    CONTENT_MODIFIED = "CONTENT_MODIFIED"
    ATTRIBUTES_MODIFIED = "ATTRIBUTES_MODIFIED"
    ROUTE = "ROUTE"
    ADDINFO = "ADDINFO"
    REPLAY = "REPLAY"
    UNKNOWN = "UNKNOWN"


class ContentClaim(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The place of a FlowFile's content in a content repository."""

    container: str | None = None
    section: str | None = None
    identifier: str | None = None
    offset: int | None = None
    size: int | None = None


# Rows of journals leave out fields that have their default: a default is part of the format, never change one.
# Nothing in an event refers back to it: the collector of cycles need not look at a million of them again and again.
# Fields may be given by their place, though callers name them: `to_events` makes an event so in a third of the time.
class Event(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One provenance event; name its fields when making one."""

    # In the order of EVENT_SCHEMA, but for the id, which has a default: it stands behind the fields that have none.
    event_type: str
    event_time: int
    component_id: str
    component_type: str
    flowfile_uuid: str
    file_size: int
    event_id: int = UNASSIGNED
    event_duration: int = -1
    flowfile_entry_date: int | None = None
    lineage_start_date: int | None = None
    previous_file_size: int | None = None
    component_name: str | None = None
    process_group_id: str | None = None
    process_group_name: str | None = None
    transit_uri: str | None = None
    source_system_flowfile_identifier: str | None = None
    alternate_identifier_uri: str | None = None
    details: str | None = None
    relationship: str | None = None
    source_queue_identifier: str | None = None
    parent_uuids: tuple[str, ...] = ()
    child_uuids: tuple[str, ...] = ()
    previous_attributes: dict[str, str | None] = {}
    updated_attributes: dict[str, str | None] = {}
    content_claim: ContentClaim | None = None
    previous_content_claim: ContentClaim | None = None
    entity_type: str | None = None
    content_uri: str | None = None
    previous_content_uri: str | None = None
    platform: str | None = None
    application: str | None = None
    source_format: str | None = None
    source_node: str | None = None
    source_host: str | None = None
    source_ordinal: int | None = None
    source_event_id: str | None = None
    extra: str | None = None
    """Keys of the source that custody has no field for, as one JSON object."""
    delivered_by: str | None = None
    """Name of the token or certificate that it was delivered with, given by the server; None for what programs of this
    machine stored, and where nobody has to prove anything."""

    def __eq__(self, other: object) -> bool:
        """Compare every field; the order of parents, and that of children, does not count, as in NiFi."""
        equal = msgspec.Struct.__eq__(self, other)
        if equal is not False or not isinstance(other, Event):
            return equal
        if self.parent_uuids == other.parent_uuids and self.child_uuids == other.child_uuids:
            return False
        return msgspec.Struct.__eq__(_in_order(self), _in_order(other))

    def __hash__(self) -> int:
        """Hash what tells most events apart; attributes, which cannot be hashed, are left to the comparison."""
        return hash((self.event_id, self.event_type, self.event_time, self.flowfile_uuid, self.source_ordinal))

    @property
    def attributes(self) -> dict[str, str]:
        """The attributes after the event: previous ones, overlaid with the updates, without the removed ones."""
        merged = {**self.previous_attributes, **self.updated_attributes}
        return {name: value for name, value in merged.items() if value is not None}

    @property
    def filename(self) -> str | None:
        """The FlowFile's name after the event."""
        return self.attributes.get("filename")


made_at_import(Event)


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """Events that are kept from now on: the writer that they were appended to, and their ids there."""

    writer: str
    event_ids: range


def _in_order(event: Event) -> Event:
    relatives = {"parent_uuids": tuple(sorted(event.parent_uuids)), "child_uuids": tuple(sorted(event.child_uuids))}
    return msgspec.structs.replace(event, **relatives)
