"""Attestations: signed heads of a catalog, kept by an auditor, against the unseen removal of its newest transactions.

The chain proves that nothing before its end was changed, but not where its end is. An attestation names a revision,
its digest and the digest of the state, and is signed (Ed25519). Kept outside the store, it shows later that this
revision is still there and still the same, and, with the chain, that all revisions before it are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from custody.catalog.catalog import Catalog
from custody.catalog.checkpoints import checkpoint_message
from custody.catalog.codec import digest, encode
from custody.catalog.federation import Federation
from custody.catalog.removed_events import removed_events
from custody.catalog.state import EMPTY, CatalogState
from custody.catalog.tombstones import is_remnant
from custody.catalog.verify import Verification, verify
from custody.clock import Clock, SystemClock
from custody.errors import ConfigurationError, ConflictError, CorruptionError, CustodyError, InvalidInputError

_REASONS = {"expired": "expired", "erased": "erased", "lost": "known to be lost", "none": "no reason is given"}
_REVISIONS_NAMED = 5
# Part of the format and of the signed bytes: a change of fields needs a new number.
FORMAT = "custody-attestation/1"


class Attestation(msgspec.Struct, frozen=True, kw_only=True):
    """A signed head; bytes as hexadecimal digits, times in ms since the epoch."""

    format: str = FORMAT
    writer: str
    database: str
    catalog_id: str
    revision: int
    uuid: str
    digest: str
    state_digest: str
    """Of everything that is live at the revision: a forged checkpoint behind a pruning gives another state."""
    commit_time_ms: int
    attested_ms: int
    others: dict[str, str] = {}
    """The ids of the catalogs of the database's other writers, by writer: one that is removed later is missed."""
    public_key: str
    signature: str = ""

    def signed_bytes(self) -> bytes:
        """Return what is signed: everything but the signature, as JSON with sorted keys."""
        fields = {name: value for name, value in msgspec.to_builtins(self).items() if name != "signature"}
        # The order has to be fixed: the verifier encodes the fields anew and compares the signature with these bytes.
        return msgspec.json.encode(fields, order="deterministic")


_ATTESTATION = msgspec.json.Decoder(Attestation)


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of comparing a catalog with an attestation: what is proven, what is not, and what contradicts it."""

    proven: tuple[str, ...] = ()
    unproven: tuple[str, ...] = ()
    defects: tuple[str, ...] = ()


def new_key() -> bytes:
    """Return a new private key as PEM."""
    return Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def public_key(pem: bytes) -> str:
    """Return the public key of a private key as hexadecimal digits; raises ConfigurationError for another kind."""
    return _public(_load(pem))


def attest(catalog: Catalog, pem: bytes, clock: Clock) -> Attestation:
    """Sign the newest revision.

    Raises:
        ConfigurationError: the key is no Ed25519 key.
        ConflictError: the catalog is empty.
        CorruptionError: the catalog, or that of another writer, cannot be read.
    """
    # Settled first: a head that a power loss takes away would look like a transaction that somebody removed.
    key, state = _load(pem), catalog.settle()
    if state.revision < 0:
        raise ConflictError(f"{catalog.objects}: the catalog is empty, there is nothing to attest.")
    unsigned = Attestation(
        writer=catalog.objects.writer,
        database=catalog.objects.database,
        catalog_id=state.catalog_id.hex,
        revision=state.revision,
        uuid=state.uuid.hex,
        digest=state.digest.hex(),
        state_digest=state_digest(state).hex(),
        commit_time_ms=state.commit_time_ms,
        attested_ms=clock.now_ms(),
        others={name: other.catalog_id.hex for name, other in _others(catalog, clock).items()},
        public_key=_public(key),
    )
    return msgspec.structs.replace(unsigned, signature=key.sign(unsigned.signed_bytes()).hex())


def read_attestation(data: bytes, where: object, trusted_key: str | None = None) -> Attestation:
    """Return an attestation whose signature is right.

    Raises:
        InvalidInputError: the file is no attestation, or of another version.
        CorruptionError: its signature is wrong, or made with another key than the trusted one.
    """
    try:
        attestation = _ATTESTATION.decode(data)
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(attestation.public_key))
        signature = bytes.fromhex(attestation.signature)
    except (msgspec.DecodeError, ValueError) as error:
        raise InvalidInputError(f"{where}: expected an attestation, got {error}.") from error
    if attestation.format != FORMAT:
        raise InvalidInputError(
            f"{where}: expected the format {FORMAT}, got {attestation.format}. Use a newer custody."
        )
    # An attestation names its own key, so without a trusted one anybody's signature is right.
    if trusted_key is not None and attestation.public_key != trusted_key:
        raise CorruptionError(f"{where}: expected a signature of the key {trusted_key}, got {attestation.public_key}.")
    try:
        # The signature is checked after the format: a newer format may sign other fields.
        key.verify(signature, attestation.signed_bytes())
    except InvalidSignature as error:
        raise CorruptionError(f"{where}: its signature is wrong: the file was changed.") from error
    return attestation


def compare(catalog: Catalog, attestation: Attestation) -> Comparison:
    """Walk along a catalog and compare it with an earlier signed head of it."""
    return compare_walk(catalog, verify(catalog, files=False, states_at=(attestation.revision,)), attestation)


def compare_walk(catalog: Catalog, walk: Verification, attestation: Attestation) -> Comparison:
    """Compare a catalog with an earlier signed head of it, by a walk that has the state at the attested revision.

    From the attested transaction on the chain is followed backwards by its digests, which the signature covers. What a
    later transaction says of earlier ones, a note of lost revisions or a pruning, is not covered: whoever can write to
    the store can commit it. So it excuses nothing.
    """
    newest = walk.state
    wrong = _other_catalog(catalog, newest, attestation)
    if newest is None or wrong:
        return Comparison(defects=(wrong,))
    named = f"revision {attestation.revision}"
    if attestation.revision < newest.floor:
        # Anybody could have written the floor, and everything behind it.
        text = f"{named} was pruned, the earliest revision is {newest.floor}: nothing that is kept can be compared"
        return Comparison(unproven=(text,))
    defect, unproven = _follow_back(catalog, walk, attestation, newest.floor)
    state = walk.states.get(attestation.revision)
    if not defect and (state is None or state_digest(state).hex() != attestation.state_digest):
        # The transactions are the attested ones, so the checkpoint with which they begin was forged.
        defect = f"{catalog.objects}: what is kept gives another state at {named} than was attested."
    defects = (defect,) if defect else _gone(catalog, attestation)
    proven = f"{named} is the attested one, and with the chain all before it that is kept"
    if defects or state is None:
        return Comparison(defects=defects)
    return Comparison(proven=(proven,), unproven=(*unproven, *_changed_since(catalog, state)))


def _changed_since(catalog: Catalog, attested: CatalogState) -> Iterator[str]:
    """Yield what the chain says of attested events that are live no more: newer transactions are not signed."""
    try:
        later = list(catalog.timeline(attested.revision))[1:]
    except CustodyError:
        return  # the walk names what is wrong with them
    by_reason: dict[str, list[tuple[int, int]]] = {}
    for removed in removed_events(attested, later):
        by_reason.setdefault(removed.reason, []).append((removed.revision, removed.events))
    for reason, entries in sorted(by_reason.items()):
        revisions = ", ".join(str(revision) for revision, _ in entries[:_REVISIONS_NAMED])
        more = f" and {len(entries) - _REVISIONS_NAMED} more" if len(entries) > _REVISIONS_NAMED else ""
        events = sum(count for _, count in entries)
        yield f"that {events} events had to go since: {_REASONS[reason]}, by revisions {revisions}{more}"
    standing = {name for name, stone in attested.tombstones.items() if not (is_remnant(stone) or stone.by_retention)}
    taken = [
        transaction.revision
        for transaction in later
        for action in transaction.actions
        if action.HasField("remove_tombstone") and action.remove_tombstone.id.hex() in standing
    ]
    if taken:
        revisions = ", ".join(map(str, sorted(set(taken))[:_REVISIONS_NAMED]))
        yield f"that the events of {len(taken)} tombstones were erased before revisions {revisions} took these back"


def _other_catalog(catalog: Catalog, newest: CatalogState | None, attestation: Attestation) -> str:
    """Return why a catalog is not the one that was attested, or does not reach to that revision; empty if it is."""
    if (catalog.objects.writer, catalog.objects.database) != (attestation.writer, attestation.database):
        return f"the attestation is about {attestation.writer}/{attestation.database}, not about {catalog.objects}."
    if newest is None:
        return "the catalog cannot be read: its newest state is not known."
    if newest.revision < attestation.revision:
        return (
            f"the newest transactions are lost: revision {attestation.revision} was attested, the newest is "
            f"{newest.revision}."
        )
    if newest.catalog_id.hex != attestation.catalog_id:
        return f"this is another catalog than the one that was attested: {newest.catalog_id}."
    return ""


def _follow_back(
    catalog: Catalog, walk: Verification, attestation: Attestation, floor: int
) -> tuple[str, tuple[str, ...]]:
    """Follow the digests from the attested transaction back to the floor; return what contradicts, and what is open."""
    where, named = catalog.objects, f"revision {attestation.revision}"
    attested = walk.links.get(attestation.revision)
    if attested is None or attested.digest.hex() != attestation.digest:
        return f"{where}: {named} is not the one that was attested.", ()
    for revision in range(attestation.revision, floor, -1):
        former = walk.links.get(revision - 1)
        if former is not None and former.digest == walk.links[revision].previous:
            continue
        noted = walk.noted.get(revision - 1)
        if noted is not None and noted <= attestation.revision:
            # The loss was known when the head was signed: the signature covers the note.
            return "", (f"what was committed before revision {revision}: {revision - 1} is lost, as {noted} says",)
        text = f"{where}: revision {revision - 1} is not the one that the attestation of {named} covers."
        if noted is not None:
            text += f" Revision {noted} says that it is lost, and is newer than the attestation."
        return text, ()
    return "", (f"what was committed before revision {floor}",) if floor else ()


def _others(catalog: Catalog, clock: Clock) -> dict[str, CatalogState]:
    """Return the states of the database's other writers; raises CorruptionError."""
    objects = catalog.objects
    states = Federation(objects.store, objects.database, clock).load().states
    return {name: state for name, state in sorted(states.items()) if name != objects.writer}


def _gone(catalog: Catalog, attestation: Attestation) -> tuple[str, ...]:
    """Return which writers that were there at the attestation are not there any more, or have another catalog."""
    objects, gone = catalog.objects, []
    for name, catalog_id in sorted(attestation.others.items()):
        try:
            found = Catalog(objects.store, name, objects.database, SystemClock()).load().catalog_id.hex
        except CustodyError:
            continue  # the check of that catalog says what is wrong with it
        if found != catalog_id:
            gone.append(
                f"writer {name!r} is not the one that was there when revision {attestation.revision} of "
                f"{attestation.writer!r} was attested: expected the catalog {catalog_id}, got "
                f"{'none' if found == EMPTY.catalog_id.hex else found}."
            )
    return tuple(gone)


def state_digest(state: CatalogState) -> bytes:
    """Return the digest of everything that a state says: of the checkpoint that would be written of it."""
    return digest(encode(checkpoint_message(state)))


def _load(pem: bytes) -> Ed25519PrivateKey:
    try:
        key = load_pem_private_key(pem, None)
    except (ValueError, TypeError) as error:
        raise ConfigurationError(f"the key cannot be read: {error}. Make one: custody attest --new-key FILE") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise ConfigurationError("expected an Ed25519 key. Make one: custody attest --new-key FILE")
    return key


def _public(key: Ed25519PrivateKey) -> str:
    return key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw).hex()
