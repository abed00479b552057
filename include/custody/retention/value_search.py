"""Search for the values of a selection in files beside the events: by bytes, as text and binary files have them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

import msgspec

from custody.retention.erasures import ErasedSelection

_SHORT = 4
"""A shorter value counts only close behind its name: by itself it would be found everywhere."""
_NEAR = rb"[^0-9A-Za-z]{1,12}"
_BEFORE, _BEHIND = rb"(?<![0-9A-Za-z])", rb"(?![0-9A-Za-z])"


class ValueSearch:
    """Whether bytes, or the attributes of a FlowFile, name what a selection means.

    Args:
        selection: its attributes and FlowFile uuids; other conditions are not looked at.
    """

    def __init__(self, selection: ErasedSelection) -> None:
        self._selection = selection
        values = selection.attributes
        # All attributes have to be named, and one of the uuids.
        self._in_text = [_any(_text_patterns(name, value)) for name, value in values.items()]
        self._in_bytes = [_any(_binary_patterns(name, value)) for name, value in values.items()]
        uuids = selection.flowfile_uuids
        if uuids:
            found = re.compile(b"|".join(re.escape(uuid.encode()) for uuid in uuids))
            self._in_text.append(found)
            self._in_bytes.append(found)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is searched for."""
        return not self._in_text

    def names(self, data: bytes | memoryview, *, is_text: bool = True) -> bool:
        """Whether the bytes of a file name it; `is_text` for JSON and other text."""
        patterns = self._in_text if is_text else self._in_bytes
        return bool(patterns) and all(pattern.search(data) for pattern in patterns)

    def means(self, uuid: str, attributes: Mapping[str, str]) -> bool:
        """Whether a FlowFile is meant."""
        chosen = self._selection
        if self.is_empty or (chosen.flowfile_uuids and uuid not in chosen.flowfile_uuids):
            return False
        return all(attributes.get(name) == value for name, value in chosen.attributes.items())


def _any(patterns: list[bytes]) -> re.Pattern[bytes]:
    return re.compile(b"|".join(patterns), re.DOTALL)


def _spellings(text: str) -> list[bytes]:
    """Return a text as it stands in a file: plain, and as the two ways of JSON have it."""
    plain = text.encode()
    spelled = {plain, json.dumps(text)[1:-1].encode(), msgspec.json.encode(text)[1:-1]}
    return sorted(spelled)


def _text_patterns(name: str, value: str) -> list[bytes]:
    if len(value) >= _SHORT:
        return [_BEFORE + re.escape(spelled) + _BEHIND for spelled in _spellings(value)]
    return [
        _BEFORE + re.escape(key) + _NEAR + re.escape(spelled) + _BEHIND
        for key in _spellings(name)
        for spelled in _spellings(value)
    ]


def _binary_patterns(name: str, value: str) -> list[bytes]:
    # The byte before a text is its length, which may be a letter: nothing is asked of what surrounds it.
    if len(value) >= _SHORT:
        return [re.escape(spelled) for spelled in _spellings(value)]
    return [re.escape(name.encode()) + b".{1,6}" + re.escape(value.encode())]
