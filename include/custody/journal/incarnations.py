"""Incarnations: the claims of a writer's name in the store, each for one set of containers.

A lock keeps the processes of one machine apart. Two machines, each with containers of its own, share no lock, but they
share the store. So a writer claims its name there once, before its first event: one object by put-if-absent under the
next number, which names the incarnation. The containers keep the incarnation in their `STATE`; journals, and what is
made of them, carry it. A process that finds the name claimed by another incarnation appends nothing
(docs/formats/incarnation.md).
"""

from __future__ import annotations

import socket
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import msgspec

from custody.clock import Clock
from custody.errors import ConfigurationError, CorruptionError, FormatVersionError, NotFoundError
from custody.format.framing import DocumentFormat
from custody.format.names import INCARNATIONS, epoch_file, parse_epoch
from custody.journal.writer_state import WriterContainers, WriterState
from custody.store import ObjectStore

# Part of the format, like the fields of `Claim`: add, never change.
PREAMBLE = b"CUSTINC\x01"
KIND_CLAIM = 1
# Each lost race means that another process has claimed the name; the bound only ends a hopeless try.
_ATTEMPTS = 100


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """One claim: from an event id on, a writer's name belongs to these containers."""

    writer: str
    database: str
    number: int
    """1 for the first; the greatest one holds the name."""
    incarnation: str
    """32 hexadecimal digits, chosen at random."""
    first_event_id: int
    """The incarnation gives out no id below this one."""
    containers: dict[str, str]
    """The containers at that time: identity to path, as in the writer's state."""
    host: str
    """Name of the machine."""
    claimed_ms: int
    purpose: str | msgspec.UnsetType = msgspec.UNSET
    """Why no containers may have the name: RETIRED or ARCHIVE; absent in the claim of a process that appends."""
    reason: str | msgspec.UnsetType = msgspec.UNSET
    """What a person said of it."""
    restored_from: str | msgspec.UnsetType = msgspec.UNSET
    """The backup that the containers were restored from; absent in the claim of any others."""
    left_from: int | msgspec.UnsetType = msgspec.UNSET
    """With `restored_from`: ids from here to `first_event_id` may be those of events of the original."""


RETIRED, ARCHIVE = "retired", "archive"
"""Purposes of a claim: the writer was retired; the name is that of the archive, which takes up retired writers."""

_FORMAT = DocumentFormat(
    PREAMBLE,
    KIND_CLAIM,
    msgspec.json.Decoder(Claim),
    name="incarnation",
    content="a claim of a writer's name",
    remedy="Move it away: the writer whose containers know the incarnation claims the name anew when it starts.",
)
encode_claim = _FORMAT.encode
decode_claim = _FORMAT.decode


@dataclass(frozen=True, slots=True)
class ContainerEvidence:
    """The evidence, found on containers, of the incarnation that they belong to."""

    states: Sequence[WriterState]
    """Of the containers of the settings."""
    journals: Callable[[], Iterable[str]] = tuple
    """The incarnations of the journals on them; evaluated where there is no state."""
    places: Callable[[], Iterable[str]] = tuple
    """The containers with folders of the writer; evaluated where there is no state."""

    def is_of(self, claim: Claim) -> bool:
        """Whether a claim is theirs.

        An older custody, which knows no incarnations, leaves it out when it writes a state; the identities stay.
        """
        for state in self.states:
            if state.incarnation == claim.incarnation or not claim.containers.keys().isdisjoint(state.containers):
                return True
        # A state decides: nothing weaker may overrule one that names another incarnation.
        if self.states:
            return False
        # A state that was damaged and moved away by hand; where no disk is mounted the writer has no folder.
        is_here = claim.host == socket.gethostname() and not set(claim.containers.values()).isdisjoint(self.places())
        return is_here or claim.incarnation in self.journals()


class Incarnations:
    """The claims of one writer's name, for one database; claims never change, so each is read once.

    Args:
        store: where the catalog lies as well.
        writer: the writer's name.
        database: the database that the writer's events go to.
    """

    def __init__(self, store: ObjectStore, writer: str, database: str) -> None:
        self._store = store
        self._writer = writer
        self._database = database
        self._prefix = f"{writer}/{database}/{INCARNATIONS}/"
        self._read: dict[str, Claim] = {}

    def claims(self) -> list[Claim]:
        """Return the claims by number; the last one holds the name.

        Raises:
            CorruptionError, FormatVersionError: one of them cannot be read.
            StorageError: the store refuses.
        """
        return [self._claim(key) for key in self.objects()]

    def objects(self) -> list[str]:
        """Return the keys of the claims, by number."""
        return [key for key in self._store.keys(self._prefix) if parse_epoch(key.removeprefix(self._prefix))]

    def locate(self, key: str) -> str:
        """Return where a claim lies, for messages."""
        return self._store.locate(key)

    def readable_claims(self) -> list[Claim]:
        """Return the claims for telling one's own journals from those of others: none unless all can be read.

        Raises:
            StorageError: the store refuses.
        """
        try:
            return self.claims()
        except (CorruptionError, FormatVersionError, NotFoundError):
            return []  # verify names it

    def check(self, evidence: ContainerEvidence) -> Claim | None:
        """Return the claim that holds the name, None when nobody has claimed it.

        Raises:
            ConfigurationError: the name belongs to other containers than these.
        """
        claims = self.claims()
        if not claims:
            return None
        if not evidence.is_of(claims[-1]):
            raise self._refusal(claims[-1])
        return claims[-1]

    def claim(
        self, members: WriterContainers, evidence: ContainerEvidence, clock: Clock, claim: Claim | None = None
    ) -> Claim:
        """Claim the name for some containers unless it is theirs already; return the claim.

        The caller holds the writer's lock. The containers know the incarnation before the store does, so that a crash
        in between leaves nothing in the way. `claim` is what `check` has just returned.

        Durability: on return the claim survives power loss.

        Raises:
            ConfigurationError: the name belongs to other containers.
        """
        for _ in range(_ATTEMPTS):
            # Only a name that nobody claimed is claimed here, hence number 1; who loses the race is told by the next
            # `check`.
            claim = claim or self.check(evidence) or self._put(members, 1, 0, clock)
            if claim is not None:
                if members.incarnation != claim.incarnation:
                    members.become(claim.incarnation)  # an older custody had written the state without it
                return claim
        raise ConfigurationError(f"{self._store.locate(self._prefix)}: others claim the name again and again.")

    def claim_anew(
        self,
        members: WriterContainers,
        first_event_id: int,
        clock: Clock,
        *,
        restored_from: str | msgspec.UnsetType = msgspec.UNSET,
        left_from: int | msgspec.UnsetType = msgspec.UNSET,
    ) -> Claim:
        """Take the name over for some containers, from an event id on; the former holder is refused from then on.

        `restored_from` and `left_from` are those of the claim, where a backup was restored.

        Durability: as of `claim`.
        """
        # Containers first, as in `claim`: a crash in between leaves an incarnation that nobody claimed, which is
        # harmless.
        members.become(uuid.uuid4().hex)
        for _ in range(_ATTEMPTS):
            # Read anew in each round: another process may have claimed the number in between.
            number = max((claim.number for claim in self.claims()), default=0) + 1
            new_claim = self._put(members, number, first_event_id, clock, restored_from, left_from)
            if new_claim is not None:
                return new_claim
        raise ConfigurationError(f"{self._store.locate(self._prefix)}: others claim the name again and again.")

    def claim_for_nobody(self, purpose: str, reason: str, first_event_id: int, clock: Clock) -> Claim:
        """Claim the name so that no containers have it, from an event id on; a claim of this purpose stays as it is.

        A process that starts under the name is refused, one that goes on is refused its next group.

        Durability: as of `claim`.
        """
        for _ in range(_ATTEMPTS):
            claims = self.claims()
            if claims and claims[-1].purpose == purpose:
                return claims[-1]
            claim = Claim(
                writer=self._writer,
                database=self._database,
                number=max((claim.number for claim in claims), default=0) + 1,
                incarnation=uuid.uuid4().hex,
                first_event_id=first_event_id,
                containers={},
                host=socket.gethostname(),
                claimed_ms=clock.now_ms(),
                purpose=purpose,
                reason=reason,
            )
            if self._put_claim(claim):
                return claim
        raise ConfigurationError(f"{self._store.locate(self._prefix)}: others claim the name again and again.")

    @property
    def answers_late(self) -> bool:
        """Whether the store is beyond a network, so that its answer may take minutes."""
        return self._store.is_remote

    def still_holds(self, incarnation: str) -> bool:
        """Whether a name that was claimed is still its own."""
        # Unreadable claims stop no live writer: `verify` reports them, and the next start refuses.
        claims = self.readable_claims()
        return not claims or claims[-1].incarnation == incarnation

    def _put(
        self,
        members: WriterContainers,
        number: int,
        first_event_id: int,
        clock: Clock,
        restored_from: str | msgspec.UnsetType = msgspec.UNSET,
        left_from: int | msgspec.UnsetType = msgspec.UNSET,
    ) -> Claim | None:
        claim = Claim(
            writer=self._writer,
            database=self._database,
            number=number,
            incarnation=members.incarnation,
            first_event_id=first_event_id,
            containers=members.containers,
            host=socket.gethostname(),
            claimed_ms=clock.now_ms(),
            restored_from=restored_from,
            left_from=left_from,
        )
        return claim if self._put_claim(claim) else None

    def _put_claim(self, claim: Claim) -> bool:
        """Put a claim under its number; return whether it is there afterwards."""
        key = f"{self._prefix}{epoch_file(claim.number)}"
        data = encode_claim(claim)
        # The response of a put can be lost or wrong: the object that can be read afterwards decides.
        self._store.put_if_absent(key, data)
        try:
            stored = self._store.get(key)
        except NotFoundError:
            return False
        # Durable before an event relies on it, also when the put that won was another process's.
        self._store.settle(key)
        return stored == data

    def _claim(self, key: str) -> Claim:
        if key not in self._read:
            self._read[key] = decode_claim(self._store.get(key), self._store.locate(key))
        return self._read[key]

    def _refusal(self, claim: Claim) -> ConfigurationError:
        if claim.purpose is not msgspec.UNSET:
            return self._refusal_for_nobody(claim)
        places = ", ".join(f"{path} ({identity})" for identity, path in sorted(claim.containers.items()))
        return ConfigurationError(
            f"writer {self._writer!r}: the name was claimed in {self._store.locate(self._prefix)} by another "
            f"incarnation, {claim.incarnation}, on the machine {claim.host!r}, at {claim.claimed_ms} ms since the "
            f"epoch, with the containers {places}; expected the containers of this repository. Nothing is appended. "
            "If these are not mounted, mount them. If they belong to another machine, give this one a writer name of "
            "its own (repository.writer). If they are gone for good, or were replaced by hand: "
            f"custody containers claim {self._writer}"
        )

    def _refusal_for_nobody(self, claim: Claim) -> ConfigurationError:
        where = self._store.locate(self._prefix)
        if claim.purpose == ARCHIVE:
            return ConfigurationError(
                f"writer {self._writer!r}: the name is that of the archive, which takes up the events of retired "
                f"writers ({where}); no process appends under it. Choose another name (repository.writer)."
            )
        return ConfigurationError(
            f"writer {self._writer!r}: was retired on the machine {claim.host!r}, at {claim.claimed_ms} ms since the "
            f"epoch, as {where} says: {claim.reason or 'no reason given'}. Nothing is appended. Give this machine a "
            "writer name of its own (repository.writer). What its journals hold and the catalog does not is still "
            "there: custody recover --adopt gives these journals a writer of their own, and the next pass makes "
            "them live."
        )


def purpose_of(claims: Sequence[Claim]) -> str:
    """Return why no containers may have a name by its claims, empty where some may."""
    return "" if not claims or claims[-1].purpose is msgspec.UNSET else claims[-1].purpose


def left_to_original(claims: Sequence[Claim]) -> list[tuple[int, int, str]]:
    """Return the first and the last id of each run that a restore left to the original, and the backup's text."""
    return [
        (claim.left_from, claim.first_event_id - 1, claim.restored_from)
        for claim in claims
        if isinstance(claim.left_from, int) and isinstance(claim.restored_from, str)
        if claim.left_from < claim.first_event_id
    ]


def holds_group(claims: list[Claim], incarnation: str, first_event_id: int) -> bool:
    """Whether a group of journals belongs to the name: its incarnation held the name at the group's first id.

    Without any claim nobody can tell, and every group does.
    """
    if not claims:
        return True
    ends = [claim.first_event_id for claim in claims[1:]]
    return any(
        claim.incarnation == incarnation
        and first_event_id >= claim.first_event_id
        and (number == len(ends) or first_event_id < ends[number])
        for number, claim in enumerate(claims)
    )
