"""Several workers: processes that share one address, watched by the process that started them.

The parent binds the address and hands the socket to each worker. A worker that ends by itself is started again; one
that cannot start at all ends the server. On SIGTERM each worker finishes what it has begun.
"""

from __future__ import annotations

import logging
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from custody.config.sections import ServeSection
from custody.errors import StorageError
from custody.serving.http_server import listen, url_of

_POLL_SECONDS = 0.1
_AGAIN_SECONDS = 1.0
"""A worker that ended is started again no sooner than this after its last start."""
_STARTS_MAX = 3
"""So often a worker may end before it was ready once."""
_LEEWAY_SECONDS = 15.0
"""How much longer than `stop_seconds` a worker may take, before it is killed."""
_LOGGER = logging.getLogger(__name__)


def socket_of(folder: Path, worker: int) -> Path:
    """Return the socket at which a worker says its numbers; it is there once the worker takes requests."""
    return folder / f"{worker}.socket"


def siblings_of(folder: Path, worker: int) -> list[Path]:
    """Return the sockets of the other workers."""
    return sorted(path for path in folder.glob("*.socket") if path != socket_of(folder, worker))


class Worker:
    """One worker and its process, which changes when it is started again."""

    def __init__(self, number: int, start: Callable[[int], subprocess.Popen[bytes]], ready: Path) -> None:
        self.number = number
        self._start = start
        self._ready = ready
        self._failures = 0
        self._started = time.monotonic()
        self.process = start(number)

    @property
    def is_ready(self) -> bool:
        """Whether it takes requests."""
        return self._ready.exists()

    def revive(self) -> None:
        """Start it again if it has ended.

        Raises:
            StorageError: it ended several times before it was ready.
        """
        code = self.process.poll()
        if code is None:
            if self.is_ready:
                self._failures = 0
            return
        if time.monotonic() - self._started < _AGAIN_SECONDS:
            return
        self._failures += 1
        if self._failures > _STARTS_MAX:
            raise StorageError(
                f"worker {self.number} ended {self._failures} times before it was ready, at last with exit code "
                f"{code}. What it wrote above says why."
            )
        _LOGGER.warning("worker %d ended with exit code %d and is started again", self.number, code)
        self._started = time.monotonic()
        self.process = self._start(self.number)


def run_workers(
    options: ServeSection, command: Callable[[int, int, Path], Sequence[str]], on_started: Callable[[str], None]
) -> None:
    """Run workers until SIGTERM or SIGINT.

    Args:
        options: how to listen, and how many there are.
        command: returns the command of a worker, by its number, the descriptor of the socket, and the shared folder.
        on_started: called with the URL when all take requests.

    Raises:
        StorageError: the address cannot be listened on, or a worker cannot start.
    """
    with (
        listen(options.host, options.port) as listener,
        tempfile.TemporaryDirectory(prefix="custody-serve-") as name,
        _stopping() as is_stopped,
    ):
        folder = Path(name)
        listener.set_inheritable(True)
        workers = [
            Worker(number, lambda each: _started(command, each, listener, folder), socket_of(folder, number))
            for number in range(options.workers)
        ]
        try:
            is_announced = False
            while not is_stopped():
                for worker in workers:
                    worker.revive()
                if not is_announced and all(worker.is_ready for worker in workers):
                    is_announced = True
                    on_started(url_of(listener, options))
                time.sleep(_POLL_SECONDS)
        finally:
            _end(workers, options.stop_seconds + _LEEWAY_SECONDS)


def _started(
    command: Callable[[int, int, Path], Sequence[str]], number: int, listener: socket.socket, folder: Path
) -> subprocess.Popen[bytes]:
    socket_of(folder, number).unlink(missing_ok=True)
    # A group of its own: the terminal's Ctrl-C reaches the parent alone, which ends the workers in order.
    return subprocess.Popen(  # noqa: S603 - this program itself
        [sys.executable, *command(number, listener.fileno(), folder)],
        pass_fds=[listener.fileno()],
        start_new_session=True,
    )


def _end(workers: Sequence[Worker], seconds: float) -> None:
    for worker in workers:
        if worker.process.poll() is None:
            worker.process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + seconds
    for worker in workers:
        try:
            worker.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            _LOGGER.warning("worker %d did not end in %g s and is killed", worker.number, seconds)
            worker.process.kill()
            worker.process.wait()


@contextmanager
def _stopping() -> Iterator[Callable[[], bool]]:
    """Tell whether SIGTERM or SIGINT has come."""
    received: list[int] = []
    former = {
        number: signal.signal(number, lambda number, _: received.append(number))
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield lambda: bool(received)
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
