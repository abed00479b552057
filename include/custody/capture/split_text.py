"""Texts that are cut into elements and read later: those of many senders together, as columns, or each by itself.

A table of columns costs a millisecond and more, however few its events are. So what several senders deliver at the same
time is read as one table, if all of it is of one format and its bytes leave the same things open.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, islice

from custody.capture.column_batch import ColumnBatch
from custody.capture.custody_columns import read_custody_columns
from custody.capture.custody_json import with_ordinal
from custody.capture.encodings import InputText
from custody.capture.event_reader import CaptureLimits, outcomes_of_elements
from custody.capture.formats import Format
from custody.capture.json_splitter import JsonElement, JsonSplitter
from custody.capture.openlineage_columns import read_openlineage_columns
from custody.capture.validate import Context, Outcome, Rejected

SPLIT_FORMATS = frozenset({Format.CUSTODY, Format.OPENLINEAGE})
"""Formats of one event an element, whose elements mean the same in any text."""


@dataclass(frozen=True, slots=True)
class SplitText:
    """The elements of a text of one of SPLIT_FORMATS, none of which is read."""

    format: Format
    pieces: Sequence[JsonElement | Rejected]
    context: Context = Context()  # noqa: RUF009 - frozen
    ordinals: range | None = None
    """Of the events that have none, in the order of the elements, where the context leaves that open."""

    @property
    def kind(self) -> tuple[Format, Context]:
        """What texts have to share to be read together."""
        return self.format, self.context

    def outcomes(self) -> list[Outcome]:
        """Return the outcome of each element."""
        outcomes = outcomes_of_elements(self.pieces, self.format, self.context)
        if self.ordinals is None:
            return list(outcomes)
        return list(map(with_ordinal, outcomes, self.ordinals))


def split_text(
    data: bytes,
    limits: CaptureLimits,
    format: Format,
    context: Context = Context(),  # noqa: B008 - frozen
    pieces_max: int | None = None,
) -> SplitText:
    """Cut a text, plain or gzip, into its elements; no more than `pieces_max`."""
    text = InputText(io.BytesIO(data), bytes_max=limits.file_bytes_max)
    return SplitText(format, list(islice(JsonSplitter(text, limits.event_bytes_max).split(), pieces_max)), context)


def read_together(texts: Sequence[SplitText]) -> ColumnBatch:
    """Return the outcomes of the elements of texts of one kind, numbered one text behind the other."""
    format, context = texts[0].kind
    pieces = [piece for text in texts for piece in text.pieces]
    if format is Format.OPENLINEAGE:
        return read_openlineage_columns(pieces, context)
    ordinals = None
    if not context.is_numbered:
        ordinals = list(chain.from_iterable(text.ordinals or () for text in texts))
    return read_custody_columns(pieces, context, ordinals)
