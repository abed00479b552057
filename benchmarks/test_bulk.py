"""Events in bulk are whole, distinct and consistent, and the journals that are made of them hold them."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.eventlog.bulk import tables, write_journals
from custody.journal import MergeReader, groups
from custody.model import to_events
from custody.repository import Repository
from custody.vfs import PosixFileSystem
from tests.support import numbered, sample

BASE = 500


def test_the_first_tile_is_the_base_and_the_last_is_cut() -> None:
    chunks = list(tables(1200, base=BASE))
    assert [table.num_rows for table in chunks] == [500, 500, 200]
    assert to_events(chunks[0]) == numbered(sample(BASE))
    assert pa.concat_tables(chunks).column("event_id").to_pylist() == list(range(1200))


def test_another_tile_tells_the_same_story_of_other_flowfiles_at_a_later_time() -> None:
    first, second = tables(2 * BASE, base=BASE)
    second.validate(full=True)
    ids = [table.column("source_event_id").to_pylist() for table in (first, second)]
    assert len({*ids[0], *ids[1]}) == 2 * BASE
    renamed = dict(zip(first["flowfile_uuid"].to_pylist(), second["flowfile_uuid"].to_pylist(), strict=True))
    assert not renamed.keys() & set(renamed.values())
    for name in ("parent_uuids", "child_uuids"):
        before, after = (pc.list_flatten(table[name]).to_pylist() for table in (first, second))
        assert [renamed.get(uuid, "?") for uuid in before if uuid in renamed] == [
            new for old, new in zip(before, after, strict=True) if old in renamed
        ]
    assert first["component_id"].equals(second["component_id"])
    assert pc.min(second["event_time"]).as_py() > pc.max(first["event_time"]).as_py()
    [event] = to_events(second.slice(7, 1))
    assert f"/{event.source_ordinal}/" in (event.content_uri or "")
    assert event.attributes["uuid"] == event.flowfile_uuid


def test_journals_in_bulk_hold_all_events(repository: Repository) -> None:
    made = write_journals(
        PosixFileSystem(),
        repository.settings,
        tables(1200, base=BASE),
        group_events=700,
        batch_events=60,
        journals=3,
    )
    assert made == 1200
    pending = groups(PosixFileSystem(), repository.settings.containers, "main")
    assert [group.first_event_id for group in pending] == [0, 700]
    assert all(len(group.sealed) == 3 for group in pending)
    events = pa.concat_tables(MergeReader(PosixFileSystem(), pending).chunks(1 << 20))
    assert events.equals(pa.concat_tables(tables(1200, base=BASE)))
