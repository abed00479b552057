"""The services as users start them: a process of its own on free ports, and what its tests share."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Thread

from tests import forks
from tests.support import INCLUDE


@dataclass
class Serving:
    """A running service."""

    process: forks.Popen[str]
    rest: str
    """Root of the REST service's URLs."""
    rpc: str
    """Address of the gRPC service."""


@contextmanager
def serving(root: Path, *arguments: str) -> Iterator[Serving]:
    """Start `custody swh serve` and kill it at the end, if it has not ended."""
    code = "from custody.cli.main import main; main()"
    command = [
        sys.executable,
        "-c",
        code,
        "-r",
        str(root),
        "swh",
        "serve",
        "--port",
        "0",
        "--grpc-port",
        "0",
        *arguments,
    ]
    environment = {**os.environ, "PYTHONPATH": str(INCLUDE)}
    process = forks.Popen(command, stderr=forks.PIPE, text=True, env=environment)
    reader: Thread | None = None
    try:
        assert process.stderr is not None
        said, rpc = "", ""
        for line in process.stderr:
            said += line
            rpc = match[1] if (match := re.search(r"gRPC is answered at (\S+)", line)) else rpc
            if match := re.search(r"questions are answered at (\S+)/whereis", line):
                # A line a request comes: a pipe that nobody reads would hold the service up.
                reader = Thread(target=process.stderr.read)
                reader.start()
                yield Serving(process, match[1], rpc)
                break
        else:
            raise AssertionError(f"the service did not start: {said}")
    finally:
        process.kill()
        process.wait()
        if reader is not None:
            reader.join()
        if process.stderr is not None:
            process.stderr.close()


def self_signed(folder: Path) -> tuple[Path, Path]:
    """A certificate for this machine and its key."""
    certificate, key = folder / "cert.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=custody"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-out", str(certificate), "-keyout", str(key)]
    subprocess.run(command, check=True, capture_output=True)
    return certificate, key
