"""What programs are shown of replays, on the command line and by the API: plans, what is left of them, and runs."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from custody.made_types import made_at_import
from custody.replay.refusals import Refusal, RefusalCode
from custody.replay.replay_plan import ReplayPlan
from custody.replay.replay_run import ReplayCheck, ReplayReport


class RefusedReplay(msgspec.Struct, frozen=True, kw_only=True):
    """An event that cannot be replayed; its code is for programs, its message says what to do."""

    writer: str
    event_id: int
    code: RefusalCode
    message: str


made_at_import(RefusedReplay)


class PlanOverview(msgspec.Struct, frozen=True, kw_only=True):
    """A replay plan: how much it sends again, and what it does not and why; times in ms since the epoch."""

    id: str
    repository: str
    made_ms: int
    revisions: dict[str, int]
    query: str
    as_of: str | None
    events: int
    bytes: int
    queues: dict[str, int]
    refused_by_code: dict[RefusalCode, int]
    refused: list[RefusedReplay]
    notices: list[str]


class CheckOverview(msgspec.Struct, frozen=True, kw_only=True):
    """What is left of a replay plan, and what of it cannot be done any more."""

    plan: str
    done: int
    left: int
    left_bytes: int
    changed: list[RefusedReplay]


class ReplayOverview(msgspec.Struct, frozen=True, kw_only=True):
    """What a run of a replay plan did; `stopped` says why not all is done."""

    plan: str
    events: int
    done_before: int
    replayed: int
    bytes: int
    skipped: list[RefusedReplay]
    queues: dict[str, int]
    consumers: dict[str, str]
    stopped: str | None


def plan_overview(plan: ReplayPlan, refused_max: int | None = None) -> PlanOverview:
    """Return what is shown of a plan, with at most `refused_max` of the events that cannot be replayed."""
    return PlanOverview(
        id=plan.id,
        repository=plan.repository,
        made_ms=plan.made_ms,
        revisions=plan.revisions,
        query=plan.query,
        as_of=plan.as_of,
        events=len(plan.events),
        bytes=plan.bytes,
        queues=plan.queues,
        refused_by_code=plan.refused_by_code,
        refused=_shown(plan.refused[:refused_max]),
        notices=plan.notices,
    )


def check_overview(plan: ReplayPlan, check: ReplayCheck, changed_max: int | None = None) -> CheckOverview:
    """Return what is shown of a look at a plan, with at most `changed_max` of the events that changed."""
    return CheckOverview(
        plan=plan.id,
        done=check.done,
        left=check.left,
        left_bytes=check.left_bytes,
        changed=_shown(check.changed[:changed_max]),
    )


def replay_overview(report: ReplayReport, skipped_max: int | None = None) -> ReplayOverview:
    """Return what is shown of a run, with at most `skipped_max` of the events that it passed over."""
    return ReplayOverview(
        plan=report.plan,
        events=report.events,
        done_before=report.done_before,
        replayed=report.replayed,
        bytes=report.bytes,
        skipped=_shown(report.skipped[:skipped_max]),
        queues=report.queues,
        consumers=report.consumers,
        stopped=report.stopped,
    )


def _shown(refused: Sequence[Refusal]) -> list[RefusedReplay]:
    return msgspec.convert([one.document() for one in refused], list[RefusedReplay])
