"""A real S3Proxy on the loopback: an S3 server that keeps objects as files of a folder, and checks signatures.

Tests start it by `s3proxy`; `python -m tests.services.s3proxy` runs one until it is interrupted, and says where it
listens and with which keys.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from custody.spark.java import find_java
from tests.behaviour.s3 import BUCKET
from tests.services.hdfs import folder_until_interrupted, free_ports, service, until_connected
from tests.services.jars import jars

_LIST = Path(__file__).with_name("s3proxy.jars")
_QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx384m")
_START_SECONDS_MAX = 120
KEY, SECRET = "test", "test"


@contextmanager
def s3proxy(folder: Path, *, is_signed: bool = True) -> Iterator[str]:
    """Run a server with an empty bucket; give its URL. Without `is_signed` it answers everybody."""
    data = folder / "data"
    # A bucket is a folder.
    (data / BUCKET).mkdir(parents=True)
    [port] = free_ports(1)
    authorization = f"aws-v2-or-v4\ns3proxy.identity={KEY}\ns3proxy.credential={SECRET}" if is_signed else "none"
    settings = folder / "s3proxy.properties"
    settings.write_text(
        f"""\
s3proxy.endpoint=http://127.0.0.1:{port}
s3proxy.authorization={authorization}
jclouds.provider=filesystem-nio2
jclouds.filesystem.basedir={data}
"""
    )
    path = os.pathsep.join(map(str, jars(_LIST)))
    java = [str(find_java(os.environ).executable), *_QUICK, "-cp", path]
    log = folder / "s3proxy.log"
    with service([*java, "org.gaul.s3proxy.Main", "--properties", str(settings)], log) as process:
        until_connected(process, port, log, _START_SECONDS_MAX)
        yield f"http://127.0.0.1:{port}"


if __name__ == "__main__":
    with folder_until_interrupted() as here, s3proxy(here / "s3proxy") as url:
        print(f"S3Proxy listens at {url}; bucket {BUCKET}, keys {KEY!r} and {SECRET!r}; end it with Ctrl-C", flush=True)  # noqa: T201
        import signal

        signal.pause()
