"""Which sealed groups are rolled over together.

Small neighbours become one unit, up to the size of a log, so that a quiet writer does not fill the catalog with tiny
logs. A unit is chosen anew on each pass until its folder is published; then its manifest fixes the choice.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterator, Sequence

from custody.journal import Group


def plan(
    groups: Sequence[Group], bytes_of: Callable[[Group], int], bytes_max: int, done: Collection[int] = ()
) -> Iterator[list[Group]]:
    """Yield the units of a writer's groups (by first event id); neighbours while their journals fit into `bytes_max`.

    A group that is larger is a unit of its own. `groups` are all groups on disk; those that are not to be rolled over
    have size -1. No unit reaches over one of them, nor over one of `done`, by first event ids, whose journals may be
    gone: one group may wait longer than those behind it, when its disk failed, and the id ranges of logs do not
    overlap.
    """
    firsts = sorted(done)
    unit: list[Group] = []
    used = 0
    for group in groups:
        size = bytes_of(group)
        if unit and (size < 0 or used + size > bytes_max or _is_between(firsts, unit[-1], group)):
            yield unit
            unit, used = [], 0
        if size >= 0:
            unit.append(group)
            used += size
    if unit:
        yield unit


def _is_between(firsts: Sequence[int], before: Group, behind: Group) -> bool:
    return bisect_right(firsts, before.first_event_id) < bisect_left(firsts, behind.first_event_id)
