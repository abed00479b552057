"""The engine's process: it keeps its limits, ends with its client, and leaves nothing behind."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from custody.errors import InvalidInputError
from custody.sql import EngineQuery, LogGoneError, LogPart, QueryInput, QueryLimits
from custody.sql.protocol import FRAME_BYTES
from tests.support import INCLUDE

LIMITS = QueryLimits(
    engine_bytes=128 << 20, process_bytes=400 << 20, spill_bytes=1 << 30, row_bytes=16 << 20, seconds=120.0
)
TIMES = pa.array([1, 2, 3], pa.timestamp("ms", "UTC"))
TAIL = pa.table({"writer": ["w"] * 3, "event_id": [0, 1, 2], "event_time": TIMES})
NOTHING = QueryInput([], TAIL, TAIL.slice(0, 0).select(["writer", "event_id"]))
SPILLING = "select md5(range::varchar) m from range(100000000) order by m"
ENDLESS = "select count(*) from range(1000000000) a, range(1000000000) b where a.range * b.range = -1"


@pytest.fixture(autouse=True)
def aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of temporary files, for this test alone."""
    folder = tmp_path / "aside"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


def batches(query: EngineQuery) -> Iterator[pa.RecordBatch]:
    while batch := query.next_batches():
        yield from batch


def answer(text: str, limits: QueryLimits = LIMITS) -> pa.Table:
    query = EngineQuery(text, ("events",), limits)
    try:
        query.tables()
        schema = query.start(NOTHING)
        return pa.Table.from_batches(batches(query), schema)
    finally:
        query.close()


def below(process: int) -> list[int]:
    """The children of a process."""
    return [int(number) for number in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def is_there(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def wait_for(true: Callable[[], object]) -> None:
    until = time.monotonic() + 60
    while not true():
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.mark.in_parts(2)
@pytest.mark.parametrize(
    ("text", "setting"),
    [
        ("select len(range(400000000))", "query.sql_process_bytes_max"),
        ("select len(repeat('x', 4000000000))", "query.sql_process_bytes_max"),
        ("select len(printf('%2000000000d', 1))", "query.sql_process_bytes_max"),
        ("select list(range) from range(1000000000)", "query.sql_memory_bytes"),
        ("select repeat('x', 20000000)", "query.sql_row_bytes_max"),
        (SPILLING, "query.sql_spill_bytes_max"),
    ],
)
def test_a_query_that_needs_too_much_memory_is_refused(text: str, setting: str, aside: Path) -> None:
    with pytest.raises(InvalidInputError, match=setting):
        answer(text, replace(LIMITS, spill_bytes=0 if text != SPILLING else 1 << 20))
    assert not list(aside.iterdir())


@pytest.mark.in_parts(2)
@pytest.mark.parametrize(
    "text",
    [
        "select levenshtein(repeat('x', 1000000), repeat('y', 1000000))",
        "select levenshtein(repeat('x', r::int), repeat('y', 1000000)) from range(1000000, 1000001) t(r)",
        "select len(lpad('x', 100000000, 'yz'))",
        ENDLESS,
    ],
)
def test_time_is_kept_inside_of_one_function(text: str, aside: Path) -> None:
    query = EngineQuery(text, (), replace(LIMITS, seconds=0.5))
    keeper = query._process.pid
    engines = below(keeper)
    with pytest.raises(InvalidInputError, match=r"stopped after 0\.5 seconds.*query\.sql_seconds_max"):
        for _ in range(2):
            query.tables()
            query.start(NOTHING)
    query.close()
    assert not is_there(keeper)
    assert not any(map(is_there, engines))
    assert not list(aside.iterdir())


CLIENT = """
import sys, time
from pathlib import Path
sys.path[:0] = [sys.argv[1], str(Path(sys.argv[1]).parent)]
from tests.unit.sql.test_client import LIMITS, NOTHING
from custody.sql import EngineQuery
query = EngineQuery(sys.argv[2], (), LIMITS)
query.tables()
print(query._process.pid, flush=True)
query.start(NOTHING)
"""


def spilling(aside: Path) -> bool:
    return any(path.is_file() for path in aside.rglob("*"))


def test_nothing_is_left_when_the_client_is_killed(aside: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", CLIENT, str(INCLUDE), SPILLING], stdout=subprocess.PIPE) as client:
        assert client.stdout is not None
        keeper = int(client.stdout.readline())
        wait_for(lambda: spilling(aside))
        [engine] = below(keeper)
        client.kill()
    wait_for(lambda: not is_there(engine) and not is_there(keeper))
    assert not list(aside.iterdir())


@pytest.mark.parametrize("victim", ["keeper", "engine"])
def test_nothing_is_left_when_the_engine_or_its_keeper_is_killed(aside: Path, victim: str) -> None:
    query = EngineQuery(SPILLING, (), LIMITS)
    query.tables()
    keeper = query._process.pid
    [engine] = below(keeper)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(query.start, NOTHING)
        wait_for(lambda: spilling(aside))
        os.kill(keeper if victim == "keeper" else engine, signal.SIGKILL)
        with pytest.raises(InvalidInputError, match="ended by SIGKILL"):
            running.result()
    query.close()
    # Nobody waits for the child of a keeper that is gone: the system ends it.
    wait_for(lambda: not is_there(engine))
    assert keeper not in below(os.getpid())
    assert not list(aside.iterdir())


def test_a_query_that_nobody_closes_ends_when_nobody_holds_it(aside: Path) -> None:
    query = EngineQuery("from range(1000000000000)", (), LIMITS)
    query.tables()
    query.start(NOTHING)
    assert query.next_batches()
    keeper = query._process.pid
    del query
    gc.collect()
    assert not is_there(keeper)
    assert not list(aside.iterdir())


def test_several_threads_ask_at_once() -> None:
    with ThreadPoolExecutor(3) as pool:
        found = list(
            pool.map(
                answer,
                [
                    "select 0 n, count(*) c from events",
                    "select 1 n, count(*) c from events",
                    "from range(2, 3) t(n), (select count(*) c from events)",
                ],
            )
        )
    assert [table.to_pylist() for table in found] == [[{"n": number, "c": 3}] for number in range(3)]


def test_rows_come_in_frames_that_are_bounded() -> None:
    query = EngineQuery("select repeat('x', 1000000) x from range(40)", (), LIMITS)
    query.tables()
    query.start(NOTHING)
    rows = 0
    for batch in batches(query):
        assert batch.nbytes <= FRAME_BYTES
        rows += batch.num_rows
    query.close()
    assert rows == 40


BOMB = """
import resource, sys
from pathlib import Path
sys.path[:0] = [sys.argv[1], str(Path(sys.argv[1]).parent)]
from tests.unit.sql.test_client import LIMITS, NOTHING, answer, batches
from custody.errors import InvalidInputError
from custody.sql import EngineQuery
answer("select 1")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    answer("select len(range(400000000))")
except InvalidInputError:
    print("refused")
query = EngineQuery("select repeat('x', 1000000) from range(80)", (), LIMITS)
query.tables()
query.start(NOTHING)
print(sum(batch.num_rows for batch in batches(query)))
query.close()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_the_memory_of_the_client_does_not_grow() -> None:
    done = subprocess.run([sys.executable, "-c", BOMB, str(INCLUDE)], capture_output=True, text=True, check=True)
    refused, rows, grown_kib = done.stdout.split()
    assert (refused, rows) == ("refused", "80")
    assert int(grown_kib) < 64 << 10


def test_a_log_that_is_gone_is_not_taken_for_a_damaged_one(tmp_path: Path) -> None:
    part = LogPart(
        path=os.fsencode(tmp_path / "gone.parquet"),
        writer="w",
        first_event_id=0,
        last_event_id=1,
        first_event_time_ms=0,
        last_event_time_ms=1,
    )
    query = EngineQuery("from events", ("events",), LIMITS)
    query.tables()
    with pytest.raises(LogGoneError, match=r"gone\.parquet"):
        query.start(replace(NOTHING, logs=[part]))
    query.close()


def test_a_query_that_is_no_unicode_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="Unicode"):
        EngineQuery("select '\udce9'", (), LIMITS)


def test_the_process_has_no_variable_of_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUSTODY__NGSI__PASSWORD", "hidden")
    query = EngineQuery("select 1", (), LIMITS)
    query.tables()
    [engine] = below(query._process.pid)
    assert b"hidden" not in Path(f"/proc/{engine}/environ").read_bytes()
    query.close()
