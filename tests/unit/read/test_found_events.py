"""Events of several writers become objects in one go, and the cache of events is told what all of them take."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from custody.config import load_settings
from custody.model import Event, in_one_piece, to_batch, to_events
from custody.read import found_events
from custody.read.cache import EventCache, EventKey, caches_of
from custody.read.found_events import FoundEvents, objects_of
from custody.repository import Repository
from tests.support import event, numbered, run_steps, sample

EVENTS = numbered(sample(60))
ROWS = to_batch(EVENTS, 0)
WRITERS = ("w0", "w1", "w2")


def key(writer: str, event_id: int) -> EventKey:
    return writer.encode(), (), event_id


def found(writer: str, *places: int, copied: tuple[int, ...] = ()) -> FoundEvents:
    """Some rows, and events that were made of copies of 500 bytes."""
    return FoundEvents(
        copied=[EVENTS[place] for place in copied],
        copied_bytes=500 * len(copied),
        rows=[ROWS.slice(place, 1) for place in places],
        keys={place: key(writer, place) for place in (*places, *copied)},
    )


def test_each_writer_gets_its_own_events_in_the_order_of_their_ids() -> None:
    of_writers = [found("a", 7, 9, copied=(8,)), FoundEvents(), found("b", 3), FoundEvents([EVENTS[1]])]
    cache = EventCache(1 << 20)
    made = objects_of(of_writers, cache)
    assert made == [EVENTS[7:10], [], [EVENTS[3]], [EVENTS[1]]]
    kept = cache.get_many([key("a", 8), key("a", 9), key("b", 3), key("b", 9), key("a", 1)])
    assert kept == [EVENTS[8], EVENTS[9], EVENTS[3], None, None]


def test_what_has_no_key_is_not_kept() -> None:
    one = found("a", 5, 6)
    del one.keys[5]
    cache = EventCache(1 << 20)
    assert objects_of([one], cache) == [EVENTS[5:7]]
    assert cache.get_many([key("a", 5), key("a", 6)]) == [None, EVENTS[6]]


def test_the_cache_counts_what_the_rows_take_and_not_their_blocks() -> None:
    large = [event(number, updated_attributes={"note": "x" * 50_000}) for number in range(2)]
    block = to_batch([*large, *sample(2000)], 0)
    cache = EventCache(1 << 30)
    one = FoundEvents(
        copied_bytes=40_000,
        copied=[EVENTS[9]],
        rows=[block.slice(0, 1), block.slice(1, 1)],
        keys={number: key("a", number) for number in (0, 1, 9)},
    )
    objects_of([one], cache)
    # Their texts lie in the events once more.
    assert 2 * 140_000 <= cache._cache.cost <= 2 * 140_000 + 3 * 5000 < block.nbytes


def test_a_page_of_several_writers_makes_objects_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = Repository.create(tmp_path / "demo").settings.root
    for number, writer in enumerate(WRITERS):
        settings = load_settings(root)
        section = settings.repository.model_copy(update={"writer": writer})
        repository = Repository(settings.model_copy(update={"repository": section}))
        repository.append(EVENTS[number::3])
        run_steps(repository.settings)
    calls: list[int] = []

    def counted(rows: pa.RecordBatch) -> list[Event]:
        calls.append(rows.num_rows)
        return to_events(rows)

    monkeypatch.setattr(found_events, "to_events", counted)
    reader = Repository.open(root)
    pages = [reader.search("", limit=20, offset=offset) for offset in (0, 20, 40)]
    assert calls == [20, 20, 20]
    assert {one.writer for one in pages[1].events} == set(WRITERS)
    assert [reader.search("", limit=20, offset=offset).events for offset in (0, 20, 40)] == [p.events for p in pages]
    assert calls == [20, 20, 20]
    assert len(caches_of(reader.workspace("w1")).events._cache) == 60


def test_pieces_that_are_too_large_for_one_stay_as_they_are() -> None:
    # Never touched, so these bytes take no memory.
    half = pa.allocate_buffer(1_100_000_000)
    offsets = pa.py_buffer(memoryview(b"".join(n.to_bytes(4, "little") for n in (0, half.size))))
    text = pa.StringArray.from_buffers(1, offsets, half)
    piece = pa.record_batch([text], names=["details"])
    pieces = [piece, piece]
    assert in_one_piece(pieces) is pieces
    assert in_one_piece([]) == []
    (joined,) = in_one_piece([ROWS.slice(3, 1), ROWS.slice(5, 2)])
    assert to_events(joined) == [EVENTS[3], *EVENTS[5:7]]
