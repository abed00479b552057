"""Two hosts whose links to the store are cut: one timeline for each writer, nothing lost, and the loser is told."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from custody.errors import ConfigurationError, CustodyError, ExitCode, StorageError, SupersededError
from tests.behaviour.cut_links import Cut, Network, have_namespaces

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not have_namespaces(), reason="needs root and the command ip, for network namespaces"),
]

# Appends until a file is there; what a line of its output names is acknowledged.
PRODUCER = """
import sys, time
from pathlib import Path
from custody.repository import Repository
from tests.support import event
root, number, stop = Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
with Repository.open(root).writer() as writer:
    while not stop.exists():
        batch = [event(number + k) for k in range(5)]
        writer.append(batch)
        print(*(it.source_ordinal for it in batch), flush=True)
        number += 5
        if number % 25 == 0:
            writer.seal()
        time.sleep(0.02)
"""
# One that waits for a word before each append, so that the test says what happens in between.
STEPWISE = """
import sys
from pathlib import Path
from custody.errors import ClosedError
from custody.repository import Repository
from tests.support import event
with Repository.open(Path(sys.argv[1])).writer() as writer:
    for line in sys.stdin:
        first, count = map(int, line.split())
        writer.seal()
        try:
            writer.append([event(number) for number in range(first, first + count)])
        except ClosedError as error:
            print("refused", error, flush=True)
            break
        print("acknowledged", flush=True)
"""
_CUSTODY_CODES = {error.exit_code for error in CustodyError.__subclasses__()} | {0, 1}


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    with Network(["a", "b", "reader"], tmp_path).running() as network:
        yield network


class Host:
    """A machine: a namespace, and a folder of its own with containers and work folder."""

    def __init__(self, network: Network, name: str, root: Path, prefix: str, writer: str) -> None:
        self.network = network
        self.name = name
        self.root = root
        self.environment = network.environment(name, prefix) | {"CUSTODY__REPOSITORY__WRITER": writer}
        self.is_out_of_sight = False
        """Whether its processes have numbers of their own, as under another kernel."""
        root.mkdir()
        (root / "custody.toml").touch()

    def python(self, *arguments: str, **options: object) -> subprocess.Popen[str]:
        return self.network.start(
            self.name, arguments, self.environment, is_out_of_sight=self.is_out_of_sight, **options
        )

    def custody(self, *arguments: str) -> tuple[int, str, str]:
        command = ("-c", "from custody.cli.main import main; main()", "-r", str(self.root), *arguments)
        with self.python(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            out, err = process.communicate(timeout=300)
            return process.returncode, out, err

    def must(self, *arguments: str) -> str:
        code, out, err = self.custody(*arguments)
        assert code == 0, (arguments, code, out[-2000:], err[-2000:])
        return out


def stored(reader: Host) -> dict[str, list[int]]:
    """The numbers of all events, by writer."""
    numbers: dict[str, list[int]] = {}
    for item in json.loads(reader.must("search", "", "--limit", "100000", "--json"))["events"]:
        numbers.setdefault(item["writer"], []).append(item["event"].get("source_ordinal", 0))
    return {writer: sorted(of_writer) for writer, of_writer in numbers.items()}


@pytest.mark.parametrize("seed", range(2))
def test_links_that_are_cut_at_any_moment_lose_nothing_and_leave_one_timeline_a_writer(
    network: Network, tmp_path: Path, seed: int
) -> None:
    chance, prefix, stop = random.Random(seed), uuid4().hex, tmp_path / "stop"  # noqa: S311 - repeatable
    hosts = [Host(network, name, tmp_path / name, prefix, name) for name in "ab"]
    reader = Host(network, "reader", tmp_path / "reader", prefix, "reader")
    codes: list[tuple[str, int, str]] = []

    def repeat(host: Host, *arguments: str) -> None:
        while not stop.exists():
            code, _, err = host.custody(*arguments)
            codes.append((" ".join(arguments), code, err[-300:]))

    producers = []
    for n, host in enumerate(hosts):
        with (tmp_path / f"{n}.log").open("w") as log:
            producers.append(host.python("-c", PRODUCER, str(host.root), str(100_000 * n), str(stop), stdout=log))
    threads = [
        threading.Thread(target=repeat, args=(host, *command))
        for host in hosts
        for command in (("handoff",), ("run", "all", "--local"))
    ]
    for thread in threads:
        thread.start()
    ends = time.monotonic() + 40
    while time.monotonic() < ends:
        host = chance.choice(hosts)
        network.cut(host.name)
        time.sleep(chance.choice((0.2, 1.0, 4.0)))
        network.mend(host.name)
        time.sleep(chance.uniform(0.2, 2.0))
    stop.touch()
    for thread in threads:
        thread.join()
    assert [producer.wait(timeout=120) for producer in producers] == [0, 0]
    assert all(code in _CUSTODY_CODES for _, code, _ in codes), codes
    # A cut while nothing was asked for proves nothing.
    assert any(code for _, code, _ in codes), codes

    acknowledged = {
        host.name: sorted(
            int(word) for line in (tmp_path / f"{n}.log").read_text().splitlines() for word in line.split()
        )
        for n, host in enumerate(hosts)
    }
    for host in hosts:
        host.must("handoff")
    # Whatever the first host has is in the store now.
    shutil.rmtree(hosts[0].root)
    hosts[1].must("run", "all", "--local")
    assert stored(reader) == acknowledged
    check_timeline(reader, {writer: len(numbers) for writer, numbers in acknowledged.items()})


def test_a_host_that_was_declared_dead_behind_a_cut_link_is_refused_and_brings_in_what_it_has(
    network: Network, tmp_path: Path
) -> None:
    prefix = uuid4().hex
    first, second = (Host(network, name, tmp_path / name, prefix, "main") for name in "ab")
    reader = Host(network, "reader", tmp_path / "reader", prefix, "reader")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with first.python("-c", STEPWISE, str(first.root), **pipes) as producer:
        assert producer.stdin is not None
        assert producer.stdout is not None

        def append(first_number: int, count: int) -> str:
            assert producer.stdin is not None
            assert producer.stdout is not None
            print(first_number, count, file=producer.stdin, flush=True)
            return producer.stdout.readline()

        assert append(0, 10) == "acknowledged\n"
        network.cut("a")
        # A store that is away stops no producer: its client alone tries for some 20 seconds.
        before = time.monotonic()
        assert append(10, 7) == "acknowledged\n"
        assert time.monotonic() - before < 10
        code, _, err = first.custody("handoff")
        assert code == StorageError.exit_code, err
        second.must("containers", "claim", "main", "--yes")
        network.mend("a")
        refused = append(17, 3)
        assert refused.startswith("refused")
        assert "custody recover --adopt" in refused
        producer.wait(timeout=60)

    # The new holder has the name, its ids begin above what was handed over or given out before.
    with second.python("-c", STEPWISE, str(second.root), **pipes) as producer:
        assert producer.communicate("100 5\n", timeout=60)[0] == "acknowledged\n"
    second.must("handoff")
    second.must("run", "all", "--local")
    # What the lost host acknowledged is on its disk, and it says so.
    assert json.loads(first.must("handoff", "--json"))["handed_over"] == []
    first.must("recover", "--adopt")
    first.must("handoff")
    shutil.rmtree(first.root)
    second.must("run", "all", "--local")
    events = stored(reader)
    assert sorted(number for of_writer in events.values() for number in of_writer) == [*range(17), *range(100, 105)]
    assert set(range(100, 105)) <= set(events["main"])
    check_timeline(reader, {writer: len(numbers) for writer, numbers in events.items()})


# Two sealed groups, which become one unit; what it prints is acknowledged.
GROUPS = """
import sys
from pathlib import Path
from custody.repository import Repository
from tests.support import event
first = int(sys.argv[2])
with Repository.open(Path(sys.argv[1])).writer() as writer:
    for number in (first, first + 5):
        writer.append([event(number + k) for k in range(5)])
        writer.seal()
print("acknowledged")
"""
PREPARING = ("recover", "rollover", "compress", "index")
CUTS = [pytest.param(False, id="before-it-is-done"), pytest.param(True, id="before-it-is-answered")]


def append_groups(host: Host, first: int) -> tuple[int, str]:
    """Append ten events in two groups; return the exit code and what was said."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with host.python("-c", GROUPS, str(host.root), str(first), **pipes) as process:
        out, err = process.communicate(timeout=300)
        return process.returncode, out + err


def meanwhile(host: Host, *arguments: str) -> tuple[threading.Thread, list[tuple[int, str, str]]]:
    """Begin a command; its result comes into the list."""
    result: list[tuple[int, str, str]] = []
    thread = threading.Thread(target=lambda: result.append(host.custody(*arguments)))
    thread.start()
    return thread, result


def check_timeline(reader: Host, events: dict[str, int]) -> None:
    """One revision after the other, each unit made live once, and no damage but the disks of machines that are gone."""
    for writer, count in events.items():
        log = json.loads(reader.must("catalog", "log", "-w", writer, "--json"))
        assert sorted(entry["revision"] for entry in log) == list(range(len(log)))
        # Besides, who takes a dead attempt's work over notes that in the catalog.
        assert sum(entry["events_added"] for entry in log) == count
        assert sum(entry["removed"] for entry in log) == 0
    reader.must("catalog", "verify")
    _, out, err = reader.custody("verify", "--deep", "--json")
    defects = [defect for writer in json.loads(out) for defect in writer["defects"]]
    assert {defect["kind"] for defect in defects} <= {"container-missing"}, (defects, err)


@pytest.mark.parametrize("is_after", CUTS)
@pytest.mark.parametrize(("command", "mark"), [(("handoff",), "/manifest"), (("run", "commit", "--local"), ".txn")])
def test_a_link_that_is_cut_at_a_put_that_decides_is_an_error_and_the_next_try_does_each_thing_once(
    network: Network, tmp_path: Path, command: tuple[str, ...], mark: str, *, is_after: bool
) -> None:
    prefix = uuid4().hex
    host = Host(network, "a", tmp_path / "a", prefix, "main")
    reader = Host(network, "reader", tmp_path / "reader", prefix, "reader")
    assert append_groups(host, 0)[1] == "acknowledged\n"
    if command[0] == "run":
        for step in PREPARING:
            host.must("run", step, "--local")
    cut = Cut(network, "a", mark, is_after=is_after)
    code, out, err = host.custody(*command)
    assert cut.is_cut.is_set()
    assert code in {StorageError.exit_code, ExitCode.SOME_WORK_FAILED}, (code, out, err)
    assert "cannot " in out + err
    assert f"s3://custody/{prefix}/main/" in out + err
    cut.mend()
    # Acknowledged events can be found from another machine only once they were handed over or are live.
    host.must("handoff")
    host.must("run", "all", "--local")
    shutil.rmtree(host.root)
    assert stored(reader) == {"main": list(range(10))}
    check_timeline(reader, {"main": 10})


@pytest.mark.parametrize("is_after", CUTS)
def test_of_two_hosts_that_commit_for_one_writer_the_one_behind_the_cut_link_is_superseded(
    network: Network, tmp_path: Path, *, is_after: bool
) -> None:
    prefix = uuid4().hex
    first, second = (Host(network, name, tmp_path / name, prefix, "main") for name in "ab")
    reader = Host(network, "reader", tmp_path / "reader", prefix, "reader")
    for host in (first, second):
        host.environment |= {"CUSTODY__REPOSITORY__STAGING": "store", "CUSTODY__LEASE__DEAD_SECONDS": "5"}
    # Neither host can ask whether a process of the other one lives.
    second.is_out_of_sight = True
    # It waits for the answer until the link is mended: only then it can learn that it lost.
    first.environment |= {"AWS_TIMEOUT": "300s"}
    assert append_groups(first, 0)[1] == "acknowledged\n"
    first.must("handoff")
    for step in PREPARING:
        first.must("run", step, "--local")
    cut = Cut(network, "a", ".txn", is_after=is_after)
    thread, ended = meanwhile(first, "run", "commit", "--local", "--json")
    assert cut.is_cut.wait(120)
    # The other one misses the first one's heartbeat, takes the work over and does all of it.
    second.must("run", "all", "--local")
    assert stored(reader) == {"main": list(range(10))}
    assert not ended
    cut.mend()
    thread.join()
    [(code, out, err)] = ended
    if is_after:
        # Its transaction was there before the other one looked: it is told that it did it.
        assert code == ExitCode.DONE, (code, out, err)
    else:
        assert code == SupersededError.exit_code, (code, out, err)
        assert "another attempt took over" in out, out
    first.must("run", "all", "--local")
    assert stored(reader) == {"main": list(range(10))}
    check_timeline(reader, {"main": 10})


@pytest.mark.parametrize("is_after", CUTS)
def test_of_two_hosts_with_one_writer_s_name_the_one_that_is_cut_off_in_its_hand_over_keeps_what_was_not_handed_over(
    network: Network, tmp_path: Path, *, is_after: bool
) -> None:
    prefix = uuid4().hex
    first, second = (Host(network, name, tmp_path / name, prefix, "main") for name in "ab")
    reader = Host(network, "reader", tmp_path / "reader", prefix, "reader")
    first.environment |= {"AWS_TIMEOUT": "300s"}
    assert append_groups(first, 0)[1] == "acknowledged\n"
    cut = Cut(network, "a", "/manifest", is_after=is_after)
    thread, ended = meanwhile(first, "handoff", "--json")
    assert cut.is_cut.wait(120)
    second.must("containers", "claim", "main", "--yes")
    assert append_groups(second, 100)[1] == "acknowledged\n"
    second.must("handoff")
    second.must("run", "all", "--local")
    assert not ended
    cut.mend()
    thread.join()
    [(code, out, err)] = ended
    # Of its first group it learns nothing more; before the second one it asks whose the name is.
    assert code == SupersededError.exit_code, (code, out, err)
    assert "group 5: the name was claimed" in err, err
    assert "custody recover --adopt" in err, err
    # The name is the other one's: nothing is appended under it any more, and what is left is brought in.
    code, said = append_groups(first, 200)
    assert code
    assert "claimed" in said
    assert ConfigurationError.__name__ in said
    first.must("recover", "--adopt")
    first.must("handoff")
    shutil.rmtree(first.root)
    second.must("run", "all", "--local")
    events = stored(reader)
    assert sorted(number for of_writer in events.values() for number in of_writer) == [*range(10), *range(100, 110)]
    assert set(range(100, 110)) <= set(events["main"])
    # What was handed over before the claim is the name's own; the rest has come in under another name.
    assert (set(range(5)) <= set(events["main"])) == is_after
    check_timeline(reader, {writer: len(numbers) for writer, numbers in events.items()})
