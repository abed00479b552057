"""The run of a replay plan: each of its events sends one FlowFile into its queue, once, whoever dies meanwhile.

One transaction of the FlowFile log holds the FlowFiles of some events, their REPLAY events, and how far the plan is by
that. So the three agree after a crash, and whoever runs the plan again goes on behind it: also when the FlowFiles have
left the flow, and their events were forgotten (docs/design/043-replay.md).
"""

from __future__ import annotations

import getpass
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from custody.clock import Clock
from custody.errors import BackpressureError, ConflictError, InvalidInputError, NotFoundError
from custody.flow import FlowFile
from custody.flowfile_repository import REPLAY_DAYS, FlowFileRepository, Placed, Replayed, Work
from custody.model import Event
from custody.replay.refusals import Refusal, RefusalCode
from custody.replay.replay_plan import PlannedReplay, ReplayPlan
from custody.replay.replayed_flowfile import FindContent, Replay, ReplayJudge

BATCH_EVENTS = 200
"""So many events are one transaction: a full queue takes in at most so many more than its bound."""
_SHOWN = 5
_WITHOUT_THEM = "Make a new plan, or run this one without these events: --skip-changed."
_DAY_MS = 24 * 3600 * 1000

ReadEvents = Callable[[str, Sequence[int]], dict[int, Event]]
"""Returns the events of a writer with some ids, by id; those that are gone are left out."""


class ReplayCheck(msgspec.Struct, frozen=True, kw_only=True):
    """What is left to do of a plan, and what of it cannot be done any more."""

    plan: str
    done: int
    """So many events of the plan are done, those that were passed over included."""
    left: int
    """So many events can be replayed now."""
    left_bytes: int
    changed: list[Refusal]
    """Events that could be replayed when the plan was made, and cannot now."""


class ReplayReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a run of a plan did."""

    plan: str
    events: int
    """Of the plan."""
    done_before: int
    """Events that earlier runs had done."""
    replayed: int
    bytes: int
    skipped: list[Refusal]
    queues: dict[str, int]
    """How many FlowFiles of the whole plan each queue is to get."""
    consumers: dict[str, str]
    """The DAG that consumes each of these queues, where one is named."""
    stopped: str | None = None
    """Why not all is done; None when it is."""


@dataclass(frozen=True, slots=True)
class ReplaySources:
    """What a replay reads: events and contents."""

    read_events: ReadEvents
    finder: Callable[[], FindContent]
    """Returns a finder of contents: a new one for each look, as it may still give out what is gone since."""


def check_plan(flowfiles: FlowFileRepository, plan: ReplayPlan, sources: ReplaySources, now_ms: int) -> ReplayCheck:
    """Return what is left of a plan; all that it rests on is looked at.

    Raises:
        InvalidInputError: the plan is of another repository, or too old to be run.
    """
    if plan.repository != flowfiles.id:
        raise InvalidInputError(
            f"replay plan {plan.id}: expected one of the repository {flowfiles.id}, got one of {plan.repository}. "
            "Run it in the repository that it was made in, or make a plan here."
        )
    if now_ms - plan.made_ms >= REPLAY_DAYS * _DAY_MS:
        raise InvalidInputError(
            f"replay plan {plan.id}: expected one of the last {REPLAY_DAYS} days, got an older one. Make a new plan: "
            "how far this one was done is not known any more."
        )
    done = flowfiles.replayed(plan.id)
    judge = _judge(flowfiles, sources.finder)
    changed: list[Refusal] = []
    left = left_bytes = 0
    for chunk in _batches(plan.events, done):
        for item in _judged(chunk, judge, sources.read_events):
            if isinstance(item, Refusal):
                changed.append(item)
            else:
                left += 1
                left_bytes += item.size
    return ReplayCheck(plan=plan.id, done=done, left=left, left_bytes=left_bytes, changed=changed)


def run_plan(
    flowfiles: FlowFileRepository,
    plan: ReplayPlan,
    sources: ReplaySources,
    clock: Clock,
    *,
    user: str,
    skip_changed: bool = False,
    on_progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> ReplayReport:
    """Replay what is left of a plan, each event once.

    A queue that is full stops the run, and the report says so; the plan goes on there when it is run again.

    Durability: what the report names, and what `on_progress` was called for, survives power loss.

    Args:
        flowfiles: the queues.
        plan: of this repository.
        sources: of events and contents.
        clock: tells the time of the replays.
        user: who wants it; the events say so.
        skip_changed: pass over events that cannot be replayed any more, instead of refusing the plan.
        on_progress: called with the number of events that are done, and all of the plan.

    Raises:
        InvalidInputError: the plan is of another repository, or too old to be run.
        ConflictError: something that the plan rests on has changed, or another process runs it too.
        StorageError: the disk refused; run the plan again.
    """
    check = check_plan(flowfiles, plan, sources, clock.now_ms())
    if check.changed and not skip_changed:
        raise _changed(plan, check.changed)
    done, replayed, sent_bytes = check.done, 0, 0
    skipped: list[Refusal] = []
    stopped: str | None = None
    on_progress(done, len(plan.events))
    for chunk in _batches(plan.events, done):
        try:
            sent = _replay_chunk(flowfiles, plan, done, chunk, sources, clock, user, skip_changed=skip_changed)
        except BackpressureError as error:
            stopped = f"{done} of {len(plan.events)} events are done: {error} Run the plan again: it goes on there."
            break
        done += len(chunk)
        replays = [item for item in sent if isinstance(item, Replay)]
        replayed += len(replays)
        sent_bytes += sum(item.size for item in replays)
        skipped += [item for item in sent if isinstance(item, Refusal)]
        on_progress(done, len(plan.events))
    return ReplayReport(
        plan=plan.id,
        events=len(plan.events),
        done_before=check.done,
        replayed=replayed,
        bytes=sent_bytes,
        skipped=skipped,
        queues=plan.queues,
        consumers=_consumers(flowfiles, plan.queues),
        stopped=stopped,
    )


def _replay_chunk(
    flowfiles: FlowFileRepository,
    plan: ReplayPlan,
    done: int,
    chunk: Sequence[PlannedReplay],
    sources: ReplaySources,
    clock: Clock,
    user: str,
    *,
    skip_changed: bool,
) -> list[Replay | Refusal]:
    """Replay some events of a plan in one transaction, `done` ones lie before them; return what became of each.

    What goes between the look at the events and the transaction is looked at again, as far as `skip_changed` lets it:
    so it has a code, and the next run can pass over it.
    """
    progress = Replayed(plan.id, done, done + len(chunk), plan.made_ms)
    refused_before = -1
    while True:
        judged = list(_judged(chunk, _judge(flowfiles, sources.finder), sources.read_events))
        refused = [item for item in judged if isinstance(item, Refusal)]
        if refused and not skip_changed:
            raise _changed(plan, refused)
        uuids = [plan.flowfile_uuid(item) for item in chunk]
        replays = [(item, uuid_) for item, uuid_ in zip(judged, uuids, strict=True) if isinstance(item, Replay)]
        try:
            _send(flowfiles, replays, user, clock.now_ms(), progress)
        except NotFoundError as error:
            # Each turn passes over more than the one before: what is gone stays gone.
            if len(refused) == refused_before:
                raise ConflictError(
                    f"replay plan {plan.id}: {error} {done} of {len(plan.events)} events are done."
                ) from error
            refused_before = len(refused)
        else:
            return judged


def replay_one(
    flowfiles: FlowFileRepository,
    writer: str,
    event: Event,
    finder: Callable[[], FindContent],
    clock: Clock,
    user: str,
) -> FlowFile:
    """Replay one event, each time anew; return the FlowFile that entered the queue.

    Durability: on return FlowFile and REPLAY event survive power loss.

    Raises:
        InvalidInputError, NotFoundError: it cannot be replayed; the message has code and reason.
        BackpressureError: the queue is full.
    """
    judged = _judge(flowfiles, finder).judge(writer, event)
    if isinstance(judged, Refusal):
        raise judged.error()
    try:
        return _send(flowfiles, [(judged, str(uuid.uuid4()))], user, clock.now_ms())[0]
    except NotFoundError as error:
        # It went after the look: a second one names the reason.
        judged = _judge(flowfiles, finder).judge(writer, event)
        raise (judged.error() if isinstance(judged, Refusal) else error) from error


def _send(
    flowfiles: FlowFileRepository,
    replays: Sequence[tuple[Replay, str]],
    user: str,
    now_ms: int,
    progress: Replayed | None = None,
) -> list[FlowFile]:
    """Let FlowFiles enter their queues, with their events and the progress of the plan, in one transaction."""
    sent = [(replay, replay.flowfile(uuid_, now_ms)) for replay, uuid_ in replays]
    flowfiles.commit(
        Work(
            session=uuid.uuid4().hex,
            placed=[Placed(flowfile, replay.queue) for replay, flowfile in sent],
            events=[replay.report(flowfile, user, now_ms) for replay, flowfile in sent],
            replayed=progress,
        )
    )
    return [flowfile for _, flowfile in sent]


def login_name() -> str:
    """Return the name of the user whose process this is."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container may run under a number that has no name
        return "unknown"


def _batches(events: Sequence[PlannedReplay], start: int) -> Iterator[Sequence[PlannedReplay]]:
    for first in range(start, len(events), BATCH_EVENTS):
        yield events[first : first + BATCH_EVENTS]


def _judge(flowfiles: FlowFileRepository, finder: Callable[[], FindContent]) -> ReplayJudge:
    return ReplayJudge({one.name for one in flowfiles.connections()}, finder())


def _judged(chunk: Sequence[PlannedReplay], judge: ReplayJudge, read_events: ReadEvents) -> Iterator[Replay | Refusal]:
    ids: dict[str, list[int]] = {}
    for item in chunk:
        ids.setdefault(item.writer, []).append(item.event_id)
    events = {writer: read_events(writer, wanted) for writer, wanted in ids.items()}
    for item in chunk:
        event = events[item.writer].get(item.event_id)
        if event is None:
            yield Refusal(
                item.writer,
                item.event_id,
                RefusalCode.UNKNOWN_EVENT,
                "it was forgotten, has expired, or cannot be read",
            )
        elif event.flowfile_uuid != item.flowfile_uuid:
            detail = f"under its id there is one of another FlowFile, {event.flowfile_uuid}"
            yield Refusal(item.writer, item.event_id, RefusalCode.UNKNOWN_EVENT, detail)
        else:
            yield judge.judge(item.writer, event)


def _changed(plan: ReplayPlan, changed: Sequence[Refusal]) -> ConflictError:
    shown = " ".join(item.message for item in changed[:_SHOWN])
    more = f" And {len(changed) - _SHOWN} more." if len(changed) > _SHOWN else ""
    error = ConflictError(
        f"replay plan {plan.id}: what it rests on has changed: {len(changed)} of its events cannot be replayed any "
        f"more. {shown}{more} {_WITHOUT_THEM}"
    )
    error.hint = _WITHOUT_THEM
    return error


def _consumers(flowfiles: FlowFileRepository, queues: dict[str, int]) -> dict[str, str]:
    return {
        one.name: one.consumer for one in flowfiles.connections() if one.name in queues and one.consumer is not None
    }
