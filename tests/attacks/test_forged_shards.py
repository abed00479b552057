"""Who can write to the containers rewrites an index shard with right checksums: `--deep` compares it with its logs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from custody.config import load_settings
from custody.eventlog import EventLog
from custody.index import OpenShard, build_shard
from custody.model import Event, to_batch, to_events
from custody.repository import Repository
from custody.vfs import PosixFileSystem
from tests.attacks.attacker import Attacker, build, findings, run

FS = PosixFileSystem()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """One shard of ten events."""
    build(tmp_path / "repository", passes=1)
    return tmp_path / "repository"


def forge(root: Path, change: Callable[[Event], Event]) -> Path:
    """Build the shard anew from events that are not those of its log; bounds and sizes stay."""
    attacker = Attacker(root)
    [log], [folder] = attacker.home.rglob("*.parquet"), root.glob("**/main/index/*")
    about = OpenShard(FS, folder).description
    events = [change(each) for each in to_events(EventLog(FS, log).read())]
    table = pa.Table.from_batches([to_batch(events, events[0].event_id)])
    build_shard(FS, folder, table, about.attributes, standard=about.standard, replace=True)
    return folder


def other_type(one: Event) -> Event:
    """Two events exchange their types: all counts stay."""
    types = {3: "SEND", 4: "CREATE"}
    return msgspec.structs.replace(one, event_type=types.get(one.event_id, one.event_type))


def other_parent(one: Event) -> Event:
    """A field of several values an event."""
    return msgspec.structs.replace(one, parent_uuids=("00000000-0000-4000-8000-999999999999",))


def other_size(one: Event) -> Event:
    """A column without terms."""
    return msgspec.structs.replace(one, file_size=1)


def other_details(one: Event) -> Event:
    """The same words in another order, for a search of a phrase."""
    return msgspec.structs.replace(one, details="first second" if one.event_id == 3 else one.details)


@pytest.mark.parametrize(
    "change", [other_type, other_parent, other_size, other_details], ids=lambda each: each.__name__
)
def test_a_shard_that_says_of_events_what_the_log_does_not_is_named(
    root: Path, change: Callable[[Event], Event]
) -> None:
    forge(root, change)
    assert findings(root) == set(), "its bytes are as its own checksums say"
    assert findings(root, "--deep") == {"shard-different"}


def test_a_forged_shard_is_built_anew_by_a_repair(root: Path) -> None:
    forge(root, lambda one: msgspec.structs.replace(one, event_type="SEND"))
    assert Repository(load_settings(root)).search("event_type:SEND").total == 10, "the attack works"
    assert run(root, "repair", "--deep", "--yes").exit_code == 0
    assert findings(root, "--deep") == set()
    assert Repository(load_settings(root)).search("event_type:SEND").total == 0
