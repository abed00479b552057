"""A soak: producers, a pipeline, questions and kills side by side, and the judgement in the end."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from custody.repository import EventSelection, Repository
from soak.asking import Asker, Known, expired_now, found_of
from soak.events import CASE, flowfile_of
from soak.judge import Found, Verdict, judge, judge_amount
from soak.killing import Killer, plan_kills
from soak.ledger import Ledger
from soak.pipeline import RETENTION, Pipeline, PipelineError, RunEnd
from soak.processes import DRIVER, WORKER, WRITER, Target
from soak.producers import Producers
from soak.watching import Watcher

CATALOG_BYTES = 256 << 10
"""What a pass takes besides for a catalog, as docs/retention.md says."""
PAGE = 5000
_ASK_PAUSE_S = 0.4
_LOOK_EVERY_S = 5.0
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a soak; times in seconds."""

    seconds: float = 1800.0
    seed: int = 1
    rate: float = 120.0
    """Events a second of all producers together."""
    producers: int = 3
    threads: int = 2
    limit_bytes: int = 24 << 20
    log_bytes: int = 1 << 20
    """Small logs, so that a held event keeps few others."""
    grace_seconds: int = 20
    seal_seconds: float = 5.0
    every: dict[str, float] = field(default_factory=lambda: {WRITER: 20.0, DRIVER: 90.0, WORKER: 150.0})
    """A kill of each kind so often, on average."""

    def settings_file(self) -> str:
        """Return the repository's custody.toml."""
        return (
            f"[repository]\nwriter_slots = {self.producers}\n"
            f"[journal]\njournals = 2\nseal_seconds = {self.seal_seconds}\n"
            '[index]\nattributes = ["case"]\n'
            f"[eventlog]\nlog_bytes_target = {self.log_bytes}\n"
            f'[retention]\nbytes_max = {self.limit_bytes}\ngrace = "{self.grace_seconds} seconds"\n'
        )


@dataclass
class Outcome:
    """The outcome of a soak."""

    plan: Plan
    pipeline: str
    ledger: Ledger
    final: Verdict
    asker: Asker
    watcher: Watcher
    killer: Killer
    producers: Producers
    runs: list[RunEnd]
    started: float
    """On the monotonic clock."""
    sealed_by_recovery: int = 0
    verified: dict[str, int] = field(default_factory=dict)
    notices: list[str] = field(default_factory=list)
    rest_seconds: float = 0.0
    restarts: int = 0
    """How often the pipeline's queue stood still."""

    @property
    def holds(self) -> bool:
        """Whether all that was promised was kept."""
        return self.final.holds and self.asker.verdict.holds and not self.producers.failures

    def problems(self) -> list[str]:
        """Return all that does not hold."""
        return self.final.lines() + self.asker.verdict.lines() + self.producers.failures

    def largest_inflow(self) -> int:
        """Return the most bytes of journals that came in between two passes of retention, its grace included."""
        ends = [run.at - self.started for run in self.runs if run.kind == RETENTION and run.state == "success"]
        edges = [0.0, *sorted(ends), self.watcher.samples[-1].at]
        grace = self.plan.grace_seconds
        return max(self._written(end) - self._written(begin - grace) for begin, end in pairwise(edges))

    def headroom_bytes(self) -> int:
        """Return the room beside the limit that docs/retention.md asks for at this inflow."""
        return 3 * self.largest_inflow() + CATALOG_BYTES * self.plan.producers

    def lags_ms(self) -> list[int]:
        """Return for each acknowledged event that became live how long that took."""
        batches: dict[str, list[tuple[int, int, int]]] = {}
        for batch in self.ledger.told:
            batches.setdefault(batch.writer, []).append((batch.first_id, len(batch.digests), batch.ms))
        lags = []
        for group in self.watcher.committed:
            lags += [
                max(group.commit_ms - ms, 0)
                for first, count, ms in batches.get(group.writer, [])
                if group.first_event_id <= first <= group.last_event_id
                for _ in range(count)
            ]
        return lags

    def _written(self, at: float) -> int:
        """Return the bytes of journals that were written until a time."""
        return max((sample.journal_bytes for sample in self.watcher.samples if sample.at <= at), default=0)


class Soak:
    """One soak in a folder of its own, which is emptied first."""

    def __init__(self, plan: Plan, folder: Path, pipeline: Callable[[Path, Path], Pipeline], say: Say) -> None:
        self.plan = plan
        self.folder = folder
        self.say = say
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "ledger").mkdir(parents=True)
        root = Repository.create(folder / "repository").settings.root
        (root / "custody.toml").write_text(plan.settings_file())
        self.root = root
        self.pipeline = pipeline(root, folder)
        self.producers = Producers(root, folder / "ledger", plan.producers, plan.threads, plan.rate)
        self.held: set[int] = set()
        self._problems = Verdict()

    def run(self) -> Outcome:
        """Do all of it; the processes are gone on return."""
        try:
            return self._run()
        finally:
            self.producers.kill()
            self.pipeline.stop()

    def _run(self) -> Outcome:
        repository = Repository.open(self.root)
        repository.hold("case-17", EventSelection(attributes={"case": CASE}), "soak", "soak")
        self.say("starting the pipeline")
        self.pipeline.start()
        started = time.monotonic()
        self.producers.start()
        killer = Killer(plan_kills(self.plan.seed, self.plan.seconds, self.plan.every), self._targets, started)
        asker = Asker(repository, Known(Ledger(self.folder / "ledger")), self.plan.seed)
        watcher = Watcher(Repository.open(self.root), self.producers.processes, started)
        ended = threading.Event()
        sides = [
            threading.Thread(target=self._guarded, args=(_again, asker.ask, _ASK_PAUSE_S, ended), name="ask"),
            threading.Thread(target=self._guarded, args=(_again, watcher.look, _LOOK_EVERY_S, ended), name="look"),
        ]
        for side in sides:
            side.start()
        killer.start()
        try:
            self._wait(started, killer, asker)
            killer.stop()
            self.producers.stop()
            self.say("producers ended; the pipeline comes to rest")
            resting = time.monotonic()
            self._rest()
        finally:
            killer.stop()
            ended.set()
            for side in sides:
                side.join()
        watcher.look()
        outcome = Outcome(
            plan=self.plan,
            pipeline=self.pipeline.name,
            ledger=Ledger(self.folder / "ledger"),
            final=self._problems,
            asker=asker,
            watcher=watcher,
            killer=killer,
            producers=self.producers,
            runs=self.pipeline.runs(),
            started=started,
            rest_seconds=time.monotonic() - resting,
            restarts=self.pipeline.restarts(),
        )
        self.pipeline.stop()
        self.say("the pipeline rests; judging")
        self._judge(outcome)
        return outcome

    def _rest(self) -> None:
        try:
            self.pipeline.rest(self.plan.grace_seconds)
        except PipelineError as error:  # what is there is judged all the same
            self._problems.complain("the pipeline does not rest", str(error))

    def _targets(self, kind: str) -> list[Target]:
        return self.producers.targets() if kind == WRITER else self.pipeline.targets(kind)

    def _wait(self, started: float, killer: Killer, asker: Asker) -> None:
        """Wait for the end of the time; put a recent FlowFile under a hold halfway; say how it goes."""
        is_held, said = False, 0.0
        while (at := time.monotonic() - started) < self.plan.seconds:
            if not is_held and at > self.plan.seconds / 2 and asker.known.ledger.told:
                self._hold_a_flowfile()
                is_held = True
            if at - said >= 60:
                said = at
                acknowledged, questions = asker.known.ledger.events_told, sum(asker.asked.values())
                self.say(f"{at:.0f} s: {acknowledged} acknowledged, {len(killer.done)} kills, {questions} questions")
                for line in asker.verdict.lines():
                    self.say(f"PROBLEM {line}")
            time.sleep(0.5)

    def _hold_a_flowfile(self) -> None:
        """Hold the FlowFile of an event that was acknowledged just now, by the command that a user types."""
        ledger = Ledger(self.folder / "ledger")
        ledger.refresh()
        batch = max(ledger.told, key=lambda told: told.ms)
        uuid = flowfile_of(batch.number)
        _custody(self.root, "hold", "add", "one-flowfile", "--flowfile", uuid, "--reason", "soak")
        held = range(batch.number, batch.number + len(batch.digests))
        self.held = {number for number in held if flowfile_of(number) == uuid}

    def _guarded(self, work: Callable[..., None], *arguments: object) -> None:
        """Do something in a thread; that it fails is a problem, and no reason to go on without a word."""
        try:
            work(*arguments)
        except Exception as error:
            self._problems.complain("the soak itself", f"{type(error).__name__}: {error}")
            raise

    def _judge(self, outcome: Outcome) -> None:
        """Read all that is there, in two ways, and compare."""
        verdict, ledger = outcome.final, outcome.ledger
        ledger.refresh()
        repository = Repository.open(self.root)  # nothing that was read before counts
        expired = expired_now(repository)
        judge(ledger, _read(repository, verdict), expired, self.held, verdict, how="sequential read")
        judge(ledger, _searched(repository, verdict), expired, self.held, verdict, how="search")
        marked = {
            item.writer: sum(mark.events for mark in item.catalog.load().marks.values())
            for item in repository.workspaces()
        }
        judge_amount(ledger, expired, marked, verdict)
        for finding in repository.recoverable():
            verdict.complain("left over", f"{finding.path}: {finding.what}")
        self._verify(outcome)
        most, allowed = max(item.used_bytes for item in outcome.watcher.samples), outcome.headroom_bytes()
        if most > self.plan.limit_bytes + allowed:
            verdict.complain("room", f"{most} bytes on disk, limit {self.plan.limit_bytes} and headroom {allowed}")
        if outcome.watcher.samples[-1].used_bytes > self.plan.limit_bytes:
            verdict.complain("limit at rest", f"{outcome.watcher.samples[-1].used_bytes} bytes on disk")

    def _verify(self, outcome: Outcome) -> None:
        for level in ((), ("--deep",)):
            documents = json.loads(_custody(self.root, "verify", "--json", *level, expected=(0, 20)))
            for document in documents:
                for kind in ("defects", "known_losses", "orphans"):
                    name = f"{' '.join(('verify', *level))}: {kind}"
                    outcome.verified[name] = outcome.verified.get(name, 0) + len(document[kind])
                    for item in document[kind]:
                        # What a kill left of a file that was being written goes when it is an hour old.
                        if item.get("kind") != "temporary":
                            outcome.final.complain(name, str(item.get("message", item)))
                outcome.notices += [text for text in document["notices"] if text not in outcome.notices]


def _again(work: Callable[[], None], pause: float, ended: threading.Event) -> None:
    while not ended.is_set():
        work()
        ended.wait(pause)


def _read(repository: Repository, verdict: Verdict) -> Iterator[Found]:
    """Yield all events in the order of their ids."""
    for workspace in repository.workspaces():
        last = -1
        stream = repository.events(0, 1 << 40, workspace.writer)
        for event in stream:
            if event.event_id <= last:
                verdict.complain("sequential read: order", f"{workspace.writer}: {event.event_id} behind {last}")
            last = event.event_id
            yield found_of(workspace.writer, event)
        for notice in stream.notices:
            verdict.complain("sequential read: notice", notice)


def _searched(repository: Repository, verdict: Verdict) -> Iterator[Found]:
    """Yield all that a search for everything finds, page after page."""
    cursor, shown, total = None, 0, 0
    while True:
        result = repository.search("", limit=PAGE, cursor=cursor)
        total = total or result.total
        for notice in result.notices:
            verdict.complain("search: notice", notice)
        yield from (found_of(stored.writer, stored.event) for stored in result.events)
        shown, cursor = shown + len(result.events), result.cursor
        if cursor is None or not result.events:
            break
    if shown != total:
        verdict.complain("search: total", f"{total} said, {shown} given")


def _custody(root: Path, *words: str, expected: tuple[int, ...] = (0,)) -> str:
    """Run a command of custody; return what it printed."""
    command = [str(Path(sys.prefix) / "bin" / "custody"), "-r", str(root), *words]
    done = subprocess.run(command, env=os.environ.copy(), capture_output=True, text=True, check=False)
    if done.returncode not in expected:
        raise RuntimeError(f"custody {' '.join(words)}: exit code {done.returncode}: {done.stderr}")
    return done.stdout
