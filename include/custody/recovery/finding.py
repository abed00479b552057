"""What interrupted work left, and what is to be done about it."""

from __future__ import annotations

from typing import Literal

import msgspec

Action = Literal["seal", "remove", "discard", "put back", "sweep", "close", "keep", "adopt"]
"""seal: cut the torn tail, write the end record, give the final name. remove: nothing needs it, delete it. discard: get
it out of the way, look whether the lease still stands, delete it; the next steps make it again. put back: it is listed,
and a removal that was superseded took it away. sweep: delete what became live elsewhere. close: say that the attempt
failed. keep: a person has to look at it. adopt: bring it in under another writer name,
which is done only when it is asked for."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One leftover."""

    writer: str
    path: str
    what: str
    action: Action
    why: str
    error: str | None = None
    """Why it could not be done."""
