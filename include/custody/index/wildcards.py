"""Wildcards: `*` any characters, `?` one, `[a-z]` one of some. The same for an index and for a scan of events.

Arrow matches patterns without `[` in a time that grows with the text only, however many `*` there are.
"""

from __future__ import annotations

import re
from fnmatch import translate

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from custody.index.arrays import flags

_SPECIAL = re.compile(r"[*?\[]")
_STARS = re.compile(r"\*+")
_LIKE = str.maketrans({"%": r"\%", "_": r"\_", "\\": r"\\", "*": "%", "?": "_"})


def literal_prefix(pattern: str) -> str:
    """Return what every match begins with."""
    return _SPECIAL.split(pattern, maxsplit=1)[0]


def match_wildcard(texts: pa.StringArray, pattern: str) -> npt.NDArray[np.bool_]:
    """Return which texts match as a whole, shape (texts,)."""
    if "[" in pattern:
        matches = re.compile(translate(pattern)).match
        return np.fromiter((matches(text) is not None for text in texts.to_pylist()), np.bool_, len(texts))
    return flags(pc.match_like(texts, _STARS.sub("*", pattern).translate(_LIKE)))
