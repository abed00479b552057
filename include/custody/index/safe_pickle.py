"""A reader of pickles that hold plain data only: numbers, texts, bytes, tuples, lists.

Whoosh keeps posting blocks as pickles. Unpickling would let a file name any function to be called; here no function
is called, and whatever is not plain data is an error. The only names understood are those by which old pickles spell
bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

# Objects of our own: no pickle can make one, so data can never pass for a mark or a function.
_MARK = object()
_ENCODE, _BYTES = object(), object()
_NAMED = {(b"_codecs", b"encode"): _ENCODE, (b"__builtin__", b"bytes"): _BYTES}
# No block of Whoosh is nearly as long; a longer piece is damage or an attack on memory.
_BOMB = 1 << 24


class NotPlainDataError(ValueError):
    """The pickle holds something else, or is damaged."""


class _Machine:
    """The machine that reads one pickle: its stack, its memo, and the place reached."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.place = 0
        self.stack: list[object] = []
        self.memo: dict[int, object] = {}

    def take(self, count: int) -> bytes:
        taken = self.data[self.place : self.place + count]
        # A length in a damaged pickle may be anything.
        if count > _BOMB or len(taken) != count:
            raise NotPlainDataError(f"a pickle breaks off at byte {self.place}")
        self.place += count
        return taken

    def number(self, kind: str) -> int:
        (value,) = struct.unpack(kind, self.take(struct.calcsize(kind)))
        return int(value)

    def line(self) -> bytes:
        end = self.data.index(b"\n", self.place)
        line = self.data[self.place : end]
        self.place = end + 1
        return line

    def marked(self) -> list[object]:
        """Pop all above the newest mark, and the mark."""
        place = len(self.stack) - 1
        while self.stack[place] is not _MARK:
            place -= 1
            if place < 0:
                raise NotPlainDataError("a pickle without a mark")
        items = self.stack[place + 1 :]
        del self.stack[place:]
        return items

    def tuple_of(self, count: int) -> None:
        items = tuple(self.stack[-count:])
        del self.stack[-count:]
        self.stack.append(items)

    def append(self, values: list[object]) -> None:
        target = self.stack[-1]
        if not isinstance(target, list):
            raise NotPlainDataError("a pickle that appends to what is no list")
        target.extend(values)

    def call(self) -> None:
        arguments, function = self.stack.pop(), self.stack.pop()
        match function, arguments:
            case _, (str() as text, "latin1") if function is _ENCODE:
                self.stack.append(text.encode("latin1"))
            case _, () if function is _BYTES:
                self.stack.append(b"")
            case _:
                raise NotPlainDataError("a pickle that calls a function")

    def named(self) -> None:
        name = self.line(), self.line()
        if name not in _NAMED:
            raise NotPlainDataError(f"a pickle that names {name!r}")
        self.stack.append(_NAMED[name])


def plain_data(data: bytes | memoryview) -> object:
    """Return what a pickle holds.

    Raises:
        NotPlainDataError: it holds more than plain data, or is damaged.
    """
    return plain_prefix(data)[0]


def plain_prefix(data: bytes | memoryview) -> tuple[object, int]:
    """Return what the pickle at the start of some bytes holds, and its length.

    Raises:
        NotPlainDataError: it holds more than plain data, or is damaged.
    """
    machine = _Machine(bytes(data))
    try:
        while (code := machine.take(1)) != b".":
            step = _STEPS.get(code)
            if step is None:
                raise NotPlainDataError(f"a pickle with the operation {code!r}")
            step(machine)
        [value] = machine.stack
    except (IndexError, KeyError, ValueError, struct.error) as error:
        raise NotPlainDataError(f"a damaged pickle: {error}") from error
    return value, machine.place


def _push(read: Callable[[_Machine], object]) -> Callable[[_Machine], None]:
    return lambda machine: machine.stack.append(read(machine))


def _memoize(kind: str | None) -> Callable[[_Machine], None]:
    def step(machine: _Machine) -> None:
        key = len(machine.memo) if kind is None else machine.number(kind)
        machine.memo[key] = machine.stack[-1]

    return step


def _ignore(count: int) -> Callable[[_Machine], None]:
    return lambda machine: (machine.take(count), None)[1]


# Only what Whoosh's own writer uses. Each code that is added widens what a forged file may do.
_STEPS: dict[bytes, Callable[[_Machine], None]] = {
    b"\x80": _ignore(1),
    b"\x95": _ignore(8),
    b"(": _push(lambda machine: _MARK),
    b"2": _push(lambda machine: machine.stack[-1]),
    b"N": _push(lambda machine: None),
    b"K": _push(lambda machine: machine.number("<B")),
    b"M": _push(lambda machine: machine.number("<H")),
    b"J": _push(lambda machine: machine.number("<i")),
    b"\x8a": _push(lambda machine: int.from_bytes(machine.take(machine.number("<B")), "little", signed=True)),
    b"G": _push(lambda machine: struct.unpack(">d", machine.take(8))[0]),
    b"C": _push(lambda machine: machine.take(machine.number("<B"))),
    b"B": _push(lambda machine: machine.take(machine.number("<I"))),
    b"X": _push(lambda machine: machine.take(machine.number("<I")).decode()),
    b"\x8c": _push(lambda machine: machine.take(machine.number("<B")).decode()),
    b")": _push(lambda machine: ()),
    b"]": _push(lambda machine: []),
    b"t": _push(lambda machine: tuple(machine.marked())),
    b"\x85": lambda machine: machine.tuple_of(1),
    b"\x86": lambda machine: machine.tuple_of(2),
    b"\x87": lambda machine: machine.tuple_of(3),
    b"a": lambda machine: machine.append([machine.stack.pop()]),
    b"e": lambda machine: machine.append(machine.marked()),
    b"q": _memoize("<B"),
    b"r": _memoize("<I"),
    b"\x94": _memoize(None),
    b"h": _push(lambda machine: machine.memo[machine.number("<B")]),
    b"j": _push(lambda machine: machine.memo[machine.number("<I")]),
    b"c": lambda machine: machine.named(),
    b"R": lambda machine: machine.call(),
}
