"""Takes export after export as fast as they come, until its input ends; then prints how many bytes came.

A process of its own, which takes what others leave of the processors: readers are on other machines, and what is
measured beside them must not wait for their Python.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import IO, cast

import httpx

from benchmarks.environment import library_path

_AGAIN_SECONDS = 0.02
_NICENESS = 19


@contextmanager
def reading(url: str, form: str, readers: int, headers: Mapping[str, str] | None = None) -> Iterator[list[int]]:
    """Let so many processes read exports from the doors at a URL; the list has what each took, once they ended."""
    taken: list[int] = []
    environ = {**os.environ, "PYTHONPATH": library_path()}
    with ExitStack() as stack:
        for _ in range(readers):
            process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.api.reader"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=environ,
            )
            stack.callback(_end, process, taken)
            stdin = cast(IO[str], process.stdin)
            stdin.write(json.dumps([url, form, dict(headers or {})]) + "\n")
            stdin.flush()
        yield taken


def _end(process: subprocess.Popen[str], taken: list[int]) -> None:
    said, _ = process.communicate()
    taken.append(int(said))


def main() -> None:
    """Read until stdin ends."""
    os.nice(_NICENESS)
    url, form, headers = json.loads(sys.stdin.readline())
    stop = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        stop.set()

    threading.Thread(target=wait).start()
    taken = 0
    with httpx.Client(timeout=120, headers=headers, trust_env=False) as client:
        while not stop.is_set():
            with client.stream("GET", f"{url}/api/v1/events/export", params={"format": form}) as answer:
                if answer.status_code == 503:  # one of before is not ended yet
                    time.sleep(_AGAIN_SECONDS)
                    continue
                answer.raise_for_status()
                for piece in answer.iter_raw():
                    taken += len(piece)
                    if stop.is_set():
                        break
    sys.stdout.write(str(taken))


if __name__ == "__main__":
    main()
