"""Processes that begin as forks: children with everything of their own, which end as others do."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests import forks
from tests.support import INCLUDE

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(INCLUDE)}
IS_FORK = "import sys; print('custody.repository.repository' in sys.modules)"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere every process is started as ever")


def told(program: str, *arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program, *arguments]
    chosen = {"env": ENVIRONMENT, "capture_output": True, "text": True, **options}
    return forks.run(command, **chosen)  # type: ignore[call-overload,no-any-return]


def test_a_fork_has_imported_the_library_and_what_asks_for_more_is_started_as_ever() -> None:
    assert told(IS_FORK).stdout == "True\n"
    assert told(IS_FORK, env={**ENVIRONMENT, "PYTHONHASHSEED": "1"}).stdout == "False\n"
    flagged = [sys.executable, "-B", "-c", IS_FORK]
    assert forks.run(flagged, env=ENVIRONMENT, capture_output=True, check=True).stdout == b"False\n"


def test_a_fork_is_a_child_with_input_arguments_environment_and_folder_of_its_own(tmp_path: Path) -> None:
    program = "import os, sys; print(os.getppid(), sys.argv, sys.stdin.read(), os.environ['X'], os.getcwd(), __name__)"
    done = told(program, "a b", "*", input="said", env={**ENVIRONMENT, "X": "own"}, cwd=tmp_path)
    assert done.stdout == f"{os.getpid()} ['-c', 'a b', '*'] said own {tmp_path} __main__\n"
    assert "X" not in os.environ
    # What one did to its memory and its folder, the next one does not see.
    told("import os, sys; os.chdir('/'); sys.modules['custody'].seen = True; os.environ['Y'] = '1'")
    assert told("import os, sys; print(hasattr(sys.modules['custody'], 'seen'), 'Y' in os.environ)").stdout == (
        "False False\n"
    )


def test_descriptors_are_handed_over_by_their_numbers_and_no_others() -> None:
    reader, writer = os.pipe()
    listed = "json.dumps([int(name) for name in os.listdir('/proc/self/fd')])"
    open_ones = f"import json, os, sys; os.write(int(sys.argv[1]), b'here'); print({listed})"
    with forks.Popen(
        [sys.executable, "-c", open_ones, str(writer)],
        env=ENVIRONMENT,
        stdout=forks.PIPE,
        text=True,
        pass_fds=[writer],
    ) as process:
        said, _ = process.communicate()
    os.close(writer)
    assert os.read(reader, 100) == b"here"
    assert os.read(reader, 100) == b"", "nobody else has it"
    os.close(reader)
    found = set(json.loads(said)) - {0, 1, 2, writer}
    assert len(found) == 1, "the folder that is listed"


@pytest.mark.parametrize(
    ("program", "code", "said"),
    [
        ("", 0, ""),
        ("import sys; sys.exit(7)", 7, ""),
        ("import sys; sys.exit('a message')", 1, "a message\n"),
        ("raise ValueError('what happened')", 1, "ValueError: what happened\n"),
        ("import atexit, sys; atexit.register(sys.stderr.write, 'at the end'); sys.exit(3)", 3, "at the end"),
        (
            "import threading, time, sys; late = lambda: (time.sleep(0.1), sys.stderr.write('late'))\n"
            "threading.Thread(target=late).start()",
            0,
            "late",
        ),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -9, ""),
        (
            "import signal, os; signal.signal(signal.SIGINT, signal.default_int_handler); os.kill(os.getpid(), 2)",
            -2,
            "KeyboardInterrupt\n",
        ),
    ],
)
def test_a_fork_ends_as_any_python(program: str, code: int, said: str) -> None:
    done = told(program)
    as_ever = subprocess.run(
        [sys.executable, "-c", program], env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    assert done.returncode == as_ever.returncode == code
    assert done.stderr.endswith(said)
    assert as_ever.stderr.endswith(said)


def test_a_fork_is_killed_and_waited_for_also_by_several_threads() -> None:
    def life(_: int) -> int:
        with forks.Popen(
            [sys.executable, "-c", "print(1, flush=True); import time; time.sleep(600)"],
            env=ENVIRONMENT,
            stdout=forks.PIPE,
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"1\n"
            assert process.poll() is None
            process.send_signal(signal.SIGKILL)
            return process.wait(60)

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(life, range(24))) == [-9] * 24


def told_by_a_worker(folder: Path, monkeypatch: pytest.MonkeyPatch, **modules: str) -> set[str]:
    """What workers print of the modules and variables of a project's tests, where all of them begin."""
    (folder / "pyproject.toml").write_text("[tool.pytest.ini_options]\naddopts = '--import-mode=importlib'\n")
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(text)
    monkeypatch.chdir(folder)
    nurseries: dict[tuple[int, str], forks._Nursery] = {}
    monkeypatch.setattr(forks, "_nurseries", nurseries)
    printed = "print([name for name in sys.modules if name.startswith('test_')], __import__('os').environ.get('SET'))"
    worker = [sys.executable, "-u", "-c", forks._OF_A_WORKER]
    # The second one begins in the same nursery.
    done = [forks.run(worker, input=f"{printed!r}\n", capture_output=True, text=True, check=True) for _ in range(2)]
    [nursery] = nurseries.values()
    nursery.close()
    return {each.stdout for each in done}


def test_a_worker_of_the_tests_has_imported_what_can_be_imported_and_has_the_variables_that_imports_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = told_by_a_worker(
        tmp_path,
        monkeypatch,
        test_good="import os\n\nos.environ['SET'] = 'by an import'\n\ndef test():\n    assert 0\n",
        # A worker imports these itself, and then says why they are skipped, or fail.
        test_skipped="import pytest\n\npytest.importorskip('no_such_module')\n",
        test_broken="raise ValueError\n",
    )
    assert said == {"['test_good'] by an import\n"}


def test_where_an_import_starts_a_thread_workers_are_started_as_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread = "import threading\n\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    assert told_by_a_worker(tmp_path, monkeypatch, test_thread=thread) == {"[] None\n"}
