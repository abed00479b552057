"""Work that is counted instead of timed: bytes that are fed to an inflater, bytes that it gives out."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any

import pytest


@dataclass
class Inflated:
    """What all inflaters of this process did together."""

    members: int = 0
    fed: int = 0
    made: int = 0


class _Counting:
    def __init__(self, counts: Inflated, inner: Any) -> None:
        self._counts = counts
        self._inner = inner
        counts.members += 1

    def decompress(self, data: bytes, *bounds: int) -> bytes:
        self._counts.fed += len(data)
        made: bytes = self._inner.decompress(data, *bounds)
        self._counts.made += len(made)
        return made

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def count_inflating(monkeypatch: pytest.MonkeyPatch) -> Inflated:
    """Count from now on what is inflated in this process."""
    counts, new = Inflated(), zlib.decompressobj
    monkeypatch.setattr(zlib, "decompressobj", lambda *bits, **more: _Counting(counts, new(*bits, **more)))
    return counts
