"""The structure of JSON text that arrives in chunks: where brackets and commas are that no string holds, and how deep.

Nothing is parsed and nothing is checked: of text that is not JSON the answer is deterministic and has no meaning.
Work is done on columns of bytes, about 200 MB/s, and does not depend on where the text is cut into chunks.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

OPEN, CLOSE, COMMA = 3, 4, 5
_QUOTE, _BACKSLASH = 1, 2
_KINDS = np.zeros(256, np.uint8)
for _text, _kind in ((b'"', _QUOTE), (b"\\", _BACKSLASH), (b"[{", OPEN), (b"]}", CLOSE), (b",", COMMA)):
    _KINDS[list(_text)] = _kind

Column = npt.NDArray[np.intp]


class Structure:
    """Follows one text; `depth` is the number of open brackets so far."""

    def __init__(self) -> None:
        self.depth = 0
        self._in_string = False
        self._is_escaped = False

    def scan(self, chunk: bytes, level: int) -> list[tuple[int, int]]:
        """Return (position, kind) of each bracket that is the `level`-th one or closes it, and of the commas in it.

        Level 1 is an outermost bracket: the commas are those between its elements.
        """
        kinds = _KINDS[np.frombuffer(chunk, np.uint8)]
        positions = np.flatnonzero(kinds)
        kinds = kinds[positions]
        escaped = self._escaped(positions[kinds == _BACKSLASH], len(chunk))
        is_quote = kinds == _QUOTE
        if len(escaped):
            is_quote &= ~np.isin(positions, escaped, assume_unique=True)
        outside = (np.cumsum(is_quote) + self._in_string) % 2 == 0
        steps = np.zeros(len(kinds), np.intp)
        steps[outside & (kinds == OPEN)] = 1
        steps[outside & (kinds == CLOSE)] = -1
        depths = self.depth + np.cumsum(steps)
        found = outside & (
            ((kinds == COMMA) & (depths == level))
            | ((kinds == OPEN) & (depths == level))
            | ((kinds == CLOSE) & (depths <= level - 1))
        )
        if len(kinds):
            self.depth = int(depths[-1])
            self._in_string = not outside[-1]
        return list(zip(positions[found].tolist(), kinds[found].tolist(), strict=True))

    def _escaped(self, backslashes: Column, length: int) -> Column:
        """Return the positions right behind an odd number of backslashes; remember one behind the chunk."""
        first = [0] if self._is_escaped else []
        self._is_escaped = False
        if not len(backslashes):
            self._is_escaped = bool(first) and length == 0
            return np.array(first, np.intp)
        starts = np.flatnonzero(np.diff(backslashes, prepend=-2) != 1)
        lengths = np.diff(np.append(starts, len(backslashes)))
        ends = backslashes[starts + lengths - 1] + 1
        if first and backslashes[0] == 0:
            lengths[0] += 1  # the run began in the chunk before
            first = []
        odd = ends[lengths % 2 == 1]
        self._is_escaped = bool(len(odd)) and int(odd[-1]) == length
        return np.append(np.array(first, np.intp), odd)
