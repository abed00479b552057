"""`_MAIN_1.toc`: Whoosh's own table of contents of an index of one segment, as Whoosh writes it."""

from __future__ import annotations

from whoosh import fields
from whoosh.codec.whoosh3 import W3Codec, W3Segment
from whoosh.filedb.filestore import RamStorage
from whoosh.index import TOC

INDEX_NAME = "MAIN"
NAME = f"_{INDEX_NAME}_1.toc"


def segment_name(first_event_id: int) -> str:
    """Return the begin of the names of a segment's files: that of a shard is always the same."""
    return f"{INDEX_NAME}_{first_event_id:020d}"


def contents(schema: fields.Schema, first_event_id: int, documents: int) -> bytes:
    """Return the bytes of the table of contents."""
    segment = W3Segment(W3Codec(), INDEX_NAME, doccount=documents, segid=f"{first_event_id:020d}")
    segment._fieldlengths = {}
    storage = RamStorage()
    TOC(schema, [segment], 1).write(storage, INDEX_NAME)
    data: bytes = storage.files[NAME]
    return data
