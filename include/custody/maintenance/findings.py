"""Findings of verification: the kinds of damage, loss, notice and orphan, with what mends each.

A kind is a word for machines. Its severity and its remedy follow from the table FINDING_KINDS, so that a finding that
was kept by an older release is explained by the present one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

import msgspec

from custody.made_types import made_at_import

FindingSeverity = Literal["damage", "loss", "notice", "orphan"]
"""damage: something is not as it was written. loss: known to be gone. notice: good to know. orphan: of no use."""


class Level(StrEnum):
    """The thoroughness of a verification."""

    QUICK = "quick"
    """Names, sizes, headers and end records; the whole catalog."""
    DEFAULT = "default"
    """Also every byte against its checksum."""
    DEEP = "deep"
    """Also every event decoded, and every shard compared with its logs."""


@dataclass(frozen=True, slots=True)
class FindingKind:
    """One kind of finding; the texts are for people."""

    severity: FindingSeverity
    repair: str
    """What mends it, or removes it."""


_ROLLOVER = "the rollover keeps the damaged bytes in the quarantine and takes all other records: custody repair"
_REBUILD = "the shard is made anew from its logs: custody repair"
STORE_REFUSED = "store-refused"
FINDING_KINDS: Mapping[str, FindingKind] = {
    "journal-damaged": FindingKind("damage", _ROLLOVER),
    "journal-foreign": FindingKind("damage", "it gets the name that its header says: custody repair"),
    "journal-torn": FindingKind(
        "notice", "custody recover, or the next writer, cuts it and keeps it in the quarantine"
    ),
    "journal-of-others": FindingKind(
        "damage", "they are brought in under another writer name: custody recover --adopt"
    ),
    "container-missing": FindingKind("damage", "mount it; if it is lost for good: custody containers drop"),
    "stripe-missing": FindingKind(
        "damage", "mount it, or set repository.stripes to where it is; if it is lost for good, see docs/retention.md"
    ),
    STORE_REFUSED: FindingKind("notice", "renew what the store asks for, then verify again: nothing is to be repaired"),
    "stripe-damaged": FindingKind("damage", "copy the STRIPE of the disk over the record and over the sign"),
    "container-elsewhere": FindingKind("notice", "what waits there is seen on that machine only"),
    "incarnation-damaged": FindingKind(
        "damage", "move the file away: the next start of the writer claims its name anew"
    ),
    "state-earlier": FindingKind(
        "damage",
        "mount it, or bring its newer state back; to go on from the earlier one: custody recover --accept-earlier",
    ),
    "witness-damaged": FindingKind("damage", "it is written from the other witnesses: custody repair"),
    "state-damaged": FindingKind(
        "damage", "it is made anew from the other containers, or at the next start: custody repair"
    ),
    "handoff-damaged": FindingKind(
        "damage", "move the object away: custody handoff puts it again as long as the producer has the journals"
    ),
    "handoff-unfinished": FindingKind("notice", "custody handoff goes on with it where the journals are"),
    "ids-doubled": FindingKind("damage", "look at both files; one was copied here by hand and has to go"),
    "ids-missing": FindingKind("notice", "nothing to do; custody repair --accept-loss takes note of it"),
    "ids-left-out": FindingKind("notice", "nothing to do: a restored repository leaves them to its original"),
    "unit-damaged": FindingKind("damage", "it is made again from its journals: custody repair"),
    "log-missing": FindingKind("damage", "taken from the trash, the staged unit or the journals: custody repair"),
    "log-foreign": FindingKind("damage", "the files change places: custody repair"),
    "log-damaged": FindingKind("damage", "its whole blocks become a new log: custody repair"),
    "log-changed": FindingKind("damage", "all its events become a new log: custody repair"),
    "log-newer": FindingKind("notice", "nothing to do: a newer custody reads all of it"),
    "toc-damaged": FindingKind("damage", "it is written anew from the log: custody repair"),
    "shard-missing": FindingKind("damage", _REBUILD),
    "shard-damaged": FindingKind("damage", _REBUILD),
    "shard-different": FindingKind("damage", _REBUILD),
    "filters-damaged": FindingKind("damage", "it goes, and the step checkpoint writes another: custody repair"),
    "catalog-damaged": FindingKind("damage", "what can be read is kept, the rest is moved aside: custody repair"),
    "catalog-object": FindingKind("damage", "it is moved aside: custody repair"),
    "catalog-history": FindingKind("damage", "the revision is noted as lost: custody repair"),
    "catalog-tail": FindingKind("damage", "the log is listed again from its footer: custody repair"),
    "catalog-attested": FindingKind("damage", "no repair brings the attested history back; use a backup"),
    "attestation-pruned": FindingKind("notice", "it proves nothing any more: custody attest signs the newest revision"),
    "events-removed": FindingKind(
        "damage", "look at custody catalog log; put the log back from a backup of the catalog"
    ),
    "absorb-false": FindingKind("damage", "the events are in the logs of that writer; use a backup of the catalog"),
    "catalog-clocks": FindingKind("notice", "nothing has to be done; ask as of revisions, and set the clock"),
    "catalog-notice": FindingKind("notice", "the next checkpoint mends it: custody repair"),
    "forgotten-damaged": FindingKind("damage", "it is moved aside and written anew from the catalog: custody repair"),
    "forgotten-missing": FindingKind("damage", "it is written from the catalog: custody repair"),
    "forgotten-lost": FindingKind("damage", "the catalog is told again: custody repair"),
    "content-damaged": FindingKind(
        "damage", "head and records are written anew: custody repair; contents: with --from and a backup"
    ),
    "content-container-missing": FindingKind(
        "damage", "mount its disk; if it is lost for good, copy its record to the folder as the mark"
    ),
    "content-container-damaged": FindingKind("damage", "copy the CONTAINER of the disk over the record and the sign"),
    "handed-content-damaged": FindingKind(
        "damage", "move the object away: custody handoff puts it again as long as a disk has the file"
    ),
    "handed-content-unfinished": FindingKind(
        "notice", "custody handoff goes on with it where its file is; else it goes with the contents that nothing names"
    ),
    "content-missing": FindingKind("damage", "no other copy is kept: custody repair --from, with a folder of a backup"),
    "content-inherited": FindingKind(
        "notice", "nothing to do: the content is whole, its event states another's digest"
    ),
    "content-exchanged": FindingKind("damage", "no other copy is kept: put the file back from a backup"),
    "quarantine-damaged": FindingKind("damage", "what can be read is kept under a new entry: custody repair"),
    "destination-damaged": FindingKind(
        "damage", "move away what is no file, or bring the file back from a backup; custody quarantine resubmit"
    ),
    "destination-longer": FindingKind("notice", "see who else writes to it; custody leaves these bytes alone"),
    "record-damaged": FindingKind(
        "damage", "its bytes go to the quarantine, what it remembers is lost: custody repair"
    ),
    "erasure-damaged": FindingKind(
        "damage", "put the file back from a backup; without one forget the events again: custody forget --erase"
    ),
    "flowfiles-damaged": FindingKind("damage", "put the folder of the queues back from a backup"),
    "lease-damaged": FindingKind("notice", "the next attempts at the writer's files take its place"),
    "build-damaged": FindingKind("damage", "build the tables of software again"),
    "sink-damaged": FindingKind("damage", "put the object back from a backup"),
    "software-damaged": FindingKind("damage", "build the tables of software again, or put the file back from a backup"),
    "unreadable": FindingKind("damage", "look at the disk: rights, mount, hardware"),
    "known-loss": FindingKind("loss", "an intact copy of what held them brings them back: custody repair --from"),
    "loss-recoverable": FindingKind("notice", "its events are taken back: custody repair"),
    "unlisted-log": FindingKind("orphan", "custody catalog gc"),
    "unlisted-shard": FindingKind("orphan", "custody compact"),
    "attempt": FindingKind("orphan", "custody recover"),
    "removal": FindingKind("orphan", "custody run sweep, custody compact"),
    "temporary": FindingKind("orphan", "custody recover"),
    "trash": FindingKind("orphan", "custody catalog gc"),
    "set-aside": FindingKind("orphan", "yours, when you need it no more"),
    "piece": FindingKind("orphan", "the same input, ingested again, completes it"),
    "foreign": FindingKind("orphan", "yours: custody does not know it and leaves it alone"),
}
"""All kinds. The words are for machines: they stay the same between releases."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One finding: where, what, how many events it concerns; sizes and offsets in bytes."""

    kind: str
    path: str
    message: str
    offset: int | None = None
    writer: str | None = None
    events: int = 0
    """How many events cannot be read because of it, as far as is known."""
    first_event_id: int | None = None
    last_event_id: int | None = None
    size_bytes: int = 0
    name: str = ""
    """The target of a repair: a path of the catalog, a shard's name, a revision, a key."""

    @classmethod
    def of(
        cls,
        kind: str,
        path: object,
        message: object,
        *,
        writer: str | None = None,
        offset: int | None = None,
        events: int = 0,
        ids: tuple[int | None, int | None] = (None, None),
        size_bytes: int = 0,
        name: str = "",
    ) -> Finding:
        """Return a finding of a kind; path and message may be anything that has a text, `ids` are first and last."""
        return cls(
            kind=kind,
            path=str(path),
            message=str(message),
            offset=offset,
            writer=writer,
            events=events,
            first_event_id=ids[0],
            last_event_id=ids[1],
            size_bytes=size_bytes,
            name=name,
        )

    @property
    def _kind(self) -> FindingKind:
        # A newer custody may have kept findings of kinds that this one does not know.
        return FINDING_KINDS.get(self.kind, FINDING_KINDS["unreadable"])

    @property
    def severity(self) -> FindingSeverity:
        """The severity of its kind."""
        return self._kind.severity

    @property
    def repair(self) -> str:
        """The action that mends it."""
        return self._kind.repair

    def document(self) -> dict[str, Any]:
        """Return the finding for machines, with what follows from its kind."""
        return {**msgspec.to_builtins(self), "severity": self.severity, "repair": self.repair}


made_at_import(Finding)


def damages(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings that are damage: no known losses, notices or orphans."""
    return [finding for finding in findings if finding.severity == "damage"]
