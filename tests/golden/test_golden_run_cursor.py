"""Today's code reads how far version 1 of the format says that runs of Airflow were reconciled."""

from __future__ import annotations

from pathlib import Path

from custody.airflow_runs import read_cursor
from custody.airflow_runs.reconciliation import CURSOR, CURSOR_FORMAT, RunCursor

# Made with `CURSOR_FORMAT.encode` when the format was new; never made again.
GOLDEN = Path(__file__).parent / "run-cursor"


def test_a_cursor_of_version_1_is_read_and_written_alike() -> None:
    cursor = read_cursor(GOLDEN)
    assert cursor == RunCursor(deployment="airflow ü", until_ms=1_772_452_800_000)
    data = (GOLDEN / CURSOR).read_bytes()
    assert data[:8] == b"CUSTARC\x01"
    assert CURSOR_FORMAT.encode(cursor) == data
