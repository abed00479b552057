"""The answer of an append."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """Events that are kept from now on: the writer that they were appended to, and their ids there."""

    writer: str
    event_ids: range
