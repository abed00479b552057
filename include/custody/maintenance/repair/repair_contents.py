"""Repairs of resource claims: headers and records are written anew around contents that events vouch for.

There is one copy of a content, so its damaged bytes stay damaged. What surrounds it can be written anew: the digest in
an event proves that the content is whole, and its checksums follow from it.
"""

from __future__ import annotations

import hashlib
from pathlib import Path, PurePath

import pyarrow as pa
import pyarrow.compute as pc

from custody.errors import CorruptionError, NotFoundError
from custody.flow.content import CLAIM_SCHEME, DIGEST_ATTRIBUTE, ResourceClaim
from custody.flow.content.claim_file import NONCE_BYTES, ClaimHeader, Digest, head, read_header
from custody.format.framing import whole_record
from custody.journal import lock_path
from custody.maintenance.claim_refs import readable_tables
from custody.maintenance.repair.actions import quarantine_bytes
from custody.workspace import Workspace

_COLUMNS = ["content_claim", "updated_attributes"]
Voucher = tuple[int, int, str]
"""Offset, length and SHA-256 of a content, as an event states them."""


def mend_claim(workspace: Workspace, name: str) -> str:
    """Write a resource claim anew with the header and the records that it lacks; `name` is its path on the store.

    Contents keep their places. The bytes that are overwritten go to the quarantine first.

    Durability: on return the file and the entries of the quarantine survive power loss.

    Raises:
        NotFoundError: no event vouches for anything that could be mended; the file is as it was.
        LockedError: the writer that may append to the file is alive.
    """
    writer, _, container, section, identifier = PurePath(name).parts
    resource = ResourceClaim(writer, container, section, identifier)
    fs, settings = workspace.fs, workspace.settings
    path = resource.path(settings.content_store)
    # The writer's lock: a live writer may be appending to this file.
    with fs.lock(lock_path(settings.containers, writer)):
        data = fs.read(path)
        vouched = [item for item in sorted(vouchers_of(workspace, resource)) if whole_content(data, item)]
        mended, key = bytearray(data), _key(data, path, vouched)
        pieces: list[tuple[int, bytes]] = []
        first = head(_header(resource, key))
        # The head has to end before the first content: no byte of a content is overwritten.
        if vouched and len(first) <= vouched[0][0]:
            pieces.append((0, first))
        for offset, length, _ in vouched:
            digest = Digest()
            digest.update(memoryview(data)[offset : offset + length])
            pieces.append((offset + length, digest.record(offset).encode(key)))
        for at, piece in pieces:
            mended[at : at + len(piece)] = piece
        if bytes(mended) == data:
            raise NotFoundError(f"{path}: nothing that an event vouches for can be mended. Use a backup of the file.")
        for at, piece in pieces:
            before = data[at : at + len(piece)]
            # Evidence first, under a key made of its bytes: a repair that is done again keeps it once.
            if before != piece:
                text = f"{path} @{at}: what was here before the record was written anew"
                quarantine_bytes(workspace, before, code="content-damage", message=text, path=str(path), offset=at)
        # Replaced whole: a crash leaves the old file or the new one, never one with half of its records.
        fs.write_durably(path, bytes(mended))
    return f"{len(vouched)} contents are whole and have their records"


def vouchers_of(workspace: Workspace, resource: ResourceClaim) -> set[Voucher]:
    """Return the vouchers of readable events for the contents of a file."""
    vouchers: set[Voucher] = set()
    for other in Workspace.all(workspace.settings, workspace.fs):
        for table in readable_tables(other, _COLUMNS):
            for row in table.filter(_speaks_of(table.column("content_claim"), resource)).to_pylist():
                claim, sha256 = row["content_claim"], dict(row["updated_attributes"]).get(DIGEST_ATTRIBUTE)
                if sha256 is not None and claim["offset"] is not None and claim["size"] is not None:
                    vouchers.add((claim["offset"], claim["size"], sha256))
    return vouchers


def _speaks_of(claims: pa.ChunkedArray, resource: ResourceClaim) -> pa.ChunkedArray:
    parts = {
        "container": f"{CLAIM_SCHEME}{resource.writer}/{resource.container}",
        "section": resource.section,
        "identifier": resource.identifier,
    }
    masks = [pc.equal(pc.struct_field(claims, name), value) for name, value in parts.items()]
    return pc.fill_null(pc.and_(pc.and_(masks[0], masks[1]), masks[2]), False)


def whole_content(data: bytes, voucher: Voucher) -> bool:
    """Whether a file of contents has the content that an event vouches for."""
    offset, length, sha256 = voucher
    content = memoryview(data)[offset : offset + length]
    return len(content) == length and hashlib.sha256(content).hexdigest() == sha256


def _key(data: bytes, path: Path, vouched: list[Voucher]) -> bytes:
    """Return the bytes that each record of a file begins with: from its header, or from a whole record."""
    try:
        return read_header(memoryview(data), path)[0].key
    except CorruptionError:
        for offset, length, _ in vouched:
            record = whole_record(memoryview(data), offset + length)
            if record is not None:
                # Every record begins with the file's nonce, so one whole record tells that of a lost header.
                return bytes(record.payload[:NONCE_BYTES])
    raise NotFoundError(f"{path}: neither its head nor a record that an event vouches for is whole. Use a backup.")


def _header(resource: ResourceClaim, key: bytes) -> ClaimHeader:
    return ClaimHeader(
        writer=resource.writer,
        container=resource.container,
        section=resource.section,
        identifier=resource.identifier,
        created_ms=int(resource.identifier.partition("-")[0]),
        nonce=key.hex(),
    )
