"""Which sealed groups are rolled over together.

Small neighbours become one unit, up to the size of a log, so that a quiet writer does not fill the catalog with tiny
logs. A unit is chosen anew on each pass until its folder is published; then its manifest fixes the choice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from custody.journal import Group


def plan(groups: Sequence[Group], bytes_of: Callable[[Group], int], bytes_max: int) -> Iterator[list[Group]]:
    """Yield the units of a writer's groups (by first event id); neighbours while their journals fit into `bytes_max`.

    A group that is larger is a unit of its own. `groups` are all groups on disk; those that are not to be rolled over
    have size -1, and no unit reaches over one of them: the id ranges of logs do not overlap.
    """
    unit: list[Group] = []
    used = 0
    for group in groups:
        size = bytes_of(group)
        if unit and (size < 0 or used + size > bytes_max):
            yield unit
            unit, used = [], 0
        if size >= 0:
            unit.append(group)
            used += size
    if unit:
        yield unit
