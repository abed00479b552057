"""A YARN cluster whose nodes share no disk with the driver: an HDFS, a ResourceManager and NodeManagers as processes.

All of it listens on the loopback, each NodeManager on an address of its own. A NodeManager and the containers that it
starts run in a mount namespace: the folders that they must not see are empty there. What they need of custody they get
from YARN, which takes it from HDFS, where the driver puts it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from custody.spark.environment import spark_home
from custody.spark.java import find_java
from tests.services.hdfs import free_ports, hdfs, service, until_connected, write_properties
from tests.services.jars import jars
from tests.spark.cluster import descendants, plain_environment, require_namespaces, without_folders

_EXPIRY_SECONDS = 10
"""After which silence the ResourceManager gives a node up, with its containers."""
_LIST = Path(__file__).with_name("yarn.jars")
_START_SECONDS = 180
_HERE = "127.0.0.1"
_NODE_MEMORY_MIB = 4096
_RESOURCE_MANAGER = "org.apache.hadoop.yarn.server.resourcemanager.ResourceManager"
_NODE_MANAGER = "org.apache.hadoop.yarn.server.nodemanager.NodeManager"
_QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx384m", "-Dorg.apache.logging.log4j.level=INFO")


@dataclass
class Yarn:
    """A ResourceManager with its nodes, which tests kill and start."""

    folder: Path
    hidden: Sequence[Path]
    site: Mapping[str, str]
    """What yarn-site.xml of every process says."""
    core: Mapping[str, str]
    page: int
    nodes: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def conf(self) -> Path:
        """The folder of the clients' configuration: their HADOOP_CONF_DIR."""
        return self.folder / "conf"

    def start_node(self, number: int) -> None:
        """Start a NodeManager in folders of its own."""
        own = self.folder / f"node-{number}"
        here = f"127.0.0.{number + 2}"
        address, localizer, web = free_ports(3)
        conf = own / "conf"
        site = {
            **self.site,
            "yarn.nodemanager.hostname": here,
            "yarn.nodemanager.address": f"{here}:{address}",
            "yarn.nodemanager.localizer.address": f"{here}:{localizer}",
            "yarn.nodemanager.webapp.address": f"{here}:{web}",
            "yarn.nodemanager.local-dirs": str(own / "local"),
            "yarn.nodemanager.log-dirs": str(own / "logs"),
            "yarn.nodemanager.resource.memory-mb": str(_NODE_MEMORY_MIB),
            "yarn.nodemanager.resource.cpu-vcores": "4",
            # A developer's disk may be nearly full.
            "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "100",
        }
        _configure(conf, {**self.core, "hadoop.tmp.dir": str(own / "tmp")}, site)
        with (own / "log").open("ab") as log:
            self.nodes[number] = subprocess.Popen(
                without_folders(self.hidden, _java(conf, _NODE_MANAGER)),
                env=plain_environment(),
                cwd=own,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def kill_node(self, number: int) -> None:
        """Kill a NodeManager with its containers, as the loss of its machine does."""
        process = self.nodes.pop(number)
        for pid in descendants(process.pid):
            os.kill(pid, signal.SIGKILL)
        process.wait()

    def await_nodes(self, count: int) -> None:
        """Wait until so many nodes run, as the ResourceManager says."""
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            try:
                url = f"http://{_HERE}:{self.page}/ws/v1/cluster/metrics"
                with urllib.request.urlopen(url, timeout=5) as answer:
                    if json.load(answer)["clusterMetrics"]["activeNodes"] == count:
                        return
            except (OSError, ValueError):
                pass
            time.sleep(0.3)
        pytest.fail("\n".join(log.read_text()[-4000:] for log in (*self.folder.rglob("log"), self.folder / "rm.log")))

    def command_lines(self) -> list[str]:
        """Return the command lines of the nodes' processes: NodeManagers, containers and their Pythons."""
        lines = []
        for pid in (pid for node in list(self.nodes.values()) for pid in descendants(node.pid)):
            try:
                lines.append(Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:  # it ended
                continue
        return lines

    def units(self) -> dict[int, list[Path]]:
        """Return the folders of units that are on the nodes' disks now, by the number of their node."""
        found: dict[int, list[Path]] = {}
        for node, folder, folders, _ in self._walk():
            for name in folders:
                if name.startswith("custody-unit-"):
                    found.setdefault(node, []).append(folder / name)
        return found

    def files_with(self, text: str) -> list[Path]:
        """Return the files on the nodes' disks that hold a text now."""
        found = []
        for _, folder, _, names in self._walk():
            for path in (folder / name for name in names):
                try:
                    if text.encode() in path.read_bytes():
                        found.append(path)
                except OSError:  # it went meanwhile
                    continue
        return found

    def _walk(self) -> Iterator[tuple[int, Path, list[str], list[str]]]:
        """Yield the folders on the nodes' disks: the node's number, and the names of folders and of files."""
        for node in self.folder.glob("node-*"):
            for folder, folders, names in os.walk(node, onerror=lambda _: None):
                # The library and its dependencies are thousands of files.
                folders[:] = [name for name in folders if not name.endswith(".tar.gz")]
                yield int(node.name.rpartition("-")[2]), Path(folder), folders, names


@contextmanager
def yarn_cluster(folder: Path, hidden: Sequence[Path], nodes: int = 2) -> Iterator[Yarn]:
    """Run a ResourceManager, an HDFS and nodes that see nothing below the `hidden` folders."""
    require_namespaces()
    (folder / "hdfs").mkdir(parents=True)
    names = (
        "resourcemanager.address",
        "resourcemanager.scheduler.address",
        "resourcemanager.resource-tracker.address",
        "resourcemanager.admin.address",
        "resourcemanager.webapp.address",
    )
    ports = free_ports(len(names))
    with ExitStack() as stack:
        disk = stack.enter_context(hdfs(folder / "hdfs"))
        site = {
            **{f"yarn.{name}": f"{_HERE}:{port}" for name, port in zip(names, ports, strict=True)},
            "yarn.resourcemanager.hostname": _HERE,
            "yarn.scheduler.minimum-allocation-mb": "256",
            "yarn.scheduler.maximum-allocation-mb": str(_NODE_MEMORY_MIB),
            "yarn.nm.liveness-monitor.expiry-interval-ms": str(_EXPIRY_SECONDS * 1000),
        }
        core = {"fs.defaultFS": f"hdfs://{_HERE}:{disk.rpc}"}
        yarn = Yarn(folder, hidden, site, core, ports[-1])
        _configure(yarn.conf, core, site)
        of_manager = folder / "conf-rm"
        _configure(of_manager, {**core, "hadoop.tmp.dir": str(folder / "tmp")}, site)
        queues = {"queues": "default", "default.capacity": "100"}
        scheduler = {f"yarn.scheduler.capacity.root.{name}": value for name, value in queues.items()}
        write_properties(of_manager / "capacity-scheduler.xml", scheduler)
        manager = stack.enter_context(service(_java(of_manager, _RESOURCE_MANAGER), folder / "rm.log"))
        until_connected(manager, yarn.page, folder / "rm.log", _START_SECONDS)
        try:
            for number in range(nodes):
                yarn.start_node(number)
            yarn.await_nodes(nodes)
            yield yarn
        finally:
            for number in list(yarn.nodes):
                yarn.kill_node(number)


def _java(conf: Path, main: str) -> list[str]:
    path = os.pathsep.join([str(conf), *map(str, jars(_LIST)), str(spark_home() / "jars" / "*")])
    return [str(find_java(os.environ).executable), *_QUICK, "-cp", path, main]


def _configure(conf: Path, core: Mapping[str, str], site: Mapping[str, str]) -> None:
    conf.mkdir(parents=True, exist_ok=True)
    write_properties(conf / "core-site.xml", core)
    write_properties(conf / "yarn-site.xml", site)
