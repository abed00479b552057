"""Real HiveServer2 processes on the loopback: Hive's own, and Spark's Thrift server with the SerDe of NGSIToHDFS.

Hive's has its metastore in the same process, in an embedded Derby database. `python -m tests.services.hive_server` runs
one until it is interrupted, and says where it listens.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from custody.spark.environment import spark_home, submit_environment
from custody.spark.java import find_java
from tests.services.hdfs import folder_until_interrupted, free_ports, service, until_connected
from tests.services.jars import jars

_HIVE, _OPENX = (Path(__file__).with_name(name) for name in ("hive.jars", "openx.jars"))
_SERVER = "org.apache.hive.service.server.HiveServer2"
_SPARK_SERVER = "org.apache.spark.sql.hive.thriftserver.HiveThriftServer2"
_START_SECONDS_MAX = 300
# Hive 4.0 is of the time of Java 8.
_OPEN = ("lang", "util", "net", "io", "nio", "util.concurrent", "util.concurrent.atomic", "util.regex", "lang.reflect")
_LOG = """\
status = ERROR
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c{1}: %m%n
rootLogger.level = WARN
rootLogger.appenderRef.root.ref = console
"""


@contextmanager
def hive_server(folder: Path, *, hadoop: Path | None = None, more: Mapping[str, str] | None = None) -> Iterator[int]:
    """Start a HiveServer2 4.0 with an empty metastore in a folder, yield its port, and stop it in the end.

    `hadoop` is the folder of a cluster's configuration: its file system is then the one of places without a scheme.
    """
    [port] = free_ports(1)
    conf = folder / "hive-conf"
    conf.mkdir()
    properties = {
        "javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={folder}/metastore;create=true",
        "datanucleus.schema.autoCreateAll": "true",
        "hive.metastore.schema.verification": "false",
        "hive.metastore.event.db.notification.api.auth": "false",
        "hive.metastore.warehouse.dir": f"file:{folder}/warehouse",
        "hive.metastore.warehouse.external.dir": f"file:{folder}/warehouse-external",
        "hive.exec.scratchdir": f"file:{folder}/scratch",
        "hive.exec.local.scratchdir": str(folder / "local"),
        "hive.downloaded.resources.dir": str(folder / "resources"),
        "hive.querylog.location": str(folder / "query-log"),
        "hive.server2.logging.operation.log.location": str(folder / "operation-log"),
        "hive.server2.thrift.bind.host": "127.0.0.1",
        "hive.server2.thrift.port": str(port),
        "hive.server2.webui.port": "0",
        "hive.server2.enable.doAs": "false",
        "hive.server2.materializedviews.registry.impl": "DUMMY",
        "hive.server2.tez.initialize.default.sessions": "false",
        "hive.scheduled.queries.executor.enabled": "false",
        "hive.execution.engine": "mr",  # what tests ask is answered without an engine
        **(more or {}),
    }
    listed = (f"<property><name>{name}</name><value>{value}</value></property>" for name, value in properties.items())
    (conf / "hive-site.xml").write_text(f"<configuration>{''.join(listed)}</configuration>")
    (conf / "log4j2.properties").write_text(_LOG)
    path = os.pathsep.join(map(str, [conf, *([hadoop] if hadoop else []), *jars(_HIVE)]))
    java = [str(find_java(os.environ).executable), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx768m"]
    for package in _OPEN:
        java += ["--add-opens", f"java.base/java.{package}=ALL-UNNAMED"]
    java += [f"-Dlog4j2.configurationFile={conf}/log4j2.properties", f"-Dderby.stream.error.file={folder}/derby.log"]
    command = [*java, "-cp", path, _SERVER, "--hiveconf", "hive.async.log.enabled=false"]
    log = folder / "hiveserver2.log"
    with service(command, log) as process:
        until_connected(process, port, log, _START_SECONDS_MAX)
        yield port


@contextmanager
def spark_thrift_server(folder: Path) -> Iterator[int]:
    """Start Spark's Thrift server with openx's SerDe on an empty embedded metastore, yield its port, and stop it."""
    [port] = free_ports(1)
    options = {
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={folder}/metastore;create=true",
        "spark.hadoop.datanucleus.schema.autoCreateAll": "true",
        "spark.hadoop.hive.metastore.schema.verification": "false",
        "spark.hadoop.hive.server2.thrift.port": str(port),
        "spark.hadoop.hive.server2.thrift.bind.host": "127.0.0.1",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
    }
    command = [str(spark_home() / "bin" / "spark-submit"), "--class", _SPARK_SERVER, "--master", "local[1]"]
    command += ["--jars", ",".join(map(str, jars(_OPENX)))]
    for name, value in options.items():
        command += ["--conf", f"{name}={value}"]
    log = folder / "thriftserver.log"
    with service([*command, "spark-internal"], log, submit_environment()) as process:
        until_connected(process, port, log, _START_SECONDS_MAX)
        yield port


def main() -> None:
    """Run a HiveServer2 until SIGINT or SIGTERM."""
    import signal

    with folder_until_interrupted() as folder, hive_server(folder) as port:
        print(f"hive_host = 127.0.0.1, hive_port = {port}", flush=True)  # noqa: T201 - what it was started for
        signal.pause()


if __name__ == "__main__":
    main()
