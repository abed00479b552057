"""The sample as a stream and as files: how many events, which keys and types, the same again for the same options."""

import json
from collections import defaultdict
from collections.abc import Callable

import msgspec
import pytest

from custody.sample import SampleOptions, sample_events, sample_files, unknown_event
from tests.unit.sample.story import Event

KEYS = [
    "eventId",
    "eventOrdinal",
    "eventType",
    "timestampMillis",
    "timestamp",
    "durationMillis",
    "lineageStart",
    "details",
    "componentId",
    "componentType",
    "componentName",
    "processGroupId",
    "processGroupName",
    "entityId",
    "entityType",
    "entitySize",
    "previousEntitySize",
    "updatedAttributes",
    "previousAttributes",
    "actorHostname",
    "contentURI",
    "previousContentURI",
    "parentIds",
    "childIds",
    "transitUri",
    "remoteIdentifier",
    "alternateIdentifier",
    "platform",
    "application",
]
TYPES = {
    "CREATE",
    "RECEIVE",
    "FETCH",
    "SEND",
    "UPLOAD",
    "REMOTE_INVOCATION",
    "DOWNLOAD",
    "DROP",
    "EXPIRE",
    "FORK",
    "JOIN",
    "CLONE",
    "CONTENT_MODIFIED",
    "ATTRIBUTES_MODIFIED",
    "ROUTE",
    "ADDINFO",
    "REPLAY",
}


def test_exactly_the_asked_number_of_events_comes() -> None:
    for count in (0, 1, 999, 5000):
        assert sum(1 for _ in sample_events(SampleOptions(events=count))) == count


def test_same_options_give_the_same_bytes() -> None:
    options = SampleOptions(events=3000, nodes=3)
    assert list(sample_files(options)) == list(sample_files(options))


def test_another_seed_gives_another_history_of_the_same_components() -> None:
    one, other = (msgspec.convert(list(sample_events(SampleOptions(seed=seed))), list[Event]) for seed in (1, 2))
    assert not {event.entityId for event in one} & {event.entityId for event in other}
    assert {event.componentId for event in one} == {event.componentId for event in other}


def test_events_of_other_seeds_and_clusters_are_of_other_nodes_and_files() -> None:
    seen: dict[tuple[str, int], str] = {}
    names: set[str] = set()
    for options in (SampleOptions(), SampleOptions(seed=99), SampleOptions(nodes=3), SampleOptions(seed=99, nodes=1)):
        events = msgspec.convert(list(sample_events(options)), list[Event])
        for event in events:
            assert seen.setdefault((event.actorHostname, event.eventOrdinal), event.eventId) == event.eventId
        files = {name for name, _ in sample_files(options)}
        assert not names & files
        names |= files
    assert {host for host, _ in seen if "-" not in host} == {"nifi1.example.com", "nifi2.example.com"}


def test_a_longer_stream_begins_with_the_shorter() -> None:
    longer = list(sample_events(SampleOptions(events=2500)))
    assert longer[:1200] == list(sample_events(SampleOptions(events=1200)))


@pytest.mark.parametrize("nodes", [1, 2, 5])
@pytest.mark.parametrize("seed", [1, 7, 42])
def test_all_types_but_unknown_occur_in_5000_events(seed: int, nodes: int) -> None:
    events = sample_events(SampleOptions(seed=seed, nodes=nodes))
    assert {event["eventType"] for event in events} == TYPES


def test_the_unknown_event_fits_before_the_stream_and_hides_everything() -> None:
    options = SampleOptions(events=500)
    hidden = msgspec.convert(unknown_event(options), Event)
    node = [
        event
        for event in msgspec.convert(list(sample_events(options)), list[Event])
        if event.actorHostname == hidden.actorHostname
    ]
    assert hidden.eventType == "UNKNOWN"
    assert hidden.eventOrdinal == node[0].eventOrdinal - 1
    assert hidden.timestampMillis <= node[0].timestampMillis
    assert hidden.entitySize == -1
    assert not hidden.previousAttributes and not hidden.updatedAttributes
    assert unknown_event(options) == unknown_event(options)


def test_keys_come_in_the_order_of_the_reporter() -> None:
    for event in sample_events(SampleOptions(include_nulls=True)):
        assert list(event) == KEYS
    for event in sample_events(SampleOptions()):
        assert list(event) == [key for key in KEYS if key in event]
        assert None not in event.values()


def test_without_nulls_only_the_nulls_are_missing() -> None:
    with_nulls = list(sample_events(SampleOptions(include_nulls=True)))
    removals = 0
    for event in with_nulls:
        updates = event["updatedAttributes"]
        assert isinstance(updates, dict)
        without_nulls = {name: value for name, value in updates.items() if value is not None}
        removals += len(updates) - len(without_nulls)
        event["updatedAttributes"] = without_nulls
    bare = [{k: v for k, v in event.items() if v is not None} for event in with_nulls]
    assert removals > 0
    assert bare == list(sample_events(SampleOptions()))


def test_changing_a_yielded_event_does_not_change_later_ones() -> None:
    untouched = list(sample_events(SampleOptions(events=800)))
    seen = []
    for event in sample_events(SampleOptions(events=800)):
        seen.append(json.loads(json.dumps(event)))
        for key in ("updatedAttributes", "previousAttributes", "parentIds", "childIds"):
            value = event[key]
            assert isinstance(value, dict | list)
            value.clear()
    assert seen == untouched


def test_files_hold_all_events_of_one_node_each_in_bounded_batches() -> None:
    options = SampleOptions(events=2_345, nodes=3, batch_size=100, include_nulls=True)
    from_files: defaultdict[str, list[object]] = defaultdict(list)
    for name, content in sample_files(options):
        batch = json.loads(content)
        assert 1 <= len(batch) <= 100
        hosts = {event["actorHostname"] for event in batch}
        assert len(hosts) == 1
        host = hosts.pop()
        node = host.removesuffix(".example.com")
        assert name == f"provenance-{node}-{batch[0]['eventOrdinal']:010d}.json"
        from_files[host].extend(batch)
    expected: defaultdict[str, list[object]] = defaultdict(list)
    for event in sample_events(options):
        expected[str(event["actorHostname"])].append(event)
    assert from_files == expected


def test_only_the_last_file_of_a_node_may_be_short() -> None:
    sizes: defaultdict[str, list[int]] = defaultdict(list)
    for name, content in sample_files(SampleOptions(events=2_345, batch_size=100)):
        sizes[name.split("-")[1]].append(len(json.loads(content)))
    assert all(set(lengths[:-1]) == {100} for lengths in sizes.values())


def test_no_events_make_no_files() -> None:
    assert list(sample_files(SampleOptions(events=0))) == []


@pytest.mark.parametrize(("name", "value"), [("events", -1), ("nodes", 0), ("batch_size", 0), ("start_time_ms", -1)])
def test_senseless_options_are_refused_by_name(name: str, value: int) -> None:
    build: Callable[..., SampleOptions] = SampleOptions
    with pytest.raises(ValueError, match=f"sample {name}: expected at least"):
        build(**{name: value})
