"""One flipped bit in a log costs its block and no more; in the footer and the table of contents it costs nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.support import INCLUDE


def flip(*arguments: int) -> dict[str, int]:
    """Run the flips in a process of their own, so that its end is a failed test and not the end of all tests."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.unit.eventlog.bit_flips", *map(str, arguments)],
        cwd=INCLUDE.parent,
        env={**os.environ, "PYTHONPATH": f"{INCLUDE}:{INCLUDE.parent}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    costs: dict[str, int] = json.loads(done.stdout)
    return costs


@pytest.mark.in_parts(2)
def test_a_flipped_bit_costs_at_most_its_block() -> None:
    costs = flip(3, 4096, 211, 20)
    assert costs["nothing"] > 1000
    assert costs["one block"] > 200
    assert costs["decoded"] > 50


@pytest.mark.in_parts(2)
def test_a_flipped_bit_of_a_larger_log_costs_at_most_its_block() -> None:
    costs = flip(400, 60_000, 30_011, 5)
    assert costs["one block"] > 20
    assert costs["nothing"] > 20


@pytest.mark.slow
def test_every_bit_of_a_log_may_flip() -> None:
    costs = flip(3, 4096, 1, 500)
    assert costs["nothing"] + costs["one block"] > 300_000
