"""Objects whose checksum is right and whose message makes no sense: each field of actions, checkpoints and hints.

Whatever a field says, custody reads on, or names what is wrong with an error of its own.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor

from custody.catalog import (
    Absorb,
    Action,
    AddFile,
    AddHold,
    AddLoss,
    AddMark,
    AddShard,
    AddTombstone,
    Attribute,
    Catalog,
    Condition,
    MarkedShard,
    Note,
    RespectHolds,
    SourceKeys,
    SourceRange,
    Transaction,
    kept_files,
    live_groups,
    plan_prune,
    plan_repair,
    salvage,
    stored_footer,
    verify,
)
from custody.catalog.checkpoints import checkpoint_message
from custody.catalog.codec import decode, encode
from custody.catalog.state import CatalogState
from custody.catalog.statistics import statistics_table
from custody.catalog.transaction_pb2 import ColumnStatistics, FileStatistics, Prune, Value
from custody.clock import ManualClock
from custody.errors import ConflictError, CorruptionError, CustodyError, InvalidInputError
from custody.store import LocalStore
from custody.vfs.memory import CrashMode, MemoryFileSystem

NOW_MS = 1_772_409_600_000
QUICK = 16
"""In a quick run one of so many changes is tried."""
LOG = "data/2026-03-01/events/%020d.parquet"
NUMBERS = (0, 1, 7, (1 << 31) - 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, -1, -42, -(1 << 63))
TEXTS = ("", "../../x", "/etc/passwd", "a\x00b", "\x1b[2J", "x" * 2000, "data/2026-03-01/events", "\u00e9")
BYTES = (b"", b"x", b"\xff" * 15, b"\x00" * 16, b"\x07" * 16, b"\x00" * 32, b"\xff" * 40)


def opened(fs: MemoryFileSystem) -> Catalog:
    return Catalog(LocalStore(fs, Path("/store")), "main", "provenance", ManualClock(NOW_MS))


def described(number: int) -> AddFile:
    columns = [
        ColumnStatistics(column="event_id", minimum=Value(integer=1), maximum=Value(integer=9), blooms=[b"bloom"]),
        ColumnStatistics(column="event_type", minimum=Value(text="DROP"), maximum=Value(text="SEND"), nulls=2),
    ]
    return AddFile(
        path=LOG % number,
        size_bytes=9,
        rows=5,
        sha256=b"\x01" * 32,
        table="events",
        partition="2026-03-01",
        schema_version=1,
        first_event_id=number,
        last_event_id=number + 9,
        first_event_time_ms=NOW_MS,
        last_event_time_ms=NOW_MS + 5,
        toc_path=(LOG % number).replace(".parquet", ".toc"),
        toc_sha256=b"\x02" * 32,
        sources=[SourceRange(node="n", first_ordinal=1, last_ordinal=5)],
        groups=[number],
        statistics=FileStatistics(columns=columns).SerializeToString(deterministic=True),
        schema_fingerprint=b"\x03" * 32,
    )


def everything(number: int) -> list[Action]:
    """Every action that can follow, with every field set."""
    of = hashlib.sha256(str(number).encode()).digest()[:16]
    condition = Condition(event_ids=[number], event_types=["DROP"], attributes=[Attribute(name="a", value="b")])
    stone = AddTombstone(id=of, event_ids=[number + 1], before_event_id=99, reason="r", created_ms=NOW_MS)
    stone.unless.append(condition)
    remnant = AddTombstone(id=of[::-1], erased_groups=[number])
    remnant.erased.append(SourceKeys(node="n", firsts=[1, 9], counts=[2, 3]))
    shards = [MarkedShard(name="marked", container="disk1")]
    return [
        Action(add_file=described(number)),
        Action(
            add_shard=AddShard(
                name=f"{NOW_MS:013d}-{number:020d}",
                container="disk1",
                documents=5,
                first_event_id=number,
                last_event_id=number + 9,
                log_paths=[LOG % number],
            )
        ),
        Action(add_tombstone=stone),
        Action(add_tombstone=remnant),
        Action(add_hold=AddHold(name=f"hold-{number}", condition=condition, reason="r", who="w", created_ms=NOW_MS)),
        Action(add_mark=AddMark(id=of, paths=[LOG % 900], shards=shards, groups=[number + 5], created_ms=NOW_MS)),
        Action(add_loss=AddLoss(id=of, firsts=[3], counts=[2], events=2, path=LOG % 901, created_ms=NOW_MS)),
        Action(absorb=Absorb(writer=f"w{number}", database="provenance", catalog_id=of, revision=3, digest=b"d" * 32)),
        Action(note=Note(kind=Note.REPAIRED, text="t", lost_revisions=[0])),
    ]


def _made() -> MemoryFileSystem:
    fs = MemoryFileSystem()
    catalog = opened(fs)
    catalog.commit(everything(0), next_event_id=10)
    catalog.checkpoint()
    catalog.commit(everything(100), next_event_id=110)
    known = Action(respect_holds=RespectHolds(names=["hold-0", "hold-100", "hold-200"]))
    said = Action(prune=Prune(floor=1, checkpoint_digest=b"c" * 32))
    catalog.commit([*everything(200), known, said], next_event_id=210)
    return fs


MADE = _made()


def _changed(message: Any) -> Iterator[tuple[str, Any]]:
    """Yield where and the whole message, for each value that each field of a message can have instead of its own."""
    for field in message.DESCRIPTOR.fields:
        is_set = (
            bool(getattr(message, field.name))
            if field.is_repeated
            else message.HasField(field.name)
            if (field.has_presence)
            else True
        )
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            if is_set:
                yield from _changed_parts(message, field)
            continue
        for value in _values(field):
            copy = type(message)()
            copy.CopyFrom(message)
            try:
                if field.is_repeated:
                    getattr(copy, field.name).append(value)
                else:
                    setattr(copy, field.name, value)
            except (ValueError, TypeError, OverflowError):
                continue  # no value of this type
            yield f"{field.name} = {value!r:.30}", copy
        if field.is_repeated and is_set:
            copy = type(message)()
            copy.CopyFrom(message)
            copy.ClearField(field.name)
            yield f"{field.name} cleared", copy


def _changed_parts(message: Any, field: FieldDescriptor) -> Iterator[tuple[str, Any]]:
    parts = getattr(message, field.name) if field.is_repeated else [getattr(message, field.name)]
    for number, part in enumerate(parts):
        for where, changed in _changed(part):
            copy = type(message)()
            copy.CopyFrom(message)
            target = getattr(copy, field.name)[number] if field.is_repeated else getattr(copy, field.name)
            target.CopyFrom(changed)
            yield f"{field.name}[{number}].{where}", copy
        copy = type(message)()
        copy.CopyFrom(message)
        if field.is_repeated:
            getattr(copy, field.name)[number].Clear()
        else:
            copy.ClearField(field.name)
        yield f"{field.name}[{number}] empty", copy


def _values(field: FieldDescriptor) -> tuple[Any, ...]:
    if field.type == FieldDescriptor.TYPE_STRING:
        return TEXTS
    if field.type == FieldDescriptor.TYPE_BYTES:
        return BYTES
    return NUMBERS


def _objects() -> dict[str, tuple[str, Transaction]]:
    """The newest transaction, a checkpoint beside it, and the hint: by name, the key and what it says."""
    catalog = opened(MADE)
    state, store = catalog.load(), catalog.objects.store
    key = catalog.objects.key(state.revision, state.uuid)
    hint = catalog.objects.hint
    objects = {
        "transaction": (key, decode(store.get(key), key)),
        "checkpoint": (key.replace(".txn", ".ckpt"), checkpoint_message(state)),
        "hint": (hint, decode(store.get(hint), hint)),
    }
    checkpoint = objects["checkpoint"][1]
    for number, (where, file) in enumerate(_changed(AddFile.FromString(checkpoint.live_files[0]))):
        copy = Transaction()
        copy.CopyFrom(checkpoint)
        copy.live_files[0] = file.SerializeToString()
        objects[f"file {number} {where}"] = objects["checkpoint"][0], copy
    return objects


def _cases() -> Iterator[tuple[str, str, Transaction]]:
    for name, (key, message) in _objects().items():
        if name.startswith("file"):
            yield name, key, message
        else:
            yield from ((f"{name} {where}", key, changed) for where, changed in _changed(message))


def _ask(fs: MemoryFileSystem) -> None:
    """Do with a catalog what others do with it; errors of custody are answers."""
    catalog = opened(fs)
    _answered(lambda: _look_at(catalog, catalog.load()))
    _answered(lambda: verify(opened(fs), files=False))
    _answered(lambda: plan_repair(opened(fs)))
    _answered(lambda: salvage(catalog.objects).lost)
    _answered(lambda: list(opened(fs).timeline()))
    _answered(lambda: opened(fs).at(1))
    _answered(lambda: opened(fs).revision_at(NOW_MS + 1))
    _answered(lambda: kept_files(opened(fs)))
    _answered(lambda: plan_prune(opened(fs), 1))
    _answered(lambda: opened(fs).commit([Action(note=Note(text="next"))]))
    _answered(lambda: opened(fs).checkpoint())


def _look_at(catalog: Catalog, state: CatalogState) -> None:
    for path in state.files:
        stored_footer(state.files[path])
    state.file_of(5)
    live_groups(state)
    state.actions()
    statistics_table(catalog.objects, state)


def _answered(ask: Any) -> None:
    try:
        ask()
    except CustodyError:
        return


@pytest.mark.in_parts(2)
@pytest.mark.parametrize("every", [QUICK, pytest.param(1, marks=pytest.mark.slow)], ids=["some", "all"])
def test_whatever_a_field_says_the_answer_is_one_of_custody_s_own(every: int) -> None:
    tried = 0
    for number, (where, key, message) in enumerate(_cases()):
        if (number + zlib.crc32(where.encode())) % every:
            continue
        tried += 1
        fs = MADE.crashed(CrashMode.ALL_KEPT)
        LocalStore(fs, Path("/store")).put(key, encode(message))
        try:
            _ask(fs)
        except Exception as error:
            raise AssertionError(f"{where}: {error!r}") from error
    assert tried > 1000 // every


@pytest.mark.parametrize(
    ("action", "said"),
    [
        (Action(add_file=AddFile(path="x", first_event_id=5, last_event_id=4)), "last_event_id: expected at least 5"),
        (Action(add_file=AddFile(path="x", first_event_time_ms=5)), "last_event_time_ms: expected at least 5"),
        (Action(add_file=AddFile(path="x", sha256=b"short")), "sha256: expected 32 bytes, got 5"),
        (Action(add_file=AddFile(path=LOG % 0, rows=3, last_event_id=1)), "rows: expected at most 2"),
        (Action(add_file=AddFile(path="x", statistics=b"\xff")), "statistics: expected a FileStatistics"),
        (Action(add_file=AddFile(path="x", size_bytes=1 << 63)), "size_bytes: expected at most"),
        (Action(add_shard=AddShard(name="../../x")), "key"),
        (Action(add_shard=AddShard(name="a/b")), "name: expected the name of a folder"),
        (Action(add_shard=AddShard(name="x", log_paths=["../x"])), "key"),
        (Action(add_mark=AddMark(id=b"x" * 16, shards=[MarkedShard(name="../../x")])), "key"),
        (Action(add_mark=AddMark(id=b"x" * 16, paths=["/etc/passwd"])), "key"),
        (Action(add_loss=AddLoss(id=b"x" * 16, firsts=[1], counts=[])), "counts: expected 1"),
        (Action(add_tombstone=AddTombstone(id=b"x" * 16, event_ids=[1 << 63])), "event ids of at most"),
        (Action(add_tombstone=AddTombstone(id=b"x" * 16, event_ids=[1], unless=[Condition()])), "unless"),
        (Action(prune=Prune(floor=0)), "checkpoint_digest: expected 32 bytes"),
        (Action(absorb=Absorb(writer="../x", database="d", catalog_id=b"x" * 16)), "writer: expected the name"),
    ],
)
def test_an_action_that_makes_no_sense_is_refused_and_when_read_it_is_damage(action: Action, said: str) -> None:
    fs = MADE.crashed(CrashMode.ALL_KEPT)
    with pytest.raises(InvalidInputError, match=said):
        opened(fs).commit([action])
    key, message = _objects()["transaction"]
    del message.actions[:]
    message.actions.append(action)
    LocalStore(fs, Path("/store")).put(key, encode(message))
    with pytest.raises(CorruptionError, match=said) as caught:
        opened(fs).load()
    assert f"{key}: action 0, {action.WhichOneof('kind')}: " in str(caught.value)
    assert any(said in str(defect) for defect in verify(opened(fs), files=False).defects) or said == "key"


def test_a_floor_above_the_newest_revision_is_refused_and_when_read_it_is_damage() -> None:
    fs = MADE.crashed(CrashMode.ALL_KEPT)
    said = Action(prune=Prune(floor=3, checkpoint_digest=b"c" * 32))
    with pytest.raises(ConflictError, match="cannot prune up to revision 3: it is not before revision 3"):
        opened(fs).commit([said])
    key, message = _objects()["transaction"]
    del message.actions[:]
    message.actions.append(said)
    LocalStore(fs, Path("/store")).put(key, encode(message))
    with pytest.raises(CorruptionError, match="cannot prune up to revision 3: it is not before revision 2"):
        opened(fs).load()


@pytest.mark.parametrize("time_ms", [0, -42, NOW_MS])
def test_a_transaction_that_was_committed_before_its_predecessor_is_damage(time_ms: int) -> None:
    fs = MADE.crashed(CrashMode.ALL_KEPT)
    key, message = _objects()["transaction"]
    message.commit_time_ms = time_ms
    LocalStore(fs, Path("/store")).put(key, encode(message))
    with pytest.raises(CorruptionError, match=f"commit_time_ms: expected more than .*, got {time_ms}"):
        opened(fs).load()


@pytest.mark.parametrize(
    ("field", "wrong"),
    [("catalog_id", b"short"), ("catalog_id", b""), ("uuid", b""), ("live_files", b"\xff"), ("live_files", b"")],
)
def test_a_malformed_checkpoint_under_a_right_checksum_is_named_and_costs_nothing(field: str, wrong: bytes) -> None:
    fs = MADE.crashed(CrashMode.ALL_KEPT)
    key, message = _objects()["checkpoint"]
    if field == "live_files":
        message.live_files[0] = wrong
    else:
        setattr(message, field, wrong)
    LocalStore(fs, Path("/store")).put(key, encode(message))
    defects = [str(defect) for defect in verify(opened(fs), files=False).defects]
    assert any(key in text and field in text for text in defects)
    state = opened(fs).load()
    if field == "live_files":
        fs.remove(Path("/store") / _objects()["hint"][0])
        state = opened(fs).load()
        with pytest.raises(CorruptionError, match=f"{key}: live_files"):
            dict(state.files)


def test_two_event_logs_that_hold_the_same_ids_are_not_both_listed() -> None:
    fs = MADE.crashed(CrashMode.ALL_KEPT)
    catalog = opened(fs)
    twin = AddFile(path=LOG % 101, rows=10, first_event_id=100, last_event_id=109)
    with pytest.raises(ConflictError, match=r"holds event ids that .* holds"):
        catalog.commit([Action(add_file=twin)])
    catalog.checkpoint()
    with pytest.raises(ConflictError, match=r"holds event ids that .* holds"):
        opened(fs).commit([Action(add_file=twin)])
    both = [
        Action(add_file=AddFile(path=LOG % number, rows=5, first_event_id=500, last_event_id=504))
        for number in (500, 501)
    ]
    with pytest.raises(ConflictError, match=r"holds event ids that .* holds"):
        opened(fs).commit(both)
