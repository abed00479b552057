"""The spool: what is kept, in which names, by how many processes, and what is refused."""

from __future__ import annotations

import json
import multiprocessing
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from custody.client import Spool, SpoolDelivery, spool_state
from custody.client import spool as spools
from custody.client.spool import read_positions, segment_name, segment_numbers
from custody.client.spool_delivery import Receipt
from custody.errors import (
    BackpressureError,
    ClosedError,
    CorruptionError,
    FormatVersionError,
    InvalidInputError,
    LockedError,
    NotFoundError,
    StorageError,
)
from custody.model import Event
from custody.vfs import PosixFileSystem
from tests.support import INCLUDE, event
from tests.unit.capture.sample_inputs import own_event

FS = PosixFileSystem()
THREADS, EACH = 8, 25


class Taking:
    """A server that takes everything, and remembers it."""

    def __init__(self) -> None:
        self.events: list[dict[str, object]] = []

    def send(self, lines: bytes) -> Receipt:
        taken = [json.loads(line) for line in lines.splitlines()]
        self.events += taken
        return Receipt(stored=len(taken))

    @property
    def numbers(self) -> list[object]:
        return [item["file_size"] for item in self.events]


def fill(folder: str, first: int) -> None:
    with Spool(Path(folder), "shop") as spool:
        for number in range(first, first + EACH):
            spool.append([own_event(number)])


def test_events_get_a_source_and_a_number_each_and_keep_their_own(tmp_path: Path) -> None:
    with Spool(tmp_path / "spool", "shop") as spool:
        spool.append([own_event(1), own_event(2)])
        spool.append([event(7)])
        source = spool.source
    server = Taking()
    assert SpoolDelivery(tmp_path / "spool", server).deliver().stored == 3
    names = [(item["source_node"], item["source_ordinal"]) for item in server.events]
    assert source.startswith("shop/")
    assert names == [(source, 0), (source, 1), ("node-1", 7)]
    assert msgspec.convert(server.events[2], Event) == event(7)


def test_processes_and_threads_share_a_spool(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=fill, args=(str(tmp_path), number * EACH)) for number in range(3)]
    for process in processes:
        process.start()
    with Spool(tmp_path, "shop") as spool, ThreadPoolExecutor(THREADS) as pool:
        numbers = range(1000, 1000 + THREADS * EACH)
        list(pool.map(lambda number: spool.append([own_event(number)]), numbers))
    for process in processes:
        process.join()
        assert process.exitcode == 0
    server = Taking()
    SpoolDelivery(tmp_path, server).deliver()
    assert sorted(map(str, server.numbers)) == sorted(str(10 + n) for n in [*range(3 * EACH), *numbers])
    assert len({(item["source_node"], item["source_ordinal"]) for item in server.events}) == len(server.events)
    assert segment_numbers(FS, tmp_path) == []


def test_what_a_living_process_has_kept_is_delivered_and_its_segment_stays(tmp_path: Path) -> None:
    server = Taking()
    with Spool(tmp_path) as spool:
        spool.append([own_event(1)])
        assert SpoolDelivery(tmp_path, server).deliver().segments == 0
        spool.append([own_event(2)])
        SpoolDelivery(tmp_path, server).deliver()
        assert server.numbers == [11, 12]
        assert segment_numbers(FS, tmp_path) == [0]
    assert SpoolDelivery(tmp_path, server).deliver().segments == 1
    assert server.numbers == [11, 12]
    with Spool(tmp_path) as spool:
        spool.append([own_event(3)])
    assert segment_numbers(FS, tmp_path) == [1]


def test_a_full_spool_refuses_and_takes_again_when_it_was_delivered(tmp_path: Path) -> None:
    with Spool(tmp_path, bytes_max=3000) as spool:
        kept = 0
        with pytest.raises(
            BackpressureError, match=r"of at most 3000\. Nothing was kept\. Run `custody spool deliver`"
        ):
            for number in range(100):
                spool.append([own_event(number)])
                kept += 1
        assert 3 < kept < 12
        assert spool_state(tmp_path).waiting_events == kept
        with pytest.raises(BackpressureError), Spool(tmp_path, bytes_max=3000) as other:
            other.append([own_event(1)] * 3)
    server = Taking()
    SpoolDelivery(tmp_path, server).deliver()
    assert len(server.events) == kept
    with Spool(tmp_path, bytes_max=3000) as spool:
        spool.append([own_event(1)])


def test_large_appends_become_frames_and_segments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spools, "FRAME_BYTES_MAX", 2000)
    monkeypatch.setattr(spools, "SEGMENT_BYTES", 5000)
    with Spool(tmp_path) as spool:
        spool.append([own_event(number) for number in range(100)])
    assert len(segment_numbers(FS, tmp_path)) > 3
    server = Taking()
    SpoolDelivery(tmp_path, server).deliver()
    assert server.numbers == [10 + number for number in range(100)]


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ([1], "event 0: expected an object"),
        ([own_event(1), own_event(2, source_node="n")], "event 1: source_node: expected it with a source_ordinal"),
        ([own_event(1, details=object())], "event 0: expected values of JSON"),
    ],
)
def test_what_is_no_event_is_refused_and_nothing_kept(tmp_path: Path, bad: list[object], said: str) -> None:
    with Spool(tmp_path) as spool, pytest.raises(InvalidInputError, match=said):
        spool.append(bad)
    assert spool_state(tmp_path).waiting_events == 0


def test_a_torn_end_is_passed_over_and_a_damaged_middle_is_kept_aside(tmp_path: Path) -> None:
    with Spool(tmp_path) as spool:
        for number in range(5):
            spool.append([own_event(number)])
    path = tmp_path / segment_name(0)
    data = bytearray(path.read_bytes())
    path.write_bytes(data[:-7])
    assert spool_state(tmp_path).damaged_bytes == 0
    data[len(data) // 2] ^= 1
    path.write_bytes(data[:-7])
    assert spool_state(tmp_path).damaged_bytes > 0
    server = Taking()
    SpoolDelivery(tmp_path, server).deliver()
    assert len(server.events) == 3
    assert (tmp_path / "0000000000.damaged").read_bytes() == bytes(data[:-7])
    with Spool(tmp_path) as spool:
        spool.append([own_event(9)])
    assert segment_numbers(FS, tmp_path) == [1]


def test_an_event_that_is_not_taken_is_put_aside_and_holds_nothing_up(tmp_path: Path) -> None:
    class Choosy(Taking):
        def send(self, lines: bytes) -> Receipt:
            if b'"file_size":13' in lines:
                raise InvalidInputError("the server answers 413: too large")
            return super().send(lines)

    with Spool(tmp_path) as spool:
        spool.append([own_event(number) for number in range(8)])
    server = Choosy()
    summary = SpoolDelivery(tmp_path, server).deliver()
    assert (summary.stored, summary.refused) == (7, 1)
    [path] = (tmp_path / "refused").iterdir()
    document = json.loads(path.read_bytes())
    assert document["event"]["file_size"] == 13
    assert "413" in document["reason"]
    assert spool_state(tmp_path).refused == 1


def test_a_failed_delivery_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("custody.client.spool_delivery.BATCH_BYTES", 1)

    class Away(Taking):
        def send(self, lines: bytes) -> Receipt:
            if len(self.events) == 2:
                raise StorageError("away")
            return super().send(lines)

    with Spool(tmp_path) as spool:
        for number in range(4):
            spool.append([own_event(number)])
    server = Away()
    with pytest.raises(StorageError):
        SpoolDelivery(tmp_path, server).deliver()
    assert read_positions(FS, tmp_path).frames == {0: 2}
    later = Taking()
    SpoolDelivery(tmp_path, later).deliver()
    assert later.numbers == [12, 13]


def test_one_process_delivers_and_a_folder_that_is_no_spool_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="expected a spool"):
        SpoolDelivery(tmp_path, Taking()).deliver()
    Spool(tmp_path).close()
    with FS.lock(tmp_path / "delivery.lock"), pytest.raises(LockedError):
        SpoolDelivery(tmp_path, Taking()).deliver()
    closed = Spool(tmp_path)
    closed.close()
    with pytest.raises(ClosedError):
        closed.append([own_event(1)])


def test_a_damaged_or_newer_file_is_named(tmp_path: Path) -> None:
    Spool(tmp_path).close()
    path = tmp_path / "spool.id"
    good = path.read_bytes()
    path.write_bytes(good[:7] + b"\x02" + good[8:])
    with pytest.raises(FormatVersionError, match=r"spool\.id @7: expected spool identity version 1, got 2"):
        Spool(tmp_path)
    path.write_bytes(good[:-1])
    with pytest.raises(CorruptionError, match=r"spool\.id"):
        spool_state(tmp_path)
    path.write_bytes(good)
    with Spool(tmp_path) as spool:
        spool.append([own_event(1)])
    segment = tmp_path / segment_name(0)
    data = segment.read_bytes()
    segment.write_bytes(data[:7] + b"\x02" + data[8:])
    with pytest.raises(FormatVersionError, match="spool segment version 1"):
        SpoolDelivery(tmp_path, Taking()).deliver()


def test_the_client_loads_neither_arrow_nor_airflow_nor_spark() -> None:
    code = (
        "import sys; import custody.client.spool, custody.client.spool_delivery, custody.client.http_sender; "
        "bad = {'pyarrow', 'numpy', 'pyspark', 'airflow', 'pydantic', 'fastapi'} & set(sys.modules); "
        "sys.exit(', '.join(sorted(bad)) or None)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": str(INCLUDE)})
