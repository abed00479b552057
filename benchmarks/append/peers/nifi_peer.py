"""NiFi 1.28.1's WriteAheadProvenanceRepository, in one Java process that lives through all measurements.

The repository has the settings that NiFi ships, one directory for events and index. Its indexing runs in the
background as in production: an event is acknowledged when it is in the event file, and a full index queue slows the
callers. Built with Maven into `nifi/target`; built anew when a source is newer.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import msgspec

from benchmarks.append.grid import Cell, Reading
from benchmarks.append.peers.base import About, PeerUnavailableError
from benchmarks.append.peers.harness_process import HarnessProcess
from benchmarks.append.workload import Workload

PROJECT = Path(__file__).resolve().parents[1] / "nifi"
VERSION = "1.28.1"
JAVA_LEAST = 17
JAVA_OPTIONS = ("-Xms1g", "-Xmx2g", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
_MAIN = "custody.benchmarks.append.AppendHarness"
_ANSWER_SECONDS_MAX = 300.0
_BUILD_SECONDS_MAX = 900.0
# What Maven says when it cannot reach its repository; any other failure is a fault of the harness.
_OFFLINE = ("Could not transfer artifact", "Cannot access", "Unknown host", "could not be resolved")


class _Order(msgspec.Struct, rename="camel"):
    threads: int
    batch_events: int
    batches: int
    seconds: float
    always_sync: bool
    verify: bool
    folder: str


def java_version() -> str:
    """Return what the `java` on the path calls itself.

    Raises:
        PeerUnavailableError: there is none, or it is too old.
    """
    if shutil.which("java") is None:
        raise PeerUnavailableError("java is not on the path")
    done = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True)
    result = re.search(r'version "((\d+)[^"]*)"', done.stderr)
    if result is None or int(result[2]) < JAVA_LEAST:
        raise PeerUnavailableError(f"expected Java {JAVA_LEAST} or newer, got {done.stderr.splitlines()[0]}")
    return result[1]


def build(project: Path = PROJECT) -> str:
    """Build the harness of a Maven project unless it is up to date; return its class path.

    Raises:
        PeerUnavailableError: Maven is absent or cannot reach its repository.
    """
    target = project / "target"
    jar = target / f"{project.parent.name}-nifi-1.jar"
    sources = [project / "pom.xml", *(project / "src").rglob("*.java")]
    if not jar.exists() or jar.stat().st_mtime < max(source.stat().st_mtime for source in sources):
        if shutil.which("mvn") is None:
            raise PeerUnavailableError("mvn is not on the path, and the harness is not built")
        done = subprocess.run(
            ["mvn", "-q", "-B", "package"],
            cwd=project,
            capture_output=True,
            text=True,
            timeout=_BUILD_SECONDS_MAX,
            check=False,
        )
        if done.returncode != 0:
            text = (done.stdout + done.stderr).strip()
            if any(sign in text for sign in _OFFLINE):
                raise PeerUnavailableError(f"Maven could not get what the harness needs: {text.splitlines()[0]}")
            raise AssertionError(f"mvn package failed in {project}:\n{text}")
    return f"{jar}:{target / 'lib'}/*"


class NifiProcess:
    """The Java process, for both NiFi peers."""

    def __init__(self, workload: Workload, scratch: Path) -> None:
        self.workload = workload
        self.java = java_version()
        class_path = build()
        events = scratch / "events.json"
        events.write_bytes(msgspec.json.encode(workload.events))
        command = ["java", *JAVA_OPTIONS, "-cp", class_path, _MAIN, str(events)]
        self._process = HarnessProcess("NiFi", command, scratch / "nifi.log")

    def measure(self, cell: Cell, seconds: float, folder: Path, *, always_sync: bool, verify: bool) -> Reading:
        """Have the process measure one cell.

        Raises:
            AssertionError: it ended, or did not answer in time; the text holds the end of its log.
        """
        order = _Order(
            threads=cell.threads,
            batch_events=cell.batch_events,
            batches=self.workload.count(cell.batch_events),
            seconds=seconds,
            always_sync=always_sync,
            verify=verify,
            folder=str(folder),
        )
        return msgspec.json.decode(self._process.ask(order, seconds + _ANSWER_SECONDS_MAX), type=Reading)

    def close(self) -> None:
        """End the process."""
        self._process.close()


class NifiPeer:
    """NiFi's repository with always.sync true or false."""

    def __init__(self, process: NifiProcess, *, always_sync: bool) -> None:
        self._process = process
        self._always_sync = always_sync
        promise = "every batch is synced" if always_sync else "NOT durable: NiFi's default, nothing is synced"
        self.about = About(
            key="nifi-sync" if always_sync else "nifi-nosync",
            label="NiFi always.sync" if always_sync else "NiFi, no sync",
            durable=always_sync,
            description=f"WriteAheadProvenanceRepository.registerEvents, always.sync={str(always_sync).lower()} "
            f"({promise}); shipped settings, events and index in one folder, indexing in the background; "
            "of equal events in one batch NiFi stores one, and one is counted",
            version=f"NiFi {VERSION}, Java {process.java}",
        )

    def measure(self, cell: Cell, seconds: float, folder: Path, *, verify: bool) -> Reading:
        """Register from all threads; `verify` opens the repository again and reads every event."""
        return self._process.measure(cell, seconds, folder, always_sync=self._always_sync, verify=verify)

    def close(self) -> None:
        """End the process; the second of two peers finds it ended."""
        self._process.close()
