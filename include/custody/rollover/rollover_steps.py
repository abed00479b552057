"""The steps of a rollover, from sealed journals to live event logs.

| step | unit | reads | writes |
|---|---|---|---|
| rollover | groups | sealed journals | staged unit |
| compress | log | staged unit | event log, table of contents |
| index | log | staged unit | index shard |
| commit | writer | all of the above | one catalog transaction a staged unit |
| checkpoint | writer | catalog | checkpoint |
| sweep | groups | catalog | removes journals and staged unit |

Each step lists its units from disk alone, and each unit can be done again with the same result: an interrupted pass is
continued by the next one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby, islice

from custody import iceberg
from custody.errors import ConflictError, CorruptionError, CustodyError, NotFoundError, StorageError
from custody.journal import Group, begun_ms
from custody.rollover.handing_over import hand_over
from custody.rollover.handing_over_contents import hand_over_contents
from custody.rollover.keeping_filters import keep_filters
from custody.rollover.mending_shards import told_if_damaged
from custody.rollover.merge import merge_unit, plan_units
from custody.rollover.merge_parts import MergePart, discard_parts, divide_unit, join_parts, merge_part
from custody.rollover.publish import (
    build_index,
    commit_actions,
    compress_log,
    live_shard,
    lost_shards,
    old_shards,
    shard_input_bytes,
    waiting_units,
)
from custody.rollover.sweeping import refuse_overlap, sweep_unit, swept_groups
from custody.workspace.run_reports import UnitReport
from custody.workspace.snapshot import look
from custody.workspace.step import Step, Unit
from custody.workspace.workspace import Workspace


class RolloverUnit(Unit, frozen=True):
    """Groups that are merged together, or one part of them."""

    part: MergePart | None = None

    def __str__(self) -> str:
        place = super().__str__()
        return place if self.part is None else f"{place}, part {self.part.number} of {self.part.count}"


class Rollover(Step):
    """Merges sealed groups in event-id order and cuts them into the events of future logs."""

    name = "rollover"
    unit_type = RolloverUnit
    needs_store_only = True

    def prepare(self, workspace: Workspace) -> None:
        """Hand over what lies on the disks of this machine, where contents or groups are handed over."""
        # Contents first: an event that is handed over finds its content, as far as that is not written any more.
        if workspace.hands_contents_over:
            hand_over_contents(workspace)
        if workspace.hands_over:
            for _ in hand_over(workspace):
                pass

    def waiting(self, workspace: Workspace) -> Iterator[Unit]:
        """Sealed groups that are neither merged nor live; small neighbours together."""
        moment = look(workspace)
        # A unit that is published fixes its groups; the rest is planned anew each time.
        staged = {group for manifest in workspace.manifests() for group in manifest.groups}
        handed_over = workspace.handed_over()

        def bytes_of(group: Group) -> int:
            first = group.first_event_id
            # Size -1 keeps a group out of all units, and keeps units from reaching across it.
            if not group.is_sealed or first in staged or workspace.is_committed(moment.state, first):
                return -1
            if workspace.hands_over and first not in handed_over:
                return -1
            return sum(workspace.fs.size(path) for path in group.sealed)

        done = staged | workspace.live_groups(moment.state)
        target = workspace.settings.eventlog.log_bytes_target
        planned = [
            tuple(group.first_event_id for group in groups)
            for _, neighbours in groupby(moment.groups, workspace.incarnation_of_group)  # a log is of one incarnation
            for groups in plan_units(list(neighbours), bytes_of, target, done)
        ]
        merged = [first for first in workspace.staged() if not workspace.is_committed(moment.state, first)]
        places = sorted([*merged, *(firsts[0] for firsts in planned)])
        for firsts in planned:
            yield Unit(workspace.writer, firsts[0], firsts, ahead=places.index(firsts[0]))

    def work_bytes(self, workspace: Workspace, unit: Unit) -> int | None:
        """Return the sizes of the journals, of a part what it reads of them."""
        if isinstance(unit, RolloverUnit) and unit.part is not None:
            return unit.part.range.bytes
        return sum(workspace.fs.size(path) for group in workspace.groups(unit.groups) for path in group.sealed)

    def run(self, workspace: Workspace, unit: Unit) -> UnitReport:
        """Merge the groups of a unit; when another attempt has come further, nothing is left to do.

        Raises:
            StorageError: a container of the writer is missing. It may have journals of these groups, or groups between
                them; what became live without them could not be joined with them later.
        """
        if isinstance(unit, RolloverUnit) and unit.part is not None:
            return merge_part(workspace, str(unit), unit.groups, unit.part)
        groups = self._groups(workspace, unit)
        if groups is None:
            return UnitReport(unit=str(unit), note="rolled over already")
        return merge_unit(workspace, str(unit), groups, ahead=unit.ahead)

    def divide(self, workspace: Workspace, unit: Unit) -> list[Unit]:
        """Return the ranges of a unit with many journals; raises as `run`."""
        groups = self._groups(workspace, unit)
        parts = [] if groups is None else divide_unit(workspace, groups)
        return [RolloverUnit(unit.writer, unit.first_event_id, unit.groups, part=part) for part in parts]

    def join(self, workspace: Workspace, unit: Unit, parts: Sequence[Unit]) -> UnitReport:
        """Publish the unit of which all ranges are merged; raises as `run`."""
        groups = self._groups(workspace, unit)
        if groups is None:
            discard_parts(workspace, _first_of(unit))
            return UnitReport(unit=str(unit), note="rolled over already")
        merged = [part.part for part in parts if isinstance(part, RolloverUnit) and part.part is not None]
        return join_parts(workspace, str(unit), groups, merged, ahead=unit.ahead)

    def _groups(self, workspace: Workspace, unit: Unit) -> list[Group] | None:
        """Return the groups of a unit; None when another attempt has come further. Raises as `run`."""
        firsts = unit.groups or (_first_of(unit),)
        # Listed before the containers are checked: one that goes away in between is noticed by the check.
        groups = workspace.groups(firsts)
        # What was handed over is whole, and everything before it is handed over as well: no container has more of it.
        if not (workspace.hands_over and workspace.handed_over().keys() >= set(firsts)):
            workspace.require_containers()
        state = workspace.catalog.load()
        if len(groups) < len(firsts) or any(workspace.is_committed(state, group) for group in firsts):
            return None
        return groups


class Compress(Step):
    """Writes staged events as event logs with their tables of contents."""

    name = "compress"
    memory_a_byte = 0.5
    needs_store_only = True

    def waiting(self, workspace: Workspace) -> Iterator[Unit]:
        """The logs of staged units that are not live."""
        yield from _staged_logs(workspace)

    def work_bytes(self, workspace: Workspace, unit: Unit) -> int | None:
        """Return the size of the staged events."""
        return _event_bytes(workspace, _first_of(unit))

    def run(self, workspace: Workspace, unit: Unit) -> UnitReport:
        """Write one log; one that is there already from an interrupted run is replaced."""
        return compress_log(workspace, str(unit), _first_of(unit))


class Index(Step):
    """Builds the index shards of logs."""

    name = "index"
    memory_a_byte = 1.5
    needs_store_only = True

    def waiting(self, workspace: Workspace) -> Iterator[Unit]:
        """The logs of staged units that are not live, live logs whose shard is gone, and some whose shard is old."""
        yield from _staged_logs(workspace)
        yield from (Unit(workspace.writer, first) for first in lost_shards(workspace))
        # A few in each pass: after a change of the indexed fields, all shards are old, and a pass must not take hours.
        some = islice(old_shards(workspace), workspace.settings.index.backfill_shards_max)
        yield from (Unit(workspace.writer, first) for first in some)

    def work_bytes(self, workspace: Workspace, unit: Unit) -> int | None:
        """Return the size of the events, staged or live."""
        return _event_bytes(workspace, _first_of(unit))

    def run(self, workspace: Workspace, unit: Unit) -> UnitReport:
        """Build one shard; a whole one from an interrupted run is kept.

        Of a live one that is gone or damaged the catalog tells first; the first build of a shard is no repair.
        """
        first = _first_of(unit)
        live = live_shard(workspace, first)
        if live is None:
            return build_index(workspace, str(unit), first)
        with told_if_damaged(workspace, live, "step index"):
            return build_index(workspace, str(unit), first, live)


class Commit(Step):
    """Makes a writer's staged units live, each with all its logs in one transaction."""

    name = "commit"

    def waiting(self, workspace: Workspace) -> Iterator[Unit]:
        """Writers with staged units that are not live, or whose Iceberg table is to be published and is behind."""
        if any(waiting_units(workspace)) or iceberg.is_behind(workspace):
            yield Unit(workspace.writer)

    def work_bytes(self, workspace: Workspace, unit: Unit) -> int | None:
        """Return 0: a transaction describes files."""
        return 0

    def run(self, workspace: Workspace, unit: Unit) -> UnitReport:
        """Commit all units whose logs, tables of contents and shards are there; one that is not whole stops no other.

        Raises:
            NotFoundError, CorruptionError, StorageError: a unit could not be committed; the others are.
            ConflictError: the ids of a unit are those of other events that are live; its journals stay. Or another
                program wrote into the writer's Iceberg table.
            ConfigurationError: the table is to be published, and pyiceberg is not installed.
        """
        events = size = 0
        revisions: list[int] = []
        failure: CustodyError | None = None
        units = list(waiting_units(workspace))
        # The first group of a unit is its oldest: only that one needs a look.
        groups = {group.first_event_id: group for group in workspace.groups([unit.first_group for unit in units])}
        for manifest in units:
            try:
                actions, unit_bytes = commit_actions(workspace, manifest)
            # A unit that is not whole stops no other: the error is raised when all are done.
            except (NotFoundError, CorruptionError, StorageError) as error:
                failure = failure or error
                continue
            # Late, so that an attempt that lost its lease while it read the files stops here.
            workspace.check()
            next_event_id = manifest.logs[-1].last_event_id + 1
            try:
                state = workspace.catalog.commit(
                    actions,
                    next_event_id=next_event_id,
                    # The id comes from the groups, so that a repeated commit of the same unit changes nothing. The
                    # check runs for each state that the transaction would follow: two writers of one name cannot both
                    # become live.
                    attempt=manifest.transaction,
                    check=partial(refuse_overlap, workspace, manifest),
                    waiting_since_ms=_begun_ms(workspace, groups.get(manifest.first_group)),
                )
            except ConflictError as error:
                failure = failure or error
                continue
            revisions.append(state.revision)
            events += sum(log.rows for log in manifest.logs)
            size += unit_bytes
        # What is live is live, whatever becomes of the table: the next pass finds that it is behind.
        published = iceberg.publish(workspace) if iceberg.is_behind(workspace) else None
        if failure is not None:
            raise failure
        if not revisions:
            note = "committed already" if published is None else f"Iceberg table of revision {published.revision}"
            return UnitReport(unit=str(unit), note=note)
        return UnitReport(
            unit=str(unit),
            events=events,
            bytes_in=size,
            bytes=size,
            note=f"revision {', '.join(map(str, revisions))}",
        )


def _begun_ms(workspace: Workspace, group: Group | None) -> int:
    """Return when the journals of a group were begun; 0 where they are gone."""
    return 0 if group is None else begun_ms(workspace.fs, (*group.sealed, *group.open)) or 0


class Checkpoint(Step):
    """Writes a checkpoint of the catalog when one is due, and the filters of shards that came since into one file."""

    name = "checkpoint"

    def waiting(self, workspace: Workspace) -> Iterator[Unit]:
        """Writers whose newest checkpoint is too far behind."""
        if workspace.catalog.checkpoint_due(workspace.settings.catalog.checkpoint_every):
            yield Unit(workspace.writer)

    def work_bytes(self, workspace: Workspace, unit: Unit) -> int | None:
        """Return 0: a checkpoint is of the catalog."""
        return 0

    def run(self, workspace: Workspace, unit: Unit) -> UnitReport:
        """Write and verify a checkpoint, and write a file of filters if there are enough."""
        written = workspace.catalog.write_checkpoint()
        note = written.key.rpartition("/")[2]
        if shards := keep_filters(workspace):
            note += f", filters of {shards} shards"
        return UnitReport(unit=str(unit), bytes=written.size_bytes, note=note)


class Sweep(Step):
    """Removes the journals and the staged units of groups that are live, or that hold no event."""

    name = "sweep"

    def waiting(self, workspace: Workspace) -> Iterator[Unit]:
        """Groups that are done and still have journals or a staged unit, and removals that were interrupted."""
        done = list(swept_groups(workspace))
        yield from (Unit(workspace.writer, groups[0], groups) for groups in done)
        # Every sweep removes leftovers. They are a unit of their own only where there is no other.
        if not done and workspace.leftovers():
            yield Unit(workspace.writer)

    def work_bytes(self, workspace: Workspace, unit: Unit) -> int | None:
        """Return 0: files are removed, and not read."""
        return 0

    def run(self, workspace: Workspace, unit: Unit) -> UnitReport:
        """Remove journals first: a staged unit without journals is still found and swept."""
        return sweep_unit(workspace, str(unit), unit.groups)


STEPS: Mapping[str, Step] = {
    step.name: step for step in (Rollover(), Compress(), Index(), Commit(), Checkpoint(), Sweep())
}
"""The steps of a rollover by name, in the order of a pass; `custody.recovery.STEPS` are all steps of a pass."""


def _staged_logs(workspace: Workspace) -> Iterator[Unit]:
    for manifest in waiting_units(workspace):
        yield from (Unit(workspace.writer, log.first_event_id) for log in manifest.logs)


def _event_bytes(workspace: Workspace, first_event_id: int) -> int | None:
    """Return the size of the log that begins with an event, staged or live; None where neither is there."""
    for manifest in workspace.manifests([first_event_id]):
        for log in manifest.logs:
            if log.first_event_id == first_event_id:
                return log.file_bytes
    state = workspace.catalog.load()
    shards = (shard for shard in state.shards.values() if shard.first_event_id == first_event_id)
    return next((shard_input_bytes(state, shard) for shard in shards), None)


def _first_of(unit: Unit) -> int:
    if unit.first_event_id is None:
        raise ValueError(f"unit {unit} names no group")
    return unit.first_event_id
