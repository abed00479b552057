"""Jobs: long work that a request begins, and that others ask about, from any process and after any restart.

The state of a job is a file, `jobs/<id>.json` (docs/formats/job.md), written durably whenever it changes. One thread of
each process does one job after the other. The process holds a lock, `<owner>.lock`, from its first job to its end. So
every process answers for every job: one that is not done and whose owner is gone is *lost*. It is not begun anew by
itself: who asked for it decides, and all work here can be asked for again.

Where a job of another process is to end, a mark is put beside it, `<id>.cancel`, which its owner looks for as it goes
on.
"""

from __future__ import annotations

import logging
import re
import secrets
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from threading import Condition, Thread
from typing import Any

import msgspec

from custody.clock import Clock
from custody.errors import BackpressureError, CorruptionError, CustodyError, NotFoundError
from custody.format.checked_json import has_right_checksum, with_checksum
from custody.serving.api_problems import ProblemDocument, problem_document
from custody.vfs import FileSystem

JOBS_MAX = 16
"""Jobs that wait or go on in one process; more are refused."""
KEPT_MAX = 1000
KEPT_MS = 7 * 24 * 3600 * 1000
"""Jobs that have ended are kept as long as this, and at most so many."""
_SAID_SECONDS = 1.0
"""How often progress is written, and marks are looked for."""
_STOP_SECONDS = 20.0
_SWEEP_EACH = 100
"""So many jobs are begun until old ones are looked for again."""
_SUBJECT_CHARACTERS_MAX = 500
_ID = re.compile(r"(\d{13})-[0-9a-f]{16}")
_OWNER = re.compile(r"[0-9a-f]{32}")
_LOGGER = logging.getLogger(__name__)


class JobKind(StrEnum):
    """What a job does. Part of the format: add, never change."""

    REPLAY_PLAN = "replay-plan"
    REPLAY = "replay"
    RESUBMIT = "resubmit"
    FORGET_PLAN = "forget-plan"
    FORGET = "forget"
    HOLD_COUNT = "hold-count"
    QUARANTINE_REMOVAL = "quarantine-removal"
    RETENTION = "retention"


class JobState(StrEnum):
    """How far a job is. Part of the format: add, never change."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    LOST = "lost"
    """Its process ended before it did. Never written: seen by whoever looks."""

    @property
    def is_final(self) -> bool:
        """Whether nothing more happens to the job."""
        return self not in (JobState.QUEUED, JobState.RUNNING)


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A job; times in ms since the epoch."""

    id: str
    kind: JobKind
    subject: str
    """What it is about, for people: a query, a plan, a number of pieces."""
    user: str
    owner: str
    """The process that does it."""
    state: JobState
    created_ms: int
    started_ms: int | None = None
    ended_ms: int | None = None
    done: int = 0
    total: int | None = None
    """Of so many; None where that is not known."""
    unit: str = ""
    """What `done` and `total` count."""
    result: dict[str, Any] | None = None
    problem: ProblemDocument | None = None
    """Why it failed, was cancelled or lost."""


class KeptJob(Job, frozen=True, kw_only=True):
    """A job as it is kept."""

    visibility: str | None = None
    """What whoever began it might see, as `Visibility.key`; None for every event."""

    @property
    def shown(self) -> Job:
        """The job as it is answered: a digest of rules could be tried against guesses of them."""
        return Job(**{name: getattr(self, name) for name in Job.__struct_fields__})


_JOB = msgspec.json.Decoder(KeptJob)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a job came to; with a problem it has failed, whatever it did before."""

    result: dict[str, Any]
    problem: ProblemDocument | None = None


OnProgress = Callable[[int, int | None], None]
"""Called with what is done, and of how much; it raises where the job is to end."""
Work = Callable[[OnProgress], Outcome]


class JobCancelledError(Exception):
    """Raised by `OnProgress` within the work: the job is to end here."""


@dataclass(slots=True)
class _Entry:
    """A job of this process that has not ended."""

    job: KeptJob
    work: Work
    is_cancelled: bool = False
    said: float = field(default_factory=lambda: float("-inf"))


class Jobs:
    """The jobs of a repository, as one process begins and sees them.

    Args:
        fs: holds the files.
        folder: of the jobs; made with the first one.
        root: of the repository, which no problem names.
        clock: tells times.
    """

    def __init__(self, fs: FileSystem, folder: Path, root: Path, clock: Clock) -> None:
        self._fs = fs
        self._folder = folder
        self._root = root
        self._clock = clock
        self._held = ExitStack()
        self._owner: str | None = None
        self._changed = Condition()
        self._entries: dict[str, _Entry] = {}
        self._waiting: deque[_Entry] = deque()
        self._thread: Thread | None = None
        self._is_closed = False
        self._begun = 0
        self._named_ms = 0
        """The time in the newest id: two jobs of a process that begin in one millisecond keep their order."""
        self._unwritten: dict[str, KeptJob] = {}
        """How jobs ended, where the disk refused to take it."""

    def submit(
        self, kind: JobKind, subject: str, user: str, unit: str, work: Work, visibility: str | None = None
    ) -> KeptJob:
        """Begin a job, behind those of this process that were begun before; return it at once.

        Durability: on return the job is known after a power loss: as lost, where its process ended before it.

        Raises:
            BackpressureError: too many jobs wait here, or the server stops.
            StorageError: the disk refused; there is no such job.
        """
        with self._changed:
            if self._is_closed or len(self._entries) >= JOBS_MAX:
                raise BackpressureError(f"expected at most {JOBS_MAX} jobs in a process, got one more.")
            now_ms = self._clock.now_ms()
            self._named_ms = max(now_ms, self._named_ms + 1)
            owner = self._own_name()
            self._begun += 1
            if self._begun % _SWEEP_EACH == 0:
                self._sweep()
            job = KeptJob(
                id=f"{self._named_ms:013d}-{secrets.token_hex(8)}",
                kind=kind,
                subject=subject[:_SUBJECT_CHARACTERS_MAX],
                user=user,
                owner=owner,
                state=JobState.QUEUED,
                created_ms=now_ms,
                unit=unit,
                visibility=visibility,
            )
            self._write(job)
            entry = _Entry(job, work)
            self._entries[job.id] = entry
            self._waiting.append(entry)
            if self._thread is None:
                self._thread = Thread(target=self._work, name="custody-jobs", daemon=True)
                self._thread.start()
            self._changed.notify_all()
        return job

    def get(self, job_id: str) -> KeptJob:
        """Return a job as it is now.

        Raises:
            NotFoundError: there is none, or it ended too long ago.
            CorruptionError: its file is damaged.
        """
        with self._changed:
            entry = self._entries.get(job_id)
            if entry is not None:
                return entry.job
            if job_id in self._unwritten:
                return self._unwritten[job_id]
        job = self._read(job_id)
        if job.state.is_final or self._fs.is_locked(self._lock(job.owner)):
            return job
        # Its owner may have written the end and gone, both since the file was read.
        job = self._read(job_id)
        return job if job.state.is_final else _lost(job)

    def newest(self, limit: int) -> tuple[list[KeptJob], int]:
        """Return the newest jobs, at most `limit`, and how many there are; one whose file is damaged is left out."""
        names = self._names()
        return list(self._readable(names[::-1][:limit])), len(names)

    def begun_with(self, visibility: str) -> list[KeptJob]:
        """Return the jobs that somebody began who might see just this, the newest first."""
        return [job for job in self._readable(self._names()[::-1]) if job.visibility == visibility]

    def cancel(self, job_id: str) -> KeptJob:
        """Let a job end where it is; return it as it is now. What it did so far stays; one that has ended stays so.

        Durability: on return the wish survives power loss.

        Raises:
            NotFoundError, CorruptionError: as `get`.
        """
        with self._changed:
            entry = self._entries.get(job_id)
            if entry is not None:
                entry.is_cancelled = True
                if entry.job.state is JobState.QUEUED:
                    self._end(entry, JobState.CANCELLED, problem=_cancelled("before it began"))
                return entry.job
        job = self.get(job_id)
        if not job.state.is_final:
            self._fs.write_durably(self._mark(job_id), b"")
        return job

    def amend(self, job_id: str, result: dict[str, Any]) -> None:
        """Give a job that succeeded another result.

        Durability: on return it survives power loss.

        Raises:
            NotFoundError, CorruptionError: as `get`.
        """
        self._write(msgspec.structs.replace(self.get(job_id), result=result))

    def close(self) -> None:
        """End what goes on as if it were cancelled, and wait for that; no job begins any more."""
        with self._changed:
            self._is_closed = True
            for entry in list(self._entries.values()):
                entry.is_cancelled = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(_STOP_SECONDS)
        self._write_again()
        # A job that does not end by then is lost: its lock goes with this process.
        self._held.close()

    def _own_name(self) -> str:
        """Return the name of this process, whose lock it then holds."""
        while self._owner is None:
            name = uuid.uuid4().hex
            self._fs.make_directory(self._folder)
            self._sweep()
            with ExitStack() as stack:
                stack.enter_context(self._fs.lock(self._lock(name)))
                # Another process may have taken the file for one that a dead process left, before it was locked.
                if self._fs.is_locked(self._lock(name)):
                    self._held = stack.pop_all()
                    self._owner = name
        return self._owner

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._is_closed:
                    self._changed.wait()
                if not self._waiting:
                    return
                entry = self._waiting.popleft()
                if entry.job.state.is_final:
                    continue  # cancelled while it waited
                # Under the lock: who cancels it sees that it has begun.
                started_ms = self._clock.now_ms()
                entry.job = msgspec.structs.replace(entry.job, state=JobState.RUNNING, started_ms=started_ms)
            self._do(entry)

    def _do(self, entry: _Entry) -> None:
        try:
            self._go_on(entry)
            self._change(entry, entry.job)
            outcome = entry.work(lambda done, total: self._progress(entry, done, total))
        except JobCancelledError:
            if self._is_closed:
                self._end(entry, JobState.FAILED, problem=_STOPPED)
            else:
                self._end(entry, JobState.CANCELLED, problem=_cancelled("where it was"))
        except CustodyError as error:
            _LOGGER.warning("job %s: %s", entry.job.id, error)
            self._end(entry, JobState.FAILED, problem=problem_document(error, str(self._root)))
        except Exception:  # a fault of the program: the job has ended all the same, and its thread goes on
            _LOGGER.exception("job %s", entry.job.id)
            self._end(entry, JobState.FAILED, problem=_FAULT)
        else:
            state = JobState.SUCCEEDED if outcome.problem is None else JobState.FAILED
            self._end(entry, state, result=outcome.result, problem=outcome.problem)

    def _progress(self, entry: _Entry, done: int, total: int | None) -> None:
        self._go_on(entry)
        job = msgspec.structs.replace(entry.job, done=done, total=total)
        with self._changed:
            entry.job = job
        if time.monotonic() - entry.said >= _SAID_SECONDS:
            self._change(entry, job)

    def _go_on(self, entry: _Entry) -> None:
        """Raise JobCancelledError where a job is to end."""
        is_due = time.monotonic() - entry.said >= _SAID_SECONDS
        if entry.is_cancelled or (is_due and self._fs.exists(self._mark(entry.job.id))):
            raise JobCancelledError

    def _change(self, entry: _Entry, job: KeptJob) -> None:
        """Take a new state of a job that has not ended, and write it."""
        with self._changed:
            entry.job = job
        self._try_to_write(entry, job)

    def _try_to_write(self, entry: _Entry, job: KeptJob) -> bool:
        """Write a state of a job; return whether the disk took it."""
        entry.said = time.monotonic()
        try:
            self._write(job)
        except CustodyError as error:
            # The work itself goes on: this process knows how far it is.
            _LOGGER.warning("job %s: its state could not be written: %s", job.id, error)
            return False
        return True

    def _end(
        self,
        entry: _Entry,
        state: JobState,
        *,
        result: dict[str, Any] | None = None,
        problem: ProblemDocument | None = None,
    ) -> None:
        job = msgspec.structs.replace(
            entry.job, state=state, ended_ms=self._clock.now_ms(), result=result, problem=problem
        )
        is_written = self._try_to_write(entry, job)
        with self._changed:
            # Not before it is written: in between another request would read the state before, or be told of an end
            # that a crash takes back, and a sweep would remove the file just before it is written once more.
            entry.job = job
            self._entries.pop(job.id, None)
            if not is_written:
                self._unwritten[job.id] = job
        self._write_again()
        with suppress(CustodyError):
            self._fs.remove(self._mark(job.id))

    def _write_again(self) -> None:
        """Write what the disk refused before, if it takes it now; what it never takes, others see as lost."""
        for job in list(self._unwritten.values())[:KEPT_MAX]:
            with suppress(CustodyError):
                self._write(job)
                self._unwritten.pop(job.id, None)

    def _read(self, job_id: str) -> KeptJob:
        path = self._path(job_id)
        if not _ID.fullmatch(job_id) or not self._fs.exists(path):
            raise NotFoundError(f"there is no job {job_id[:80]!r}.")
        return decode_job(self._fs.read(path), path)

    def _write(self, job: KeptJob) -> None:
        self._fs.write_durably(self._path(job.id), with_checksum(msgspec.json.encode(job)))

    def _sweep(self) -> None:
        """Remove jobs that ended long ago, and the locks of processes that are gone."""
        names = self._names()
        oldest_ms = self._clock.now_ms() - KEPT_MS
        spare = max(len(names) - KEPT_MAX, 0)
        for at, job_id in enumerate(names):
            if at >= spare and int(job_id[:13]) >= oldest_ms:
                break
            with suppress(NotFoundError, CorruptionError):  # of a damaged one `custody verify` tells
                if self.get(job_id).state.is_final:
                    self._fs.remove(self._path(job_id))
                    self._fs.remove(self._mark(job_id))
        for name in self._fs.list(self._folder):
            stem, _, suffix = name.partition(".")
            if suffix == "lock" and _OWNER.fullmatch(stem) and not self._fs.is_locked(self._folder / name):
                self._fs.remove(self._folder / name)

    def _readable(self, names: Iterable[str]) -> Iterator[KeptJob]:
        for job_id in names:
            with suppress(NotFoundError, CorruptionError):  # removed meanwhile, or for `custody verify` to name
                yield self.get(job_id)

    def _names(self) -> list[str]:
        """Return the ids of all jobs, the oldest first."""
        names = self._fs.list(self._folder)
        return [name.removesuffix(".json") for name in names if _ID.fullmatch(name.removesuffix(".json"))]

    def _path(self, job_id: str) -> Path:
        return self._folder / f"{job_id}.json"

    def _mark(self, job_id: str) -> Path:
        return self._folder / f"{job_id}.cancel"

    def _lock(self, owner: str) -> Path:
        return self._folder / f"{owner}.lock"


def _ended(kind: str, status: int, title: str, detail: str) -> ProblemDocument:
    return ProblemDocument(type=f"/problems/{kind}", title=title, status=status, detail=detail, kind=kind)


_STOPPED = _ended(
    "closed", 503, "The server stopped", "the server stopped; what was done stays, and can be gone on with"
)
_FAULT = _ended("error", 500, "The server failed", "the server failed; its log says why")


def decode_job(data: bytes, path: Path) -> KeptJob:
    """Return the job of a file.

    Raises:
        CorruptionError: it is not as it was written.
    """
    if not has_right_checksum(data):
        raise CorruptionError(f"{path}: expected a job with its checksum, got other bytes.")
    try:
        job = _JOB.decode(data)
    except msgspec.DecodeError as error:
        raise CorruptionError(f"{path}: expected a job, got {error}.") from error
    # The owner becomes a path.
    if not _OWNER.fullmatch(job.owner):
        raise CorruptionError(f"{path}: expected an owner of 32 hexadecimal digits, got another text.")
    return job


def _cancelled(where: str) -> ProblemDocument:
    return _ended("cancelled", 409, "It was cancelled", f"the job was ended {where}; what it did before stays")


def _lost(job: KeptJob) -> KeptJob:
    detail = "the process that did it ended before it did; what was done stays. Ask for it again: it goes on from there"
    problem = _ended("lost", 503, "It was lost", detail)
    return msgspec.structs.replace(job, state=JobState.LOST, problem=problem)
