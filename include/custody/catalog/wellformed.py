"""The rules that every message of the catalog keeps by itself, whatever state it meets.

The same rules hold at both ends: a message that breaks one is refused when it is committed, and is damage when it is
read, as a checksum proves only that the bytes are those that somebody wrote. Bounds are those of the code that reads
the fields later: numbers go through signed 64-bit columns, names become keys of a store or folders.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from google.protobuf.message import DecodeError

from custody.catalog.tombstones import check_hold, check_tombstone
from custody.catalog.transaction_pb2 import (
    Absorb,
    Action,
    AddFile,
    AddLoss,
    AddMark,
    AddShard,
    AddTombstone,
    FileStatistics,
    Note,
    Prune,
    Transaction,
)
from custody.errors import CorruptionError, FormatVersionError, InvalidInputError
from custody.format.names import is_name, parse_event_log
from custody.store import check_key

_UUID_BYTES = 16
_DIGEST_BYTES = 32
_DIGEST_SIZES = (0, _DIGEST_BYTES)
_FILE_NUMBERS = ("size_bytes", "rows", "schema_version", "first_event_id", "last_event_id", "footer_bytes")
_FILE_DIGESTS = ("sha256", "toc_sha256", "schema_fingerprint")
# Arrow columns and numpy arrays of these numbers are signed 64-bit.
_NUMBER_MAX = (1 << 63) - 1


def check_action(action: Action) -> None:
    """Raise InvalidInputError, which names the field, for an action that makes no sense in any state."""
    _check_kind(action, action.WhichOneof("kind") or "")


def _check_kind(action: Action, kind: str) -> None:
    check = _CHECKS.get(kind)
    if check is not None:
        check(getattr(action, kind))


def check_file(file: AddFile) -> AddFile:
    """Return an entry of a file whose path, bounds and digests make sense; raises InvalidInputError."""
    check_key(file.path)
    toc_path = file.toc_path
    if toc_path:
        check_key(toc_path)
    where = f"file {file.path[:200]!r}"
    # All at once; one by one only to say which it is. A catalog without a checkpoint checks each file that it ever had.
    if not _is_file_bounded(file):
        for name in _FILE_NUMBERS:
            _need(getattr(file, name) <= _NUMBER_MAX, where, name, f"at most {_NUMBER_MAX}", getattr(file, name))
        for name in _FILE_DIGESTS:
            _need(len(getattr(file, name)) in (0, _DIGEST_BYTES), where, name, "32 bytes", len(getattr(file, name)))
        _check_ranges(where, file)
    ids = file.last_event_id - file.first_event_id + 1
    # The bound holds for event logs only: in them each row is an event with an id of its own.
    if file.rows > ids:
        is_too_full = parse_event_log(file.path) is not None
        _need(not is_too_full, where, "rows", f"at most {ids}, one an event id", file.rows)
    _check_groups(where, "groups", file.groups)
    if file.statistics:
        try:
            FileStatistics.FromString(file.statistics)
        except DecodeError as error:
            raise InvalidInputError(f"{where}: statistics: expected a FileStatistics, got {error}.") from error
    return file


def _is_file_bounded(file: AddFile) -> bool:
    last = file.last_event_id
    return (
        max(file.size_bytes, file.rows, file.schema_version, last, file.footer_bytes) <= _NUMBER_MAX
        and len(file.sha256) in _DIGEST_SIZES
        and len(file.toc_sha256) in _DIGEST_SIZES
        and len(file.schema_fingerprint) in _DIGEST_SIZES
        and file.first_event_id <= last
        and file.first_event_time_ms <= file.last_event_time_ms
    )


def have_ids_in_common(one: AddFile, other: AddFile) -> bool:
    """Whether two event logs hold an event id both: their ranges together have fewer ids than they have events.

    Ranges may overlap for all that: where ids were never used there may be room for both.
    """
    if one.path == other.path or any(parse_event_log(file.path) is None for file in (one, other)):
        return False
    first = min(one.first_event_id, other.first_event_id)
    last = max(one.last_event_id, other.last_event_id)
    is_overlapping = one.first_event_id <= other.last_event_id and other.first_event_id <= one.last_event_id
    return is_overlapping and one.rows + other.rows > last - first + 1


def check_delta(message: Transaction, where: object, after_ms: int = 0) -> Transaction:
    """Return a transaction whose fields and actions make sense and that was committed after a time.

    Raises:
        CorruptionError: one does not; it names the object, the field, and what was expected.
    """
    _check_head(message, where)
    if message.commit_time_ms <= after_ms:
        raise _corrupt(where, "commit_time_ms", f"more than {after_ms}", message.commit_time_ms)
    if len(message.attempt_id) not in (0, _UUID_BYTES):
        raise _corrupt(where, "attempt_id", "16 bytes", len(message.attempt_id))
    if message.live_paths or message.live_files:
        raise _corrupt(where, "live_files", "none in a transaction", len(message.live_files))
    _check_actions(message.actions, where)
    return message


def check_full(message: Transaction, where: object) -> Transaction:
    """Return a checkpoint whose fields make sense; raises as `check_delta`. Its files are checked as they are read."""
    _check_head(message, where)
    if message.encoding != Transaction.FULL:
        raise _corrupt(where, "encoding", "a checkpoint", message.encoding)
    if message.commit_time_ms <= 0:
        raise _corrupt(where, "commit_time_ms", "more than 0", message.commit_time_ms)
    if len(message.previous_digest) != _DIGEST_BYTES:
        raise _corrupt(where, "previous_digest", "32 bytes", len(message.previous_digest))
    paths = list(message.live_paths)
    if len(paths) != len(message.live_files):
        raise _corrupt(where, "live_files", f"{len(paths)}, one a path", len(message.live_files))
    if len(set(paths)) != len(paths):
        raise _corrupt(where, "live_paths", "each path once", f"{len(paths) - len(set(paths))} twice")
    _check_actions(message.actions, where)
    return message


def check_hint(message: Transaction, where: object) -> Transaction:
    """Return a hint whose fields make sense; raises as `check_delta`."""
    _check_head(message, where)
    return message


def read_file_entry(path: str, data: bytes, where: str) -> AddFile:
    """Return what a checkpoint says of a file.

    Raises:
        CorruptionError: it is no entry, or that of another file.
    """
    try:
        file = check_file(AddFile.FromString(data))
    except DecodeError as error:
        raise CorruptionError(f"{where}: live_files: expected an AddFile of {path!r}, got {error}.") from error
    except InvalidInputError as error:
        raise CorruptionError(f"{where}: live_files: {error}") from error
    if file.path != path:
        raise CorruptionError(f"{where}: live_files: expected the AddFile of {path!r}, got that of {file.path!r}.")
    return file


def _check_head(message: Transaction, where: object) -> None:
    if message.revision > _NUMBER_MAX or message.next_event_id > _NUMBER_MAX or message.epoch > _NUMBER_MAX:
        big = max(message.revision, message.next_event_id, message.epoch)
        raise _corrupt(where, "revision, next_event_id, epoch", f"at most {_NUMBER_MAX}", big)
    if len(message.uuid) != _UUID_BYTES or len(message.catalog_id) != _UUID_BYTES:
        name = "catalog_id" if len(message.uuid) == _UUID_BYTES else "uuid"
        raise _corrupt(where, name, "16 bytes", len(getattr(message, name)))
    if len(message.previous_uuid) not in (0, _UUID_BYTES):
        raise _corrupt(where, "previous_uuid", "16 bytes", len(message.previous_uuid))
    if len(message.previous_digest) not in (0, _DIGEST_BYTES):
        raise _corrupt(where, "previous_digest", "32 bytes", len(message.previous_digest))
    if message.commit_time_ms > _NUMBER_MAX >> 1:
        raise _corrupt(where, "commit_time_ms", f"at most {_NUMBER_MAX >> 1}", message.commit_time_ms)
    if message.naming not in (Transaction.DERIVED, Transaction.RANDOM):
        raise _corrupt(where, "naming", "0 or 1", message.naming)


def _check_actions(actions: Iterable[Action], where: object) -> None:
    for number, action in enumerate(actions):
        kind = action.WhichOneof("kind")
        if kind is None:
            raise FormatVersionError(f"{where}: action {number} is of an unknown kind. Use a newer custody.")
        try:
            _check_kind(action, kind)
        except InvalidInputError as error:
            raise CorruptionError(f"{where}: action {number}, {kind}: {error}") from error


def _check_shard(shard: AddShard) -> None:
    name, first, last = shard.name, shard.first_event_id, shard.last_event_id
    # All at once, as with files: a checkpoint has each live shard.
    if not (
        "/" not in name
        and max(shard.documents, shard.size_bytes, last) <= _NUMBER_MAX
        and first <= last
        and shard.first_event_time_ms <= shard.last_event_time_ms
    ):
        where = f"shard {name[:200]!r}"
        _check_folder(where, name)
        for field in ("documents", "size_bytes", "first_event_id", "last_event_id"):
            _need(getattr(shard, field) <= _NUMBER_MAX, where, field, f"at most {_NUMBER_MAX}", getattr(shard, field))
        _check_ranges(where, shard)
    check_key(name)
    for path in shard.log_paths:
        check_key(path)


def _check_tombstone(stone: AddTombstone) -> None:
    check_tombstone(stone)
    where = "tombstone"
    _check_groups(where, "erased_groups", stone.erased_groups)
    for keys in stone.erased:
        _check_runs(where, keys.firsts, keys.counts)
        count = len(keys.firsts)
        times = len(keys.first_times_ms), len(keys.last_times_ms)
        _need(times in ((0, 0), (count, count)), where, "first_times_ms", "as many as there are runs, or none", times)


def _check_mark(mark: AddMark) -> None:
    where = "mark"
    _need(len(mark.id) == _UUID_BYTES, where, "id", "16 bytes", len(mark.id))
    for path in mark.paths:
        check_key(path)
    for shard in mark.shards:
        _check_folder(where, shard.name)
    _check_groups(where, "groups", mark.groups)


def _check_loss(loss: AddLoss) -> None:
    where = "loss"
    _need(len(loss.id) == _UUID_BYTES, where, "id", "16 bytes", len(loss.id))
    if loss.path:
        check_key(loss.path)
    _check_runs(where, loss.firsts, loss.counts)


def _check_note(note: Note) -> None:
    for repair in note.repairs:
        where = f"repair of {repair.name[:200]!r}"
        _need(len(repair.id) == _UUID_BYTES, where, "id", "16 bytes", len(repair.id))
        check_key(repair.name)
        for name in ("expected_sha256", "found_sha256"):
            size = len(getattr(repair, name))
            _need(size in _DIGEST_SIZES, where, name, "32 bytes", size)
        _need(max((repair.events, *repair.offsets)) <= _NUMBER_MAX, where, "events", f"at most {_NUMBER_MAX}", "more")
        _check_runs(where, repair.firsts, repair.counts)
    for done in note.finished:
        _need(len(done) == _UUID_BYTES, "note", "finished", "16 bytes", len(done))


def _check_prune(prune: Prune) -> None:
    _need(prune.floor <= _NUMBER_MAX, "prune", "floor", f"at most {_NUMBER_MAX}", prune.floor)
    size = len(prune.checkpoint_digest)
    _need(size == _DIGEST_BYTES, "prune", "checkpoint_digest", "32 bytes", size)


def _check_absorb(absorb: Absorb) -> None:
    for name in ("writer", "database"):
        _need(is_name(getattr(absorb, name)), "absorb", name, "the name of one", repr(getattr(absorb, name)[:200]))
    _need(len(absorb.catalog_id) == _UUID_BYTES, "absorb", "catalog_id", "16 bytes", len(absorb.catalog_id))
    first = absorb.first_event_id
    _need(first <= _NUMBER_MAX, "absorb", "first_event_id", f"at most {_NUMBER_MAX}", first)


_CHECKS: dict[str, Callable[..., object]] = {
    "add_file": check_file,
    "add_shard": _check_shard,
    "add_tombstone": _check_tombstone,
    "add_hold": check_hold,
    "add_mark": _check_mark,
    "add_loss": _check_loss,
    "note": _check_note,
    "prune": _check_prune,
    "absorb": _check_absorb,
}


def _check_ranges(where: str, part: AddFile | AddShard) -> None:
    ids, times = (part.first_event_id, part.last_event_id), (part.first_event_time_ms, part.last_event_time_ms)
    _need(ids[0] <= ids[1], where, "last_event_id", f"at least {ids[0]}", ids[1])
    _need(times[0] <= times[1], where, "last_event_time_ms", f"at least {times[0]}", times[1])


def _check_folder(where: str, name: str) -> None:
    """Raise InvalidInputError for a name that would be no folder of its own where it is put."""
    check_key(name)
    _need("/" not in name, where, "name", "the name of a folder", repr(name[:200]))


def _check_groups(where: str, name: str, groups: Sequence[int]) -> None:
    if groups:
        _need(max(groups) <= _NUMBER_MAX, where, name, f"at most {_NUMBER_MAX}", max(groups))


def _check_runs(where: str, firsts: Sequence[int], counts: Sequence[int]) -> None:
    _need(len(firsts) == len(counts), where, "counts", f"{len(firsts)}, one a run", len(counts))
    _need(all(counts), where, "counts", "at least 1 each", 0)
    ends = [first + count - 1 for first, count in zip(firsts, counts, strict=True)]
    end = max(ends, default=0)
    _need(end <= _NUMBER_MAX, where, "firsts, counts", f"runs that end at {_NUMBER_MAX} at most", end)


def _need(holds: bool, where: str, field: str, expected: str, got: object) -> None:
    if not holds:
        raise InvalidInputError(f"{where}: {field}: expected {expected}, got {got}.")


def _corrupt(where: object, field: str, expected: str, got: object) -> CorruptionError:
    return CorruptionError(f"{where}: {field}: expected {expected}, got {got}.")
