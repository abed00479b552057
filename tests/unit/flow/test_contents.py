"""Contents: what is stored comes back, in any size and from any number of threads; damage is named."""

import errno
import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from custody.clock import ManualClock
from custody.config import ContentStore
from custody.errors import ClosedError, CorruptionError, FormatVersionError, NotFoundError, StorageError
from custody.flow.content import ContentOptions, ContentReader, ContentWriter, ResourceClaim, find_content, with_content
from custody.flow.content.claim_file import CHUNK_BYTES, ContentRecord, read_header, scan
from custody.flow.content.content_reader import content_of
from custody.format.framing import Gap
from custody.format.names import is_claim
from custody.model import ContentClaim
from custody.vfs import FileSystem, PosixFileSystem
from custody.vfs.faults import Fault, FaultyFileSystem
from custody.vfs.memory import MemoryFileSystem
from tests.support import event

FS = PosixFileSystem()
STORE = Path("/store")


def writer(fs: FileSystem, store: Path = STORE, **options: Any) -> ContentWriter:
    return ContentWriter(fs, ContentStore(store), "main", ManualClock(1_772_409_600_000), ContentOptions(**options))


def memory() -> MemoryFileSystem:
    fs = MemoryFileSystem()
    fs.make_directory(STORE)
    return fs


def path_of(claim: ContentClaim, store: Path = STORE) -> Path:
    resource = ResourceClaim.of(claim)
    assert resource is not None
    return resource.path(ContentStore(store))


def test_contents_share_a_file_until_it_is_large_and_come_back_as_they_were() -> None:
    fs = memory()
    contents = [bytes([n]) * 1000 for n in range(20)]
    with_many = writer(fs, claim_bytes=5000)
    stored = with_many.put_many(contents)
    with_many.close()
    files = {path_of(item.claim) for item in stored}
    assert 4 <= len(files) <= 6
    assert all(4000 < fs.size(path) < 6200 for path in sorted(files)[:-1])
    for data, item in zip(contents, stored, strict=True):
        found = find_content(fs, ContentStore(STORE), item.claim)
        assert found.read() == data
        assert found.sha256 == item.sha256 == hashlib.sha256(data).hexdigest()
        assert item.claim.container == "custody:main/1"


def test_an_empty_content_and_one_of_a_byte_come_back() -> None:
    fs = memory()
    stored = writer(fs).put_many([b"", b"x", b""])
    assert [find_content(fs, ContentStore(STORE), item.claim).read() for item in stored] == [b"", b"x", b""]


def test_a_large_content_streams_into_a_file_of_its_own(tmp_path: Path) -> None:
    chunk = bytes(range(256)) * 256
    to = writer(FS, tmp_path, claim_bytes=100_000)
    small = to.put(b"small")
    large = to.put_stream(chunk for _ in range(20))
    assert path_of(large.claim, tmp_path) != path_of(small.claim, tmp_path)
    found = find_content(FS, ContentStore(tmp_path), large.claim)
    assert found.size == 20 * len(chunk)
    assert found.sha256 == hashlib.sha256(chunk * 20).hexdigest()
    pieces = list(found.chunks())
    assert max(map(len, pieces)) <= CHUNK_BYTES
    assert b"".join(pieces) == chunk * 20
    assert find_content(FS, ContentStore(tmp_path), to.put(b"after").claim).read() == b"after"


def test_what_breaks_off_is_not_stored_and_leaves_no_file() -> None:
    fs = memory()
    to = writer(fs, claim_bytes=4096)
    with pytest.raises(ValueError, match="broken off"), to.open() as sink:
        sink.write(b"x" * 9000)
        raise ValueError("broken off")
    assert not [path for path, data in fs.files().items() if data and is_claim(path.name)]


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_a_part_of_a_content_is_a_claim_too(data: st.DataObject) -> None:
    fs = memory()
    body = bytes(range(251)) * 3000  # three chunks, the last one short
    to = writer(fs, claim_bytes=1 << 20)
    before, stored = to.put_many([b"before", body])
    start = data.draw(st.integers(0, len(body)))
    length = data.draw(st.integers(0, len(body) - start))
    offset = (stored.claim.offset or 0) + start
    resource = ResourceClaim.of(stored.claim)
    assert resource is not None
    assert find_content(fs, ContentStore(STORE), resource.claim(offset, length)).read() == body[start : start + length]
    assert find_content(fs, ContentStore(STORE), before.claim).read() == b"before"


def test_files_stay_mapped_for_their_neighbours_and_are_mapped_anew_when_they_grew(tmp_path: Path) -> None:
    views: list[Path] = []

    class Watched(PosixFileSystem):
        def view(self, path: Path) -> memoryview:
            views.append(path)
            return super().view(path)

    to, found = writer(FS, tmp_path), ContentReader(Watched(), ContentStore(tmp_path))
    before = to.put_many([b"one", b"two", b"three"])
    assert [found.find(item.claim, item.sha256).read() for item in before] == [b"one", b"two", b"three"]
    assert len(views) == 1
    grown = to.put(b"four")
    assert path_of(grown.claim, tmp_path) == views[0]
    assert [found.find(item.claim).read() for item in (grown, before[1])] == [b"four", b"two"]
    assert len(views) == 2
    others = [writer(FS, tmp_path).put(bytes([n])) for n in range(10)]
    assert [found.find(item.claim).read() for item in others] == [bytes([n]) for n in range(10)]
    assert found.find(before[0].claim).read() == b"one"
    assert len(views) == 13
    with pytest.raises(CorruptionError, match="expected content with the SHA-256"):
        found.find(before[0].claim, before[1].sha256)


def test_a_claim_over_the_end_of_a_content_is_damage() -> None:
    fs = memory()
    stored = writer(fs).put_many([b"one", b"two"])
    resource = ResourceClaim.of(stored[0].claim)
    assert resource is not None
    with pytest.raises(CorruptionError, match="expected 4 bytes of content with their record"):
        find_content(fs, ContentStore(STORE), resource.claim(stored[0].claim.offset or 0, 4))


def test_claims_of_other_repositories_and_hostile_ones_are_not_found() -> None:
    fs = memory()
    for claim in (
        None,
        ContentClaim("default", "1", "1772409600000-1", 0, 3),
        ContentClaim("custody:main/1", "../../..", "1772409600000-1", 0, 3),
        ContentClaim("custody:../x/1", "0001", "1772409600000-1", 0, 3),
        ContentClaim("custody:main/1", "0001", "../1772409600000-1", 0, 3),
        ContentClaim("custody:main/1", "0001", "1772409600000-1", 0, 3),
    ):
        with pytest.raises(NotFoundError):
            find_content(fs, ContentStore(STORE), claim)


def test_every_flipped_bit_of_a_content_is_found_and_named(tmp_path: Path) -> None:
    to = writer(FS, tmp_path)
    stored = to.put_many([b"first content", b"second content"])
    to.close()
    path = path_of(stored[0].claim, tmp_path)
    whole = path.read_bytes()
    start = stored[0].claim.offset or 0
    for position in range(start, len(whole)):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 0x10]) + whole[position + 1 :])
        failed = 0
        for item in stored:
            try:
                find_content(FS, ContentStore(tmp_path), item.claim, item.sha256).read()
            except CorruptionError as error:
                assert str(path) in str(error)
                assert "@" in str(error)
                failed += 1
        assert failed == 1, position
    path.write_bytes(whole)
    assert find_content(FS, ContentStore(tmp_path), stored[1].claim).read() == b"second content"


@pytest.mark.parametrize("length", range(0, 400, 7))
def test_a_file_that_was_cut_keeps_the_contents_before_the_cut(tmp_path: Path, length: int) -> None:
    to = writer(FS, tmp_path)
    stored = to.put_many([b"x" * 50, b"y" * 50])
    path = path_of(stored[0].claim, tmp_path)
    whole = path.read_bytes()
    cut = min(length, len(whole) - 1)
    path.write_bytes(whole[:cut])
    for item in stored:
        end = (item.claim.offset or 0) + 50 + 85
        if end <= cut:
            assert find_content(FS, ContentStore(tmp_path), item.claim).read() in (b"x" * 50, b"y" * 50)
        else:
            with pytest.raises(CorruptionError):
                find_content(FS, ContentStore(tmp_path), item.claim).read()


def test_an_event_and_its_content_are_bound_by_the_digest(tmp_path: Path) -> None:
    to = writer(FS, tmp_path)
    one, two = to.put_many([b"one", b"two"])
    told = with_content(event(1), one)
    assert (told.file_size, told.content_claim) == (3, one.claim)
    assert content_of(FS, ContentStore(tmp_path), told).read() == b"one"
    swapped = with_content(with_content(event(1), two), one).updated_attributes | {"content.sha256": two.sha256}
    forged = event(1, content_claim=one.claim, updated_attributes=swapped)
    with pytest.raises(CorruptionError, match="as its event says"):
        content_of(FS, ContentStore(tmp_path), msgspec.structs.replace(forged, source_format="ngsi"))
    # What a producer made may state its parent's digest, as older releases let it: nothing of the content is damaged.
    found = content_of(FS, ContentStore(tmp_path), forged)
    assert found.read() == b"one"
    assert f"states a content with the SHA-256 {two.sha256}" in str(found.differs)
    assert f"has {one.sha256}" in str(found.differs)
    before = event(2, previous_content_claim=one.claim, previous_attributes=dict(swapped))
    assert content_of(FS, ContentStore(tmp_path), before, previous=True).differs == found.differs
    assert content_of(FS, ContentStore(tmp_path), told).differs is None


def test_bytes_that_look_like_records_are_content(tmp_path: Path) -> None:
    to = writer(FS, tmp_path)
    first = to.put(b"content")
    file = path_of(first.claim, tmp_path).read_bytes()
    again = to.put(file)  # the file itself, with its records, as the content of the same file
    assert find_content(FS, ContentStore(tmp_path), again.claim).read() == file
    data = memoryview(path_of(first.claim, tmp_path).read_bytes())
    header, start = read_header(data, tmp_path)
    found = [item for item in scan(data, header.key, start) if isinstance(item, ContentRecord)]
    assert [(item.offset, item.length) for item in found] == [
        (first.claim.offset, 7),
        (again.claim.offset, len(file)),
    ]


def test_a_scan_finds_the_contents_around_a_damaged_record(tmp_path: Path) -> None:
    to = writer(FS, tmp_path)
    stored = to.put_many([b"a" * 30, b"b" * 30, b"c" * 30])
    path = path_of(stored[0].claim, tmp_path)
    data = bytearray(path.read_bytes())
    data[(stored[1].claim.offset or 0) + 30 + 20] ^= 1
    header, start = read_header(memoryview(data), path)
    found = list(scan(memoryview(data), header.key, start))
    assert [type(item) for item in found] == [ContentRecord, Gap, ContentRecord]
    assert found[1].offset == stored[1].claim.offset


@pytest.mark.parametrize(("position", "error"), [(0, CorruptionError), (7, FormatVersionError), (30, CorruptionError)])
def test_a_damaged_head_and_another_version_are_refused(tmp_path: Path, position: int, error: type[Exception]) -> None:
    to = writer(FS, tmp_path)
    stored = to.put(b"content")
    path = path_of(stored.claim, tmp_path)
    data = bytearray(path.read_bytes())
    data[position] ^= 3
    path.write_bytes(bytes(data))
    with pytest.raises(error, match=f"{path.name} @"):
        find_content(FS, ContentStore(tmp_path), stored.claim)


def test_files_that_changed_places_are_told_apart(tmp_path: Path) -> None:
    to = writer(FS, tmp_path, claim_bytes=4096)
    one, two = to.put(b"1" * 4096), to.put(b"2" * 4096)
    paths = path_of(one.claim, tmp_path), path_of(two.claim, tmp_path)
    first, second = (path.read_bytes() for path in paths)
    paths[0].write_bytes(second)
    paths[1].write_bytes(first)
    for item in (one, two):
        with pytest.raises(CorruptionError, match="another one in its place"):
            find_content(FS, ContentStore(tmp_path), item.claim)


def test_threads_share_syncs_and_lose_nothing() -> None:
    fs = memory()
    to = writer(fs, claim_bytes=20_000)
    threads, each = 16, 30
    gate = Barrier(threads)

    def work(number: int) -> list[tuple[bytes, ContentClaim]]:
        gate.wait()
        bodies = [f"{number}-{n}".encode() * 20 for n in range(each)]
        return [(body, to.put(body).claim) for body in bodies]

    with ThreadPoolExecutor(threads) as pool:
        found = [pair for pairs in pool.map(work, range(threads)) for pair in pairs]
    to.close()
    assert len({(claim.identifier, claim.offset) for _, claim in found}) == threads * each
    assert all(find_content(fs, ContentStore(STORE), claim).read() == body for body, claim in found)


def test_a_full_disk_takes_no_content_and_goes_on_when_there_is_room() -> None:
    inner = memory()
    fs = FaultyFileSystem(inner)
    to = writer(fs, claim_bytes=4096)
    kept = to.put(b"kept")
    fs.faults.append(Fault(frozenset({"write"}), errno=errno.ENOSPC))
    with pytest.raises(StorageError):
        to.put(b"lost")
    later = to.put(b"later")
    assert [find_content(inner, ContentStore(STORE), item.claim).read() for item in (kept, later)] == [
        b"kept",
        b"later",
    ]
    assert path_of(kept.claim) != path_of(later.claim), "a file that failed is written again"


def test_another_container_takes_what_one_refuses() -> None:
    inner = memory()
    fs = FaultyFileSystem(inner)
    to = writer(fs, containers=("one", "two"))
    fs.faults.append(Fault(frozenset({"write"}), path="one/*/*", count=None))
    stored = [to.put(bytes([n])) for n in range(6)]
    assert {item.claim.container for item in stored} == {"custody:main/two"}
    left = {path.name for path, data in inner.files().items() if data is not None and "one" in path.parts}
    assert left == {"CONTAINER", "one"}, "its mark, and the record of that"


def test_contents_are_spread_over_containers() -> None:
    to = writer(memory(), containers=("one", "two"))
    assert {to.put(b"x").claim.container for _ in range(4)} == {"custody:main/one", "custody:main/two"}


def test_a_clock_that_went_back_overwrites_nothing() -> None:
    fs = memory()
    first = writer(fs).put(b"first")
    second = writer(fs).put(b"second")
    assert [find_content(fs, ContentStore(STORE), item.claim).read() for item in (first, second)] == [
        b"first",
        b"second",
    ]


def test_a_closed_writer_takes_nothing() -> None:
    to = writer(memory())
    to.put(b"x")
    to.close()
    with pytest.raises(ClosedError):
        to.put(b"y")
    with pytest.raises(ClosedError):
        to.put_stream([b"y" * (2 << 20)])
