"""Reasons why an event cannot be replayed, each with a code for programs and a text that says what to do."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from custody.errors import CustodyError, InvalidInputError, NotFoundError
from custody.made_types import made_at_import


# In the order in which they are looked for. Programs compare the values: add, never change.
class RefusalCode(StrEnum):
    """Why an event cannot be replayed."""

    UNKNOWN_EVENT = "unknown-event"
    SEVERAL_PARENTS = "several-parents"
    INCOMPLETE_CLAIM = "incomplete-claim"
    CONTENT_GONE = "content-gone"
    CONTENT_UNREADABLE = "content-unreadable"
    NO_SOURCE_QUEUE = "no-source-queue"
    QUEUE_REMOVED = "queue-removed"
    MASKED_ATTRIBUTE = "masked-attribute"
    REPEATED = "repeated"


_TEXTS = {
    RefusalCode.UNKNOWN_EVENT: (
        "there is no such event: {}. Check the id and its writer; what was forgotten or has expired is not sent again."
    ),
    RefusalCode.SEVERAL_PARENTS: (
        "its FlowFile was joined from several ones{}. Replay the events of the parents that the JOIN names."
    ),
    RefusalCode.INCOMPLETE_CLAIM: (
        "it does not say fully where its content lies: {}. Let its producer report container, section, identifier and "
        "size of the content."
    ),
    RefusalCode.CONTENT_GONE: (
        "its content is no longer available: {} Replay an earlier event of the FlowFile, or receive the data again."
    ),
    RefusalCode.CONTENT_UNREADABLE: (
        "it could not be determined whether its content is available: {} `custody verify` says what is damaged; then "
        "try again."
    ),
    RefusalCode.NO_SOURCE_QUEUE: (
        "it names no queue that its FlowFile came from{}. Replay a later event of the FlowFile, reported by a step "
        "that took it out of a queue."
    ),
    RefusalCode.QUEUE_REMOVED: (
        "the queue {!r} that its FlowFile came from no longer exists. Connect a queue of that name, then try again."
    ),
    RefusalCode.REPEATED: (
        "{} sends the same FlowFile with the same content into the same queue already. Nothing is to be done."
    ),
    RefusalCode.MASKED_ATTRIBUTE: (
        "the values of {} were masked when it was stored, and a FlowFile without them is not the one that there was. "
        "Receive the data again."
    ),
}
_ERRORS: dict[RefusalCode, type[CustodyError]] = {
    RefusalCode.UNKNOWN_EVENT: NotFoundError,
    RefusalCode.CONTENT_GONE: NotFoundError,
    RefusalCode.QUEUE_REMOVED: NotFoundError,
}


class Refusal(msgspec.Struct, frozen=True, array_like=True):
    """An event that cannot be replayed, and why."""

    writer: str
    event_id: int
    code: RefusalCode
    detail: str = ""
    """What the text about the code leaves open: a queue, a file."""

    @property
    def message(self) -> str:
        """Why, and what to do."""
        return f"event {self.writer}/{self.event_id} [{self.code}]: {_TEXTS[self.code].format(self.detail)}"

    def error(self) -> CustodyError:
        """Return the error for who wants this one event and no other: of the class that fits the code."""
        return _ERRORS.get(self.code, InvalidInputError)(f"cannot replay {self.message}")

    def document(self) -> dict[str, object]:
        """Return what programs are shown."""
        return {"writer": self.writer, "event_id": self.event_id, "code": self.code.value, "message": self.message}


made_at_import(Refusal)
