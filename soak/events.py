"""The made-up events of a soak, and the digest by which one is known again.

An event has a number that no other event of the soak has (`source_ordinal`); three numbers share a FlowFile.
"""

from __future__ import annotations

import hashlib
import random

import msgspec

from custody.model import Event

CASE = "17"
"""Value of the attribute `case` of events that are under a legal hold."""
_TYPES = ("CREATE", "ATTRIBUTES_MODIFIED", "ROUTE", "SEND", "DROP")
_SHARING = 3
_DETAIL_BYTES = 150
_PRODUCER, _LIFE, _THREAD = 10**13, 10**9, 10**8


def first_number(producer: int, life: int, thread: int) -> int:
    """Return the first number of one thread in one life of a producer; a hundred million follow that are its own."""
    return (producer + 1) * _PRODUCER + life * _LIFE + thread * _THREAD


def flowfile_of(number: int) -> str:
    """Return the uuid of the FlowFile of an event."""
    return f"00000000-0000-4000-8000-{number // _SHARING:012x}"


def made_event(number: int, time_ms: int, *, held: bool = False) -> Event:
    """Return the event of a number, as it happens at a time; `held` gives it the attribute that the hold means."""
    chance = random.Random(number)  # noqa: S311 - made-up content, the same for the same number
    case = {"case": CASE} if held else {}
    return Event(
        event_type=chance.choice(_TYPES),
        event_time=time_ms,
        component_id=f"c0ffee00-0000-4000-8000-{chance.randrange(20):012d}",
        component_type="SoakProcessor",
        component_name="soak",
        flowfile_uuid=flowfile_of(number),
        file_size=chance.randrange(1 << 20),
        details=chance.randbytes(_DETAIL_BYTES).hex(),  # no codec makes less than half of it
        previous_attributes={"filename": f"soak-{number // _SHARING}.bin"},
        updated_attributes={"step": str(number % _SHARING), **case},
        source_node="soak",
        source_ordinal=number,
    )


def digest(event: Event) -> str:
    """Return the digest of all that an event says, its id included."""
    return hashlib.blake2b(msgspec.json.encode(event, order="sorted"), digest_size=12).hexdigest()
