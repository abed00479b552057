"""A process that reads a repository: it asks all questions again and again until it is killed, or each once.

`python -m tests.behaviour.reader_process ROOT SEED [QUESTION …]` asks in an order of its own; it says when it begins.
`python -m tests.behaviour.reader_process ROOT` asks each question once and prints a digest of each answer as JSON.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random

from custody.store import base
from tests.behaviour.answers import QUESTIONS, answer, opened

PART_BYTES = 4_000
"""Whole files come in so small parts, so that a kill finds them half fetched."""
BEGUN = "asking"


QUICK = ("search all", "get main", "events main", "facets")
"""Questions that need one writer and no other process."""


def ask_until_killed(root: Path, seed: int, names: Sequence[str]) -> None:
    """Ask in a random order; what is fetched stays in the folder that all readers share."""
    order, random = list(names), Random(seed)  # noqa: S311 - an order that can be repeated, no secret
    print(BEGUN, flush=True)  # noqa: T201
    while True:
        random.shuffle(order)
        # Each round as a process that just started: nothing is known to be whole.
        repository = opened(root)
        for name in order:
            told = answer(repository, QUESTIONS[name])
            if isinstance(told, str):
                print(f"{name}: {told}", flush=True)  # noqa: T201


def digests(root: Path, names: Sequence[str]) -> dict[str, str]:
    """Return by question a digest of what was answered, how much was said and given; raises when one has no answer."""
    repository = opened(root)
    found = {}
    for name in names:
        told = answer(repository, QUESTIONS[name])
        assert not isinstance(told, str), f"{name}: {told}"
        digest = hashlib.sha256(repr(told.same).encode()).hexdigest()
        found[name] = f"{digest}, {len(told.said)} notices, {len(told.items)} events"
    return found


if __name__ == "__main__":
    base.PART_BYTES = PART_BYTES
    folder, *rest = sys.argv[1:]
    if rest:
        seed, *chosen = rest
        ask_until_killed(Path(folder), int(seed), chosen or list(QUESTIONS))
    else:
        print(json.dumps(digests(Path(folder), list(QUESTIONS))))  # noqa: T201
