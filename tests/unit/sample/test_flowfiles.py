"""The sample tells one consistent story of each FlowFile: from its birth to its end, step by step."""

from collections import Counter
from collections.abc import Iterator

from tests.unit.sample.story import BORN_ALONE, ENDS, LOOKS, Event, births, by_flowfile, story

FRAGMENT_KEYS = {
    "fragment.identifier",
    "fragment.index",
    "fragment.count",
    "segment.original.filename",
}


def test_every_flowfile_begins_with_an_event_that_brings_it_forth() -> None:
    known: set[str] = set()
    for event in story():
        born = births(event)
        assert known.isdisjoint(born)
        known.update(born)
        assert event.entityId in known


def test_every_parent_uuid_was_seen_before_and_is_alive() -> None:
    alive: set[str] = set()
    for event in story():
        assert alive.issuperset(event.parentIds)
        alive.update(births(event))
        if event.eventType in ENDS:
            alive.remove(event.entityId)


def test_nothing_happens_after_the_end() -> None:
    ended: set[str] = set()
    for event in story():
        assert event.entityId not in ended
        assert ended.isdisjoint(births(event))
        if event.eventType in ENDS:
            ended.add(event.entityId)
    assert len(ended) > 5000


def test_previous_attributes_are_what_the_sessions_before_left() -> None:
    expected: dict[str, dict[str, str]] = {}
    forked: dict[str, dict[str, str]] = {}
    last: dict[str, Event] = {}
    for event in story():
        before = last.get(event.entityId)
        if event.eventType == "REPLAY":
            assert not event.previousAttributes
            expected[event.childIds[0]] = event.applied()
            continue
        if before and before.session == event.session:
            # One session: all its events show the same state and the same changes.
            assert event.previousAttributes == before.previousAttributes
            assert event.updatedAttributes == before.updatedAttributes
        elif event.entityId in forked:
            inherited = forked.pop(event.entityId)
            assert inherited.items() <= event.previousAttributes.items()
            assert event.previousAttributes.keys() - inherited.keys() == FRAGMENT_KEYS
        else:
            assert event.previousAttributes == expected.get(event.entityId, {})
        if event.eventType == "DOWNLOAD":
            assert not event.updatedAttributes
            continue
        after = event.applied()
        assert after["uuid"] == event.entityId
        expected[event.entityId] = after
        last[event.entityId] = event
        for child in event.childIds:
            inherits = {**after, "uuid": child}
            if event.eventType == "CLONE":
                expected[child] = inherits
            elif event.eventType == "FORK":
                forked[child] = inherits


def test_updated_attributes_are_real_changes() -> None:
    for event in story():
        for name, value in event.updatedAttributes.items():
            assert event.previousAttributes.get(name) != value


def test_previous_size_is_the_size_the_session_before_left() -> None:
    sizes: dict[str, int] = {}
    last: dict[str, Event] = {}
    for event in story():
        before = last.get(event.entityId)
        if event.eventType in LOOKS:
            assert event.previousEntitySize is None
            assert event.entitySize == sizes[event.entityId]
        elif before and before.session == event.session:
            assert event.previousEntitySize in (before.previousEntitySize, before.entitySize)
            assert event.entitySize == before.entitySize
        elif event.entityId in sizes:
            assert event.previousEntitySize == sizes[event.entityId]
        else:
            assert event.eventType in BORN_ALONE
            assert event.previousEntitySize is None
        if event.eventType not in LOOKS:
            last[event.entityId] = event
        sizes[event.entityId] = event.entitySize
        for child in event.childIds:
            sizes[child] = event.entitySize // (len(event.childIds) if event.eventType == "FORK" else 1)


def test_only_content_events_change_the_size() -> None:
    for event in story():
        if event.previousEntitySize != event.entitySize:
            assert event.eventType in BORN_ALONE | LOOKS | {"CONTENT_MODIFIED", "FETCH"}


def test_a_join_is_as_large_as_its_parents_together() -> None:
    sizes: dict[str, int] = {}
    for event in story():
        if event.eventType == "JOIN":
            assert event.entitySize == sum(sizes[parent] for parent in event.parentIds)
        sizes[event.entityId] = event.entitySize


def test_lineage_starts_with_the_entry_of_the_oldest_ancestor() -> None:
    starts: dict[str, int] = {}
    for event in story():
        if event.eventType == "JOIN":
            starts[event.entityId] = min(starts[parent] for parent in event.parentIds)
        elif event.eventType in BORN_ALONE:
            starts[event.entityId] = event.timestampMillis - event.durationMillis
        for child in event.childIds:
            starts.setdefault(child, starts[event.entityId])
        assert event.lineageStart == starts[event.entityId]


def test_a_flowfile_stays_on_its_node() -> None:
    hosts: dict[str, str] = {}
    for event in story():
        for uuid in (event.entityId, *event.parentIds, *event.childIds):
            assert hosts.setdefault(uuid, event.actorHostname) == event.actorHostname


def test_some_files_are_sent_only_after_several_failed_attempts() -> None:
    failures_before_send: Counter[int] = Counter()
    for history in by_flowfile(story()).values():
        puts = [
            event.eventType
            for event in history
            if event.componentName == "Store in bucket" and event.eventType != "DROP"
        ]
        if puts and puts[-1] == "SEND":
            failures_before_send[puts.count("ROUTE")] += 1
    assert failures_before_send[0] > failures_before_send[1] > failures_before_send[2] > 0


def in_flight(events: list[Event]) -> Iterator[int]:
    """Yield how many FlowFiles are alive after each event."""
    alive: set[str] = set()
    for event in events:
        alive.update(births(event))
        if event.eventType in ENDS:
            alive.discard(event.entityId)
        yield len(alive)


def test_many_flowfiles_are_in_flight_but_their_number_does_not_grow() -> None:
    counts = list(in_flight(story()))
    assert sum(counts) / len(counts) > 30
    assert max(counts) < 200
    assert max(counts[15_000:]) < 2 * max(counts[5_000:10_000])


def test_flows_interleave() -> None:
    neighbours = zip(story(), story()[1:], strict=False)
    changes = sum(one.processGroupName != two.processGroupName for one, two in neighbours)
    assert changes > len(story()) // 5
