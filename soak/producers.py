"""The producer processes of a soak: started again when one was killed, all but the first of which may be."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path

from custody_local.processes import ProcessId, identify
from soak.processes import WRITER, Target

ROOT = Path(__file__).resolve().parents[1]
_POLL_SECONDS = 0.1
_END_SECONDS = 60


@dataclass
class Producers:
    """A number of producers; the first one lives as long as the soak, so that its memory can be watched."""

    repository: Path
    ledger: Path
    count: int
    threads: int
    rate: float
    """Events a second of all together."""
    lives: list[int] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    """Producers that ended by themselves."""

    def __post_init__(self) -> None:
        self._running: list[subprocess.Popen[bytes]] = []
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._watch, name="producers")

    def start(self) -> None:
        """Start all, and start again who is killed."""
        self.lives = [0] * self.count
        self._running = [self._launch(number) for number in range(self.count)]
        self._thread.start()

    def stop(self) -> None:
        """Ask all to end, and wait until they have sealed their journals."""
        if self._ended.is_set() or not self._running:
            return
        self._ended.set()
        self._thread.join()
        for process in self._running:
            process.terminate()
        for number, process in enumerate(self._running):
            # One that was told to end while it still started has not come to its handler of signals.
            if (code := process.wait(_END_SECONDS)) not in (0, -signal.SIGKILL, -signal.SIGTERM):
                self.failures.append(f"exit code {code}: {self._said(number)}")

    def kill(self) -> None:
        """End all at once, however the soak ended."""
        self._ended.set()
        for process in self._running:
            process.kill()

    def targets(self) -> list[Target]:
        """Return the producers that may be killed."""
        with self._lock:
            running = list(enumerate(self._running))[1:] or list(enumerate(self._running))
        named = ((number, identify(process.pid)) for number, process in running)
        return [Target(leader, WRITER, f"producer {number}") for number, leader in named if leader is not None]

    def processes(self) -> dict[int, ProcessId]:
        """Return the processes that run now, by producer."""
        with self._lock:
            named = [(number, identify(process.pid)) for number, process in enumerate(self._running)]
        return {number: leader for number, leader in named if leader is not None}

    def _watch(self) -> None:
        while not self._ended.wait(_POLL_SECONDS):
            for number, process in enumerate(self._running):
                code = process.poll()
                if code is None:
                    continue
                if code != -signal.SIGKILL:
                    self.failures.append(f"exit code {code}: {self._said(number)}")
                self.lives[number] += 1
                started = self._launch(number)
                with self._lock:
                    self._running[number] = started

    def _launch(self, number: int) -> subprocess.Popen[bytes]:
        life = self.lives[number]
        ledger = self.ledger / f"{number}-{life:04d}.jsonl"
        words = [self.repository, ledger, number, life, self.threads, self.rate / self.count]
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "include"), str(ROOT)])}
        with self._log(number).open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "soak.producer", *map(str, words)],
                env=environ,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def _log(self, number: int) -> Path:
        return self.ledger / f"producer-{number}.log"

    def _said(self, number: int) -> str:
        return f"producer {number}: {self._log(number).read_text(errors='replace')[-2000:]}"
