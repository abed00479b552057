"""Attestations: signed heads of a catalog, kept by an auditor, against the unseen removal of its newest transactions.

The chain proves that nothing before its end was changed, but not where its end is. An attestation names a revision and
its digest and is signed (Ed25519). Kept outside the store, it shows later that this revision is still there and still
the same, and, with the chain, that all revisions before it are.
"""

from __future__ import annotations

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
from custody.catalog.codec import digest
from custody.clock import Clock
from custody.errors import ConfigurationError, ConflictError, CorruptionError, CustodyError, InvalidInputError

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
    commit_time_ms: int
    attested_ms: int
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
        commit_time_ms=state.commit_time_ms,
        attested_ms=clock.now_ms(),
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
    """Compare a catalog, whose chain was verified by itself, with an earlier signed head of it."""
    named = f"revision {attestation.revision}"
    if (catalog.objects.writer, catalog.objects.database) != (attestation.writer, attestation.database):
        of = f"{attestation.writer}/{attestation.database}"
        return Comparison(defects=(f"the attestation is about {of}, not about {catalog.objects}.",))
    try:
        state = catalog.load()
    except CustodyError as error:
        return Comparison(defects=(f"the catalog cannot be read: {error}",))
    if state.catalog_id.hex != attestation.catalog_id:
        return Comparison(defects=(f"this is another catalog than the one that was attested: {state.catalog_id}.",))
    if state.revision < attestation.revision:
        message = f"the newest transactions are lost: {named} was attested, the newest is {state.revision}."
        return Comparison(defects=(message,))
    # Pruned on purpose, which the chain itself says: no defect, but no proof either.
    if attestation.revision < state.floor:
        return Comparison(
            proven=(
                f"it is the same catalog, and it goes on after {named}",
                f"from revision {state.floor} on the chain is as it says of itself",
            ),
            unproven=(f"{named} was pruned: that the history from it to {state.floor} is the attested one",),
        )
    item = [
        candidate for candidate in catalog.objects.at(attestation.revision) if candidate.uuid.hex == attestation.uuid
    ]
    data = [catalog.objects.store.get(candidate.key) for candidate in item if not candidate.is_checkpoint]
    if not data or digest(data[0]).hex() != attestation.digest:
        return Comparison(defects=(f"{catalog.objects}: {named} is not the one that was attested.",))
    return Comparison(
        proven=(f"{named} is the attested one, and with the chain all before it that is kept",),
        unproven=(f"what was committed before revision {state.floor}",) if state.floor else (),
    )


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
