"""The part of a long enumeration that one run of the tests does.

An enumeration that takes minutes is cut into parts. A run does one of them, chosen by its seed: the commit that is
tested, unless CUSTODY_TEST_SEED names another one. So two runs of one commit do the same, and different commits look
at different parts. `CUSTODY_TEST_SEED=all`, which `make slow` sets, does all parts.

Which case belongs to which part never depends on the seed, so that the parts together are the whole.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from random import Random
from zlib import crc32

SEED_VARIABLE = "CUSTODY_TEST_SEED"
ALL_PARTS = "all"
PARTS = 16
"""The parts of an enumeration, unless it says otherwise; with what each run does always, a run does about a fifth."""


@dataclass(frozen=True)
class Part:
    """One part of each enumeration.

    Args:
        number: chooses the part, whatever the number of parts is; None chooses all of them.
    """

    number: int | None = None

    def of(self, name: str, count: int, parts: int = PARTS, *, always: Collection[int] = ()) -> list[int]:
        """Return the cases of this part, of `count` cases counted from 0, in their order.

        Args:
            name: of the enumeration; each has a division of its own.
            always: cases that belong to every part.
        """
        if self.number is None:
            return list(range(count))
        wanted = self.number % parts
        return [case for case in range(count) if case in always or _part_of(name, case, parts) == wanted]

    def shifted(self, by: int) -> Part:
        """Return another part, for one of several enumerations that look at nearly the same."""
        return self if self.number is None else Part(self.number + by)

    def apart(self) -> Part:
        """Return a part that says nothing about this one.

        What chooses a case must not choose as well which part of it is done: of a case that every fourth run does, most
        of the sixteen parts would never be done.
        """
        return self if self.number is None else Part(crc32(b"%d" % self.number))


WHOLE = Part()


def part_of_seed(seed: str) -> Part:
    """Return what a seed stands for: a number is the number of a part, any other text is hashed."""
    if seed == ALL_PARTS:
        return WHOLE
    return Part(int(seed) if seed.isdecimal() else crc32(seed.encode()))


def seed_of_run() -> str:
    """Return the seed that the environment names, else the commit that is checked out, else "0"."""
    return os.environ.get(SEED_VARIABLE) or _commit() or "0"


def _part_of(name: str, case: int, parts: int) -> int:
    # Operations come in patterns: create, write, sync, rename. A part of every n-th one could be syncs alone, so that
    # each n cases in a row are dealt out to the n parts in an order of their own.
    row, place = divmod(case, parts)
    return _dealt(name, row, parts)[place]


@lru_cache(maxsize=4096)
def _dealt(name: str, row: int, parts: int) -> list[int]:
    order = list(range(parts))
    Random(f"{name} {row}").shuffle(order)  # noqa: S311 - a division that is the same in every run, no secret
    return order


def _commit() -> str:
    """Return the commit of this tree; empty where there is none, as in an archive of the sources."""
    try:
        asked = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=Path(__file__).parent, capture_output=True, text=True, check=False
        )
    except OSError:
        return ""
    return asked.stdout.strip() if asked.returncode == 0 else ""
