"""A real HDFS on the loopback: NameNode, DataNode and HttpFS as processes, in a folder of their own, on free ports.

Tests start it by `hdfs`; `python -m tests.services.hdfs` runs one until it is interrupted, and says where it listens.
What makes it a cluster with Kerberos is a `Realm` (`tests.services.secured` has one).
"""

from __future__ import annotations

import http
import json
import os
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from custody.spark.java import find_java
from tests.services.jars import jars

USER = "warden"
_LIST, _KERBEROS = (Path(__file__).with_name(name) for name in ("hdfs.jars", "kerberos.jars"))
_START_SECONDS_MAX, _STOP_SECONDS_MAX = 180, 30
_NAME_NODE = "org.apache.hadoop.hdfs.server.namenode.NameNode"
_DATA_NODE = "org.apache.hadoop.hdfs.server.datanode.DataNode"
_HTTP_FS = "org.apache.hadoop.fs.http.server.HttpFSServerWebServer"
_OPEN = ("--add-opens", "java.base/java.lang=ALL-UNNAMED")  # for the JSON of Hadoop 3.4's REST server
_QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx384m")
_LOG = """\
log4j.rootLogger=INFO,A
log4j.appender.A=org.apache.log4j.ConsoleAppender
log4j.appender.A.layout=org.apache.log4j.PatternLayout
log4j.appender.A.layout.ConversionPattern=%d %p %c{1}: %m%n
"""
_REPORTED = b"Successfully sent block report"
_PAGE = '<web-app xmlns="http://java.sun.com/xml/ns/javaee" version="2.5"></web-app>'


@dataclass(frozen=True)
class Hdfs:
    """Where its services listen, all on 127.0.0.1."""

    folder: Path
    rpc: int
    web: int
    http_fs: int | None

    @property
    def conf(self) -> Path:
        """The folder of its configuration, which a client of RPC may have as its HADOOP_CONF_DIR."""
        return self.folder / "conf"


@dataclass(frozen=True)
class Realm:
    """Kerberos for the services: what more their files of configuration say, and Java's file of Kerberos."""

    conf: Path
    core: Mapping[str, str]
    hdfs: Mapping[str, str]
    http_fs: Mapping[str, str]


@contextmanager
def hdfs(folder: Path, *, http_fs: bool = False, realm: Realm | None = None) -> Iterator[Hdfs]:
    """Start an empty HDFS in a folder and stop it in the end."""
    rpc, web, data, data_web, data_ipc, proxy = free_ports(6)
    conf = _configured(folder, rpc, web, data, data_web, data_ipc, proxy, realm)
    path = os.pathsep.join([str(conf), *map(str, jars(_LIST)), *(map(str, jars(_KERBEROS)) if realm else ())])
    kerberos = [f"-Djava.security.krb5.conf={realm.conf}"] if realm else []
    with ExitStack() as stack:
        _run(_java(path, *kerberos, _NAME_NODE, "-format", "-nonInteractive"), folder / "format.log")
        stack.enter_context(service(_java(path, *kerberos, _NAME_NODE), folder / "namenode.log"))
        stack.enter_context(service(_java(path, *kerberos, _DATA_NODE), folder / "datanode.log"))
        state = f"http://127.0.0.1:{web}/jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState"
        if realm is None:
            _until_up(state, folder, lambda said: json.loads(said)["beans"][0]["NumLiveDataNodes"] == 1)
        else:  # its pages want a login, too, but the DataNode says it
            _until_up(state, folder, lambda _: _REPORTED in (folder / "datanode.log").read_bytes(), is_refusal_up=True)
        if http_fs:
            options = [f"-Dhttpfs.{name}.dir={folder / 'httpfs' / name}" for name in ("log", "temp")]
            options += [f"-Dhttpfs.home.dir={folder / 'httpfs'}", f"-Dhttpfs.config.dir={conf}"]
            stack.enter_context(service(_java(path, *kerberos, *options, _HTTP_FS), folder / "httpfs.log"))
            listed = f"http://127.0.0.1:{proxy}/webhdfs/v1/?op=LISTSTATUS&user.name={USER}"
            _until_up(listed, folder, lambda said: realm is not None or b"FileStatuses" in said, is_refusal_up=True)
        yield Hdfs(folder, rpc, web, proxy if http_fs else None)


def free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on just now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


@contextmanager
def service(command: list[str], log: Path, environment: Mapping[str, str] | None = None) -> Iterator[subprocess.Popen]:  # type: ignore[type-arg]
    """Run a process until the end of the context; what it says is kept in a file."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=log.parent,
            env={**os.environ, "HADOOP_USER_NAME": USER, **(environment or {})},
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(_STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _java(path: str, *arguments: str) -> list[str]:
    return [str(find_java(os.environ).executable), *_OPEN, *_QUICK, "-cp", path, *arguments]


def _run(command: list[str], log: Path) -> None:
    with service(command, log) as process:
        code = process.wait(_START_SECONDS_MAX)
    assert code == 0, log.read_text()[-3000:]


def _until_up(url: str, folder: Path, is_up: Callable[[bytes], bool], *, is_refusal_up: bool = False) -> None:
    until = time.monotonic() + _START_SECONDS_MAX
    while time.monotonic() < until:
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 - the loopback
                if is_up(answer.read()):
                    return
        except urllib.error.HTTPError as error:
            if is_refusal_up and error.code == http.HTTPStatus.UNAUTHORIZED and is_up(b""):
                return
        except (OSError, ValueError, LookupError):
            pass
        time.sleep(0.2)
    logs = "\n".join(f"{log.name}: {log.read_text(errors='replace')[-2000:]}" for log in folder.glob("*.log"))
    raise AssertionError(f"{url}: not up after {_START_SECONDS_MAX} s\n{logs}")


def _configured(
    folder: Path, rpc: int, web: int, data: int, data_web: int, data_ipc: int, proxy: int, realm: Realm | None
) -> Path:
    conf = folder / "conf"
    for name in ("hdfs", "datanode"):  # pages of a browser, which the jars do not bring
        page = conf / "webapps" / name / "WEB-INF"
        page.mkdir(parents=True)
        (page / "web.xml").write_text(_PAGE)
    for name in ("log", "temp"):
        (folder / "httpfs" / name).mkdir(parents=True)
    (conf / "log4j.properties").write_text(_LOG)
    (conf / "httpfs-log4j.properties").write_text(_LOG)
    here = "127.0.0.1"
    write_properties(
        conf / "core-site.xml",
        {
            "fs.defaultFS": f"hdfs://{here}:{rpc}",
            f"hadoop.proxyuser.{USER}.hosts": "*",
            f"hadoop.proxyuser.{USER}.groups": "*",
            "hadoop.tmp.dir": str(folder / "tmp"),
            **(realm.core if realm else {}),
        },
    )
    write_properties(
        conf / "hdfs-site.xml",
        {
            "dfs.namenode.name.dir": str(folder / "name"),
            "dfs.datanode.data.dir": str(folder / "data"),
            "dfs.namenode.rpc-address": f"{here}:{rpc}",
            "dfs.namenode.http-address": f"{here}:{web}",
            "dfs.datanode.address": f"{here}:{data}",
            "dfs.datanode.http.address": f"{here}:{data_web}",
            "dfs.datanode.ipc.address": f"{here}:{data_ipc}",
            "dfs.datanode.hostname": here,
            "dfs.replication": "1",
            "dfs.namenode.safemode.extension": "0",
            "dfs.permissions.enabled": "false",  # each test is a user of its own
            **(realm.hdfs if realm else {}),
        },
    )
    write_properties(
        conf / "httpfs-site.xml",
        {"httpfs.http.hostname": here, "httpfs.http.port": str(proxy), **(realm.http_fs if realm else {})},
    )
    return conf


def write_properties(path: Path, properties: Mapping[str, str]) -> None:
    """Write one of Hadoop's files of configuration."""
    found = (f"<property><name>{name}</name><value>{value}</value></property>" for name, value in properties.items())
    path.write_text(f"<configuration>{''.join(found)}</configuration>")


def until_connected(process: subprocess.Popen, port: int, log: Path, seconds_max: float) -> None:  # type: ignore[type-arg]
    """Wait until a process listens on a port; what it said is shown where it ends before, or takes too long."""
    until = time.monotonic() + seconds_max
    while True:
        assert process.poll() is None and time.monotonic() < until, log.read_text(errors="replace")[-3000:]
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.1)


@contextmanager
def folder_until_interrupted() -> Iterator[Path]:
    """Give a folder for services, which goes when SIGINT or SIGTERM comes; who pauses in it ends well then."""
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell lets what it starts in the background ignore the former
        signal.signal(number, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="custody-hdfs-") as folder, suppress(KeyboardInterrupt):
        yield Path(folder)


def main() -> None:
    """Run an HDFS until SIGINT or SIGTERM."""
    with folder_until_interrupted() as folder, hdfs(folder, http_fs=True) as running:
        ports = {"hdfs": running.rpc, "webhdfs": running.web, "httpfs, webhdfs": running.http_fs}
        for scheme, port in ports.items():
            print(f"{scheme}://127.0.0.1:{port}/", flush=True)  # noqa: T201 - what it was started for
        signal.pause()


if __name__ == "__main__":
    main()
