"""The measuring of questions to a provenance table runs."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.benchmarks.swh.__main__ import main
from tests.benchmarks.swh.heritage import swhid_lines
from tests.benchmarks.swh.service import main as service

pytestmark = pytest.mark.benchmark


def test_every_case_is_measured_for_every_size_of_row_groups(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--rows", "20000", "--questions", "40", "--pages", "1000", "4000"]) == 0
    shown = capsys.readouterr().out
    assert len(re.findall(r"p50 \d+\.\d\d ms, p99 \d+\.\d\d ms, CPU \d+\.\d\d ms", shown)) == 8


def test_systems_on_the_same_files_give_the_same_answers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    systems = ["custody", "custody, nothing cached", "DuckDB"]
    arguments = ["query", "--rows", "20000", "--questions", "10", "--cold", "2", "--folder", str(tmp_path)]
    assert main([*arguments, "--systems", *systems]) == 0
    shown = capsys.readouterr().out
    assert len(re.findall(r"p50 \d+\.\d\d ms, p99 \d+\.\d\d ms, CPU \d+\.\d\d ms, read \d+ KiB", shown)) == 9
    cold = re.findall(r"whereis, cold, (.+): .* read (\d+) KiB", shown)
    assert [name for name, read in cold if int(read) > 0] == systems


def test_custody_is_asked_over_grpc_and_the_peer_is_skipped_where_it_is_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    systems = ["custody", "custody over gRPC", "DuckDB", "Software Heritage over gRPC"]
    arguments = ["--rows", "20000", "--questions", "10", "--cold", "2", "--folder", str(tmp_path)]
    assert service([*arguments, "--programs", str(tmp_path), "--systems", *systems]) == 0
    shown = capsys.readouterr().out
    assert "skipped: the service of Software Heritage, for want of swh-provenance-grpc-serve" in shown
    lines = re.findall(r"  (.+), (warm|cold), (.+): p50 \d+\.\d\d ms, p99 \d+\.\d\d ms, CPU \d+\.\d\d ms", shown)
    kinds = [("whereis", "warm"), ("whereare 100", "warm"), ("whereis", "cold")]
    assert lines == [(*kind, system) for kind in kinds for system in systems[:3]]
    assert len(re.findall(r"contents asked: 0 have no revision", shown)) == 3


def test_identifiers_are_written_as_lines() -> None:
    hashes = np.arange(40, dtype=np.uint8).reshape(2, 20) + 200
    lines = swhid_lines(pa.array(["rev", "cnt"]), hashes).tobytes().decode()
    assert lines == "".join(
        f"swh:1:{kind}:{row.tobytes().hex()}\n" for kind, row in zip(["rev", "cnt"], hashes, strict=True)
    )
