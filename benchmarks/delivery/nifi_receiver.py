"""The receiving side of NiFi 1.28.1 in a Java process: its flow controller with a remote input port.

No release of a whole NiFi is on Maven Central, nor its web server: the packets come by RAW, which NiFi serves without
it. Contents, FlowFiles and their RECEIVE events go through its repositories with the settings that it ships. NiFi keeps
a packet as it came and does not look into it.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.append.peers.base import PeerUnavailableError
from benchmarks.append.peers.nifi_peer import JAVA_OPTIONS, build, java_version

_PROJECT = Path(__file__).with_name("nifi")
_MAIN = "custody.benchmarks.delivery.ReceiverHarness"
TASKS = 8
"""Packets that the port takes at once: more were no faster on two cores, and one, which NiFi proposes, slower."""


class NifiReceiver:
    """A process of NiFi that takes packets; `url` is where, as the producers take it."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process, self._log = process, log
        said = self._line(r"socket=(\d+) port=(\S+)")
        self.pid = process.pid
        self.url = f"nifi://127.0.0.1:{said[1]}/{said[2]}"

    def packets(self) -> int:
        """End it, and return how many packets are in its queue."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        return int(self._line(r"packets=(\d+)")[1])

    def _line(self, expected: str) -> re.Match[str]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if match := re.match(expected, line):
                return match
        raise PeerUnavailableError(f"NiFi ended:\n{self._log.read_text()[-2000:]}")


@contextmanager
def nifi_receiving(folder: Path, *, is_synced: bool) -> Iterator[NifiReceiver]:
    """Start a NiFi whose repositories lie in a folder and sync, or do not, what they acknowledge.

    Raises:
        PeerUnavailableError: there is no Java, or Maven cannot get NiFi.
    """
    java_version()
    folder.mkdir(parents=True)
    log = folder / "nifi.log"
    command = ["java", *JAVA_OPTIONS, "-cp", build(_PROJECT), _MAIN, str(folder), str(is_synced).lower(), str(TASKS)]
    with (
        log.open("wb") as output,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=output, text=True, cwd=folder
        ) as process,
    ):
        try:
            yield NifiReceiver(process, log)
        finally:
            process.kill()
