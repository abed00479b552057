"""The whole chain, from sealed journals to what retention deletes, and all that a repository answers afterwards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from custody.config import Settings
from custody.lease import Attempt, Lease
from custody.model import Event
from custody.recovery import STEPS, find_leftovers
from custody.repository import Repository
from custody.retention import RETENTION_STEPS
from custody.vfs import FileSystem
from custody.workspace import ROLLOVER_LEASE, Step, Workspace, take_lease, take_rollover

QUESTIONS = (
    "",
    "event_type:CREATE",
    "component_type:generate*",
    "flowfile_uuid:00000000-0000-4000-8000-000000000003",
    "file_size:[101 TO 104]",
    "NOT source_node:node-2",
    "details:text",
)
CHAIN: tuple[Step, ...] = (
    *STEPS.values(),
    *(step for name, step in RETENTION_STEPS.items() if name not in ("retention_plan", "retention_check")),
)
"""Every step that changes anything, in the order of a pass of the rollover and a pass of retention."""


@dataclass(frozen=True)
class Answers:
    """All that can be asked: events in sequence, what searches find, and what of it is live and how."""

    events: tuple[Event, ...]
    found: dict[str, tuple[int, tuple[int, ...]]]
    facets: dict[str, dict[str, int]]
    logs: tuple[tuple[str, int], ...]
    shards: tuple[tuple[str, int], ...]
    holds: tuple[str, ...]
    waiting: int
    left_over: tuple[tuple[str, str], ...]


def answers(repository: Repository) -> Answers:
    """Ask everything, of a process that has just started."""
    workspace = repository.workspace()
    state = workspace.catalog.load()
    results = {text: repository.search(text, limit=1000) for text in QUESTIONS}
    assert not any(result.notices for result in results.values()), results
    counts, _ = repository.facets("", ["event_type", "day"])
    return Answers(
        events=tuple(repository.events(count=1000)),
        found={
            text: (result.total, tuple(stored.event.event_id for stored in result.events))
            for text, result in results.items()
        },
        facets={name: dict(counter) for name, counter in counts.items()},
        logs=tuple((path, file.rows) for path, file in sorted(state.files.items())),
        shards=tuple((name, shard.documents) for name, shard in sorted(state.shards.items())),
        holds=tuple(sorted(state.holds)),
        waiting=len(workspace.groups()) + len(workspace.staged()),
        left_over=tuple((item.path, item.what) for item in find_leftovers(workspace)),
    )


def run_chain(settings: Settings, fs: FileSystem, on_step: Callable[[str], None] = lambda _: None) -> None:
    """Do every step as its job does: units from disk, under the lease of the writer."""
    for step in CHAIN:
        on_step(step.name)
        for writer in sorted({unit.writer for unit in step.units(settings, fs)}):
            lease = _take(settings, fs, writer, step.lease)
            workspace = Workspace(settings, writer, fs, lease=lease)
            for unit in step.units(settings, fs):
                if unit.writer == writer:
                    step.run(workspace, unit)
            lease.release(recovered=step.name == "recover")


def _take(settings: Settings, fs: FileSystem, writer: str, name: str | None) -> Lease:
    attempt = Attempt.new("chain")
    if name == ROLLOVER_LEASE:
        return take_rollover(settings, writer, attempt, fs=fs)
    assert name is not None, "a step that changes anything has a lease"
    return take_lease(settings, writer, attempt, name, fs=fs)
