"""Content containers: a disk that is away is told from contents that are gone, on the store's disk and elsewhere."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import msgspec
import pytest

from custody.clock import ManualClock
from custody.config import ContentStore
from custody.errors import ConfigurationError, ContentContainerMissingError, CorruptionError, NotFoundError
from custody.flow.content import (
    Availability,
    ContentContainers,
    ContentOptions,
    ContentReader,
    ContentWriter,
    claims_on_disk,
    find_content,
)
from custody.flow.content.containers import CONTAINER_FORMAT, ContainerMark
from custody.model import ContentClaim
from custody.vfs import PosixFileSystem
from custody.vfs.memory import CrashMode, InjectedCrash, MemoryFileSystem

FS = PosixFileSystem()


def store_of(root: Path, *elsewhere: str) -> ContentStore:
    for name in elsewhere:
        (root / f"disk-{name}").mkdir(exist_ok=True)
    return ContentStore(root / "store", {name: root / f"disk-{name}" for name in elsewhere})


def writer(store: ContentStore, *names: str) -> ContentWriter:
    return ContentWriter(FS, store, "main", ManualClock(), ContentOptions(names or ("1",), 4096))


def folder_of(store: ContentStore, name: str) -> Path:
    return ContentContainers(FS, store, "main").get(name).folder


def fill(store: ContentStore, *names: str) -> dict[str, ContentClaim]:
    """Store a content in each container, and return their claims."""
    claims: dict[str, ContentClaim] = {}
    to = writer(store, *names)
    while len(claims) < len(names):
        claim = to.put(b"x" * 5000).claim
        claims[(claim.container or "").rpartition("/")[2]] = claim
    to.close()
    return claims


@pytest.mark.parametrize("elsewhere", [(), ("b",)])
def test_a_container_has_the_mark_of_its_record(tmp_path: Path, elsewhere: tuple[str, ...]) -> None:
    store = store_of(tmp_path, *elsewhere)
    fill(store, "a", "b")
    for name in ("a", "b"):
        record = tmp_path / "store/main/content-marks" / name
        mark = folder_of(store, name) / "CONTAINER"
        assert record.read_bytes() == mark.read_bytes() == record.with_name(f"{name}.marked").read_bytes()
    assert folder_of(store, "b").is_relative_to(tmp_path / ("disk-b" if elsewhere else "store/main/content"))
    assert len(list(claims_on_disk(FS, store, "main"))) == sum(1 for _ in tmp_path.rglob("0*/*-*"))


@pytest.mark.parametrize("elsewhere", [(), ("b",)])
def test_a_disk_that_is_away_is_told_from_a_content_that_is_gone(tmp_path: Path, elsewhere: tuple[str, ...]) -> None:
    store = store_of(tmp_path, *elsewhere)
    claims = fill(store, "a", "b")
    folder_of(store, "b").rename(tmp_path / "taken out")
    reader = ContentReader(FS, store)
    assert reader.availability(claims["a"]) is Availability.AVAILABLE
    assert reader.availability(claims["b"]) is Availability.AWAY
    with pytest.raises(ContentContainerMissingError, match=r"'b' of writer 'main' is missing.*b=FOLDER"):
        find_content(FS, store, claims["b"])
    # Others take what is written meanwhile, and nothing is made at the place of the disk.
    with closing(writer(store, "a", "b")) as to:
        assert {to.put(b"y" * 5000).claim.container for _ in range(4)} == {"custody:main/a"}
    assert not folder_of(store, "b").exists()
    assert [name for name, _ in ContentContainers(FS, store, "main").missing()] == ["b"]
    (tmp_path / "taken out").rename(folder_of(store, "b"))
    assert find_content(FS, store, claims["b"]).read() == b"x" * 5000
    next(folder_of(store, "b").glob("0*/*")).unlink()
    assert reader.availability(claims["b"]) is Availability.GONE


def test_a_container_that_the_settings_name_no_more_is_missing_and_one_that_moved_is_found(tmp_path: Path) -> None:
    claims = fill(store_of(tmp_path, "b"), "a", "b")
    before = ContentStore(tmp_path / "store")
    with pytest.raises(ContentContainerMissingError, match=r"name its folder in content\.containers as b=FOLDER"):
        find_content(FS, before, claims["b"])
    (tmp_path / "disk-b").rename(tmp_path / "larger")
    moved = ContentStore(tmp_path / "store", {"b": tmp_path / "larger"})
    assert find_content(FS, moved, claims["b"]).read() == b"x" * 5000
    assert ContentContainers(FS, moved, "main").names() == ["a", "b"]
    assert not list(ContentContainers(FS, moved, "main").missing())


def test_another_disk_in_its_place_is_named(tmp_path: Path) -> None:
    first = store_of(tmp_path, "a", "b")
    claims = fill(first, "a", "b")
    other = tmp_path / "other"
    other.mkdir()
    fill(store_of(other, "c"), "c")
    exchanged = ContentStore(tmp_path / "store", {"a": tmp_path / "disk-b", "b": tmp_path / "disk-a"})
    with pytest.raises(ContentContainerMissingError, match="is not there"):
        find_content(FS, exchanged, claims["a"])
    shutil.copytree(other / "disk-c/main/content/c", tmp_path / "disk-b/main/content/b", dirs_exist_ok=True)
    with pytest.raises(ContentContainerMissingError, match=r"says that it is the content container 'c'.*other/store"):
        find_content(FS, first, msgspec.structs.replace(claims["b"], identifier="1772409600000-99"))
    assert not [item for item in claims_on_disk(FS, first, "main") if item.container == "b"]


def test_two_repositories_never_share_a_folder_of_one_writer_and_container(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    stores = [ContentStore(tmp_path / name, {"b": disk}) for name in ("one", "two")]
    fill(stores[0], "b")
    with pytest.raises(ConfigurationError, match=r"cannot become a content container.*'b' of the writer 'main'.*one"):
        ContentContainers(FS, stores[1], "main").get("b").add(0)
    # A mistake in the settings, and no disk that comes back: nobody is to think that contents are spread.
    with closing(writer(stores[1], "b")) as to, pytest.raises(ConfigurationError, match="cannot become"):
        to.put(b"y" * 5000)
    assert len(list(claims_on_disk(FS, stores[0], "main"))) == 1


def test_the_folder_of_a_disk_is_not_made(tmp_path: Path) -> None:
    store = ContentStore(tmp_path / "store", {"b": tmp_path / "not mounted"})
    with closing(writer(store, "a", "b")) as to:
        assert {to.put(b"y" * 5000).claim.container for _ in range(3)} == {"custody:main/a"}
    with (
        pytest.raises(ContentContainerMissingError, match="does not exist, and custody does not make it"),
        closing(writer(store, "b")) as to,
    ):
        to.put(b"z")
    assert not (tmp_path / "not mounted").exists()


def test_a_name_in_the_store_may_become_a_folder_elsewhere_when_its_contents_move(tmp_path: Path) -> None:
    inside = store_of(tmp_path)
    claims = fill(inside, "a", "b")
    outside = store_of(tmp_path, "b")
    assert ContentReader(FS, outside).availability(claims["b"]) is Availability.AWAY
    shutil.move(folder_of(inside, "b"), folder_of(outside, "b"))
    assert find_content(FS, outside, claims["b"]).read() == b"x" * 5000


def _without_marks(store: ContentStore) -> None:
    for path in [*store.folder.rglob("CONTAINER"), *store.folder.glob("main/content-marks/*")]:
        path.unlink()


def test_contents_of_an_older_release_are_adopted_with_the_next_one(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    claims = fill(store, "a", "b")
    _without_marks(store)
    assert find_content(FS, store, claims["b"]).read() == b"x" * 5000
    folder_of(store, "b").rename(tmp_path / "away")
    folder_of(store, "b").mkdir()  # the place where the disk is mounted
    with pytest.raises(NotFoundError):
        find_content(FS, store, claims["b"])
    with closing(writer(store, "a", "b")) as to:
        assert to.put(b"z" * 5000).claim.container == "custody:main/a"
    assert ContentReader(FS, store).availability(claims["b"]) is Availability.AWAY
    folder_of(store, "b").rmdir()
    (tmp_path / "away").rename(folder_of(store, "b"))
    assert find_content(FS, store, claims["b"]).read() == b"x" * 5000
    fill(store, "a", "b")
    assert (folder_of(store, "b") / "CONTAINER").exists()


def test_many_that_take_a_container_into_use_at_once_agree_on_one_mark(tmp_path: Path) -> None:
    store = store_of(tmp_path, "a")

    def take(number: int) -> bytes:
        container = ContentContainers(FS, store, "main").get("a")
        container.add(number)
        container.check()
        return container.mark.read_bytes()

    with ThreadPoolExecutor(16) as pool:
        assert len(set(pool.map(take, range(64)))) == 1


@pytest.mark.parametrize("defect", ["record", "sign", "mark"])
def test_a_damaged_mark_never_hides_contents_for_good(tmp_path: Path, defect: str) -> None:
    store = store_of(tmp_path, "a")
    claims = fill(store, "a")
    record = tmp_path / "store/main/content-marks/a"
    path = {"record": record, "sign": record.with_name("a.marked"), "mark": folder_of(store, "a") / "CONTAINER"}[defect]
    good = path.read_bytes()
    path.write_bytes(good[:30] + b"?" + good[31:])
    containers = ContentContainers(FS, store, "main")
    assert bool(list(containers.damage())) is (defect != "mark")
    assert bool(list(containers.missing())) is (defect == "mark")
    # A file that is there is whole by its own checksums, whatever the mark says.
    assert find_content(FS, store, claims["a"]).read() == b"x" * 5000


def test_record_and_sign_damaged_together_are_mended_from_the_mark(tmp_path: Path) -> None:
    store = store_of(tmp_path, "a")
    fill(store, "a")
    marks = tmp_path / "store/main/content-marks"
    for name in ("a", "a.marked"):
        (marks / name).write_bytes(b"CUSTCON\x01 nonsense")
    with pytest.raises(ContentContainerMissingError, match=r"Copy the mark of the disk, CONTAINER, over it"):
        ContentContainers(FS, store, "main").get("a").check()
    shutil.copy(folder_of(store, "a") / "CONTAINER", marks / "a")
    shutil.copy(folder_of(store, "a") / "CONTAINER", marks / "a.marked")
    assert not list(ContentContainers(FS, store, "main").damage())
    assert fill(store, "a")


@pytest.mark.parametrize("mode", CrashMode)
def test_a_crash_while_a_container_is_taken_into_use_leaves_it_usable(mode: CrashMode) -> None:
    store = ContentStore(Path("/store"), {"b": Path("/disk")})

    def stored(fs: MemoryFileSystem) -> ContentClaim:
        to = ContentWriter(fs, store, "main", ManualClock(), ContentOptions(("b",), 4096))
        with closing(to):
            return to.put(b"x" * 5000).claim

    prepared = MemoryFileSystem()
    for folder in ("/store", "/disk"):
        prepared.make_directory(Path(folder))
        prepared.sync_directory(Path("/"))
    for crash_at in range(1, 200):
        crashing = prepared.crashed(CrashMode.ALL_KEPT)
        crashing.crash_at = crash_at
        acknowledged = None
        with suppress(InjectedCrash):
            acknowledged = stored(crashing)
        left = crashing.crashed(mode)
        again = stored(left)
        lost = left.crashed(CrashMode.SYNCED_ONLY)
        for claim in (acknowledged, again):
            assert claim is None or find_content(lost, store, claim).read() == b"x" * 5000
        assert not list(ContentContainers(lost, store, "main").missing())
        assert not list(ContentContainers(lost, store, "main").damage())
        if acknowledged is not None:
            break
    assert crash_at > 15


def test_the_mark_says_whose_container_it_is(tmp_path: Path) -> None:
    fill(store_of(tmp_path, "a"), "a")
    mark = CONTAINER_FORMAT.decode((tmp_path / "disk-a/main/content/a/CONTAINER").read_bytes(), "CONTAINER")
    assert isinstance(mark, ContainerMark)
    assert (mark.writer, mark.container, mark.store) == ("main", "a", str(tmp_path / "store/main/content-marks/a"))
    with pytest.raises(CorruptionError, match="expected the mark of a content container"):
        CONTAINER_FORMAT.decode(b"CUSTCON\x01", "CONTAINER")
