"""What the API keeps and lets go: holds, forgetting, and the removal of pieces from the quarantine.

Nothing is forgotten that was not counted before: a plan says how many events of which writers are meant, and its run
names the same number. Events that come after the plan are not meant by it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any

import msgspec
from fastapi import Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from custody.catalog.tombstones import check_tombstone
from custody.errors import ConflictError, InvalidInputError, NotFoundError
from custody.format.names import is_name
from custody.model.masking import AttributeMask
from custody.quarantine import body_of
from custody.query.times import time_span
from custody.repository import EventSelection, Hold
from custody.serving.access import Scope
from custody.serving.api_changes import KEYS_MAX, LISTED_MAX, Changes, Wait
from custody.serving.api_operation import ApiOperation
from custody.serving.api_problems import GoneError, ProblemDocument
from custody.serving.jobs import Job, JobKind, JobState, OnProgress, Outcome
from custody.serving.route_rights import RouteRight, Shows

REASON_CHARACTERS_MAX = 2000
_ID_MAX = (1 << 63) - 1


class Meant(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The events that fulfil every condition that is given; times as in queries."""

    event_ids: list[int] = []
    """With a writer: each counts its own."""
    flowfile_uuids: list[str] = []
    attributes: dict[str, str] = {}
    """Values that a FlowFile's attributes had before or after the event."""
    since: str | None = None
    until: str | None = None
    writer: str | None = None
    """None for all of them."""


class ForgetOrder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Consent to a plan: how many events it named, and why they are to be forgotten."""

    events: int
    reason: str


class HoldOrder(Meant, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A hold: its name, which events it keeps, later ones included, and why."""

    name: str
    reason: str
    event_types: list[str] = []


class HoldName(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A hold that stands."""

    name: str


class ReleaseOrder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which hold ends, and why."""

    name: str
    reason: str


class Released(msgspec.Struct, frozen=True, kw_only=True):
    """A hold that stands no more, and the writers that had it."""

    name: str
    writers: list[str]


class RemovalOrder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which pieces of the quarantine go for good: some, or all; and how many that are, as consent."""

    keys: list[str] = []
    everything: bool = False
    pieces: int


class RetentionOrder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Consent to the plan of retention: how many events the logs have that it names as going."""

    events: int


_MEANT = msgspec.json.Decoder(Meant)
_FORGET_ORDER = msgspec.json.Decoder(ForgetOrder)
_HOLD_ORDER = msgspec.json.Decoder(HoldOrder)
_HOLD_NAME = msgspec.json.Decoder(HoldName)
_RELEASE_ORDER = msgspec.json.Decoder(ReleaseOrder)
_REMOVAL_ORDER = msgspec.json.Decoder(RemovalOrder)
_RETENTION_ORDER = msgspec.json.Decoder(RetentionOrder)


KEEPING_DOCUMENTS = (
    Meant,
    ForgetOrder,
    HoldOrder,
    HoldName,
    ReleaseOrder,
    Released,
    RemovalOrder,
    RetentionOrder,
    Hold,
)


class Keeping:
    """The operations; those that take long are jobs of `changes`.

    Args:
        changes: of the same repository; it begins jobs, and knows those that were begun.
        read_body: returns the body of a request as a struct.
        answered: returns a document as an answer.
        now_ms: tells the time.
    """

    def __init__(
        self,
        changes: Changes,
        read_body: Callable[[Request, msgspec.json.Decoder[Any]], Any],
        answered: Callable[[object], Response],
        now_ms: Callable[[], int],
    ) -> None:
        self._repository = repository = changes.repository
        self._changes = changes
        self._read_body = read_body
        self._answered = answered
        self._now_ms = now_ms
        self._mask = AttributeMask(repository.settings.query.mask_attributes)

    def operations(self) -> Sequence[ApiOperation]:
        """Return all of them."""
        manage = RouteRight(Scope.MANAGE, Shows.INPUT)
        return (
            ApiOperation("/forget-plans", self.make_forget_plan, Job, manage, "POST", Meant, 202),
            ApiOperation("/forget-plans/{plan}/runs", self.run_forget_plan, Job, manage, "POST", ForgetOrder, 202),
            ApiOperation("/holds", self.hold, Hold, manage, "POST", HoldOrder, 201),
            ApiOperation("/hold-counts", self.count_held, Job, manage, "POST", HoldName, 202),
            ApiOperation("/hold-releases", self.release, Released, manage, "POST", ReleaseOrder),
            ApiOperation("/quarantine/removals", self.remove_quarantined, Job, manage, "POST", RemovalOrder, 202),
            ApiOperation("/retention/runs", self.run_retention, Job, manage, "POST", RetentionOrder, 202),
        )

    async def make_forget_plan(self, request: Request, *, wait: Wait = 0) -> Response:
        """Count the events that would be forgotten, and those of them that are held; as a job that changes nothing."""
        meant: Meant = await self._read_body(request, _MEANT)
        selection = await run_in_threadpool(self._selection, meant)
        check_tombstone(selection.tombstone("", 1, 1))

        def work(on_progress: OnProgress) -> Outcome:
            on_progress(0, None)
            plan = self._repository.plan_forget(selection, meant.writer)
            events = sum(plan.events.values())
            on_progress(events, events)
            result = {"events": events, "writers": plan.events, "held": plan.held, "notices": list(plan.notices)}
            return Outcome({**result, "before": plan.before, "selection": msgspec.to_builtins(selection)})

        return await self._changes.begun(request, wait, JobKind.FORGET_PLAN, "events to forget", "events", work)

    async def run_forget_plan(self, request: Request, plan: str, *, wait: Wait = 0) -> Response:
        """Hide the events of a plan from every answer, if as many are named as it counted; as a job."""
        order: ForgetOrder = await self._read_body(request, _FORGET_ORDER)
        _check_reason(order.reason)
        planned = await run_in_threadpool(self._plan, plan, order.events)
        selection = msgspec.convert(planned["selection"], EventSelection)
        user = self._changes.user_of(request)

        def work(on_progress: OnProgress) -> Outcome:
            on_progress(0, order.events)
            done = self._repository.forget(selection, order.reason, who=user, before=planned["before"])
            # What was selected by may say as much as the events: it goes with them.
            kept = {name: value for name, value in planned.items() if name not in ("selection", "before")}
            self._changes.jobs_of_all.amend(plan, {**kept, "run": True})
            on_progress(order.events, order.events)
            return Outcome({"events": order.events, "tombstones": msgspec.to_builtins(done)})

        return await self._changes.begun(request, wait, JobKind.FORGET, plan, "events", work)

    async def hold(self, request: Request) -> Response:
        """Keep events from retention and compaction, later ones included, until the hold is released."""
        order: HoldOrder = await self._read_body(request, _HOLD_ORDER)
        _check_reason(order.reason)
        _check_name(order.name)
        user = self._changes.user_of(request)

        def held() -> Hold:
            selection = self._selection(order)
            self._repository.hold(
                order.name, selection, order.reason, user, event_types=order.event_types, writer=order.writer
            )
            # As it answers: a hold of this name may have been made elsewhere, with attributes that are masked here.
            return next(one for one in self._repository.answering().holds() if one.name == order.name)

        answer = self._answered(await run_in_threadpool(held))
        answer.status_code = 201
        return answer

    async def count_held(self, request: Request, *, wait: Wait = 0) -> Response:
        """Count the events that a hold keeps, by writer; as a job."""
        asked: HoldName = await self._read_body(request, _HOLD_NAME)
        await run_in_threadpool(self._standing, asked.name)

        def work(on_progress: OnProgress) -> Outcome:
            on_progress(0, None)
            counts = self._repository.count_held(asked.name)
            events = sum(counts.values())
            on_progress(events, events)
            result = {"hold": asked.name, "events": events, "writers": dict(counts), "notices": list(counts.notices)}
            return Outcome(result)

        return await self._changes.begun(request, wait, JobKind.HOLD_COUNT, asked.name, "events", work)

    async def release(self, request: Request) -> Response:
        """End a hold: what should have expired goes with the next retention."""
        order: ReleaseOrder = await self._read_body(request, _RELEASE_ORDER)
        _check_reason(order.reason)
        user = self._changes.user_of(request)
        writers = await run_in_threadpool(self._repository.release, order.name, order.reason, user)
        return self._answered(Released(name=order.name, writers=writers))

    async def remove_quarantined(self, request: Request, *, wait: Wait = 0) -> Response:
        """Remove pieces of the quarantine for good, if they are as many as are named; as a job."""
        order: RemovalOrder = await self._read_body(request, _REMOVAL_ORDER)
        if order.everything == bool(order.keys) or len(order.keys) > KEYS_MAX:
            raise InvalidInputError(f"expected 1 to {KEYS_MAX} keys, or everything.")
        keys = await run_in_threadpool(self._removable, order)

        def work(on_progress: OnProgress) -> Outcome:
            done = 0
            for _, of_body in groupby(keys, body_of):
                on_progress(done, len(keys))
                gone = list(of_body)
                self._repository.quarantine.remove(*gone)
                done += len(gone)
            on_progress(len(keys), len(keys))
            return Outcome({"removed": len(keys), "keys": keys[:LISTED_MAX]})

        subject = f"{len(keys)} pieces"
        return await self._changes.begun(request, wait, JobKind.QUARANTINE_REMOVAL, subject, "pieces", work)

    async def run_retention(self, request: Request, *, wait: Wait = 0) -> Response:
        """Let go what the plan of retention names, if its logs have as many events as are named; as a job."""
        order: RetentionOrder = await self._read_body(request, _RETENTION_ORDER)

        def work(on_progress: OnProgress) -> Outcome:
            on_progress(0, order.events)
            done = self._repository.apply_retention(order.events)
            on_progress(order.events, order.events)
            steps = {name: len(reports) for name, reports in done.steps.items()}
            expired = done.plan.expiring
            result = {"logs": len(expired), "events": order.events, "bytes": sum(log.bytes for log in expired)}
            problem = None if done.plan.problem is None else _limit_not_kept(done.plan.problem)
            return Outcome({**result, "used_bytes": done.plan.after_bytes, "steps": steps}, problem)

        subject = f"{order.events} events"
        return await self._changes.begun(request, wait, JobKind.RETENTION, subject, "events", work)

    def _selection(self, meant: Meant) -> EventSelection:
        """Return what a document means.

        Raises:
            InvalidInputError: it cannot be read, or means every event.
            NotFoundError: there is no such writer.
        """
        if masked := [name for name in meant.attributes if self._mask.hides(name)]:
            # A number of events would tell the values.
            raise InvalidInputError(f"attribute {masked[0][:80]!r}: masked here, and so not to be selected by.")
        if meant.event_ids and meant.writer is None:
            raise InvalidInputError("event_ids: expected a writer with them, because each counts its own.")
        if max(len(meant.event_ids), len(meant.flowfile_uuids), len(meant.attributes)) > KEYS_MAX:
            raise InvalidInputError(f"expected at most {KEYS_MAX} ids, uuids and attributes.")
        if not all(0 <= event_id <= _ID_MAX for event_id in meant.event_ids):
            raise InvalidInputError(f"event_ids: expected numbers from 0 to {_ID_MAX}.")
        known = [one.writer for one in self._repository.workspaces()]
        if meant.writer is not None and (not is_name(meant.writer) or meant.writer not in known):
            raise NotFoundError(f"there is no writer {meant.writer[:80]!r}.")
        now_ms = self._now_ms()
        selection = EventSelection(
            event_ids=meant.event_ids,
            flowfile_uuids=meant.flowfile_uuids,
            attributes=meant.attributes,
            from_ms=0 if meant.since is None else time_span(meant.since, now_ms)[0],
            # The selection ends before its last moment, a time of a query with it.
            to_ms=0 if meant.until is None else time_span(meant.until, now_ms)[1] + 1,
        )
        selection.require_text()
        return selection

    def _plan(self, plan: str, events: int) -> Mapping[str, Any]:
        job = self._changes.jobs_of_all.get(plan)
        if job.kind is not JobKind.FORGET_PLAN or job.state is not JobState.SUCCEEDED or job.result is None:
            raise NotFoundError(f"there is no plan of what to forget {plan[:80]!r}.")
        if "selection" not in job.result:
            raise GoneError("this plan was run, and what it selected by went with its events.")
        if events != job.result["events"]:
            raise ConflictError(f"expected the number of events of the plan, {job.result['events']}, got {events}.")
        if not events:
            raise InvalidInputError("the plan means no event: there is nothing to forget.")
        return job.result

    def _standing(self, name: str) -> None:
        if name not in [one.name for one in self._repository.holds()]:
            raise NotFoundError(f"no hold is called {name[:80]!r}.")

    def _removable(self, order: RemovalOrder) -> list[str]:
        # Not at the top: nothing else of a server needs what the sink imports.
        from custody.ngsi_sink.resubmission import is_removable, require_removable

        room = self._repository.quarantine
        if order.everything:
            entries = [entry for entry in room.entries() if is_removable(entry)]
        else:
            entries = [room.get(key) for key in dict.fromkeys(order.keys)]
            require_removable(entries)
        if len(entries) != order.pieces:
            raise ConflictError(f"expected the number of pieces, {len(entries)}, got {order.pieces}. Look again.")
        return [entry.key for entry in entries]


def _check_reason(reason: str) -> None:
    if not reason.strip() or len(reason) > REASON_CHARACTERS_MAX:
        raise InvalidInputError(f"reason: expected 1 to {REASON_CHARACTERS_MAX} characters; it stays in the catalog.")


def _limit_not_kept(why: str) -> ProblemDocument:
    return ProblemDocument(
        type="/problems/storage", title="The limit cannot be kept", status=507, detail=why, kind="storage"
    )


def _check_name(name: str) -> None:
    if not name.strip() or len(name) > 200:
        raise InvalidInputError("name: expected 1 to 200 characters.")
