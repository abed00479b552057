"""A NiFi that delivers over Site-to-Site, as the demo shows it: its own client where there is one, or a twin.

NiFi's client comes from Maven Central, so it is asked for only where Maven is installed. Both are programs of the
project's tests with the same arguments, and the server cannot tell one from the other.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from custody.errors import CustodyError
from custody.spark.java import find_java
from custody_local.errors import DeliveryError
from custody_local.settings import choose_port

PORT_NAME = "provenance"
_FETCH_SECONDS_MAX = 120
_SEND_SECONDS_MAX = 60
_STOP_SECONDS_MAX = 60


@dataclass(frozen=True, slots=True)
class NifiClient:
    """A program that delivers files to a Destination URL."""

    name: str
    command: tuple[str, ...]

    def deliver(self, url: str, files: Sequence[Path], project: Path) -> str:
        """Send files, one transaction each; return what the program says at its end.

        Raises:
            DeliveryError: not all were taken in time.
        """
        arguments = [url, PORT_NAME, "HTTP", "true", str(_SEND_SECONDS_MAX), *map(str, files)]
        done = subprocess.run([*self.command, *arguments], cwd=project, capture_output=True, text=True, check=False)
        if done.returncode:
            raise DeliveryError(f"{self.name}: expected all to be taken, got {done.stdout}{done.stderr[-2000:]}")
        return done.stdout.strip()


def find_client(project: Path) -> NifiClient:
    """Return NiFi's own client where Maven and a JDK are installed and its jars can be had, else a twin in Python."""
    services = project / "tests" / "services"
    twin = NifiClient("a twin of NiFi's client", (sys.executable, "-m", "tests.nifi_client"))
    if shutil.which("mvn") is None:
        return twin
    try:
        java = find_java(os.environ).executable
        modules = subprocess.run([str(java), "--list-modules"], capture_output=True, text=True, check=True).stdout
        if "jdk.compiler@" not in modules:
            return twin
        listed = [sys.executable, "-m", "tests.services.jars", str(services / "nifi1.jars")]
        path = subprocess.run(
            listed, cwd=project, capture_output=True, text=True, check=True, timeout=_FETCH_SECONDS_MAX
        ).stdout.strip()
    except (CustodyError, OSError, subprocess.SubprocessError):
        return twin
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"
    return NifiClient("NiFi's own client", (str(java), "-cp", path, quiet, str(services / "NifiSender.java")))


@contextmanager
def serving(repository: Path) -> Iterator[str]:
    """Run the input port of a repository; yield its Destination URL.

    Raises:
        DeliveryError: it does not start, or does not end well.
    """
    program = str(Path(sys.prefix) / "bin" / "custody")
    command = [program, "-r", str(repository), "site-to-site", "serve", "--quiet", "--port", str(choose_port(None))]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        said = ""
        for line in server.stderr or ():
            said += line
            if found := re.search(r"(http://\S+/nifi)", line):
                break
        else:
            raise DeliveryError(f"custody site-to-site serve: expected a server, got {said}")
        try:
            yield found[1]
        finally:
            server.terminate()
            _, rest = server.communicate(timeout=_STOP_SECONDS_MAX)
    if server.returncode:
        raise DeliveryError(f"custody site-to-site serve ended with {server.returncode}: {rest}")
