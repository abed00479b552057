"""The plan of a replay: which events are sent again, which are not and why, and what that rests on.

Layout (docs/formats/replay-plan.md): preamble, one record with its checksum. A plan is a file that people keep, look at
and hand on; how far it is done stands in the log of the FlowFile repository, under the plan's id.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from custody.errors import ConfigurationError
from custody.format.framing import DocumentFormat
from custody.model import Event
from custody.model.masking import AttributeMask
from custody.replay.refusals import Refusal, RefusalCode
from custody.replay.replayed_flowfile import ReplayJudge
from custody.vfs import FileSystem

PREAMBLE = b"CUSTRPL\x01"
KIND_PLAN = 1
_NO_MASK = AttributeMask()


class PlannedReplay(msgspec.Struct, frozen=True, array_like=True):
    """An event that is to be replayed."""

    writer: str
    event_id: int
    flowfile_uuid: str
    """Of the event: another one under the same id is not what was planned."""
    queue: str
    bytes: int
    """Length of the content that is sent again."""


class ReplayPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The plan of a replay; times in ms since the epoch."""

    id: str
    repository: str
    """The id of the FlowFile repository that it is for."""
    made_ms: int
    revisions: dict[str, int]
    """The catalog's revision of each writer when the plan was made."""
    query: str = ""
    as_of: str | None = None
    events: list[PlannedReplay] = []
    """In the order in which they are replayed."""
    refused: list[Refusal] = []
    notices: list[str] = []
    """What could not be read when the plan was made: it may hold more events that the query means."""
    visibility: str | None = None
    """What whoever made it might see, as `Visibility.key`; None for every event."""

    @property
    def bytes(self) -> int:
        """Length of all contents that are sent again."""
        return sum(item.bytes for item in self.events)

    @property
    def queues(self) -> dict[str, int]:
        """How many FlowFiles enter each queue."""
        return dict(Counter(item.queue for item in self.events))

    @property
    def refused_by_code(self) -> dict[RefusalCode, int]:
        """How many events cannot be replayed, by reason."""
        counts = Counter(item.code for item in self.refused)
        return {code: counts[code] for code in RefusalCode if code in counts}

    def flowfile_uuid(self, planned: PlannedReplay) -> str:
        """Return the uuid of the FlowFile that an event of the plan sends: the same one in each run of the plan."""
        return str(uuid.uuid5(uuid.UUID(self.id), f"{planned.writer}/{planned.event_id}"))


FORMAT = DocumentFormat(
    PREAMBLE,
    KIND_PLAN,
    msgspec.json.Decoder(ReplayPlan),
    name="replay plan",
    content="a replay plan",
    remedy="Make the plan again: `custody replay plan`.",
)


FoundEvent = tuple[str, int, Event | None]
"""A writer, an id, and the event if it can be had today."""


def make_plan(
    found: Iterable[FoundEvent],
    judge: ReplayJudge,
    *,
    repository: str,
    revisions: Mapping[str, int],
    now_ms: int,
    mask: AttributeMask = _NO_MASK,
) -> ReplayPlan:
    """Return the plan for some events; those that cannot be replayed are named in it.

    Whether an event repeats another one is decided by what its reader may see of both (`mask`): else who may append
    events could guess a masked value, and the plan would say whether the guess is right.
    """
    events: list[PlannedReplay] = []
    refused: list[Refusal] = []
    for item in _judged(found, judge, mask):
        if isinstance(item, Refusal):
            refused.append(item)
        else:
            events.append(item)
    return ReplayPlan(
        id=uuid.uuid4().hex,
        repository=repository,
        made_ms=now_ms,
        revisions=dict(revisions),
        events=events,
        refused=refused,
    )


def _judged(found: Iterable[FoundEvent], judge: ReplayJudge, mask: AttributeMask) -> Iterator[PlannedReplay | Refusal]:
    seen: dict[bytes, str] = {}
    for writer, event_id, event in found:
        if event is None:
            yield Refusal(writer, event_id, RefusalCode.UNKNOWN_EVENT, "it was never stored here, or is forgotten")
            continue
        judged = judge.judge(writer, event)
        if isinstance(judged, Refusal):
            yield judged
            continue
        # By digest: of a million events the attributes of all would have to be kept.
        digest = judged.digest(mask)
        if digest in seen:
            yield Refusal(writer, event_id, RefusalCode.REPEATED, seen[digest])
            continue
        seen[digest] = f"event {writer}/{event_id}"
        yield PlannedReplay(writer, event_id, event.flowfile_uuid, judged.queue, judged.size)


def save_plan(fs: FileSystem, path: Path, plan: ReplayPlan) -> None:
    """Write a plan to a new file.

    Durability: on return the plan survives power loss.

    Raises:
        ConfigurationError: there is a file of that name.
    """
    if fs.exists(path):
        raise ConfigurationError(f"{path}: expected the name of a new file, found one that exists. Name another one.")
    fs.write_durably(path, FORMAT.encode(plan))


def read_plan(fs: FileSystem, path: Path) -> ReplayPlan:
    """Return the plan of a file.

    Raises:
        StorageError: it cannot be read.
        CorruptionError: it is damaged, or no plan.
        FormatVersionError: it was written by a newer custody.
    """
    return FORMAT.decode(fs.read(path), path)
