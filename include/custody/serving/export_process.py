"""Exports of many events, made by a process of their own: the server then only passes bytes on.

Events become text or columns by Python, which lets one thread of a process work at a time. In the server's own process
each export would take that turn from every other request, and in Airflow's from the heartbeats of its tasks. So an
export of more events than `NEAR_EVENTS_MAX` is made by a niced child. It gets its order on stdin, answers in frames on
stdout, and waits where nobody reads; it ends with its reader, whatever becomes of that.
"""

from __future__ import annotations

import contextlib
import os
import struct
import subprocess
import sys
from collections.abc import Generator, Mapping
from datetime import datetime
from pathlib import Path
from typing import IO, cast

import msgspec

import custody
from custody.errors import CustodyError, StorageError
from custody.model.visibility import Visibility
from custody.read.time_travel import AsOf
from custody.repository import Repository
from custody.serving.api_export import EXPORTS, event_stream, small_pieces

NEAR_EVENTS_MAX = 2000
"""Exports up to this are made in the server's process: a child takes longer to start."""
NICENESS = 19
"""The child takes what the server, and whatever else runs here, leaves of the processors."""
_PROGRAM = f"import os; os.nice({NICENESS}); from custody.serving.export_process import main; main()"
"""Niced before it imports anything, which is most of what a short export costs."""
_HEAD = struct.Struct(">cI")
_DATA, _END, _PROBLEM = b"D", b"E", b"P"


class _Order(msgspec.Struct, frozen=True, kw_only=True):
    root: str
    form: str
    query: str
    writer: str | None
    as_of: int | datetime | dict[str, int] | None
    visibility: Visibility | None


_ORDER = msgspec.json.Decoder(_Order)


def exported(
    repository: Repository,
    form: str,
    query: str,
    writer: str | None,
    as_of: AsOf | None,
    visibility: Visibility | None,
) -> Generator[bytes]:
    """Yield the events of a query as bytes, as `event_stream`; `repository` is as somebody with `visibility` sees it.

    Raises:
        CustodyError: as `Repository.search`; before the first piece where the query cannot be read.
    """
    total = repository.search(query, limit=1, oldest_first=True, writer=writer, as_of=as_of).total
    if total <= NEAR_EVENTS_MAX:
        yield from small_pieces(event_stream(repository, EXPORTS[form], query, writer, as_of))
        return
    order = _Order(
        root=str(repository.settings.root),
        form=form,
        query=query,
        writer=writer,
        as_of=dict(as_of) if isinstance(as_of, Mapping) else as_of,
        visibility=visibility,
    )
    yield from _passed_on(order)


def _passed_on(order: _Order) -> Generator[bytes]:
    path = os.pathsep.join([str(Path(custody.__file__).parents[1]), *(place for place in sys.path if place)])
    process = subprocess.Popen(  # noqa: S603 - this Python, by full path, without a shell
        [sys.executable, "-c", _PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
        # An interrupt from the terminal is for the server. Not a session of its own: Linux gives each session the same
        # share of the processors (sched_autogroup), and niceness counts within one alone.
        process_group=0,
    )
    stdin, stdout = cast(IO[bytes], process.stdin), cast(IO[bytes], process.stdout)
    try:
        # By stdin: arguments of processes can be read by others.
        with contextlib.suppress(BrokenPipeError), stdin:
            stdin.write(msgspec.json.encode(order))
        while (piece := next_frame(stdout)) is not None:
            yield piece
    finally:
        # Also where the client is gone, or the server stops.
        process.kill()
        stdout.close()
        process.wait()


def next_frame(stdout: IO[bytes]) -> bytes | None:
    """Return the next piece, None behind the last one.

    Raises:
        StorageError: the answer is cut, or its process says why it cannot go on.
    """
    head = stdout.read(_HEAD.size)
    kind, length = _HEAD.unpack(head) if len(head) == _HEAD.size else (b"", 0)
    payload = stdout.read(length)
    if kind == _PROBLEM:
        raise StorageError(f"the export ended: {payload.decode()}")
    if kind not in (_DATA, _END) or len(payload) != length:
        raise StorageError("the export's process ended before its answer did; the server's log may say why.")
    return payload if kind == _DATA else None


def main() -> None:
    """Carry out the order on stdin."""
    order = _ORDER.decode(sys.stdin.buffer.read())
    out = sys.stdout.buffer

    def send(kind: bytes, payload: bytes = b"") -> None:
        out.write(_HEAD.pack(kind, len(payload)))
        out.write(payload)

    # The reader may go at any time: there is nobody left to tell.
    with contextlib.suppress(BrokenPipeError):
        try:
            repository = Repository.open(order.root).answering()
            if order.visibility is not None:
                repository = repository.seen_by(order.visibility)
            stream = event_stream(repository, EXPORTS[order.form], order.query, order.writer, order.as_of)
            for piece in small_pieces(stream):
                send(_DATA, piece)
            send(_END)
        except CustodyError as error:
            send(_PROBLEM, str(error).encode())
        out.flush()
