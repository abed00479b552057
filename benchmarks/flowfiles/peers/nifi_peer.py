"""NiFi 1.28.1's repositories of FlowFiles, contents and events, in one Java process for all measurements.

Built with Maven into `nifi/target`; built anew when a source is newer.
"""

from __future__ import annotations

import subprocess
import threading
from pathlib import Path

import msgspec

from benchmarks.append.peers.base import About
from benchmarks.append.peers.nifi_peer import JAVA_OPTIONS, VERSION, build, java_version
from benchmarks.flowfiles.measures import Answer, Order

PROJECT = Path(__file__).resolve().parents[1] / "nifi"
_MAIN = "custody.benchmarks.flowfiles.FlowFileHarness"
_ANSWER_SECONDS_MAX = 600.0


class NifiProcess:
    """The Java process, for both NiFi peers.

    Raises:
        PeerUnavailableError: Java or Maven is absent, or Maven cannot reach its repository.
    """

    def __init__(self, scratch: Path) -> None:
        self.java = java_version()
        command = ["java", *JAVA_OPTIONS, "-cp", build(PROJECT), _MAIN]
        self._log = scratch / "nifi.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)

    def measure(self, order: Order) -> Answer:
        """Have the process do what the order says.

        Raises:
            AssertionError: it ended, or did not answer in time; the text holds the end of its log.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        watch = threading.Timer(_ANSWER_SECONDS_MAX, self._process.kill)
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
            raise AssertionError(f"the NiFi process ended at {order.measure}:\n{self._log.read_text()[-2000:]}")
        return msgspec.json.decode(answer, type=Answer)

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


class NifiPeer:
    """NiFi's repositories with or without always.sync; the second of two peers finds the process ended at the end."""

    def __init__(self, process: NifiProcess, *, always_sync: bool) -> None:
        self._process = process
        self._always_sync = always_sync
        self.about = About(
            key="nifi-sync" if always_sync else "nifi-nosync",
            label="NiFi always.sync" if always_sync else "NiFi, no sync",
            durable=always_sync,
            description="WriteAheadFlowFileRepository, FileSystemRepository, WriteAheadProvenanceRepository and "
            "FileSystemSwapManager with shipped settings, but for "
            + (
                "always.sync=true of the three repositories, and no checkpoint of its own"
                if always_sync
                else "no checkpoint of its own; NOT durable: by default NiFi syncs nothing"
            ),
            version=f"NiFi {VERSION}, Java {process.java}",
        )
        durable_only = {"swap", "fill", "open", "drain"} if always_sync else set()
        self.measures = frozenset({"commits", "contents"} | durable_only)

    def measure(self, order: Order) -> Answer:
        """Have the process do what the order says."""
        return self._process.measure(msgspec.structs.replace(order, sync=self._always_sync))

    def close(self) -> None:
        """End the process."""
        self._process.close()
