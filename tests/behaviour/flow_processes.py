"""A flow of several processes on one repository, and the ledger that they keep outside of it.

A producer makes FlowFiles, one transformer splits some of them and changes the others, a second one changes all, a sink
checks and ends them. Each process writes down what it is about to commit, and once more what was acknowledged. They are
forks of one nursery, so that one that is killed is replaced at once.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

import msgspec

from custody.config import load_settings
from custody.errors import BackpressureError
from custody.flow import Component, FlowFile
from custody.flowfile_repository import QueueSession, swap
from custody.repository import Repository
from custody.repository.flow import Flow
from tests.support import INCLUDE

ROOT = Path(__file__).parents[2]
MADE, CHANGED, READY = "made", "changed", "ready"
BATCH = 12
QUEUE_MAX = 90
SPLIT_EVERY = 7
"""Every so many FlowFiles are split."""
NURSERY = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from unittest.mock import patch
from tests.behaviour.flow_processes import run_role
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for line in sys.stdin:
    role, life = line.split()
    child = os.fork()
    if child == 0:
        sys.stdin.close()
        os._exit(run_role(Path(sys.argv[2]), Path(sys.argv[3]), role, life))
    print(child, flush=True)
"""


class Line(msgspec.Struct, frozen=True):
    """One line of the ledger: what a process was about to commit, or was told."""

    what: str
    """`tried`, `told`, `refused` or `failed`."""
    role: str
    subjects: tuple[str, ...]
    """Numbers of FlowFiles that are made, uuids of those that end, or an error."""


class LedgerFile:
    """The ledger of one life of a process; a kill may cut its last line off."""

    def __init__(self, folder: Path, role: str, life: str) -> None:
        self._role = role
        self._number = os.open(folder / f"{role}-{life}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(self, what: str, *subjects: str) -> None:
        os.write(self._number, msgspec.json.encode(Line(what, self._role, subjects)) + b"\n")


def read_ledger(folder: Path) -> list[Line]:
    """Return all lines that are whole."""
    return [
        msgspec.json.decode(line, type=Line)
        for path in sorted(folder.glob("*.jsonl"))
        for line in path.read_bytes().splitlines(keepends=True)
        if line.endswith(b"\n")
    ]


def body_of(number: str) -> bytes:
    """The content that FlowFile `number` is made with: some are small, some have a file of their own."""
    value = int(number)
    return f"<{number}>".encode() * (1 + value * 37 % 400)


def expected_body(flowfile: FlowFile | dict[str, str], steps: str) -> bytes:
    """The content of a FlowFile, or of a part of one, after these steps."""
    attributes = flowfile.attributes if isinstance(flowfile, FlowFile) else flowfile
    body = body_of(attributes["number"])
    middle = len(body) // 2
    part = {"": body, "0": body[:middle], "1": body[middle:]}[attributes.get("part", "")]
    return part + steps.encode()


def component(role: str) -> Component:
    return Component(id=role, type=role.capitalize())


@contextmanager
def opened(root: Path) -> Iterator[Flow]:
    """Open the flow; its queues are swapped from forty FlowFiles on."""
    settings = load_settings(root)
    small = settings.flowfiles.model_copy(update={"swap_threshold": 20})
    repository = Repository(settings.model_copy(update={"flowfiles": small}))
    with patch.object(swap, "BLOCK_FLOWFILES", 5), repository.flowfiles(wait_seconds=60) as flow:
        known = {connection.name for connection in flow.queues.connections()}
        for name, prioritizers in ((MADE, ()), (CHANGED, ("attribute:rank",)), (READY, ("newest",))):
            if name not in known:
                flow.connect(name, prioritizers=prioritizers, count_max=QUEUE_MAX)
        yield flow


def run_role(root: Path, ledger: Path, role: str, life: str) -> int:
    """Work until nobody wants it any more: `stop` lies beside the ledger."""
    file = LedgerFile(ledger, role, life)
    try:
        with opened(root) as flow:
            work(flow, role, file, life, lambda: (ledger / "stop").exists())
    except BaseException as error:  # noqa: BLE001 - it is judged by what it wrote down
        file.write("failed", f"{type(error).__name__}: {error}")
        return 1
    return 0


def work(flow: Flow, role: str, file: LedgerFile, life: str, is_over: Callable[[], bool]) -> None:
    numbers = (f"{int(life):06d}{batch:06d}" for batch in range(10**6))
    tick = time.monotonic()
    while not is_over():
        if time.monotonic() - tick > 1:
            flow.queues.tick()
            tick = time.monotonic()
        try:
            is_idle = not (produce(flow, file, next(numbers)) if role == "producer" else STEPS[role](flow, file))
        except BackpressureError:
            is_idle = True
        if is_idle:
            time.sleep(0.02)


def produce(flow: Flow, file: LedgerFile, batch: str) -> bool:
    made = tuple(f"{batch}{number:02d}" for number in range(BATCH))
    file.write("tried", *made)
    try:
        with flow.session(component("producer")) as session:
            for number in made:
                flowfile = session.create({"number": number, "rank": number[-1]})
                session.write_bytes(flowfile, body_of(number))
                session.transfer(flowfile, MADE)
    except BackpressureError:
        file.write("refused", *made)
        raise
    file.write("told", *made)
    return True


def change(flow: Flow, _file: LedgerFile) -> bool:
    """Split every seventh FlowFile, and give the others another content."""
    with flow.session(component("changer")) as session:
        taken = session.get_many(MADE, 3)
        for flowfile in taken:
            if int(flowfile.attributes["number"]) % SPLIT_EVERY:
                _append(session, flowfile, b"", "+a")
                session.transfer(flowfile, CHANGED, relationship="changed")
                continue
            middle = flowfile.size // 2
            parts = session.split(flowfile, [(0, middle), (middle, flowfile.size - middle)])
            for number, part in enumerate(parts):
                session.put_attribute(part, "part", str(number))
                session.transfer(part, CHANGED, relationship="part")
            session.remove(flowfile, "split")
    return bool(taken)


def finish(flow: Flow, _file: LedgerFile) -> bool:
    with flow.session(component("finisher")) as session:
        taken = session.get_many(CHANGED, 4)
        for flowfile in taken:
            _append(session, flowfile, b"" if "part" in flowfile.attributes else b"+a", "+b")
            session.transfer(flowfile, READY, relationship="finished")
    return bool(taken)


def sink(flow: Flow, file: LedgerFile) -> bool:
    with flow.session(component("sink")) as session:
        taken = session.get_many(READY, 5)
        for flowfile in taken:
            assert session.read_bytes(flowfile) == expected_body(flowfile, steps_of(flowfile.attributes))
            session.remove(flowfile, "sunk")
        uuids = tuple(flowfile.uuid for flowfile in taken)
        if taken:
            file.write("tried", *uuids)
            session.commit()
            file.write("told", *uuids)
    return bool(taken)


STEPS: dict[str, Callable[[Flow, LedgerFile], bool]] = {"changer": change, "finisher": finish, "sink": sink}
ROLES = ("producer", *STEPS)


def steps_of(attributes: dict[str, str]) -> str:
    """What both transformers append to a content; a part passes the first one by."""
    return "+b" if "part" in attributes else "+a+b"


def _append(session: QueueSession, flowfile: FlowFile, before: bytes, text: str) -> None:
    assert session.read_bytes(flowfile) == expected_body(flowfile, before.decode())
    with session.append(flowfile) as output:
        output.write(text.encode())


@dataclass
class Nursery:
    """Starts the processes of a flow, and stops and kills them.

    Args:
        root: the repository.
        ledger: the folder of the ledger.
    """

    root: Path
    ledger: Path
    alive: dict[str, int] = field(default_factory=dict)
    """Process ids by role."""
    kills: Counter[str] = field(default_factory=Counter)
    _lives: int = 0

    def __post_init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", NURSERY, str(ROOT), str(self.root), str(self.ledger)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(INCLUDE)},
        )

    def start(self, role: str) -> None:
        """Begin a process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._lives += 1
        self._process.stdin.write(f"{role} {self._lives}\n")
        self._process.stdin.flush()
        self.alive[role] = int(self._process.stdout.readline())

    def strike(self, role: str, stop_seconds: float, *, is_killed: bool) -> None:
        """Stop a process for a while, then let it go on, or kill it and begin another one."""
        pid = self.alive[role]
        if stop_seconds:
            os.kill(pid, signal.SIGSTOP)
            time.sleep(stop_seconds)
        if is_killed:
            os.kill(pid, signal.SIGKILL)
            self.kills["killed while stopped" if stop_seconds else "killed"] += 1
            self.start(role)
        else:
            os.kill(pid, signal.SIGCONT)
            self.kills["stopped"] += 1

    def end(self) -> None:
        """Let all processes come to their end."""
        (self.ledger / "stop").touch()
        deadline = time.monotonic() + 60
        while any(Path(f"/proc/{pid}").exists() for pid in self.alive.values()):
            assert time.monotonic() < deadline, f"a process does not end: {self.alive}"
            time.sleep(0.05)

    def close(self) -> None:
        """End what still lives."""
        for pid in self.alive.values():
            if Path(f"/proc/{pid}").exists():
                os.kill(pid, signal.SIGKILL)
        self._process.kill()
        self._process.communicate()


def run_flow(root: Path, ledger: Path, kills: int, seed: int) -> Counter[str]:
    """Let the flow work while its processes are killed; return how many were struck in which way."""
    chance = random.Random(seed)  # noqa: S311 - a test's chance
    nursery = Nursery(root, ledger)
    try:
        for role in ROLES:
            nursery.start(role)
        while nursery.kills["killed"] + nursery.kills["killed while stopped"] < kills:
            time.sleep(chance.uniform(0.0, 0.5))
            is_stopped = chance.random() < 0.2
            stop_seconds = chance.uniform(0.1, 1.0) if is_stopped else 0.0
            nursery.strike(chance.choice(ROLES), stop_seconds, is_killed=not is_stopped or chance.random() < 0.5)
        nursery.end()
    finally:
        nursery.close()
    return nursery.kills


def drain(root: Path, ledger: Path) -> None:
    """Work on in this process until nothing waits; take over what the dead left."""
    file = LedgerFile(ledger, "sink", "0")
    with opened(root) as flow:
        flow.queues.checkpoint()
        # A queue may be full when the others end: its consumer goes on, and then its producer.
        while sum([_worked(step, flow, file) for step in STEPS.values()]):
            pass
        flow.queues.checkpoint()
        for connection in flow.queues.connections():
            size = flow.queues.size(connection.name)
            assert (size.count, size.taken, size.swap_files) == (0, 0, 0), f"{connection.name}: {size}"
        assert flow.queues.claims() == {}, "a content is referred to, and no FlowFile waits"


def _worked(step: Callable[[Flow, LedgerFile], bool], flow: Flow, file: LedgerFile) -> bool:
    try:
        return step(flow, file)
    except BackpressureError:
        return False


MADE_BY = Counter({("CREATE", "producer"): 1})
CHANGED_BY = Counter({("CONTENT_MODIFIED", "changer"): 1, ("ROUTE", "changer"): 1})
SPLIT_BY = Counter({("FORK", "changer"): 1, ("DROP", "changer"): 1})
PART_OF = Counter({("ROUTE", "changer"): 1})
FINISHED_BY = Counter({("CONTENT_MODIFIED", "finisher"): 1, ("ROUTE", "finisher"): 1, ("DROP", "sink"): 1})


def judge(root: Path, ledger: Path) -> int:
    """Raise unless events, contents and the ledger agree; return how many FlowFiles were made."""
    lines = read_ledger(ledger)
    assert not [line for line in lines if line.what == "failed"]
    repository = Repository.open(root)
    events = [event for at in repository.workspaces() for event in repository.events(0, 10**9, at.writer)]
    keys = Counter((event.source_node, event.source_ordinal) for event in events)
    assert max(keys.values()) == 1, f"events are there twice: {[key for key, count in keys.items() if count > 1][:3]}"
    histories: dict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
    attributes: dict[str, dict[str, str]] = {}
    for event in events:
        histories[event.flowfile_uuid][event.event_type, event.component_id] += 1
        attributes[event.flowfile_uuid] = event.attributes
        if event.content_claim is not None:
            body = repository.content(event).read()
            assert any(body == expected_body(event.attributes, steps) for steps in ("", "+a", "+b", "+a+b"))
    for uuid, history in histories.items():
        assert history == _expected_history(attributes[uuid]), f"FlowFile {uuid}, {attributes[uuid]}: {dict(history)}"
    _judge_ledger(lines, attributes, histories)
    return sum(("CREATE", "producer") in history for history in histories.values())


def _expected_history(attributes: dict[str, str]) -> Counter[tuple[str, str]]:
    if "part" in attributes:
        return PART_OF + FINISHED_BY
    if int(attributes["number"]) % SPLIT_EVERY == 0:
        return MADE_BY + SPLIT_BY
    return MADE_BY + CHANGED_BY + FINISHED_BY


def _judge_ledger(
    lines: Sequence[Line], attributes: dict[str, dict[str, str]], histories: dict[str, Counter[tuple[str, str]]]
) -> None:
    said: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for line in lines:
        said[line.role, line.what].update(line.subjects)
    pieces = Counter((found["number"], found.get("part", "")) for found in attributes.values())
    assert max(pieces.values()) == 1, "a FlowFile was made twice"
    made = {number for number, part in pieces if not part}
    assert {number for number, part in pieces if part == "0"} == {number for number, part in pieces if part == "1"}
    assert set(said["producer", "told"]) <= made <= set(said["producer", "tried"])
    assert not made & set(said["producer", "refused"]), "a commit was refused, and its FlowFiles are there"
    sunk = {uuid for uuid, history in histories.items() if ("DROP", "sink") in history}
    assert set(said["sink", "told"]) <= sunk <= set(said["sink", "tried"])
    assert max(said["sink", "told"].values()) == 1, "a FlowFile ended twice"
