"""Priorities of queues: the keys by which FlowFiles are ordered, least first.

A key is computed once, by whoever puts the FlowFile into the queue, and stored with it: all processes, and a recovery
after years, agree on the order without running the function again.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from typing import cast

from custody.errors import ConfigurationError, InvalidInputError
from custody.flow.flowfile import FlowFile
from custody.flowfile_repository.records import Key, KeyPart

Prioritizer = Callable[[FlowFile], object]
_NUMBER, _TEXT, _NOTHING = 0, 1, 2
_PARTS_MAX = 16


def prioritizer(name: str) -> Prioritizer:
    """Return the function that a name stands for: it gives a FlowFile's key, or a tuple of parts of one.

    `oldest` and `newest` compare the start of the lineage; `attribute:NAME` an attribute's value, whole numbers before
    texts, FlowFiles without it last; `MODULE:FUNCTION` is imported.

    Raises:
        ConfigurationError: there is no such function; the message says why.
    """
    kind, _, rest = name.partition(":")
    if name == "oldest":
        return lambda flowfile: flowfile.lineage_start_date
    if name == "newest":
        return lambda flowfile: -flowfile.lineage_start_date
    if kind == "attribute" and rest:
        return lambda flowfile: _by_attribute(flowfile.attributes.get(rest))
    if not kind or not rest:
        raise ConfigurationError(
            f"prioritizer {name!r}: expected oldest, newest, attribute:NAME or MODULE:FUNCTION, got something else."
        )
    try:
        function = getattr(importlib.import_module(kind), rest)
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(
            f"prioritizer {name!r}: {error}. Make the module importable where FlowFiles are put into the queue."
        ) from error
    if not callable(function):
        raise ConfigurationError(f"prioritizer {name!r}: expected a function, got {type(function).__name__}.")
    return cast("Prioritizer", function)


def key_of(flowfile: FlowFile, prioritizers: Sequence[tuple[str, Prioritizer]], queue: str) -> Key:
    """Return a FlowFile's key in a queue.

    Raises:
        InvalidInputError: a function raised, or returned what cannot be ordered.
    """
    parts: list[KeyPart] = []
    for name, function in prioritizers:
        try:
            value = function(flowfile)
        # Any error of a function that somebody else wrote: the FlowFile stays where it is, and the message says whose.
        except Exception as error:
            raise InvalidInputError(
                f"queue {queue!r}: the prioritizer {name!r} failed for FlowFile {flowfile.uuid}: "
                f"{type(error).__name__}: {error}. Nothing was changed: mend it, or connect the queue without it."
            ) from error
        values = value if isinstance(value, tuple) else (value,)
        parts += [_part(item, name, queue) for item in values]
    if len(parts) > _PARTS_MAX:
        raise InvalidInputError(
            f"queue {queue!r}: expected a priority of at most {_PARTS_MAX} parts, got {len(parts)}."
        )
    return tuple(parts)


def _by_attribute(value: str | None) -> object:
    if value is None:
        return None
    try:
        number = int(value)
    except ValueError:
        return value
    return number if -(2**63) <= number < 2**63 else value


def _part(value: object, name: str, queue: str) -> KeyPart:
    if value is None:
        return (_NOTHING, None)
    if isinstance(value, str):
        return (_TEXT, value)
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return (_NUMBER, int(value))
    if isinstance(value, float) and not math.isnan(value):
        return (_NUMBER, value)
    raise InvalidInputError(
        f"queue {queue!r}: expected the prioritizer {name!r} to return numbers of 64 bits, text or None, got {value!r}."
    )
