"""A NiFi's delivery in the demo: events come over the network, by NiFi's own protocol, into a real input port.

Who sends is custody's export of the kind `site-to-site`, out of a repository that stands for the NiFi: it speaks as the
stock `SiteToSiteProvenanceReportingTask` does, and needs neither Java nor jars.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from custody.repository import Repository
from custody.sample import SampleOptions, sample_files
from custody.vfs import FileSystem, PosixFileSystem
from custody_local.errors import LocalAirflowError

EXPORT = "custody"
_EVENTS = 500
_SEED = 11
"""Of another history than the demo's sample has, on another node."""
_TAKEN_AT = re.compile(r"provenance is taken at (\S+/nifi)")
_STOP_SECONDS = 30


@dataclass(slots=True)
class InputPort:
    """A port that listens: the Destination URL to type into NiFi, and what it said at its end."""

    url: str
    said: str = ""


@contextmanager
def input_port(repository: Path) -> Iterator[InputPort]:
    """Serve the input port of a repository for the block.

    Raises:
        LocalAirflowError: the server ended before it listened.
    """
    command = [str(Path(sys.prefix) / "bin" / "custody"), "-r", str(repository)]
    server = subprocess.Popen(
        [*command, "site-to-site", "serve", "--port", "0", "--quiet"],
        stderr=subprocess.PIPE,
        text=True,
        # Wide, so that the address is on one line.
        env={**os.environ, "COLUMNS": "300"},
    )
    try:
        port = InputPort(_address(server))
        yield port
    finally:
        server.terminate()
        _, said = server.communicate(timeout=_STOP_SECONDS)
    port.said = said.strip().removeprefix("custody: ")


def _address(server: subprocess.Popen[str]) -> str:
    assert server.stderr is not None  # noqa: S101 - it is a pipe
    said = []
    for line in server.stderr:
        said.append(line)
        if taken := _TAKEN_AT.search(line):
            return taken[1]
    raise LocalAirflowError(f"the input port: expected its address, it ended and said: {''.join(said)}")


def make_sender(folder: Path, url: str, fs: FileSystem | None = None) -> int:
    """Make the repository that stands for the NiFi, anew, for an input port; return how many events it has."""
    fs = fs or PosixFileSystem()
    if fs.is_directory(folder):
        fs.remove_tree(folder)
    with Repository.create(folder).ingest() as ingest:
        for name, data in sample_files(SampleOptions(events=_EVENTS, seed=_SEED, nodes=1)):
            fs.write_durably(folder / name, data)
            ingest.file(folder / name)
    settings = f'[exports.{EXPORT}]\nkind = "site-to-site"\nurl = "{url}"\nport = "provenance"\n'
    fs.write_durably(folder / "custody.toml", settings.encode())
    return _EVENTS
