"""A resource claim in the store as version 1 has it: it is read, and written as it is; damage is refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from custody.config import ContentStore
from custody.errors import CorruptionError, FormatVersionError
from custody.flow.content import ClaimFile, ResourceClaim, find_content
from custody.flow.content.handed_claims import HandedClaims, decode_manifest
from custody.store import LocalStore
from custody.vfs import PosixFileSystem
from tests.golden.make_golden import CLAIM, CONTENTS, HERE
from tests.support import files_below, flipped

FS = PosixFileSystem()
GOLDEN = HERE / "handed-contents"
RESOURCE = ResourceClaim("main", "1", "0000", CLAIM.name)


def written(store: Path) -> None:
    """Hand the golden resource claim over."""
    file = ClaimFile.read(FS, HERE / "v1" / CLAIM)
    HandedClaims(FS, LocalStore(FS, store), None).put(file, RESOURCE, "worker-1", 1_772_409_601_000, lambda: None)


@pytest.fixture
def store(tmp_path: Path) -> ContentStore:
    """The golden objects; there are no disks of contents."""
    shutil.copytree(GOLDEN, tmp_path / "store")
    return ContentStore(tmp_path / "work", location=str(tmp_path / "store"))


def test_the_golden_claim_gives_its_contents(store: ContentStore) -> None:
    records = ClaimFile.read(FS, HERE / "v1" / CLAIM).contents
    claims = [RESOURCE.claim(record.offset, record.length) for record in records]
    assert [find_content(FS, store, claim).read() for claim in claims] == list(CONTENTS)


def test_it_is_written_as_it_is(tmp_path: Path) -> None:
    written(tmp_path)
    assert files_below(tmp_path) == files_below(GOLDEN)


def test_damage_and_other_versions_are_refused() -> None:
    [path] = GOLDEN.rglob("manifest")
    whole = path.read_bytes()
    assert decode_manifest(whole, path).encode() == whole
    for bit in range(0, len(whole) * 8, 7):
        with pytest.raises((CorruptionError, FormatVersionError), match=str(path)):
            decode_manifest(flipped(whole, bit), path)
    for length in range(0, len(whole), 5):
        with pytest.raises(CorruptionError, match=str(path)):
            decode_manifest(whole[:length], path)
    with pytest.raises(FormatVersionError, match=str(path)):
        decode_manifest(whole[:7] + b"\x02" + whole[8:], path)
    with pytest.raises(CorruptionError, match=str(path)):
        decode_manifest(whole + b"more", path)


def test_a_piece_that_was_damaged_is_named(store: ContentStore, tmp_path: Path) -> None:
    [piece] = [path for path in (tmp_path / "store").rglob("*") if path.is_file() and path.name != "manifest"]
    first = ClaimFile.read(FS, HERE / "v1" / CLAIM).contents[0]
    piece.write_bytes(flipped(piece.read_bytes(), first.offset * 8 + 1))
    with pytest.raises(CorruptionError, match=f"{CLAIM.name} @{first.offset}"):
        find_content(FS, store, RESOURCE.claim(first.offset, first.length)).read()
