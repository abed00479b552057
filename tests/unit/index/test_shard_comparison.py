"""Shards compared by what they answer: other bytes for the same answers are no difference, other answers are one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from custody.index import OpenShard, build_shard, shard_differences
from custody.model import Event
from custody.vfs import PosixFileSystem
from tests.support import event, sample
from tests.unit.index.test_shard import table_of

FS = PosixFileSystem()
EVENTS = [
    msgspec.structs.replace(each, details=f"first second {number}", updated_attributes={"path": "x" * number})
    for number, each in enumerate([*sample(40), *(event(number) for number in range(40))])
]


def built(folder: Path, name: str, events: list[Event] = EVENTS, **options: Any) -> OpenShard:
    build_shard(FS, folder / name, table_of(events), ["path"], **options)
    return OpenShard(FS, folder / name)


def test_the_same_events_give_the_same_bytes(tmp_path: Path) -> None:
    assert built(tmp_path, "1").digest == built(tmp_path, "2").digest


def test_a_shard_that_cuts_values_elsewhere_is_no_other_one(tmp_path: Path) -> None:
    one, other = built(tmp_path, "1"), built(tmp_path, "2", attribute_characters=7)
    assert one.digest != other.digest
    assert shard_differences(one, other) == []


@pytest.mark.parametrize(
    ("part", "values"),
    [
        ("event_type", {"event_type": "DROP"}),
        ("flowfile_uuid", {"parent_uuids": ("00000000-0000-4000-8000-999999999999",)}),
        ("details", {"details": "second first 7"}),
        ("attribute.path", {"updated_attributes": {"path": "another"}}),
        ("the column file_size", {"file_size": 123456}),
        ("the column event_time", {"event_time": 1_772_409_600_001}),
    ],
)
def test_one_event_that_is_another_one_is_a_difference_of_its_fields(
    tmp_path: Path, part: str, values: dict[str, Any]
) -> None:
    events = [*EVENTS]
    events[7] = msgspec.structs.replace(events[7], **values)
    assert part in shard_differences(built(tmp_path, "1"), built(tmp_path, "2", events))


def test_a_shard_of_more_events_is_another_one(tmp_path: Path) -> None:
    assert shard_differences(built(tmp_path, "1"), built(tmp_path, "2", EVENTS[:-1])) == ["its events"]
