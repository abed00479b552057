"""One Arrow record batch, read out of one of custody's own files."""

from __future__ import annotations

import pyarrow as pa

_ALIGNED = 8
"""Within a message columns begin at multiples of this; no column of an event needs more."""


def read_batch(message: memoryview, schema: pa.Schema) -> pa.RecordBatch:
    """Return the batch of a message; its columns stay where they lie if the message begins at a multiple of 8 bytes.

    At any other place, such as behind the head of a record, the columns would lie at odd addresses. Arrow's scans warn
    of these, copy them anew each time, and need not support them: so the message is copied, once.

    Raises:
        pyarrow.ArrowException, OSError: it is none, or not of this schema.
    """
    data = pa.py_buffer(message)
    if data.address % _ALIGNED:
        data = pa.py_buffer(bytes(message))
    return pa.ipc.read_record_batch(data, schema)
