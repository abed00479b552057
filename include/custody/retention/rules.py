"""Age rules: the general age and the rules of the settings, as conditions for catalog and columns.

Of several rules for an event the longest counts; a rule replaces the general age, be it longer or shorter. Times are
rounded down to a granule, so that a rule gives the same answer for a while: an event expires at most 1/32 of its time
later than it could, and at most a day.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import msgspec

from custody.catalog import AddTombstone, Attribute, Condition
from custody.config import KeepRule

# Each new tombstone makes readers look at logs again, so the times of the rules move seldom: by a 32nd of the time that
# events are kept, but by a day at most. So an event outlives its time by no more than that.
_GRANULES = 32
_GRANULE_MS_MAX = 86_400_000


class Hiding(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that hides events older than a time (ms) although their logs stay."""

    rule: str
    before_ms: int


def cutoff_ms(now_ms: int, keep_ms: int) -> int:
    """Return the time before which events that are kept for `keep_ms` are too old; it moves a granule at a time."""
    granule = max(min(keep_ms // _GRANULES, _GRANULE_MS_MAX), 1)
    return (now_ms - keep_ms) // granule * granule


@dataclass(frozen=True)
class AgePolicy:
    """The rules at `now_ms`; with `age_max_ms` None, events that no rule means are kept for ever."""

    now_ms: int
    age_max_ms: int | None
    rules: Sequence[KeepRule] = ()

    @cached_property
    def surely_ms(self) -> int | None:
        """Every event before this time is too old, whatever it is; None when there is no such time."""
        if self.age_max_ms is None:
            return None
        return cutoff_ms(self.now_ms, max([self.age_max_ms, *(rule.keep_ms for rule in self.rules)]))

    @cached_property
    def possibly_ms(self) -> int | None:
        """No event from this time on is too old; None when none is ever."""
        ages = [rule.keep_ms for rule in self.rules] + ([] if self.age_max_ms is None else [self.age_max_ms])
        return max((cutoff_ms(self.now_ms, age) for age in ages), default=None)

    @cached_property
    def expired(self) -> list[AddTombstone]:
        """Conditions of which each event that is too old meets one."""
        return self._stones(self.age_max_ms, ())

    def hiding(self, holds: Iterable[Condition]) -> list[AddTombstone]:
        """Return the tombstones that hide expired events in logs that stay; none without rules, nor for held events."""
        if not self.rules:
            return []
        # The general age hides only where a longer rule may keep a log: everywhere else the whole log goes.
        has_longer = self.age_max_ms is not None and any(rule.keep_ms > self.age_max_ms for rule in self.rules)
        return self._stones(self.age_max_ms if has_longer else None, tuple(holds))

    def _stones(self, age_max_ms: int | None, excepted: Sequence[Condition]) -> list[AddTombstone]:
        stones = [
            self._stone(rule.keep_ms, _described(rule), _condition(rule), excepted)
            for rule in dict.fromkeys(self.rules)
        ]
        if age_max_ms is not None:
            stones.append(self._stone(age_max_ms, "age_max", Condition(), excepted))
        # In a tombstone the end 0 means none: such a stone would hide every event of its rule.
        return [stone for stone in stones if stone.to_time_ms > 0]

    def _stone(self, keep_ms: int, reason: str, condition: Condition, excepted: Sequence[Condition]) -> AddTombstone:
        longer = [_condition(rule) for rule in dict.fromkeys(self.rules) if rule.keep_ms > keep_ms]
        return AddTombstone(
            id=uuid.uuid4().bytes,
            from_time_ms=_FIRST_MS,
            to_time_ms=cutoff_ms(self.now_ms, keep_ms),
            event_types=condition.event_types,
            attributes=condition.attributes,
            unless=[*longer, *excepted],
            reason=f"retention: {reason}",
            created_ms=self.now_ms,
            by_retention=True,
        )


# The least time there is: events from before 1970 are meant too.
_FIRST_MS = -(1 << 63)


def same_meaning(one: AddTombstone, other: AddTombstone) -> bool:
    """Whether two tombstones differ in nothing but their ids and the time when they were made."""
    return _bare(one) == _bare(other)


def _bare(stone: AddTombstone) -> AddTombstone:
    # A copy: the tombstone in the catalog's state must not change.
    copy = AddTombstone()
    copy.CopyFrom(stone)
    copy.ClearField("id")
    copy.ClearField("created_ms")
    return copy


def _condition(rule: KeepRule) -> Condition:
    attributes = [Attribute(name=name, value=value) for name, value in rule.attributes]
    return Condition(event_types=[] if rule.event_type is None else [rule.event_type], attributes=attributes)


def _described(rule: KeepRule) -> str:
    terms = [] if rule.event_type is None else [f"event_type:{rule.event_type}"]
    return " and ".join([*terms, *(f"attribute:{name}={value}" for name, value in rule.attributes)])
