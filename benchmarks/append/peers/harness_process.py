"""A peer in a process of its own that answers each line of JSON on its input with one on its output."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path

import msgspec


class HarnessProcess:
    """The process; what it writes to its error output goes to a file.

    Args:
        name: for messages.
        command: starts it.
        log: the file.
    """

    def __init__(self, name: str, command: Sequence[str], log: Path) -> None:
        self._name = name
        self._log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=output)

    def ask(self, order: msgspec.Struct, seconds_max: float) -> bytes:
        """Return the answer to an order, as JSON.

        Raises:
            AssertionError: it ended, or did not answer in time; the text holds the end of its log.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        watch = threading.Timer(seconds_max, self._process.kill)
        watch.start()
        try:
            self._process.stdin.write(msgspec.json.encode(order) + b"\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        except BrokenPipeError:
            answer = b""
        finally:
            watch.cancel()
        if not answer:
            raise AssertionError(f"the process of {self._name} ended at {order}:\n{self._log.read_text()[-2000:]}")
        return answer

    def close(self) -> None:
        """End the process."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
