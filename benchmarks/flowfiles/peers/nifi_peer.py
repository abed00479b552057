"""NiFi 1.28.1's repositories of FlowFiles, contents and events, in one Java process for all measurements.

Built with Maven into `nifi/target`; built anew when a source is newer.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from benchmarks.append.peers.base import About
from benchmarks.append.peers.harness_process import HarnessProcess
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
        self._process = HarnessProcess("NiFi", command, scratch / "nifi.log")

    def measure(self, order: Order) -> Answer:
        """Have the process do what the order says.

        Raises:
            AssertionError: it ended, or did not answer in time; the text holds the end of its log.
        """
        return msgspec.json.decode(self._process.ask(order, _ANSWER_SECONDS_MAX), type=Answer)

    def close(self) -> None:
        """End the process."""
        self._process.close()


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
