"""A real remote metastore of Hive on the loopback, from the jars that Spark brings."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from custody.spark.environment import spark_home
from custody.spark.java import find_java
from tests.services.hdfs import free_ports, service, until_connected

_CLASS = "org.apache.hadoop.hive.metastore.HiveMetaStore"
_START_SECONDS_MAX = 180


@contextmanager
def metastore(folder: Path) -> Iterator[int]:
    """Start an empty metastore in a folder, yield its port, and stop it in the end."""
    [port] = free_ports(1)
    options = {
        "javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={folder}/metastore;create=true",
        "datanucleus.schema.autoCreateAll": "true",
        "hive.metastore.schema.verification": "false",
        "hive.metastore.warehouse.dir": f"file:{folder}/warehouse",
        "hive.async.log.enabled": "false",  # Spark does not bring what asynchronous logs need
    }
    java = [str(find_java(os.environ).executable), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m"]
    java += ["--add-opens", "java.base/java.net=ALL-UNNAMED", "--add-opens", "java.base/java.lang=ALL-UNNAMED"]
    java += [f"-D{name}={value}" for name, value in options.items()]
    command = [*java, "-cp", f"{spark_home() / 'jars'}/*", _CLASS, "-p", str(port)]
    log = folder / "metastore.log"
    with service(command, log) as process:
        until_connected(process, port, log, _START_SECONDS_MAX)
        yield port
