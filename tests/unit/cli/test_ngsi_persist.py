"""`custody ngsi persist`: one pass, and followers that are killed, paused and doubled, as users start them."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from custody.cli.main import cli
from custody.errors import LockedError, SupersededError
from custody.repository import Repository
from tests import forks
from tests.support import INCLUDE, run_steps
from tests.unit.ngsi_sink.sink_repository import append, bench, receive, values
from tests.unit.serving.receiver_process import receiving

SETTINGS = """
[repository]
writer_slots = 2
[lease]
wait_seconds = 0.5
[ngsi]
hdfs_username = "warden"
hive = false
batch_timeout = {timeout}
batch_size = {size}
"""
WAIT_SECONDS_MAX = 60


def make(root: Path, *, size: int = 1, timeout: int = 30) -> Repository:
    Repository.create(root)
    (root / "custody.toml").write_text(SETTINGS.format(size=size, timeout=timeout))
    return Repository.open(root)


@contextmanager
def follower(root: Path, *arguments: str, said: str = "the sink is open") -> Iterator[forks.Popen[str]]:
    code = "from custody.cli.main import main; main()"
    command = [sys.executable, "-c", code, "-r", str(root), "ngsi", "persist", "--follow", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(INCLUDE)}
    process = forks.Popen(command, stderr=forks.PIPE, text=True, env=environment)
    try:
        assert process.stderr is not None
        while said not in (line := process.stderr.readline()):
            assert line, f"the follower ended with {process.wait()}"
        yield process
    finally:
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_pass_writes_what_no_rollover_published_and_the_next_nothing(tmp_path: Path) -> None:
    repository = make(tmp_path / "r")
    receive(repository, [bench(1), bench(2)], int(time.time() * 1000))
    done = CliRunner().invoke(cli, ["-r", str(repository.settings.root), "ngsi", "persist", "--live-only", "--json"])
    assert (done.exit_code, json.loads(done.stdout)["events"]) == (0, 0)
    done = CliRunner().invoke(cli, ["-r", str(repository.settings.root), "ngsi", "persist", "--json"])
    report = json.loads(done.stdout)
    assert (done.exit_code, report["events"], report["files"], report["due_ms"]) == (0, 2, 1, None)
    run_steps(repository.settings)
    done = CliRunner().invoke(cli, ["-r", str(repository.settings.root), "ngsi", "persist"])
    assert (done.exit_code, done.stdout) == (0, "nothing is due\n")
    assert values(repository) == ["1001", "1002"]


def test_what_is_not_due_waits_and_until_writes_it(tmp_path: Path) -> None:
    repository = make(tmp_path / "r", size=1000)
    receive(repository, [bench(1)], int(time.time() * 1000))
    root = str(repository.settings.root)
    report = json.loads(CliRunner().invoke(cli, ["-r", root, "ngsi", "persist", "--json"]).stdout)
    assert (report["events"], report["waiting"]) == (0, 1)
    done = CliRunner().invoke(cli, ["-r", root, "ngsi", "persist", "--until", "2100-01-01", "--json"])
    assert json.loads(done.stdout)["events"] == 1
    done = CliRunner().invoke(cli, ["-r", root, "ngsi", "persist", "--until", "2100-01-01", "--follow"])
    assert done.exit_code == 2


@pytest.mark.in_parts(2)
def test_a_killed_follower_is_followed_by_the_one_that_waits(tmp_path: Path) -> None:
    repository = make(tmp_path / "r")
    root = repository.settings.root
    with repository.writer() as writer, follower(root) as first:
        append(writer, repository, 1, int(time.time() * 1000))
        until(lambda: values(repository) == ["1001"])
        taken = CliRunner().invoke(cli, ["-r", str(root), "ngsi", "persist"])
        assert taken.exit_code == LockedError.exit_code
        with follower(root, said="This process waits for it") as second:
            append(writer, repository, 2, int(time.time() * 1000))
            first.kill()
            until(lambda: values(repository) == ["1001", "1002"])
            append(writer, repository, 3, int(time.time() * 1000))
            until(lambda: values(repository) == ["1001", "1002", "1003"])
            second.send_signal(signal.SIGTERM)
            assert second.wait(WAIT_SECONDS_MAX) == 0


@pytest.mark.in_parts(2)
def test_a_paused_follower_that_was_superseded_ends_and_writes_nothing_more(tmp_path: Path) -> None:
    repository = make(tmp_path / "r")
    root = repository.settings.root
    with repository.writer() as writer, follower(root) as paused:
        append(writer, repository, 1, int(time.time() * 1000))
        until(lambda: values(repository) == ["1001"])
        paused.send_signal(signal.SIGSTOP)
        append(writer, repository, 2, int(time.time() * 1000))
        # On this machine the lock of the paused process keeps the other one out until it is gone.
        with follower(root, "--take-over", said="This process waits for it"):
            assert values(repository) == ["1001"]
            paused.send_signal(signal.SIGCONT)
            assert paused.wait(WAIT_SECONDS_MAX) == SupersededError.exit_code
            until(lambda: values(repository) == ["1001", "1002"])
            append(writer, repository, 3, int(time.time() * 1000))
            until(lambda: values(repository) == ["1001", "1002", "1003"])
    run_steps(repository.settings)
    done = CliRunner().invoke(cli, ["-r", str(root), "ngsi", "persist"])
    assert done.stdout == "nothing is due\n"


def test_a_follower_ends_although_its_target_is_down_for_ever(tmp_path: Path) -> None:
    repository = make(tmp_path / "r")
    file = repository.settings.root / "custody.toml"
    file.write_text(file.read_text() + 'backend = "rest"\nhdfs_host = "127.0.0.1"\nhdfs_port = 1\nbatch_ttl = -1\n')
    receive(Repository.open(repository.settings.root), [bench(1)], int(time.time() * 1000))
    with follower(repository.settings.root) as waiting:
        time.sleep(2)
        waiting.send_signal(signal.SIGTERM)
        assert waiting.wait(20) == 0
    file.write_text(SETTINGS.format(timeout=30, size=1))
    done = CliRunner().invoke(cli, ["-r", str(repository.settings.root), "ngsi", "persist", "--json"])
    assert json.loads(done.stdout)["events"] == 1
    assert values(repository) == ["1001"]


def test_a_format_that_is_not_listed_waits_in_the_quarantine_and_is_written_when_submitted(tmp_path: Path) -> None:
    repository = make(tmp_path / "r")
    root = str(repository.settings.root)
    body = {"subscriptionId": "1", "data": [{"id": "Bench1", "type": "Bench", "seats": 1001, "wood": "oak"}]}
    headers = {"fiware-service": "parks", "fiware-servicepath": "/north", "ngsiv2-attrsformat": "keyValues"}
    with receiving(repository.settings.root, "--quiet") as at:
        answer = at.post(json.dumps(body).encode(), headers)
        assert (answer.status_code, answer.json()["error"]) == (400, "format")
    [entry] = repository.quarantine.entries()
    assert "'keyValues': expected one of normalized, legacy (ngsi.attrs_formats)" in entry.message
    done = CliRunner().invoke(cli, ["-r", root, "quarantine", "resubmit", entry.key])
    assert done.exit_code == 0, done.output
    assert CliRunner().invoke(cli, ["-r", root, "ngsi", "persist"]).exit_code == 0
    assert values(repository) == ["1001", "oak"]
    assert list(repository.quarantine.entries()) == []


@pytest.mark.parametrize("timeout", [2])
def test_two_seconds_mean_two_seconds(tmp_path: Path, timeout: int) -> None:
    repository = make(tmp_path / "r", size=1000, timeout=timeout)
    with repository.writer() as writer, follower(repository.settings.root):
        received_ms = int(time.time() * 1000)
        append(writer, repository, 1, received_ms)
        until(lambda: values(repository) == ["1001"])
        waited = time.time() - received_ms / 1000
        # The bound above is generous, for a busy machine; benchmarks.ngsi.latency measures.
        assert timeout <= waited < timeout + 5
