"""Processes of Python that begin as forks of one that has imported already what they import.

A Python that imports Arrow, numpy and custody takes most of a second of CPU before it does anything, and the tests
start hundreds. `Popen` and `run` here are those of `subprocess`, but for how a plain Python begins: a nursery, one for
each worker of the tests, has imported the library, has a single thread, and clones itself. What it clones is a process
as any other: a child of the tests with its own memory, descriptors and environment, that can be killed, waited for and
limited.

What is tried as users start it stays with `subprocess`: imports, the first moments, installed programs. And whatever a
nursery does not offer (other flags, a terminal, variables that count when a library is loaded) is started as ever.

The workers of the tests themselves begin so too, where all tests run: one process compiles and imports all test
modules, in place of each worker.
"""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import gc
import json
import os
import platform
import re
import signal
import socket
import subprocess
import sys
import threading
import types
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from subprocess import DEVNULL, PIPE, STDOUT, CalledProcessError, CompletedProcess, TimeoutExpired
from typing import TYPE_CHECKING, Any

__all__ = ["DEVNULL", "PIPE", "STDOUT", "CalledProcessError", "CompletedProcess", "Popen", "TimeoutExpired", "run"]

_INCLUDE = Path(__file__).resolve().parents[1] / "include"
_CLONE = {"x86_64": 56, "aarch64": 220}.get(platform.machine()) if sys.platform == "linux" else None
_CLONE_PARENT = 0x00008000
_MESSAGE_BYTES = 1 << 20
# What counts when an interpreter starts or a library is loaded: it must be as it was for the nursery.
_LOADED_WITH = re.compile(r"(?:PYTHON(?!PATH$)|LD_|LC_|LANG|TZ$|ARROW_|OMP_|MALLOC_|GRPC_|RUST_).*")
# OpenBLAS, which numpy brings, starts threads when it is loaded, and computes nothing here. Arrow's allocator starts
# one that gives memory back; without it whoever frees memory does so.
_WITHOUT_THREADS = {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
_HIGH = 500

_FLAGS = {"engine": ("-I", "-S"), "library": (), "tests": ("-u",)}
_OF_A_WORKER = "import sys;exec(eval(sys.stdin.readline()))"
"""What a worker of pytest-xdist begins with: it is told the rest."""


_GIVEN = (
    *("args", "executable", "preexec_fn", "close_fds", "pass_fds", "cwd", "env", "startupinfo"),
    *("creationflags", "shell", "p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite"),
    *("restore_signals", "gid", "gids", "uid", "umask", "start_new_session", "process_group"),
)
"""What `subprocess.Popen` hands to its own method that starts a process, in Python 3.11 and 3.12."""


class _Popen(subprocess.Popen[Any]):
    """`subprocess.Popen`; a Python without flags, or with those of the SQL engine, begins as a fork of a nursery."""

    def _execute_child(self, *arguments: Any) -> None:
        given: Any = types.SimpleNamespace(**dict(zip(_GIVEN, arguments, strict=True)))
        ends = [given.p2cread, given.c2pwrite, given.errwrite]
        ends = [place if end == -1 else end for place, end in enumerate(ends)]
        nursery = None if _is_special(given) else _nursery_of(given.args, given.env, ends)
        if nursery is None:
            super()._execute_child(*arguments)  # type: ignore[misc]
            return
        program = {
            "arguments": [os.fsdecode(each) for each in given.args[nursery.flags + 1 :]],
            "environment": dict(os.environ if given.env is None else given.env),
            "folder": os.getcwd() if given.cwd is None else os.fsdecode(given.cwd),
            "descriptors": [0, 1, 2, *given.pass_fds],
            "new_session": bool(given.start_new_session),
        }
        number = nursery.start(program, [*ends, *given.pass_fds])
        if number == 0:
            super()._execute_child(*arguments)  # type: ignore[misc]
            return
        self.pid = number
        self._child_created = True
        self._close_ends_of_the_child(given)

    def _close_ends_of_the_child(self, given: Any) -> None:
        # As the original does.
        devnull = getattr(self, "_devnull", None)
        for own, other in (
            (given.p2cread, given.p2cwrite),
            (given.c2pwrite, given.c2pread),
            (given.errwrite, given.errread),
        ):
            if own != -1 and other != -1 and own != devnull:
                os.close(own)
        if devnull is not None:
            os.close(devnull)
        self._closed_child_pipe_fds = True


def _run(
    command: Sequence[str],
    *,
    input: str | bytes | None = None,
    capture_output: bool = False,
    timeout: float | None = None,
    check: bool = False,
    **options: Any,
) -> CompletedProcess[Any]:
    """`subprocess.run`, by `Popen` of this module."""
    if input is not None:
        options["stdin"] = PIPE
    if capture_output:
        options["stdout"] = options["stderr"] = PIPE
    with _Popen(command, **options) as process:
        try:
            output, errors = process.communicate(input, timeout=timeout)
        except BaseException:
            process.kill()
            raise
    code = process.returncode
    if check and code:
        raise CalledProcessError(code, process.args, output, errors)
    return CompletedProcess(process.args, code, output, errors)


# For checkers they are those of `subprocess`, whose types they have.
if TYPE_CHECKING:
    from subprocess import Popen, run
else:
    Popen, run = _Popen, _run


def _is_special(given: Any) -> bool:
    """Whether a process is to be started in a way that no fork here offers."""
    return (
        not isinstance(given.args, (list, tuple))
        or given.shell
        or given.preexec_fn is not None
        or given.executable not in (None, given.args[0])
        or not given.close_fds
        or any(each is not None for each in (given.gid, given.gids, given.uid))
        or given.umask != -1
        or given.process_group not in (-1, None)
    )


class _Nursery:
    """A process that clones itself on demand. What it clones is a child of who asks, which started the nursery."""

    def __init__(self, kind: str, environment: Mapping[str, str]) -> None:
        flags = _FLAGS[kind]
        self.flags = len(flags)
        self.environment = dict(environment)
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        path = json.dumps([str(_INCLUDE), *(place for place in sys.path if place)])
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, *flags, __file__, kind, str(theirs.fileno()), path],
                env={**self.environment, **_WITHOUT_THREADS},
                pass_fds=[theirs.fileno()],
                stdin=DEVNULL,
                stdout=DEVNULL,
            )
        atexit.register(self.close)

    def loads_as(self, environment: Mapping[str, str]) -> bool:
        """Whether a process with this environment would load libraries as the nursery did."""
        return _loaded_with(environment) == _loaded_with(self.environment)

    def start(self, program: Mapping[str, Any], descriptors: Sequence[int]) -> int:
        """Return the number of a new process; 0 if the nursery can begin none."""
        with self._lock:
            socket.send_fds(self._socket, [json.dumps(program).encode()], descriptors)
            answer = self._socket.recv(64)
        if not answer:
            raise RuntimeError("the nursery of the tests' processes ended: its message is on stderr")
        return int(answer)

    def close(self) -> None:
        """End the nursery; what it cloned stays."""
        self._socket.close()
        # It would see the end of the socket, unless a fork of the tests is left that has it open.
        self._process.kill()
        self._process.wait()


def _loaded_with(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if _LOADED_WITH.fullmatch(name)}


_nurseries: dict[tuple[int, str], _Nursery] = {}
_starting = threading.Lock()


def _nursery_of(command: Sequence[object], env: Mapping[str, str] | None, ends: Sequence[int]) -> _Nursery | None:
    """Return the nursery that can begin a command; None if it has to be started as ever."""
    texts = [os.fsdecode(each) for each in command]  # type: ignore[arg-type]
    if _CLONE is None or texts[0] != sys.executable or len(texts) < 2:
        return None
    is_worker = texts[1:] == [*_FLAGS["tests"], "-c", _OF_A_WORKER]
    # A worker tells by pipes, and its standard error may be a terminal.
    if any(map(os.isatty, ends[: 2 if is_worker else 3])):
        return None
    environment = dict(os.environ if env is None else env)
    begun_with = environment
    if texts[1:3] == ["-I", "-S"] and texts[3].endswith("watchdog.py"):
        kind = "engine"
    elif is_worker:
        kind = "tests"
    elif texts[1] == "-c" and environment.get("PYTHONPATH") == str(_INCLUDE):
        kind, begun_with = "library", {**os.environ, "PYTHONPATH": str(_INCLUDE)}
    else:
        return None
    with _starting:
        # A clone is a sibling of its nursery: a fork of the tests has to have one of its own.
        found = _nurseries.get((os.getpid(), kind))
        if found is None:
            found = _nurseries[os.getpid(), kind] = _Nursery(kind, begun_with)
    return found if found.loads_as(environment) else None


# From here on: what runs in the nursery.


_MODULES = {
    "engine": ("custody.sql.engine",),
    "library": (
        "custody.cli.main",
        "custody.ingest.ingest",
        "custody.read.reader",
        "custody.repository.local_pass",
        "custody.repository.repository",
        "custody.rollover.rollover_steps",
        "custody.serving.application",
        "custody.serving.doors",
        "custody.serving.http_server",
        "pyarrow.dataset",
    ),
}
"""What is imported for all processes of a kind: of the library what commands and servers need most."""


def _prepare(kind: str) -> None:
    if kind == "tests":
        _import_tests()
        gc.freeze()
        return
    from custody.sql.watchdog import _NoPandas

    # As for the engine, and for the installed command: Arrow imports pandas where it is, which takes longer than all
    # the rest.
    sys.meta_path.insert(0, _NoPandas)
    for name in _MODULES[kind]:
        import_module(name)
    # What is here stays: no collection of a clone goes through it, which would copy each page that it lies on.
    gc.freeze()


def _import_tests() -> None:
    """Import all test modules as pytest does it, with rewritten assertions and warnings that are errors."""
    import pytest

    class ImportOnly:
        """What pytest collects of a module: nothing, for each worker does that by itself."""

        @pytest.hookimpl(tryfirst=True)
        def pytest_pycollect_makeitem(self) -> list[pytest.Item]:
            return []

        def pytest_collectreport(self, report: pytest.CollectReport) -> None:
            if not report.passed:
                # Workers import it themselves, and then say why it fails or is skipped.
                file = str(Path(report.nodeid).absolute())
                for name in [name for name, each in sys.modules.items() if getattr(each, "__file__", None) == file]:
                    del sys.modules[name]

    gc.disable()  # half a million objects, and hardly one that is freed
    pytest.main(["--collect-only", "--capture=no", "-qq", "-p", "no:cacheprovider"], plugins=[ImportOnly()])
    gc.enable()


def _clone() -> int:
    """Fork, and let the new process be a child of this one's parent; return its number, 0 in itself."""
    if _has_threads():
        raise RuntimeError("a library has started a thread while it was imported: a fork would not have it")
    # The GIL is held throughout: there is no other thread.
    calls = ctypes.PyDLL(None, use_errno=True)
    calls.syscall.restype = ctypes.c_long
    ctypes.pythonapi.PyOS_BeforeFork()
    number = int(calls.syscall(_CLONE, _CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0))
    if number == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
    else:
        ctypes.pythonapi.PyOS_AfterFork_Parent()
    if number < 0:
        raise OSError(ctypes.get_errno(), "a clone was refused")
    return number


def _has_threads() -> bool:
    return len(os.listdir("/proc/self/task")) > 1


def _wait_for_a_program(requests: socket.socket, kind: str) -> tuple[dict[str, Any], list[int]] | None:
    """Clone this process for each request; return it in the clone, None at the end in the nursery."""
    while True:
        message, descriptors, _, _ = socket.recv_fds(requests, _MESSAGE_BYTES, 64)
        if not message:
            return None
        # Among all that the tests import something may start a thread, on another system or in another version.
        number = -1 if kind == "tests" and _has_threads() else _clone()
        if number == 0:
            requests.close()
            return json.loads(message), descriptors
        for each in descriptors:
            os.close(each)
        requests.send(str(max(number, 0)).encode())


def _become(program: dict[str, Any], descriptors: list[int], set_by_imports: Mapping[str, str]) -> None:
    """Take over what the process is to have, and run its program to its end."""
    if program["new_session"]:
        os.setsid()
    # Their numbers may be taken by each other: first out of the way.
    aside = [fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, _HIGH) for each in descriptors]
    for each in descriptors:
        os.close(each)
    for each, number in zip(aside, program["descriptors"], strict=True):
        os.dup2(each, number)
        os.close(each)
    os.environ.clear()
    os.environ.update({**program["environment"], **set_by_imports})
    os.chdir(program["folder"])
    first, *rest = program["arguments"]
    is_text = first == "-c"
    main = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = main
    if is_text:
        text, *rest = rest
        sys.argv = ["-c", *rest]
        sys.path[0] = ""
        code = compile(text, "<string>", "exec")
    else:
        sys.argv = [first, *rest]
        main.__file__ = first
        code = compile(Path(first).read_bytes(), first, "exec")
    ended = 0
    try:
        exec(code, main.__dict__)  # noqa: S102 - a program of the tests
    except SystemExit as end:
        if not isinstance(end.code, int | None):
            raise
        ended = end.code or 0
    # What Python does at its end, but for taking to pieces what the nursery had imported, which takes 0.1 s.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(ended & 0xFF)


if __name__ == "__main__":
    _kind, _number, _path = sys.argv[1:]
    # The engine's Python is isolated and has no packages yet: each of its processes is told anew where they are.
    _own = list(sys.path)
    sys.path[:] = json.loads(_path)
    _environment = dict(os.environ)
    _prepare(_kind)
    # Tests import Airflow, which sets variables that the processes of a test count on.
    _set = {name: value for name, value in os.environ.items() if _environment.get(name) != value}
    sys.path[:] = _own
    _begun = _wait_for_a_program(socket.socket(fileno=int(_number)), _kind)
    if _begun is None:
        os._exit(0)  # DuckDB would complain of all that was imported and is still there
    _become(*_begun, _set)
