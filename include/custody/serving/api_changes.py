"""What the API changes: FlowFiles are sent again, pieces of the quarantine are tried again; each as a job.

The library's own functions do it, those that the command line calls; a plan is made and looked at before it is run.
Nobody's browser is led here by another site: see `Entrance` and `check_origin`.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
from fastapi import Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import Response

from custody.capture import Format
from custody.clock import SystemClock
from custody.errors import BackpressureError, CorruptionError, InvalidInputError, NotFoundError
from custody.flowfile_repository import REPLAY_DAYS
from custody.format.names import is_name
from custody.model.visibility import Visibility
from custody.quarantine import QuarantineEntry
from custody.read.time_travel import AsOf
from custody.replay import ReplayPlan, login_name, read_plan, save_plan
from custody.replay.replay_documents import (
    CheckOverview,
    PlanOverview,
    check_overview,
    plan_overview,
    replay_overview,
)
from custody.repository import Repository
from custody.serving.access import Scope
from custody.serving.api_operation import ApiOperation
from custody.serving.api_problems import ProblemDocument
from custody.serving.application import grant_of
from custody.serving.door import Services
from custody.serving.http_requests import BodyRefusedError, is_from_own_page
from custody.serving.jobs import Job, JobKind, Jobs, KeptJob, OnProgress, Outcome
from custody.serving.route_rights import RouteRight, Shows
from custody.vfs import PosixFileSystem
from custody.workspace.run_reports import RunOverview, StepReport, list_runs, read_run, report_place, run_of

PLAN_EVENTS_MAX = 100_000
"""Events of a plan that is made here; the command line makes larger ones."""
KEYS_MAX = 1000
REFUSED_SHOWN = 1000
LISTED_MAX = 1000
WAIT_SECONDS_MAX = 10.0
_POLL_SECONDS = 0.1
_ID_MAX = (1 << 63) - 1
_PLAN = re.compile(r"(\d{13})-[0-9a-f]{32}")
_PLANS_MAX = 1000
_DAY_MS = 24 * 3600 * 1000
_STOPPED_HERE = "a queue takes no more FlowFiles now. Run the plan again: it goes on where it stopped."
_OF_REPLAY = (JobKind.REPLAY_PLAN, JobKind.REPLAY)
"""Jobs that take the scope `replay` to begin or to end; the others take `manage`."""

Wait = Annotated[
    float,
    Query(ge=0, le=WAIT_SECONDS_MAX, description="Seconds to wait for the end of the job before it is answered."),
]
Count = Annotated[int, Query(ge=1, le=LISTED_MAX)]


class ReplayQuestion(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which events are to be replayed: those that a query finds, or those of a writer with some ids."""

    query: str | dict[str, Any] | None = None
    event_ids: list[int] = []
    writer: str | None = None
    as_of: str | None = None


class ReplayOrder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a plan is run; with `skip_changed` events that cannot be replayed any more are passed over."""

    skip_changed: bool = False


class ResubmitOrder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which pieces of the quarantine are tried again: some, or all; `format` says as what they are read."""

    keys: list[str] = []
    everything: bool = False
    format: Format | None = None


_REPLAY_QUESTION = msgspec.json.Decoder(ReplayQuestion)
_REPLAY_ORDER = msgspec.json.Decoder(ReplayOrder)
_RESUBMIT_ORDER = msgspec.json.Decoder(ResubmitOrder)


class PlacedPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A replay plan that is kept here."""

    name: str
    href: str
    made_ms: int


class PlacedPlans(msgspec.Struct, frozen=True, kw_only=True):
    """Replay plans that are kept here, the newest first."""

    items: list[PlacedPlan]
    total: int


class JobList(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs, the newest first."""

    items: list[Job]
    total: int


class RunList(msgspec.Struct, frozen=True, kw_only=True):
    """Runs of steps whose reports are kept, the newest first."""

    items: list[RunOverview]
    total: int
    notices: tuple[str, ...] = ()


class OneRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run of steps, with what each did with each of its units."""

    run: str
    steps: list[StepReport]


CHANGE_DOCUMENTS = (
    ReplayQuestion,
    ReplayOrder,
    ResubmitOrder,
    PlacedPlans,
    PlanOverview,
    CheckOverview,
    Job,
    JobList,
    RunList,
    OneRun,
)


class Changes:
    """The operations; those that read a body are coroutines.

    Args:
        services: of the server.
        read_body: returns the body of a request as a struct.
        moment: returns the revision or the time that a text means.
        answered: returns a document as an answer.
        seen: returns what the sender of the request may see, None for every event.
    """

    def __init__(
        self,
        services: Services,
        read_body: Callable[[Request, msgspec.json.Decoder[Any]], Any],
        moment: Callable[[str | None], AsOf | None],
        answered: Callable[[object], Response],
        seen: Callable[[], Visibility | None],
    ) -> None:
        self._services = services
        self.repository: Repository = services.repository
        self._fs = PosixFileSystem()
        self._read_body = read_body
        self._moment = moment
        self._answered = answered
        self._seen = seen
        settings = self.repository.settings
        self.jobs_of_all = Jobs(self._fs, settings.jobs, settings.root, SystemClock())

    def close(self) -> None:
        """End what goes on; a second call does nothing."""
        self.jobs_of_all.close()

    def operations(self) -> Sequence[ApiOperation]:
        """Return all of them."""
        replay = RouteRight(Scope.REPLAY, Shows.VISIBLE)
        own_jobs = RouteRight(Scope.READ, Shows.VISIBLE)
        of_input = RouteRight(Scope.READ, Shows.INPUT)
        manage = RouteRight(Scope.MANAGE, Shows.INPUT)
        plan = "/replay-plans/{plan}"
        return (
            ApiOperation("/replay-plans", self.replay_plans, PlacedPlans, replay),
            ApiOperation("/replay-plans", self.make_plan, Job, replay, "POST", ReplayQuestion, 202),
            ApiOperation(plan, self.replay_plan, PlanOverview, replay),
            ApiOperation(f"{plan}/check", self.check_plan, CheckOverview, replay),
            ApiOperation(f"{plan}/runs", self.run_plan, Job, replay, "POST", ReplayOrder, 202),
            ApiOperation("/quarantine/resubmissions", self.resubmit, Job, manage, "POST", ResubmitOrder, 202),
            ApiOperation("/quarantine/{key}", self.quarantine_entry, QuarantineEntry, of_input),
            ApiOperation("/jobs", self.jobs, JobList, own_jobs),
            ApiOperation("/jobs/{job_id}", self.job, Job, own_jobs),
            # Ending a job takes the scope of its kind as well, which the job alone says.
            ApiOperation("/jobs/{job_id}", self.cancel_job, Job, own_jobs, "DELETE", None, 202),
            ApiOperation("/runs", self.runs, RunList, of_input),
            ApiOperation("/runs/{run}", self.run, OneRun, of_input),
        )

    def replay_plans(self, *, limit: Count = 100) -> Response:
        """Replay plans that were made here, the newest first; with rules those of the jobs that are kept."""
        names = self._plan_names()
        seen = self._seen()
        if seen is not None:
            made = _plans_of(self.jobs_of_all.begun_with(seen.key))
            names = [name for name in names if name in made]
        items = [
            PlacedPlan(name=name, href=f"replay-plans/{name}", made_ms=int(name[:13])) for name in names[::-1][:limit]
        ]
        return self._answered(PlacedPlans(items=items, total=len(names)))

    async def make_plan(self, request: Request, *, wait: Wait = 0) -> Response:
        """Say of events whether they can be sent again, how many bytes that is, and why others cannot; as a job."""
        question: ReplayQuestion = await self._read_body(request, _REPLAY_QUESTION)
        as_of, seen = self._moment(question.as_of), self._seen()
        await run_in_threadpool(self._check_question, question, as_of, seen)

        def work(on_progress: OnProgress) -> Outcome:
            # Planning changes nothing, so it needs no writer slot.
            plan = self.repository.plan_replay(
                question.query or "",
                event_ids=question.event_ids,
                writer=question.writer,
                as_of=as_of,
                on_progress=lambda done: on_progress(done, None),
                visibility=seen,
            )
            name = self._keep(plan)
            result = {"plan": name, "href": f"replay-plans/{name}", "events": len(plan.events), "bytes": plan.bytes}
            return Outcome({**result, "refused": len(plan.refused)})

        subject = question.query if isinstance(question.query, str) else f"{len(question.event_ids)} events"
        return await self.begun(request, wait, JobKind.REPLAY_PLAN, subject, "events", work)

    def replay_plan(self, plan: str) -> Response:
        """A replay plan: what it sends again, and what it does not and why."""
        overview = plan_overview(self._plan(plan), REFUSED_SHOWN)
        seen = self._seen()
        if seen is not None and seen.hides_events:
            # Revisions count what others stored.
            overview = msgspec.structs.replace(overview, revisions={})
        return self._answered(overview)

    def check_plan(self, plan: str) -> Response:
        """What is left of a replay plan, and which of its events cannot be sent again any more."""
        whole = self._plan(plan)
        check = self.repository.check_replay(whole, visibility=self._seen())
        return self._answered(check_overview(whole, check, REFUSED_SHOWN))

    async def run_plan(self, request: Request, plan: str, *, wait: Wait = 0) -> Response:
        """Send what is left of a replay plan, each event once; as a job, which goes on where an earlier one stopped."""
        order: ReplayOrder = await self._read_body(request, _REPLAY_ORDER)
        await run_in_threadpool(self._plan, plan)
        user, seen = self.user_of(request), self._seen()

        def work(on_progress: OnProgress) -> Outcome:
            with self._services.lent_writer() as writer:
                report = self.repository.replay(
                    self._plan_path(plan),
                    user=user,
                    skip_changed=order.skip_changed,
                    on_progress=on_progress,
                    writer=writer,
                    visibility=seen,
                )
            if seen is not None and report.stopped is not None:
                # What others have in the queue is counted in the reason.
                report = msgspec.structs.replace(report, stopped=_STOPPED_HERE)
            result = msgspec.to_builtins(replay_overview(report, REFUSED_SHOWN))
            return Outcome(result, None if report.stopped is None else _stopped(report.stopped))

        return await self.begun(request, wait, JobKind.REPLAY, plan, "FlowFiles", work)

    async def resubmit(self, request: Request, *, wait: Wait = 0) -> Response:
        """Try pieces of the quarantine again; what is stored leaves it; as a job."""
        order: ResubmitOrder = await self._read_body(request, _RESUBMIT_ORDER)
        if order.everything == bool(order.keys) or len(order.keys) > KEYS_MAX:
            raise InvalidInputError(f"expected 1 to {KEYS_MAX} keys, or everything.")
        keys = await run_in_threadpool(self._keys, order)

        def work(on_progress: OnProgress) -> Outcome:
            # Not at the top: nothing else of a server needs what the sink imports.
            from custody.ngsi_sink.opening import resubmit_pieces

            with self._services.lent_writer() as writer:
                done = resubmit_pieces(self.repository, keys, order.format, writer, on_progress)
            reports = {key: msgspec.to_builtins(report) for key, report in list(done.reports.items())[:LISTED_MAX]}
            result = {
                "reports": reports,
                "pieces": len(done.reports),
                "left_to_sink": len(done.left_to_sink),
                "stored": sum(report.stored for report in done.reports.values()),
                "repeated": sum(report.repeated for report in done.reports.values()),
                "rejected": sum(report.rejected for report in done.reports.values()),
            }
            return Outcome(result)

        return await self.begun(request, wait, JobKind.RESUBMIT, f"{len(keys)} pieces", "pieces", work)

    def quarantine_entry(self, key: str) -> Response:
        """One piece of the quarantine: why it could not be stored."""
        return self._answered(self.repository.quarantine.get(key))

    def jobs(self, *, limit: Count = 100) -> Response:
        """Long work that was begun here, the newest first; with rules only that of those who see the same."""
        seen = self._seen()
        if seen is None:
            items, total = self.jobs_of_all.newest(limit)
        else:
            own = self.jobs_of_all.begun_with(seen.key)
            items, total = own[:limit], len(own)
        return self._answered(JobList(items=[job.shown for job in items], total=total))

    async def job(self, job_id: str, *, wait: Wait = 0) -> Response:
        """How far a job is, or what it came to."""
        await run_in_threadpool(self._own_job, job_id)
        return self._answered((await self._ended(job_id, wait)).shown)

    def cancel_job(self, request: Request, job_id: str) -> Response:
        """Let a job end where it is; what it did so far stays."""
        needed = Scope.REPLAY if self._own_job(job_id).kind in _OF_REPLAY else Scope.MANAGE
        if needed not in grant_of(request).scopes:
            raise HTTPException(403, f"expected a token with the scope {needed}")
        answer = self._answered(self.jobs_of_all.cancel(job_id).shown)
        answer.status_code = 202
        return answer

    def runs(self, *, limit: Count = 100, run_id: Annotated[str | None, Query(max_length=500)] = None) -> Response:
        """Runs of steps whose reports are kept, the newest first; with `run_id` that of this id alone."""
        place = report_place(self.repository.settings, self._fs)
        only = None if run_id is None else run_of(place.folder, run_id)
        items, total, notices = list_runs(*place, limit, only)
        root = f"{self.repository.settings.root}/"
        told = tuple(notice.replace(root, "") for notice in notices)
        return self._answered(RunList(items=items, total=total, notices=told))

    def run(self, run: str) -> Response:
        """What each step of a run did with each of its units."""
        return self._answered(OneRun(run=run, steps=read_run(*report_place(self.repository.settings, self._fs), run)))

    async def begun(
        self, request: Request, wait: float, kind: JobKind, subject: str, unit: str, work: Callable[..., Outcome]
    ) -> Response:
        """Begin a job for whoever asks; answer it when it ends, or after `wait` seconds."""
        user, seen = self.user_of(request), self._seen()
        visibility = None if seen is None else seen.key
        try:
            job = await run_in_threadpool(self.jobs_of_all.submit, kind, subject, user, unit, work, visibility)
        except BackpressureError as error:
            raise HTTPException(429, str(error), {"Retry-After": "5"}) from None
        answer = self._answered((await self._ended(job.id, wait)).shown)
        answer.status_code = 202
        # Relative to the address that was asked for: right below any path that the API is mounted at.
        depth = request.scope["route"].path.count("/") - 1
        answer.headers["Location"] = f"{'../' * depth}jobs/{job.id}"
        return answer

    def _own_job(self, job_id: str) -> KeptJob:
        """Return a job; to whom rules hide something only one of somebody who sees the same."""
        job = self.jobs_of_all.get(job_id)
        seen = self._seen()
        if seen is not None and job.visibility != seen.key:
            raise NotFoundError(f"there is no job {job_id[:80]!r}.")
        return job

    async def _ended(self, job_id: str, wait: float) -> KeptJob:
        """Return a job when it has ended, or as it is after some seconds."""
        deadline = time.monotonic() + wait
        while True:
            job = await run_in_threadpool(self.jobs_of_all.get, job_id)
            left = deadline - time.monotonic()
            if job.state.is_final or left <= 0:
                return job
            await asyncio.sleep(min(_POLL_SECONDS, left))

    def _check_question(self, question: ReplayQuestion, as_of: AsOf | None, seen: Visibility | None) -> None:
        """Refuse what cannot be planned before a job is begun for it."""
        if (question.query is None) != bool(question.event_ids) or len(question.event_ids) > KEYS_MAX:
            raise InvalidInputError(f"expected a query, which is '' for all events, or 1 to {KEYS_MAX} event_ids.")
        if not all(0 <= event_id <= _ID_MAX for event_id in question.event_ids):
            raise InvalidInputError(f"event_ids: expected numbers from 0 to {_ID_MAX}.")
        if question.writer is not None and not is_name(question.writer):
            raise NotFoundError(f"there is no writer {question.writer[:80]!r}.")
        if question.query is None:
            return
        # As it answers: a condition on a masked attribute would tell its values.
        answering = self.repository.answering() if seen is None else self.repository.answering().seen_by(seen)
        total = answering.search(question.query, limit=1, writer=question.writer, as_of=as_of).total
        if total > PLAN_EVENTS_MAX:
            raise InvalidInputError(
                f"expected at most {PLAN_EVENTS_MAX} events, the query finds {total}. Narrow it down, or make the plan "
                "on the command line: custody replay plan."
            )

    def _keys(self, order: ResubmitOrder) -> list[str]:
        room = self.repository.quarantine
        if order.everything:
            return list(room.known_keys())
        return [room.get(key).key for key in dict.fromkeys(order.keys)]

    def user_of(self, request: Request) -> str:
        """Return who asks; where nobody has to say, whose process this is, as on the command line."""
        name = grant_of(request).name
        return login_name() if name == "-" else name

    def _keep(self, plan: ReplayPlan) -> str:
        """Write a plan under a name that says when it was made; those that cannot be run any more go."""
        folder = self.repository.settings.replays
        self._fs.make_directory(folder)
        names = self._plan_names()
        oldest_ms = plan.made_ms - REPLAY_DAYS * _DAY_MS
        spare = max(len(names) + 1 - _PLANS_MAX, 0)
        for at, name in enumerate(names):
            if at < spare or int(name[:13]) <= oldest_ms:
                self._fs.remove(self._plan_path(name))
        name = f"{plan.made_ms:013d}-{plan.id}"
        save_plan(self._fs, self._plan_path(name), plan)
        return name

    def _plan_names(self) -> list[str]:
        names = self._fs.list(self.repository.settings.replays)
        return [name.removesuffix(".plan") for name in names if _PLAN.fullmatch(name.removesuffix(".plan"))]

    def _plan_path(self, name: str) -> Path:
        return self.repository.settings.replays / f"{name}.plan"

    def _plan(self, name: str) -> ReplayPlan:
        """Return a plan; to whom rules hide something only one of somebody who sees the same: it names events."""
        if not _PLAN.fullmatch(name) or not self._fs.exists(self._plan_path(name)):
            raise NotFoundError(f"there is no replay plan {name[:80]!r}.")
        plan = read_plan(self._fs, self._plan_path(name))
        if name != f"{plan.made_ms:013d}-{plan.id}":
            raise CorruptionError(f"{self._plan_path(name)}: expected the plan of this name, got {plan.id}.")
        seen = self._seen()
        if seen is not None and plan.visibility != seen.key:
            raise NotFoundError(f"there is no replay plan {name[:80]!r}.")
        return plan


async def check_origin(request: Request) -> None:
    """Refuse what a page of another site makes a browser send, whatever it brings: changes are for people and programs.

    JSON is asked for because a form, which any page may send anywhere, cannot have this type.
    """
    if not is_from_own_page(request.headers):
        raise BodyRefusedError(403, "foreign-page", "expected a request of this server's own pages or of a program")
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if request.method == "POST" and kind != "application/json":
        raise BodyRefusedError(415, "body-type", "expected a body of the type application/json")


def _plans_of(jobs: Iterable[Job]) -> set[str]:
    """Return the names of the plans that jobs made."""
    made = (job.result for job in jobs if job.kind is JobKind.REPLAY_PLAN)
    return {result["plan"] for result in made if result is not None}


def _stopped(why: str) -> ProblemDocument:
    return ProblemDocument(
        type="/problems/backpressure", title="It cannot go on now", status=503, detail=why, kind="backpressure"
    )
