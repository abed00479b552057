"""Reading by id, in order and by time: opened files, caches, the cost of damage, and swaps of files meanwhile."""

from __future__ import annotations

import gc
import hashlib
import shutil
import weakref
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event as Flag

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from custody.catalog import Action, RemoveFile
from custody.config import load_settings
from custody.errors import CorruptionError, NotFoundError
from custody.eventlog import EventLog
from custody.journal import JournalFile
from custody.model import EVENT_SCHEMA, Event, to_events
from custody.read.cache import caches_of
from custody.repository import Repository
from custody.vfs import PosixFileSystem
from custody.vfs.wrapping import WrappingFileSystem
from tests.support import append, event, flipped, numbered, run_steps, sample

EVENTS = numbered(sample(400))
LIVE = 300


class Counting(WrappingFileSystem):
    """Counts what is opened, by the end of its name."""

    def __init__(self) -> None:
        super().__init__(PosixFileSystem())
        self.opened: Counter[str] = Counter()

    def read(self, path: Path) -> bytes:
        self.opened[path.suffix] += 1
        return self.inner.read(path)

    def view(self, path: Path) -> memoryview:
        self.opened[path.suffix] += 1
        return self.inner.view(path)

    @property
    def journals(self) -> int:
        return self.opened[".sealed"] + self.opened[".journal"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three live logs of many blocks, and two sealed groups."""
    root = tmp_path_factory.mktemp("made") / "repository"
    repository = Repository.create(root)
    (root / "custody.toml").write_text("[eventlog]\nblock_bytes_max = 20000\n")
    repository = Repository.open(root)
    for start in (0, 100, 200):
        append(repository, EVENTS[start : start + 100])
        run_steps(repository.settings)
    append(repository, EVENTS[LIVE:350])
    append(repository, EVENTS[350:])
    return root


@pytest.fixture
def root(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "copy"))


def counted(root: Path) -> tuple[Repository, Counting]:
    fs = Counting()
    return Repository(load_settings(root), fs), fs


def logs(root: Path) -> list[Path]:
    return sorted(root.rglob("*.parquet"))


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts the blocks that are decoded."""
    count: Counter[str] = Counter()
    decode = EventLog._decode

    def counting(self: EventLog, numbers: list[int], columns: object) -> pa.Table:
        count["blocks"] += len(numbers)
        return decode(self, numbers, columns)  # type: ignore[arg-type]

    monkeypatch.setattr(EventLog, "_decode", counting)
    return count


def test_a_cold_read_of_one_event_opens_one_log_and_decodes_one_block(root: Path, decoded: Counter[str]) -> None:
    repository, fs = counted(root)
    assert repository.get(150) == EVENTS[150]
    assert (fs.opened[".parquet"], fs.opened[".toc"], fs.journals) == (1, 1, 0)
    assert decoded["blocks"] == 1
    assert len(EventLog(PosixFileSystem(), logs(root)[1]).toc.blocks) == 4


def test_a_second_read_opens_and_decodes_nothing(root: Path, decoded: Counter[str]) -> None:
    repository, fs = counted(root)
    repository.get(150)
    fs.opened.clear()
    assert repository.get(150) == EVENTS[150]
    assert (fs.opened[".parquet"], fs.opened[".toc"], fs.journals, decoded["blocks"]) == (0, 0, 0, 1)


def test_a_sealed_journal_is_decoded_once_and_only_the_one_that_may_hold_the_event(root: Path) -> None:
    repository, fs = counted(root)
    heads = 2  # of each journal the head is looked at once: is it the writer's own?
    assert repository.get(360) == EVENTS[360]
    assert fs.journals == heads + 1
    assert repository.get(399) == EVENTS[399]
    assert fs.journals == heads + 1
    assert repository.get_many([310, 20]) == [EVENTS[20], EVENTS[310]]
    assert fs.journals == heads + 2
    assert repository.search("").total == 400
    assert list(repository.events()) == EVENTS
    assert fs.journals == heads + 2


def test_an_open_journal_is_decoded_as_it_grows(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository, _ = counted(root)
    sizes: list[int] = []
    read = JournalFile.read.__func__  # type: ignore[attr-defined]

    def counting(cls: type[JournalFile], fs: WrappingFileSystem, path: Path) -> JournalFile:
        found: JournalFile = read(cls, fs, path)
        if path.suffix == ".journal":
            sizes.append(found.table().num_rows)
        return found

    monkeypatch.setattr(JournalFile, "read", classmethod(counting))
    with Repository.open(root).writer() as writer:
        sizes.clear()
        for start in range(0, 250, 50):
            writer.append([event(n) for n in range(start, start + 50)])
            assert repository.search("").total == 400 + start + 50
            assert [item.source_ordinal for item in repository.get_many(range(400, 1000))] == list(range(start + 50))
    assert sizes == [50] * 5
    assert [item.source_ordinal for item in repository.events(400)] == list(range(250))


def test_a_torn_end_of_an_open_journal_is_read_when_it_is_whole(root: Path) -> None:
    """A reader may see a record half written; what follows later begins where the whole part ended."""
    repository = Repository.open(root)
    with Repository.open(root).writer() as writer:
        writer.append([event(0)])
        [path] = root.rglob("*.journal")
        first = path.stat().st_size
        writer.append([event(n) for n in range(1, 6)])
        whole = path.read_bytes()
        for length in (first, first + 3, len(whole) - 1, len(whole) - 1, len(whole)):
            path.write_bytes(whole[:length])
            got = [item.source_ordinal for item in repository.get_many(range(400, 500))]
            assert got == (list(range(6)) if length == len(whole) else [0])


def test_reads_are_right_when_nothing_is_kept(root: Path) -> None:
    (root / "custody.toml").write_text("[query]\ncache_bytes = 0\nopen_logs_max = 1\n")
    repository, fs = counted(root)
    assert repository.get_many(range(0, 400, 3)) == EVENTS[::3]
    assert list(repository.events()) == EVENTS
    caches = caches_of(repository.workspace())
    assert (caches.decoded.cost, len(caches.logs)) == (0, 1)
    assert fs.opened[".parquet"] > 3


def test_the_caches_stay_within_their_bounds(root: Path) -> None:
    (root / "custody.toml").write_text("[query]\ncache_bytes = 100000\nopen_logs_max = 2\n")
    repository, _ = counted(root)
    caches = caches_of(repository.workspace())
    for event_id in [*range(0, 400, 7), *range(399, 0, -11)]:
        assert repository.get(event_id) == EVENTS[event_id]
        assert caches.decoded.cost <= 100_000
        assert len(caches.logs) <= 2
    assert caches.decoded.cost > 0


def test_the_caches_end_with_their_file_system(root: Path) -> None:
    fs = Counting()
    repository = Repository(load_settings(root), fs)
    assert list(repository.events()) == EVENTS
    seen = weakref.ref(fs)
    del fs, repository
    gc.collect()
    assert seen() is None


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ids=st.lists(st.integers(-3, 420), max_size=12), first=st.integers(-2, 410), count=st.integers(1, 200))
def test_reads_by_id_agree_with_a_full_scan(made: Path, ids: list[int], first: int, count: int) -> None:
    repository = Repository.open(made)
    assert repository.get_many(ids) == [item for item in EVENTS if item.event_id in ids]
    assert list(repository.events(first, count)) == EVENTS[max(first, 0) :][:count]
    tables = list(repository.events(first, count).tables())
    assert all(table.schema.equals(EVENT_SCHEMA) for table in tables)
    assert [item for table in tables for item in to_events(table)] == EVENTS[max(first, 0) :][:count]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_reads_by_time_agree_with_a_full_scan(made: Path, data: st.DataObject) -> None:
    times = st.sampled_from([item.event_time for item in EVENTS])
    start, end = data.draw(times) + data.draw(st.integers(-1, 1)), data.draw(times) + data.draw(st.integers(-1, 1))
    found = list(Repository.open(made).events_between(start, end))
    assert found == [item for item in EVENTS if start <= item.event_time < end]


def test_a_time_opens_only_the_logs_and_decodes_only_the_blocks_that_may_hold_it(
    root: Path, decoded: Counter[str]
) -> None:
    repository, fs = counted(root)
    late = max(item.event_time for item in EVENTS)
    assert list(repository.events_between(late + 1, late + 1000)) == []
    assert (fs.opened[".parquet"], decoded["blocks"]) == (0, 0)
    live = [[item.event_time for item in EVENTS[start : start + 100]] for start in (0, 100, 200)]

    def logs_at(time: int) -> int:
        return sum(min(times) <= time <= max(times) for times in live)

    time = min((item.event_time for item in EVENTS[:LIVE]), key=logs_at)
    assert list(repository.events_between(time, time + 1)) == [item for item in EVENTS if item.event_time == time]
    assert fs.opened[".parquet"] == logs_at(time) < 3
    assert 1 <= decoded["blocks"] < 6


@pytest.mark.parametrize("way", ["toc", "copy", "footer", "unguarded"])
def test_any_id_is_reached_through_each_way_to_the_blocks(root: Path, tmp_path: Path, way: str) -> None:
    source = logs(root)[1]
    path = tmp_path / "log.parquet"
    data = source.read_bytes()
    sha256 = None
    good = EventLog(PosixFileSystem(), source)
    copy = data.rindex(good.toc.encode())
    if way == "toc":
        shutil.copy(source.with_suffix(".toc"), tmp_path / "log.toc")
    elif way == "footer":  # the copy within the log is damaged
        data = flipped(data, 8 * (copy + 100))
    elif way == "unguarded":  # a file of another writer of Parquet: only the catalog's digest speaks for it
        data = data[:copy] + data[good.toc.footer_offset :]
        path.write_bytes(data)
        with pytest.raises(CorruptionError, match="footer with its checksum"):
            EventLog(PosixFileSystem(), path).read()
        sha256 = hashlib.sha256(data).digest()
    path.write_bytes(data)
    log = EventLog(PosixFileSystem(), path, sha256=sha256)
    assert log.toc.blocks.tolist() == good.toc.blocks.tolist()
    assert to_events(log.read()) == EVENTS[100:200]
    for event_id in range(98, 203):
        expected = [EVENTS[event_id]] if 100 <= event_id < 200 else []
        assert to_events(log.get_many([event_id])) == expected


def damage(path: Path, block: int) -> range:
    """Flip a bit in a block; return the ids that it holds."""
    blocks = EventLog(PosixFileSystem(), path).toc.blocks
    middle = int(blocks[block]["offset"] + blocks[block]["length"] // 2)
    path.write_bytes(flipped(path.read_bytes(), 8 * middle + 3))
    first = int(blocks[block]["first_event_id"])
    return range(first, first + int(blocks[block]["rows"]))


def test_a_damaged_block_is_named_and_left_out_and_the_rest_is_read(root: Path) -> None:
    lost = damage(logs(root)[1], 2)
    repository = Repository.open(root)
    rest = [item for item in EVENTS if item.event_id not in lost]
    text = f"{logs(root)[1]} block 2: "
    stream = repository.events()
    many = repository.get_many(range(400))
    between = repository.events_between(0, 1 << 60)
    searched = repository.search("", limit=1000)
    assert list(stream) == many == list(between) == rest
    assert [stored.event for stored in searched.events] == rest[::-1] or len(searched.events) == len(rest)
    assert searched.total == 400
    for notices in (stream.notices, many.notices, between.notices, searched.notices):
        [notice] = notices
        assert notice.startswith(text)
        assert f"events {lost[0]} to {lost[-1]} are lost" in notice
    assert repository.get(lost[0] - 1) == EVENTS[lost[0] - 1]


def test_strict_reading_refuses_damage(root: Path) -> None:
    lost = damage(logs(root)[1], 2)
    repository = Repository.open(root)
    questions: list[Callable[[], object]] = [
        lambda: repository.get(lost[0]),
        lambda: repository.get_many(lost, strict=True),
        lambda: list(repository.events(strict=True)),
        lambda: list(repository.events_between(0, 1 << 60, strict=True)),
    ]
    for question in questions:
        with pytest.raises(CorruptionError, match="block 2"):
            question()


def test_a_damaged_journal_is_named_and_the_rest_is_read(root: Path) -> None:
    journal = min(root.rglob("*.sealed"), key=lambda path: path.name)
    data = journal.read_bytes()
    journal.write_bytes(flipped(data, 8 * (len(data) // 2)))
    repository = Repository.open(root)
    stream = repository.events()
    found = list(stream)
    assert [item for item in EVENTS if item in found] == found
    assert {*range(300), *range(350, 400)} <= {item.event_id for item in found}
    assert [journal.name in notice for notice in stream.notices] == [True]
    with pytest.raises(CorruptionError, match=journal.name):
        repository.events(strict=True).tables().__next__() and list(repository.events(strict=True))


def expire(root: Path, path: Path) -> None:
    """Take a log out of the catalog, then delete it."""
    workspace = Repository.open(root).workspace()
    workspace.catalog.commit([Action(remove_file=RemoveFile(path=str(path.relative_to(workspace.paths.home))))])
    path.unlink()
    path.with_suffix(".toc").unlink()


def test_a_log_that_expired_is_left_out_and_closed(root: Path) -> None:
    repository, _ = counted(root)
    assert list(repository.events()) == EVENTS
    expire(root, logs(root)[1])
    stream = repository.events()
    assert list(stream) == EVENTS[:100] + EVENTS[200:]
    assert stream.notices == ()
    with pytest.raises(NotFoundError):
        repository.get(150)
    assert len(caches_of(repository.workspace()).logs) == 2


@pytest.mark.parametrize("is_open", [False, True])
def test_a_log_that_expires_between_look_up_and_read_is_left_out(root: Path, is_open: bool) -> None:
    repository, _ = counted(root)
    if is_open:
        assert repository.get(250) == EVENTS[250]
    stream = repository.events()
    assert next(stream) == EVENTS[0]  # the state of the catalog is taken
    expire(root, logs(root)[2])
    rest = list(stream)
    assert rest == (EVENTS[1:] if is_open else EVENTS[1:200] + EVENTS[300:])
    assert stream.notices == ()


def test_a_group_that_becomes_live_while_events_are_read_is_read_once(root: Path) -> None:
    repository = Repository.open(root)
    stream = repository.events(0, 10_000)
    got = [next(stream)]
    run_steps(repository.settings)
    assert list(root.rglob("*.sealed")) == []
    assert got + list(stream) == EVENTS


def test_threads_read_right_while_files_are_swapped(root: Path) -> None:
    """Readers go on while journals become logs and a log expires."""
    repository, _ = counted(root)
    done = Flag()

    def read(seed: int) -> int:
        count = 0
        while not done.is_set() or count < 3:
            event_id = (seed * 131 + count * 37) % 400
            if not 100 <= event_id < 200:
                assert repository.get(event_id) == EVENTS[event_id]
            found: list[Event] = list(repository.events(280, 60))
            assert found == EVENTS[280:340]
            assert repository.get_many([299, 300, 399]) == [EVENTS[n] for n in (299, 300, 399)]
            count += 1
        return count

    with ThreadPoolExecutor(4) as threads:
        readers = [threads.submit(read, seed) for seed in range(4)]
        try:
            for name in ("rollover", "compress", "index", "commit", "sweep"):
                run_steps(repository.settings, name)
            expire(root, logs(root)[1])
        finally:
            done.set()
        assert all(reader.result() >= 3 for reader in readers)
