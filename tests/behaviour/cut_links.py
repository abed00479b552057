"""Hosts as network namespaces, and one store that they reach by links which can be cut.

Each host has a cable of its own to the store. While it is cut, packets are dropped without a word, and nothing tells
the processes that wait for an answer.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.behaviour.s3 import BUCKET, REQUIREMENTS, s3_environment
from tests.own_environment import python_of

_PORT = 9000
_START_SECONDS = 60
# A request that goes into a cut cable ends after this time, and so does a test that waits for a refusal.
_REQUEST_SECONDS = "2s"


def have_namespaces() -> bool:
    """Whether this user may make network namespaces with `ip`."""
    name = f"custody-{os.getpid()}-probe"
    try:
        if subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode:
            return False
    except OSError:
        return False
    return not subprocess.run(["ip", "netns", "del", name], check=False).returncode


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


class Network:
    """A store, and hosts that reach it.

    Args:
        hosts: their names, one letter or more each.
        logs: a folder for what the store's server says.
    """

    def __init__(self, hosts: Sequence[str], logs: Path) -> None:
        self._prefix = f"custody-{os.getpid()}"
        self._hosts = list(hosts)
        self._logs = logs

    @contextmanager
    def running(self) -> Iterator[Network]:
        """Make the namespaces, start the store, and remove everything at the end."""
        with ExitStack() as ends:
            for name in ("store", *self._hosts):
                _ip("netns", "add", self._name(name))
                ends.callback(_ip, "netns", "del", self._name(name))
                _ip("-n", self._name(name), "link", "set", "lo", "up")
            for number, name in enumerate(self._hosts):
                self._connect(number, name)
            ends.enter_context(self._server())
            yield self

    def url(self, host: str) -> str:
        """The store's address, as a host sees it."""
        return f"http://10.213.{self._hosts.index(host)}.1:{_PORT}"

    def cut(self, host: str) -> None:
        """Cut a host's link."""
        _ip("-n", self._name("store"), "link", "set", f"to-{host}", "down")

    def mend(self, host: str) -> None:
        """Mend a host's link; one that is whole stays as it is."""
        _ip("-n", self._name("store"), "link", "set", f"to-{host}", "up")

    def environment(self, host: str, prefix: str) -> dict[str, str]:
        """The variables of a host's processes, whose repository lies below a prefix of the store."""
        return {
            **os.environ,
            **s3_environment(self.url(host)),
            "AWS_TIMEOUT": _REQUEST_SECONDS,
            "AWS_CONNECT_TIMEOUT": _REQUEST_SECONDS,
            "PYTHONPATH": f"include{os.pathsep}.",
            "CUSTODY__REPOSITORY__STORE": f"s3://{BUCKET}/{prefix}",
            "CUSTODY__JOURNAL__HANDOFF": "store",
        }

    def start(
        self, host: str, arguments: Sequence[str], environment: dict[str, str], **options: object
    ) -> subprocess.Popen[str]:
        """Start Python on a host."""
        command = ["ip", "netns", "exec", self._name(host), sys.executable, *arguments]
        return subprocess.Popen(command, env=environment, text=True, **options)  # type: ignore[call-overload, no-any-return]

    def _name(self, host: str) -> str:
        return f"{self._prefix}-{host}"

    def _connect(self, number: int, host: str) -> None:
        store, namespace = self._name("store"), self._name(host)
        cable = ("type", "veth", "peer", "name", "store", "netns", namespace)
        _ip("-n", store, "link", "add", f"to-{host}", *cable)
        for place, device, address in ((store, f"to-{host}", 1), (namespace, "store", 2)):
            _ip("-n", place, "address", "add", f"10.213.{number}.{address}/24", "dev", device)
            _ip("-n", place, "link", "set", device, "up")

    @contextmanager
    def _server(self) -> Iterator[None]:
        command = ["ip", "netns", "exec", self._name("store")]
        command += [str(python_of("s3", REQUIREMENTS)), "-m", "moto.server", "-H", "0.0.0.0", "-p", str(_PORT)]  # noqa: S104 - a namespace of its own
        with (
            (self._logs / "store.log").open("wb") as log,
            subprocess.Popen(command, stdout=log, stderr=log) as server,
        ):
            try:
                self._make_bucket()
                yield
            finally:
                server.kill()

    def _make_bucket(self) -> None:
        host = self._hosts[0]
        ask = (
            "import sys, urllib.request as web;"
            "web.urlopen(web.Request(sys.argv[1], method='PUT'), timeout=5).close()"  # the server is our own
        )
        deadline = time.monotonic() + _START_SECONDS
        while True:
            url = f"{self.url(host)}/{BUCKET}"
            with self.start(host, ["-c", ask, url], dict(os.environ), stderr=subprocess.DEVNULL) as asked:
                if asked.wait() == 0:
                    return
            if time.monotonic() > deadline:
                raise RuntimeError(f"no S3 server answered at {url}")
            time.sleep(0.2)
