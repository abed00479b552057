"""A body with OpenLineage events: unzipped within bounds, and cut into events.

A body with a large event is read in a process of its own. Decoding it takes the interpreter for as long as it lasts,
and a thread would keep every other request of the server waiting. The process reads one body after the other from its
input, and ends when its server does.
"""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
from pathlib import Path
from threading import Lock
from typing import IO

import msgspec

import custody
from custody.capture import (
    Accepted,
    CaptureLimits,
    Format,
    InputPlace,
    Outcome,
    Rejected,
    SplitText,
    split_text,
)
from custody.capture.validate import rejected
from custody.errors import InvalidInputError, StorageError
from custody.serving.http_requests import BodyRefusedError, refuse_one_too_large, unzipped

_LENGTH = struct.Struct(">Q")
_PROGRAM = "from custody.serving.lineage_body import main; main()"


class LineageBody(msgspec.Struct, frozen=True, array_like=True):
    """A body as it came, and what it may hold."""

    raw: bytes
    is_zipped: bool
    bytes_max: int
    events_max: int
    event_bytes_max: int


class _Refusal(msgspec.Struct, frozen=True, array_like=True):
    status: int
    code: str
    message: str


class _Reading(msgspec.Struct, frozen=True, array_like=True):
    """What the process answers: outcomes in their order, each accepted or rejected, or a refusal."""

    outcomes: list[tuple[Accepted | None, Rejected | None]]
    refusal: _Refusal | None = None


_BODY = msgspec.msgpack.Decoder(LineageBody)
_READING = msgspec.msgpack.Decoder(_Reading)


def split_body(body: LineageBody) -> SplitText:
    """Return a body cut into its events, none of which is read; what is no text of events is a rejected piece.

    Raises:
        BodyRefusedError: it is too large when it is unzipped, or has too many events.
    """
    try:
        text = unzipped(body.raw, body.bytes_max) if body.is_zipped else body.raw
    except InvalidInputError as error:
        return _of_no_events("bad-gzip", str(error), body.raw)
    limits = CaptureLimits(event_bytes_max=body.event_bytes_max, file_bytes_max=body.bytes_max)
    split = split_text(text, limits, Format.OPENLINEAGE, pieces_max=body.events_max + 1)
    if len(split.pieces) > body.events_max:
        expected = f"expected at most {body.events_max} events (capture.body_events_max)"
        raise BodyRefusedError(413, "events", expected)
    refuse_one_too_large(split.pieces)
    return split if split.pieces else _of_no_events("empty", "expected an event, got none", text)


def _of_no_events(code: str, message: str, raw: bytes) -> SplitText:
    return SplitText(Format.OPENLINEAGE, [rejected(InputPlace(None, 0), code, message, raw)])


class BodyProcess:
    """The process that reads bodies with large events; for any number of threads, one body at a time."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process, without waiting until it is ready; otherwise the first body does."""
        with self._lock:
            if self._process is None:
                self._started()

    def read(self, body: LineageBody) -> list[Outcome]:
        """Return the outcomes of a body.

        Raises:
            BodyRefusedError: it is too large when it is unzipped, or has too many events.
            StorageError: the process ended, such as for want of memory; the next body gets another one.
        """
        with self._lock:
            process = self._process or self._started()
            assert process.stdin is not None  # noqa: S101 - as it was started
            assert process.stdout is not None  # noqa: S101
            try:
                _write(process.stdin, msgspec.msgpack.encode(body))
                answer = _read(process.stdout)
            except (OSError, EOFError) as error:
                code = process.poll()
                self._end()
                raise StorageError(f"the process that reads large bodies ended (exit code {code}): {error}") from error
        reading = _READING.decode(answer)
        if reading.refusal is not None:
            raise BodyRefusedError(reading.refusal.status, reading.refusal.code, reading.refusal.message)
        return [outcome for pair in reading.outcomes for outcome in pair if outcome is not None]

    def close(self) -> None:
        """End the process; a second call does nothing."""
        with self._lock:
            self._end()

    def _started(self) -> subprocess.Popen[bytes]:
        # Found where this custody was found, whatever the environment says.
        paths = os.pathsep.join([str(Path(custody.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])
        self._process = subprocess.Popen(  # noqa: S603 - this Python, by full path, without a shell
            [sys.executable, "-c", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": paths},
        )
        return self._process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
            process.kill()
            process.wait()


def main() -> None:
    """Read bodies from the standard input, and answer each on the standard output, until the input ends."""
    # The terminal's Ctrl-C is for the server, which ends this process by closing its input.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    source, target = sys.stdin.buffer, sys.stdout.buffer
    while True:
        try:
            request = _read(source)
        except EOFError:
            return
        body = _BODY.decode(request)
        try:
            reading = _Reading([_pair(outcome) for outcome in split_body(body).outcomes()])
        except BodyRefusedError as refused:
            reading = _Reading([], _Refusal(refused.status, refused.code, str(refused)))
        _write(target, msgspec.msgpack.encode(reading))


def _pair(outcome: Outcome) -> tuple[Accepted | None, Rejected | None]:
    return (outcome, None) if isinstance(outcome, Accepted) else (None, outcome)


def _write(pipe: IO[bytes], data: bytes) -> None:
    pipe.write(_LENGTH.pack(len(data)))
    pipe.write(data)
    pipe.flush()


def _read(pipe: IO[bytes]) -> bytes:
    length = pipe.read(_LENGTH.size)
    if len(length) < _LENGTH.size:
        raise EOFError("its pipe was closed")
    (size,) = _LENGTH.unpack(length)
    data = pipe.read(size)
    if len(data) < size:
        raise EOFError("its pipe was closed in the middle of an answer")
    return data
