"""A real Kafka on the loopback: one broker that is its own controller, in a folder of its own, on a free port.

Tests start it by `kafka`; `python -m tests.services.kafka` runs one until it is interrupted, and says where it listens.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from custody.spark.java import find_java
from tests.services.hdfs import folder_until_interrupted, free_ports, service, until_connected
from tests.services.jars import jars

_LIST = Path(__file__).with_name("kafka.jars")
_CLUSTER = "MkU3OEVBNTcwNTJENDM2Qk"
_QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx384m")
_START_SECONDS_MAX = 120


@contextmanager
def kafka(folder: Path, *, message_bytes_max: int = 1 << 20) -> Iterator[str]:
    """Start an empty broker and stop it in the end; yields host and port. Topics are made when they are written to."""
    folder.mkdir(parents=True, exist_ok=True)
    port, controller = free_ports(2)
    settings = folder / "server.properties"
    settings.write_text(
        f"""\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={folder / "data"}
num.partitions=3
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
message.max.bytes={message_bytes_max}
"""
    )
    logging = folder / "log4j.properties"
    logging.write_text(
        "log4j.rootLogger=WARN,A\nlog4j.appender.A=org.apache.log4j.ConsoleAppender\n"
        "log4j.appender.A.layout=org.apache.log4j.PatternLayout\n"
    )
    path = os.pathsep.join(map(str, jars(_LIST)))
    java = [str(find_java(os.environ).executable), *_QUICK, f"-Dlog4j.configuration=file:{logging}", "-cp", path]
    subprocess.run(
        [*java, "kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", str(settings)],
        check=True,
        capture_output=True,
        timeout=_START_SECONDS_MAX,
    )
    log = folder / "broker.log"
    with service([*java, "kafka.Kafka", str(settings)], log) as process:
        until_connected(process, port, log, _START_SECONDS_MAX)
        yield f"127.0.0.1:{port}"


if __name__ == "__main__":
    with folder_until_interrupted() as here, kafka(here / "kafka") as broker:
        print(f"Kafka listens at {broker}; end it with Ctrl-C", flush=True)  # noqa: T201
        import signal

        signal.pause()
