"""The benchmark of what waits asks all its questions, each with an answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.waiting.__main__ import main
from benchmarks.waiting.sides import QUESTIONS


@pytest.mark.benchmark
def test_what_waits_is_asked(tmp_path: Path) -> None:
    output = tmp_path / "waiting.json"
    options = ["--events", "20000", "--tries", "2", "--scratch", str(tmp_path), "--output", str(output)]
    done = CliRunner().invoke(main, options)
    assert done.exit_code == 0, done.output
    figures = json.loads(output.read_text())["figures"]
    assert list(figures) == list(QUESTIONS)
    assert all(each["answer"] > 0 and each["CPU s"] > 0 for each in figures.values())
    assert {path.name for path in tmp_path.iterdir()} == {"waiting.json"}
