"""A Spark standalone cluster whose workers share no disk with the driver, as processes of this machine.

Each worker runs in a mount namespace of its own: the folders that it must not see are empty there, and it has folders
of its own for work, home and temporary files. What a worker needs of custody, it gets from the driver.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from custody.spark.environment import spark_home, submit_environment
from custody_local.settings import choose_port

_START_SECONDS = 120
_HERE = "127.0.0.1"


@dataclass
class Cluster:
    """A master with its workers, which tests kill and start."""

    folder: Path
    hidden: Sequence[Path]
    port: str
    page: str
    workers: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    cores: int = 1
    """Of a worker."""

    @property
    def master(self) -> str:
        """Its address."""
        return f"spark://{_HERE}:{self.port}"

    def start_worker(self, number: int) -> None:
        """Start a worker in folders of its own."""
        own = self.folder / f"worker-{number}"
        for name in ("work", "home", "tmp"):
            (own / name).mkdir(parents=True, exist_ok=True)
        spark = [str(spark_home() / "bin" / "spark-class"), "org.apache.spark.deploy.worker.Worker"]
        # A host of its own: Spark does no task twice on one.
        spark += [
            "--host",
            f"127.0.0.{number + 1}",
            "--webui-port",
            str(choose_port(None)),
            "--work-dir",
            str(own / "work"),
        ]
        spark += ["--cores", str(self.cores), "--memory", "1g", self.master]
        home = {"HOME": str(own / "home"), "TMPDIR": str(own / "tmp"), "SPARK_LOCAL_DIRS": str(own / "tmp")}
        with (own / "log").open("ab") as log:
            self.workers[number] = subprocess.Popen(
                without_folders(self.hidden, spark),
                env={**plain_environment(), **home},
                cwd=own / "work",
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def kill_worker(self, number: int) -> None:
        """Kill a worker with its executors and their Pythons, as the loss of its machine does."""
        process = self.workers.pop(number)
        for pid in descendants(process.pid):
            os.kill(pid, signal.SIGKILL)
        process.wait()

    def stop_pythons(self, number: int) -> list[int]:
        """Stop the Python processes of a worker's executors and return them; SIGCONT lets them go on."""
        stopped = []
        for pid in descendants(self.workers[number].pid):
            if b"pyspark.daemon" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGSTOP)
                stopped.append(pid)
        return stopped

    def python_commands(self) -> list[str]:
        """Return the command lines of the Python processes of all executors."""
        pids = (pid for worker in self.workers.values() for pid in descendants(worker.pid))
        lines = (Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode() for pid in pids)
        return [line for line in lines if "pyspark.daemon" in line]

    def await_workers(self, count: int) -> None:
        """Wait until so many workers live, as the master says."""
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            try:
                with urllib.request.urlopen(f"http://{_HERE}:{self.page}/json/", timeout=5) as answer:
                    if json.load(answer)["aliveworkers"] == count:
                        return
            # Also a page that a master which is just starting cannot make yet.
            except (OSError, ValueError):
                pass
            time.sleep(0.3)
        pytest.fail("\n".join(log.read_text() for log in self.folder.rglob("log")))

    def left_below_workers(self) -> list[Path]:
        """Return the folders of units that are on the workers' disks now."""
        found = (os.walk(worker, onerror=lambda _: None) for worker in sorted(self.folder.glob("worker-*")))
        names = ((Path(folder, name) for name in names) for walk in found for folder, names, _ in walk)
        return sorted(path for paths in names for path in paths if path.name.startswith("custody-unit-"))


@contextmanager
def standalone_cluster(folder: Path, hidden: Sequence[Path], workers: int = 2, cores: int = 1) -> Iterator[Cluster]:
    """Run a master and workers that see nothing below the `hidden` folders."""
    require_namespaces()
    folder.mkdir(parents=True)
    cluster = Cluster(folder, hidden, str(choose_port(None)), str(choose_port(None)), cores=cores)
    command = [str(spark_home() / "bin" / "spark-class"), "org.apache.spark.deploy.master.Master"]
    command += ["--host", _HERE, "--port", cluster.port, "--webui-port", cluster.page]
    # A worker that was killed is missed soon, and comes back under another name.
    master_options = {"SPARK_MASTER_OPTS": "-Dspark.worker.timeout=20"}
    with (folder / "log").open("wb") as log:
        master = subprocess.Popen(
            command,
            env={**plain_environment(), **master_options},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        for number in range(workers):
            cluster.start_worker(number)
        cluster.await_workers(workers)
        yield cluster
    finally:
        for number in list(cluster.workers):
            cluster.kill_worker(number)
        os.killpg(master.pid, signal.SIGKILL)
        master.wait()


class Killer:
    """Kills a worker that does a unit, at the first put of each kind, and starts another one.

    Of a unit that puts nothing, `method` is the request that it is known by.
    """

    def __init__(self, cluster: Cluster, kinds: dict[str, str], method: str = "PUT") -> None:
        self.cluster = cluster
        self.waiting = dict(kinds)
        self._method = method
        self.killed: list[str] = []
        self._lock = threading.Lock()

    def __call__(self, method: str, path: str) -> None:
        with self._lock:
            kind = next((kind for kind, mark in self.waiting.items() if method == self._method and mark in path), None)
            busy = [path.relative_to(self.cluster.folder).parts[0] for path in self.cluster.left_below_workers()]
            if kind is None or not busy:
                return
            del self.waiting[kind]
            number = int(busy[0].rpartition("-")[2])
            self.cluster.kill_worker(number)
            shutil.rmtree(self.cluster.folder / busy[0])
            self.cluster.start_worker(number)
            self.killed.append(kind)


def require_namespaces() -> None:
    """Skip the test where a process may have no mount namespace of its own."""
    done = subprocess.run([*_namespace(), "true"], capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"needs mount namespaces: {done.stderr.decode(errors='replace').strip()}")


def without_folders(hidden: Sequence[Path], command: Sequence[str]) -> list[str]:
    """Return a command line that runs a command in a mount namespace of its own, in which some folders are empty."""
    mounts = [f"mount -t tmpfs none {shlex.quote(str(path))}" for path in hidden]
    # Sub-shells are gone by exec, so that the process group is the command and what it starts.
    return [*_namespace(), "sh", "-c", " && ".join([*mounts, f"exec {shlex.join(command)}"])]


def _namespace() -> list[str]:
    user = [] if os.geteuid() == 0 else ["--map-root-user"]
    return ["unshare", *user, "--mount", "--propagation", "private"]


def plain_environment() -> Mapping[str, str]:
    """What a machine of a cluster has: Java, Spark, Python with libraries; neither custody nor credentials."""
    names = ("PATH", "LANG", "LC_ALL", "JAVA_HOME")
    here = {name: os.environ[name] for name in names if name in os.environ}
    return {**here, **submit_environment(here), "SPARK_NO_DAEMONIZE": "1"}


def descendants(root: int) -> list[int]:
    """Return a process and all that it started, by their parents; executors have sessions of their own."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                continue
    tree = [root]
    for pid in tree:
        tree += [child for child, parent in parents.items() if parent == pid]
    return tree
