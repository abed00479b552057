"""The archive takes up retired writers: their live events are written anew as its own, and one transaction says so.

The archive is a writer without journals: its name is claimed for nobody, so no process appends under it, and its ids
are given out here alone. Event N of a retired writer becomes event `base` + N of the archive, and `base` is in the
transaction (`Absorb.first_event_id`): a reference to an event can be followed for ever.

Each log is written anew by a unit of its own, in parallel, on any machine that has the store. Names and bytes of the
new files follow from what is read: an attempt that is repeated finds what is there. A unit gives back the entries of
its files, so that who commits reads no log. Nobody lists these files until the last one is written. Then the one
transaction lists them all, with `Absorb`: from there on readers pass over the retired writer. Its own files stay.

What is forgotten is left out, and the keys of it go along, so that no ingest brings it back. Holds and known losses
go along with their ids moved.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from custody.catalog import (
    Action,
    AddFile,
    AddHold,
    AddLoss,
    AddShard,
    AddTombstone,
    CatalogState,
    Condition,
    SourceKeys,
    absorb,
    columns_needed,
    is_remnant,
    matching_rows,
    merged_remnant,
    visible,
)
from custody.clock import Clock
from custody.config import Settings
from custody.errors import ConfigurationError, ConflictError, NotFoundError
from custody.eventlog import EventLog, LogMetadata, write_log
from custody.format.names import attempt_suffix, shard_container
from custody.index import build_shard
from custody.journal import ARCHIVE, purpose_of
from custody.maintenance.rewriting import (
    RewriteSurvey,
    erasable,
    hold_conditions,
    holds_for,
    new_log_metadata,
    open_event_log,
    survey_logs,
    tombstones_for,
)
from custody.model import require_keeping
from custody.rollover import add_file, add_shard, check_stored_log, clear_log, leave_to_the_store
from custody.vfs import FileSystem
from custody.workspace import LogFiles, Workspace, look

# Part of names on disk: a repeated attempt has to find the files of the one before.
_NAMESPACE = uuid.UUID("5f6f0d1a-0a55-4d0b-8f1e-2b6a4f3c9d10")


@dataclass(frozen=True, slots=True)
class Absorption:
    """A retired writer that the archive takes up: event N becomes event `base` + N."""

    retired: Workspace
    state: CatalogState
    base: int

    @property
    def next_event_id(self) -> int:
        """One more than the greatest id that the archive gives out for it."""
        last = max((file.last_event_id for file in self.state.files.values()), default=-1)
        return self.base + max(self.state.next_event_id, last + 1)


class AbsorbedWriter(msgspec.Struct, frozen=True, kw_only=True):
    """What the archive took up: how many events and logs, and as which revision."""

    writer: str
    archive: str
    first_event_id: int
    events: int
    logs: int
    revision: int


def archive_of(workspaces: Sequence[Workspace]) -> Workspace | None:
    """Return the archive among the writers of a repository, None where there is none.

    Raises:
        ConfigurationError: there are several.
    """
    archives = [item for item in workspaces if purpose_of(item.incarnations.readable_claims()) == ARCHIVE]
    if len(archives) > 1:
        raise ConfigurationError(f"expected one archive, got {', '.join(item.writer for item in archives)}.")
    return archives[0] if archives else None


def open_archive(settings: Settings, name: str, fs: FileSystem, clock: Clock) -> Workspace:
    """Return the archive, whose name is claimed for nobody if it is not yet.

    Durability: on return no process can append under the name, also after a power loss.

    Raises:
        ConfigurationError: another writer is the archive, or the name is that of a writer with events.
    """
    workspaces = Workspace.all(settings, fs, clock)
    archive = archive_of(workspaces)
    if archive is not None:
        if archive.writer != name:
            raise ConfigurationError(f"archive: expected {archive.writer!r}, which is the archive here, got {name!r}.")
        return archive
    # A folder alone is no writer: a crash before the claim leaves it.
    taken = {item.writer for item in workspaces if item.incarnations.claims() or item.state().revision >= 0}
    if name in settings.repository.slots or name in taken:
        raise ConfigurationError(f"archive: expected a name that no writer has or may take, got {name!r}.")
    workspace = Workspace(settings, name, fs, clock)
    workspace.incarnations.claim_for_nobody(ARCHIVE, "takes up the events of retired writers", 0, clock)
    return workspace


def plan_absorptions(archive: Workspace, workspaces: Sequence[Workspace]) -> list[Absorption]:
    """Return the retired writers that the archive has not taken up, by name, each with ids of its own."""
    state = archive.state()
    base, planned = state.next_event_id, []
    for item in sorted(workspaces, key=lambda each: each.writer):
        retired = item.state()
        # A catalog that was made anew under an absorbed name is refused when it is committed.
        if retired.seal is None or f"{item.writer}/{item.database}" in state.absorbed:
            continue
        planned.append(Absorption(item, retired, base))
        base = planned[-1].next_event_id
    return planned


def absorption_of(archive: Workspace, writer: str, base: int) -> Absorption | None:
    """Return what `plan_absorptions` planned of one writer, with its first id; None where it is taken up by now.

    No other catalog is read than that of the writer and the archive.

    Raises:
        ConflictError: others gave out ids since: then the files would have other names.
    """
    retired, state = Workspace(archive.settings, writer, archive.fs, archive.clock), archive.state()
    found = retired.state()
    if found.seal is None or f"{writer}/{retired.database}" in state.absorbed:
        return None
    if state.next_event_id > base:
        raise ConflictError(f"archive {archive.writer!r}: its ids went on since. Run the step again.")
    return Absorption(retired, found, base)


def absorb_log(archive: Workspace, absorption: Absorption, path: str) -> list[Action]:
    """Write a live log of a retired writer, and its shard, as files of the archive.

    Returns:
        What the transaction says of them: the log and its shard, unless nothing of it stays, and the keys of what is
        forgotten, if there are any.

    Durability: on return the files survive power loss, those of an object store in the store; nothing lists them yet.
    Done again, it writes the same files.

    Raises:
        CorruptionError, NotFoundError: the log is damaged or gone.
        ConflictError: an event of it is forgotten and held.
        StorageError: the store or a disk refuses.
    """
    file = absorption.state.files[path]
    require_keeping(file.schema_version, file.path)
    holds = hold_conditions(absorption.retired)
    metadata, survey = _described(archive, absorption, file, holds)
    actions = [Action(add_tombstone=AddTombstone(erased=survey.keys))] if survey.keys else []
    if metadata is None:
        return actions
    files = _new_files(archive, metadata)

    def events() -> Iterator[pa.Table]:
        return (_moved(table, absorption.base) for table in _remaining(absorption, file, holds))

    def written() -> AddFile:
        write_log(archive.fs, files.log, events, metadata, archive.log_options)
        return add_file(archive, files, metadata, survey.sources)

    try:
        entry = written()
    except ConflictError:
        # The store has the log of an attempt with other settings, which no revision lists. Two logs that were written
        # by the same settings are equal.
        clear_log(archive, files, events, is_listed=False)
        entry = written()
    log, index = EventLog(archive.fs, files.log), archive.settings.index
    # A shard that has its name is whole: an earlier attempt built it from the same log.
    if not archive.fs.list(files.shard):
        build_shard(
            archive.fs,
            files.shard,
            log.tables(range(len(log.toc.blocks))),
            index.attributes,
            standard=index.fields,
            ranges=index.ranges,
            layout=index.layout,
            attribute_characters=archive.settings.query.attribute_characters_max,
        )
    shard = add_shard(archive, files, metadata)
    leave_to_the_store(archive, files.shard)
    return [Action(add_file=entry), Action(add_shard=shard), *actions]


def commit_absorption(
    archive: Workspace, absorption: Absorption, absorbed: Mapping[str, Sequence[Action]]
) -> AbsorbedWriter:
    """List the files of a retired writer's logs in one transaction.

    Args:
        absorbed: by the path of each live log of the writer what `absorb_log` gave.

    Durability: on return the transaction survives power loss.

    Raises:
        NotFoundError, CorruptionError: a file is not there, or is another one: absorb the log again.
        ConflictError: the writer has journals that wait, or others gave out these ids meanwhile: nothing was changed.
    """
    retired, state, base = absorption.retired, absorption.state, absorption.base
    waiting = look(retired).waiting
    if waiting:
        raise ConflictError(
            f"writer {retired.writer!r}: expected nothing that waits, got {len(waiting)} groups of journals. Give "
            "them a writer of their own first: custody recover --adopt"
        )
    if absorbed.keys() != state.files.keys():
        raise ConflictError(
            f"writer {retired.writer!r}: expected all of its logs, got others. Absorb the writer again."
        )
    everything = [action for path in sorted(absorbed) for action in absorbed[path]]
    actions = [action for action in everything if not action.HasField("add_tombstone")]
    keys = [keys for action in everything for keys in action.add_tombstone.erased]
    rows = logs = 0
    for action in actions:
        if action.HasField("add_file"):
            check_stored_log(archive, action.add_file, action.add_file.path, "absorb")
            rows, logs = rows + action.add_file.rows, logs + 1
        else:
            _require_shard(archive, action.add_shard)

    def require_free_ids(newest: CatalogState) -> None:
        if newest.next_event_id > base:
            raise ConflictError(
                f"archive {archive.writer!r}: expected ids from {base} on to be free, others gave out ids up to "
                f"{newest.next_event_id - 1}. Absorb the writer again."
            )

    actions += _going_along(archive, absorption, keys)
    after = absorb(
        archive.catalog,
        retired.catalog,
        actions,
        next_event_id=absorption.next_event_id,
        first_event_id=base,
        check=require_free_ids,
    )
    return AbsorbedWriter(
        writer=retired.writer,
        archive=archive.writer,
        first_event_id=base,
        events=rows,
        logs=logs,
        revision=after.revision,
    )


def _require_shard(archive: Workspace, shard: AddShard) -> None:
    """Check that a shard is there, and give it the container in which this machine would have it.

    Who built it may be on a machine with other containers.

    Raises:
        NotFoundError: it is not.
    """
    containers = archive.settings.repository.containers
    shard.container = str(containers[shard_container(shard.first_event_id, len(containers))])
    if archive.settings.is_store_remote:
        archive.shard_objects.require(shard.name)
    elif not archive.fs.list(archive.shard_path(shard)):
        raise NotFoundError(f"index shard {archive.shard_path(shard)} is missing. Run the step absorb again.")


def _described(
    archive: Workspace, absorption: Absorption, file: AddFile, holds: Mapping[str, Condition]
) -> tuple[LogMetadata | None, RewriteSurvey]:
    """Return what the new log of a log says of itself, None for no events; few columns are read."""
    _require_not_held(absorption, file, holds)
    survey = survey_logs(absorption.retired, absorption.state, [file], holds)
    if not survey.rows:
        return None, survey
    base = absorption.base
    # Of the end of the retired writer, of the log and of its ids: another end, or other ids, are other files.
    name = f"{absorption.state.digest.hex()}:{file.path}:{base}"
    metadata = new_log_metadata(absorption.retired, [file], survey, uuid.uuid5(_NAMESPACE, name), 0)
    return msgspec.structs.replace(
        metadata,
        writer=archive.writer,
        first_event_id=metadata.first_event_id + base,
        last_event_id=metadata.last_event_id + base,
        groups=tuple(group + base for group in metadata.groups),
        # Not known to all attempts: the bytes of the log would depend on who wrote it.
        revision=msgspec.UNSET,
    ), survey


def _new_files(archive: Workspace, metadata: LogMetadata) -> LogFiles:
    return archive.files(metadata, attempt_suffix(metadata.transaction))


def _remaining(absorption: Absorption, file: AddFile, holds: Mapping[str, Condition]) -> Iterator[pa.Table]:
    stones, held = tombstones_for(absorption.state, file), holds_for(holds, file)
    log = open_event_log(absorption.retired, file)
    for table in log.tables(range(len(log.toc.blocks))):
        yield table.filter(pc.invert(erasable(stones, held, table))) if stones else table


def _moved(table: pa.Table, base: int) -> pa.Table:
    place = table.schema.get_field_index("event_id")
    ids = pc.add(table.column(place), base)
    return table.set_column(place, table.schema.field(place), ids)


def _require_not_held(absorption: Absorption, file: AddFile, holds: Mapping[str, Condition]) -> None:
    """Raise ConflictError when an event of a log is both forgotten and held.

    It may neither go nor be given out, and the archive has no tombstone that would hide it there.
    """
    stones, held = tombstones_for(absorption.state, file), holds_for(holds, file)
    if not stones or not held:
        return
    log = open_event_log(absorption.retired, file)
    columns = sorted({"event_id", *columns_needed([*stones, *held])})
    for table in log.tables(range(len(log.toc.blocks)), columns):
        if pc.any(pc.and_not(matching_rows(held, table), visible(stones, table))).as_py():
            names = ", ".join(sorted(holds))
            raise ConflictError(
                f"writer {absorption.retired.writer!r}: events of {file.path} are forgotten, and holds keep them: "
                f"{names}. Release the hold, or take the tombstone back, then absorb the writer."
            )


def _going_along(archive: Workspace, absorption: Absorption, keys: Sequence[SourceKeys]) -> Iterator[Action]:
    """Yield what counts for the events wherever they lie: erased keys, holds, known losses."""
    state, base = absorption.state, absorption.base
    erased = [each for stone in state.tombstones.values() if is_remnant(stone) for each in stone.erased]
    erased += keys
    if erased:
        yield Action(add_tombstone=merged_remnant([AddTombstone(erased=erased)], archive.clock.now_ms()))
    present = archive.state().holds
    for name, hold in sorted(state.holds.items()):
        moved = AddHold()
        moved.CopyFrom(hold)
        del moved.condition.event_ids[:]
        moved.condition.event_ids.extend(number + base for number in hold.condition.event_ids)
        if hold.condition.before_event_id:
            moved.condition.before_event_id = hold.condition.before_event_id + base
        if name in present and present[name].condition != moved.condition:
            raise ConflictError(
                f"hold {name!r}: the archive {archive.writer!r} has another one of this name. Release one of them."
            )
        if name not in present:
            yield Action(add_hold=moved)
    for loss in state.losses.values():
        moved_loss = AddLoss()
        moved_loss.CopyFrom(loss)
        del moved_loss.firsts[:]
        moved_loss.firsts.extend(number + base for number in loss.firsts)
        moved_loss.path = ""
        yield Action(add_loss=moved_loss)
