"""The part of its enumeration that a crash test does."""

from __future__ import annotations

import pytest

from tests.parts import WHOLE, Part, part_of_seed, seed_of_run


@pytest.fixture
def part(request: pytest.FixtureRequest) -> Part:
    """The part of this run; the whole for a slow test."""
    return WHOLE if request.node.get_closest_marker("slow") else part_of_seed(seed_of_run())
