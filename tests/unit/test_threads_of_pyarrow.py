"""pyarrow's own threads touch no memory of Python's: one that frees it while the process ends aborts the process."""

from __future__ import annotations

import ast
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pytest

from custody.eventlog import EventLog, LogOptions, event_log, log_metadata, write_log
from custody.model import to_batch, to_events
from custody.vfs.memory import MemoryFileSystem
from tests.support import INCLUDE, numbered, sample

_THREADED = {"read_row_group", "read_row_groups", "read_table", "group_by"}


def test_a_log_is_decoded_by_threads_that_end_before_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_log, "_VALUES_A_THREAD", 1000)
    monkeypatch.setattr(pa, "cpu_count", lambda: 3)
    fs, path = MemoryFileSystem(), Path("/log.parquet")
    events = numbered(sample(100), 1000)
    table = pa.Table.from_batches([to_batch(events, 1000)])
    write_log(fs, path, table, log_metadata(table, "main", "provenance"), LogOptions(10_000))
    used: set[str] = set()
    decode = EventLog._decode

    def seen(self: EventLog, *arguments: object) -> pa.Table:
        used.add(threading.current_thread().name.rpartition("_")[0])
        return decode(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(EventLog, "_decode", seen)
    assert to_events(EventLog(fs, path).read()) == events
    assert used == {"custody-decode"}
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("custody-decode")]


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted where Linux lists them")
def test_no_thread_of_pyarrow_works_for_a_log() -> None:
    import subprocess

    program = """
import os, pyarrow as pa
from pathlib import Path
from custody.eventlog import EventLog, LogOptions, log_metadata, write_log
from custody.model import to_batch
from custody.vfs.memory import MemoryFileSystem
from tests.support import numbered, sample
fs, path = MemoryFileSystem(), Path("/log.parquet")
table = pa.Table.from_batches([to_batch(numbered(sample(400), 1000), 1000)])
write_log(fs, path, table, log_metadata(table, "main", "provenance"), LogOptions(10_000))
before = len(os.listdir("/proc/self/task"))
assert EventLog(fs, path).read().num_rows == 400
print(len(os.listdir("/proc/self/task")) - before)
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=INCLUDE.parent,
        env={"PYTHONPATH": f"{INCLUDE}:{INCLUDE.parent}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")


def test_whoever_reads_from_memory_says_that_pyarrow_starts_no_threads() -> None:
    silent = []
    for path in sorted(INCLUDE.rglob("custody/**/*.py")):
        if "spark" in path.relative_to(INCLUDE).parts:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _THREADED:
                given = {word.arg: word.value for word in node.keywords}
                threads = given.get("use_threads")
                if not (isinstance(threads, ast.Constant) and threads.value is False):
                    silent.append(f"{path.relative_to(INCLUDE)}:{node.lineno}")
    assert silent == []
