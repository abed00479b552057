"""Two revisions are measured in turns, and what became slower is told from what became faster."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.environment import ROOT
from benchmarks.turns.__main__ import PARTS, NoSuchPartError, Part, compared, figures, measure, turns, unpack

pytestmark = pytest.mark.benchmark

_RESULTS = {
    "machine": {"processors": 2},
    "cells": [
        {"peer": "custody", "threads": 1, "note": "of today", "rate_per_second": 200, "readings": [1.0, 9.0, 2.0]},
        {"peer": "custody", "threads": 16, "note": "", "rate_per_second": 900.0, "readings": []},
        {"peer": "sqlite", "threads": 1, "note": "", "rate_per_second": 50.0, "readings": [5.0]},
    ],
    "cpu": {"open": 4.0, "is_met": True},
}
_PART = Part(
    "none",
    (),
    {r"cells / custody .* / rate_per_second": True, r"cells / custody .* / readings": False, "cpu / .*": False},
)


def test_lines_are_named_by_what_was_measured() -> None:
    assert figures(_PART, _RESULTS) == {
        "cells / custody threads 1 / rate_per_second": 200,
        "cells / custody threads 1 / readings": 2.0,
        "cells / custody threads 16 / rate_per_second": 900.0,
        "cpu / open": 4.0,
    }


def test_costs_are_compared_by_medians_whichever_way_a_figure_counts() -> None:
    rate, cpu = "cells / custody threads 1 / rate_per_second", "cpu / open"
    before = [{rate: 100.0, cpu: 4.0}, {rate: 300.0, cpu: 5.0}, {rate: 200.0, cpu: 90.0}]
    now = [{rate: 400.0, cpu: 10.0}, {rate: 400.0, cpu: 10.0}, {rate: 1.0, cpu: 10.0}]
    lines = {line.name: line for line in compared("part", _PART, before, now)}
    assert (lines[rate].before, lines[rate].now, lines[rate].ratio) == (200.0, 400.0, 0.5)
    assert (lines[cpu].before, lines[cpu].now, lines[cpu].ratio) == (5.0, 10.0, 2.0)
    assert lines[cpu].turns == 3


def test_a_line_that_one_turn_lacks_is_left_out() -> None:
    before, now = [{"cpu / open": 1.0}, {"cpu / open": 1.0}], [{"cpu / open": 1.0}, {}]
    assert compared("part", _PART, before, now) == []


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="needs the history")
def test_a_revision_is_measured_beside_this_tree(tmp_path: Path) -> None:
    revision = tmp_path / "revision"
    revision.mkdir()
    unpack("HEAD", revision)
    ingest = PARTS["ingest of NiFi's JSON"]
    part = Part("ingest", ("--files", "2", "--events", "50", "--rounds", "1", "--peer", "custody"), ingest.figures)
    (line,) = turns("ingest", part, revision, 1, tmp_path)
    assert line.name == "peers / custody / cpu"
    assert 0 < line.before < 60
    assert 0 < line.now < 60
    assert [path.name for path in tmp_path.iterdir()] == ["revision"]


def test_a_part_that_cannot_be_measured_says_why(tmp_path: Path) -> None:
    with pytest.raises(NoSuchPartError, match=r"No module named benchmarks\.none"):
        measure(_PART, ROOT, ROOT, tmp_path)
