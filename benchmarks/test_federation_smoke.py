"""The benchmark of many writers runs, and the answers of several writers are those of one."""

from __future__ import annotations

import re

import pytest

from benchmarks.federation.__main__ import main

pytestmark = pytest.mark.benchmark


def test_several_writers_answer_as_one_and_the_times_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--writers", "2", "--events", "600", "--opened", "3", "--rounds", "1", "--latency-ms", "1"]) == 0
    text = capsys.readouterr().out
    assert "| lineage of one FlowFile |" in text
    assert "3 writers: cold" in text
    assert main(["--events", "0", "--opened", "3", "--latency-ms", "1", "--in-memory"]) == 0
    text += capsys.readouterr().out
    assert (
        len(re.findall(r"3 writers in a bucket, 1 ms: cold \d+ ms .* \d+ requests.* disk \d+ ms .* again \d+ ms", text))
        == 2
    )
