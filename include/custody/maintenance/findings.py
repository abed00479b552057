"""What can be found wrong with a repository: one word a kind, what it means, what it costs and what mends it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

import msgspec

Severity = Literal["damage", "loss", "notice", "orphan"]
"""damage: something is not what was written. loss: known to be gone. notice: to know. orphan: belongs to nothing."""


class Level(StrEnum):
    """How thoroughly is looked."""

    QUICK = "quick"
    """Names, sizes, ends and heads; the whole catalog."""
    DEFAULT = "default"
    """Also every byte against its checksum."""
    DEEP = "deep"
    """Also every event decoded, and every shard compared with its logs."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of finding; texts for people."""

    severity: Severity
    repair: str
    """What mends it, or takes it away."""


_ROLLOVER = "the rollover keeps the damaged bytes in the quarantine and takes all other records: custody repair"
_REBUILD = "the shard is made anew from its logs: custody repair"
KINDS: Mapping[str, Kind] = {
    "journal-damaged": Kind("damage", _ROLLOVER),
    "journal-foreign": Kind("damage", "it gets the name that its header says: custody repair"),
    "journal-torn": Kind("notice", "custody recover, or the next writer, cuts it and keeps it in the quarantine"),
    "journal-of-others": Kind("damage", "they are brought in under another writer name: custody recover --adopt"),
    "container-missing": Kind("damage", "mount it; if it is lost for good: custody containers drop"),
    "container-elsewhere": Kind("notice", "what waits there is seen on that machine only"),
    "incarnation-damaged": Kind("damage", "move the file away: the next start of the writer claims its name anew"),
    "state-damaged": Kind("damage", "it is made anew from the other containers, or at the next start: custody repair"),
    "ids-doubled": Kind("damage", "look at both files; one was copied here by hand and has to go"),
    "ids-missing": Kind("notice", "nothing to do; custody repair --accept-loss takes note of it"),
    "unit-damaged": Kind("damage", "it is made again from its journals: custody repair"),
    "log-missing": Kind("damage", "taken from the trash, the staged unit or the journals: custody repair"),
    "log-foreign": Kind("damage", "the files change places: custody repair"),
    "log-damaged": Kind("damage", "its whole blocks become a new log: custody repair"),
    "log-changed": Kind("damage", "all its events become a new log: custody repair"),
    "log-newer": Kind("notice", "nothing to do: a newer custody reads all of it"),
    "toc-damaged": Kind("damage", "it is written anew from the log: custody repair"),
    "shard-missing": Kind("damage", _REBUILD),
    "shard-damaged": Kind("damage", _REBUILD),
    "shard-different": Kind("damage", _REBUILD),
    "catalog-damaged": Kind("damage", "what can be read is kept, the rest is moved aside: custody repair"),
    "catalog-object": Kind("damage", "it is moved aside: custody repair"),
    "catalog-history": Kind("damage", "the revision is noted as lost: custody repair"),
    "catalog-tail": Kind("damage", "the log is listed again from its footer: custody repair"),
    "catalog-attested": Kind("damage", "no repair brings the attested history back; use a backup"),
    "catalog-notice": Kind("notice", "the next checkpoint mends it: custody repair"),
    "forgotten-damaged": Kind("damage", "it is moved aside and written anew from the catalog: custody repair"),
    "forgotten-missing": Kind("damage", "it is written from the catalog: custody repair"),
    "forgotten-lost": Kind("damage", "the catalog is told again: custody repair"),
    "content-damaged": Kind("damage", "head and records are written anew: custody repair; contents: use a backup"),
    "content-missing": Kind("damage", "no other copy is kept: put the file back from a backup"),
    "content-inherited": Kind("notice", "nothing to do: the content is whole, its event states another's digest"),
    "content-exchanged": Kind("damage", "no other copy is kept: put the file back from a backup"),
    "quarantine-damaged": Kind("damage", "what can be read is kept under a new entry: custody repair"),
    "quarantine-missing": Kind("damage", "the entry goes: custody repair --accept-loss"),
    "destination-damaged": Kind(
        "damage", "move away what is no file, or bring the file back from a backup; custody quarantine resubmit"
    ),
    "destination-longer": Kind("notice", "see who else writes to it; custody leaves these bytes alone"),
    "record-damaged": Kind("damage", "its bytes go to the quarantine, what it remembers is lost: custody repair"),
    "lease-damaged": Kind("notice", "the next attempts at the writer's files take its place"),
    "build-damaged": Kind("damage", "build the tables of software again"),
    "sink-damaged": Kind("damage", "put the object back from a backup"),
    "software-damaged": Kind("damage", "build the tables of software again, or put the file back from a backup"),
    "unreadable": Kind("damage", "look at the disk: rights, mount, hardware"),
    "known-loss": Kind("loss", ""),
    "unlisted-log": Kind("orphan", "custody catalog gc"),
    "unlisted-shard": Kind("orphan", "custody compact"),
    "attempt": Kind("orphan", "custody recover"),
    "removal": Kind("orphan", "custody run sweep, custody compact"),
    "temporary": Kind("orphan", "custody recover"),
    "trash": Kind("orphan", "custody catalog gc"),
    "set-aside": Kind("orphan", "yours, when you need it no more"),
    "piece": Kind("orphan", "the same input, ingested again, completes it"),
    "foreign": Kind("orphan", "yours: custody does not know it and leaves it alone"),
}
"""All kinds. Words for machines: they stay the same between releases."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was found: where, what, how many events it concerns; sizes and offsets in bytes."""

    kind: str
    path: str
    message: str
    offset: int | None = None
    writer: str | None = None
    events: int = 0
    """How many events cannot be read because of it, as far as that is known."""
    first_event_id: int | None = None
    last_event_id: int | None = None
    size_bytes: int = 0
    name: str = ""
    """What a repair looks up: a path of the catalog, a shard's name, a revision, a key."""

    @property
    def _kind(self) -> Kind:
        # A newer custody may have kept kinds that this one does not know.
        return KINDS.get(self.kind, KINDS["unreadable"])

    @property
    def severity(self) -> Severity:
        """How bad it is."""
        return self._kind.severity

    @property
    def repair(self) -> str:
        """What mends it."""
        return self._kind.repair

    def document(self) -> dict[str, Any]:
        """Return the finding for machines, with what follows from its kind."""
        return {**msgspec.to_builtins(self), "severity": self.severity, "repair": self.repair}


def damages(findings: Iterable[Finding]) -> list[Finding]:
    """Return what is not as it should be: not known losses, not notices, not orphans."""
    return [found for found in findings if found.severity == "damage"]
