"""Hosts as network namespaces, and one store that they reach by links which can be cut.

Each host has a cable of its own to the store. While it is cut, packets are dropped without a word, and nothing tells
the processes that wait for an answer. A proxy before the store, on the side of the store, sees each request, so that a
link can be cut exactly there.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.behaviour.s3 import BUCKET, REQUIREMENTS, SERVER, s3_environment
from tests.behaviour.store_proxy import Fault, StoreProxy, store_proxy
from tests.own_environment import python_of

_PORT, _SERVER_PORT = 9000, 9001
_NETWORK_NAMESPACE = 0x40000000
_START_SECONDS = 60
_CUT_SECONDS_MAX = 600
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
        self.proxy = StoreProxy(f"http://127.0.0.1:{_SERVER_PORT}")
        """What stands before the store."""

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
            ends.enter_context(self._before_the_server())
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
        self,
        host: str,
        arguments: Sequence[str],
        environment: dict[str, str],
        *,
        is_out_of_sight: bool = False,
        **options: object,
    ) -> subprocess.Popen[str]:
        """Start Python on a host, where the others see its process unless it shall be out of their sight."""
        own = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"] if is_out_of_sight else []
        command = ["ip", "netns", "exec", self._name(host), *own, sys.executable, *arguments]
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
    def _before_the_server(self) -> Iterator[None]:
        """Run the proxy in threads of this process that are in the store's namespace."""
        ready, end = threading.Event(), threading.Event()

        def serve() -> None:
            with Path("/run/netns", self._name("store")).open() as namespace:
                # Of this thread, and of those that it starts.
                if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), _NETWORK_NAMESPACE):
                    raise OSError(ctypes.get_errno(), "setns")
            with store_proxy(self.proxy, address=("0.0.0.0", _PORT)):  # noqa: S104 - a namespace of its own
                ready.set()
                end.wait()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            if not ready.wait(_START_SECONDS):
                raise RuntimeError("no proxy came up in the store's namespace")
            yield
        finally:
            end.set()
            thread.join()

    @contextmanager
    def _server(self) -> Iterator[None]:
        command = ["ip", "netns", "exec", self._name("store")]
        command += [str(python_of("s3", REQUIREMENTS)), "-c", SERVER, "-H", "127.0.0.1", "-p", str(_SERVER_PORT)]
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


class Cut:
    """Cuts a host's link at the first put of a kind: before it is passed on to the store, or after it was done there.

    The request stays without an answer until the test has mended the link and lets it end: its connection breaks then.
    """

    def __init__(self, network: Network, host: str, mark: str, *, is_after: bool) -> None:
        self._network = network
        self._host = host
        self._mark = mark
        self._is_after = is_after
        self.is_cut = threading.Event()
        self._may_end = threading.Event()
        self._lock = threading.Lock()
        if is_after:
            network.proxy.watch_done = self._look
        else:
            network.proxy.watch = self._look

    def mend(self) -> None:
        """Mend the link, and let the request end."""
        self._network.proxy.watch = self._network.proxy.watch_done = lambda method, path: None
        self._network.mend(self._host)
        self._may_end.set()

    def _look(self, method: str, path: str) -> Fault | None:
        with self._lock:
            if self.is_cut.is_set() or method != "PUT" or self._mark not in path:
                return None
            self._network.cut(self._host)
            self.is_cut.set()
        self._may_end.wait(_CUT_SECONDS_MAX)
        return "lost" if self._is_after else "dropped"
