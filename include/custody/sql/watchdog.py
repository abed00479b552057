"""Watchdog: the small process between the client and the engine. Run as a script; it imports nothing of custody.

It starts the engine as its child and waits; nothing that the engine does can keep it from acting. It kills the engine
when the engine ends, spills more than it may, or the client is gone (the control pipe is closed, or the parent is
another process). Then it removes what the engine spilled, and ends with the engine's exit code, 128 more than the
signal's number where a signal ended it. The engine has a setting for what it may spill, and does not obey it.

When the watchdog itself is killed, the engine dies with it, and the client removes what was spilled.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import sys

CONTROL, RESULTS = 0, 1
SPILLED = 3
"""The exit code where the engine spilled more than it may."""
# How often the spilled bytes are measured: the limit is exceeded by what the engine writes in between.
_LOOK_MS = 200
_PR_SET_PDEATHSIG = 1


def main() -> int:
    """Start the engine, and stay until its end."""
    arguments = json.loads(sys.argv[1])
    client, watchdog = arguments["client"], os.getpid()
    os.mkdir(arguments["spill"], 0o700)  # noqa: PTH102, TID251 - a temporary folder needs no durability
    # Only the engine keeps the writing end, so the other end tells of its death however it dies.
    ended, life = os.pipe()
    engine = os.fork()
    if engine == 0:
        os.close(ended)
        # The death signal belongs to the thread that forked: this process must stay one with a single thread.
        _die_with(watchdog)
        _run_engine(arguments)
    os.close(life)
    poll = select.poll()
    poll.register(CONTROL, 0)  # nothing is read here: only the end of the pipe matters
    poll.register(ended, select.POLLIN)
    spill_bytes, has_spilled = arguments["limits"]["spill_bytes"], False
    while not has_spilled and not poll.poll(_LOOK_MS) and os.getppid() == client:
        has_spilled = _bytes_in(arguments["spill"]) > spill_bytes
    # It may have ended already. Then it is not reaped yet, so the number is still its own and this does nothing.
    os.kill(engine, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(engine, 0)[1])
    # Behind the end of the engine: nothing is added to the folder any more.
    shutil.rmtree(arguments["spill"], ignore_errors=True)  # noqa: TID251 - as above
    if has_spilled:
        return SPILLED
    return code if code >= 0 else 128 - code


def _bytes_in(folder: str) -> int:
    """Return the disk space that the files of a folder take; some may be removed in this moment."""
    total = 0
    with os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):
                total += entry.stat().st_blocks * 512
    return total


def _die_with(watchdog: int) -> None:
    """Let the system kill this process when its parent, which has one thread, is gone."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # The watchdog may have died before the signal was asked for: then it never comes.
    if os.getppid() != watchdog:
        os._exit(1)


class _NoPandas:
    """Refuses pandas, which pyarrow and DuckDB import where it is installed: it takes longer than all the rest."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("pandas is not needed by the engine", name=name)


def _run_engine(arguments: dict) -> None:  # type: ignore[type-arg]
    code = 1
    try:
        sys.path[:] = arguments["path"]
        sys.meta_path.insert(0, _NoPandas)
        # What the engine spills are events: nobody else may read them.
        os.umask(0o077)
        from custody.sql.engine import run

        code = run(arguments["limits"], arguments["spill"], arguments["input"])
    finally:
        os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
