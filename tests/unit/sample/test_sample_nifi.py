"""The sample generator tells one consistent story, in the shape of the Site-to-Site reporter."""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import cache

import msgspec
import pytest

from custody.sample import SampleOptions, sample_events, sample_files, unknown_event

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
BORN_ALONE = {"CREATE", "RECEIVE", "JOIN"}
BEAR_CHILDREN = {"FORK", "CLONE", "REPLAY"}
ENDS = {"DROP", "EXPIRE"}
# An operator's acts show a FlowFile, but are not part of what happens to it.
LOOKS = {"DOWNLOAD", "REPLAY"}
FRAGMENT_KEYS = {
    "fragment.identifier",
    "fragment.index",
    "fragment.count",
    "segment.original.filename",
}


class Event(msgspec.Struct, forbid_unknown_fields=True):
    """The JSON types of an event; conversion to it is strict."""

    eventId: str
    eventOrdinal: int
    eventType: str
    timestampMillis: int
    timestamp: str
    durationMillis: int
    lineageStart: int
    componentId: str
    componentType: str
    entityId: str
    entityType: str
    entitySize: int
    updatedAttributes: dict[str, str | None]
    previousAttributes: dict[str, str]
    actorHostname: str
    contentURI: str
    previousContentURI: str
    parentIds: list[str]
    childIds: list[str]
    platform: str
    application: str
    details: str | None = None
    componentName: str | None = None
    processGroupId: str | None = None
    processGroupName: str | None = None
    previousEntitySize: int | None = None
    transitUri: str | None = None
    remoteIdentifier: str | None = None
    alternateIdentifier: str | None = None

    @property
    def session(self) -> tuple[str, int]:
        return self.componentId, self.timestampMillis

    def applied(self) -> dict[str, str]:
        merged = {**self.previousAttributes, **self.updatedAttributes}
        return {name: value for name, value in merged.items() if value is not None}


@cache
def story() -> list[Event]:
    """20,000 events of two nodes; with nulls, so that removed attributes can be seen."""
    options = SampleOptions(events=20_000, seed=11, include_nulls=True)
    return msgspec.convert(list(sample_events(options)), list[Event])


def births(event: Event) -> list[str]:
    if event.eventType in BORN_ALONE:
        return [event.entityId]
    return event.childIds if event.eventType in BEAR_CHILDREN else []


def by_flowfile(events: list[Event]) -> dict[str, list[Event]]:
    histories: defaultdict[str, list[Event]] = defaultdict(list)
    for event in events:
        histories[event.entityId].append(event)
    return histories


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
        kept = {name: value for name, value in updates.items() if value is not None}
        removals += len(updates) - len(kept)
        event["updatedAttributes"] = kept
    bare = [{k: v for k, v in event.items() if v is not None} for event in with_nulls]
    assert removals > 0
    assert bare == list(sample_events(SampleOptions()))


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


def test_relatives_are_named_as_the_type_demands() -> None:
    for event in story():
        if event.eventType == "JOIN":
            assert event.childIds == [event.entityId]
            assert len(event.parentIds) > 1
        elif event.eventType in BEAR_CHILDREN:
            assert event.parentIds == [event.entityId]
            assert len(event.childIds) == 1 or event.eventType == "FORK"
        else:
            assert not event.parentIds and not event.childIds


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


def test_every_replay_takes_the_step_again_with_the_attributes_from_before_it() -> None:
    histories = by_flowfile(story())
    replays = [event for event in story() if event.eventType == "REPLAY"]
    assert len(replays) > 5
    for replay in replays:
        replayed = next(
            event
            for event in histories[replay.entityId]
            if event.componentId == replay.componentId and event.eventType == "ROUTE"
        )
        shown = dict(replay.updatedAttributes)
        assert shown.pop("uuid") == replay.childIds[0]
        assert shown.pop("flowfile.replay") == "true"
        assert re.fullmatch(
            r"[A-Z][a-z]{2} [A-Z][a-z]{2} \d\d \d\d:\d\d:\d\d UTC 2026",
            shown.pop("flowfile.replay.timestamp") or "",
        )
        # What an earlier replay added is replaced, not kept.
        marks = {"uuid", "flowfile.replay", "flowfile.replay.timestamp"}
        assert shown == {k: v for k, v in replayed.previousAttributes.items() if k not in marks}


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


def test_ordinals_are_one_up_and_times_never_fall() -> None:
    ordinals: dict[str, int] = {}
    now = SampleOptions().start_time_ms
    for event in story():
        assert event.timestampMillis >= now
        now = event.timestampMillis
        if event.actorHostname in ordinals:
            assert event.eventOrdinal == ordinals[event.actorHostname] + 1
        ordinals[event.actorHostname] = event.eventOrdinal
    assert len(ordinals) == SampleOptions().nodes


def test_the_timestamp_text_is_the_same_instant_in_utc() -> None:
    for event in story():
        instant = datetime.strptime(event.timestamp, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)
        seconds, millis = divmod(event.timestampMillis, 1000)
        assert (int(instant.timestamp()), instant.microsecond) == (seconds, millis * 1000)
        assert len(event.timestamp) == len("2026-03-02T00:00:00.000Z")


def test_a_flowfile_stays_on_its_node() -> None:
    hosts: dict[str, str] = {}
    for event in story():
        for uuid in (event.entityId, *event.parentIds, *event.childIds):
            assert hosts.setdefault(uuid, event.actorHostname) == event.actorHostname


def test_content_addresses_name_the_node_and_the_ordinal() -> None:
    node_ids: defaultdict[str, set[str]] = defaultdict(set)
    for event in story():
        base = f"https://{event.actorHostname}:8443/nifi-api/provenance-events/{event.eventOrdinal}"
        assert event.contentURI.startswith(f"{base}/content/output?clusterNodeId=")
        assert event.previousContentURI == event.contentURI.replace("/output?", "/input?")
        node_ids[event.actorHostname].add(event.contentURI.partition("=")[2])
    assert all(len(ids) == 1 for ids in node_ids.values())
    assert len(set.union(*node_ids.values())) == len(node_ids)


def test_a_standalone_instance_names_no_cluster_node() -> None:
    for event in sample_events(SampleOptions(events=500, nodes=1)):
        assert str(event["contentURI"]).endswith("/content/output")


def test_each_type_carries_what_it_must() -> None:
    for event in story():
        if event.eventType in {"RECEIVE", "FETCH", "SEND", "UPLOAD", "DOWNLOAD"}:
            assert event.transitUri
        if event.eventType in ENDS | LOOKS | {"UPLOAD"}:
            assert event.details
        assert (event.alternateIdentifier is not None) == (event.eventType == "ADDINFO")
        assert (event.processGroupId is None) == (event.eventType == "DOWNLOAD")
        assert event.durationMillis >= (-1 if event.eventType in LOOKS | {"EXPIRE"} else 0)


def test_event_ids_are_random_uuids_and_all_different() -> None:
    uuid4 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
    ids = {event.eventId for event in story()} | {event.entityId for event in story()}
    assert len({event.eventId for event in story()}) == len(story())
    assert all(uuid4.fullmatch(text) for text in ids)


def test_a_download_names_an_earlier_event_of_the_same_flowfile() -> None:
    downloads = [event for event in story() if event.eventType == "DOWNLOAD"]
    histories = by_flowfile(story())
    assert downloads
    for download in downloads:
        ordinal = int((download.details or "").rpartition(" ")[2])
        assert f"/provenance-events/{ordinal}/content/output" in (download.transitUri or "")
        assert ordinal < download.eventOrdinal
        assert ordinal in {event.eventOrdinal for event in histories[download.entityId]}


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


def test_site_to_site_receipts_keep_the_remote_identifier() -> None:
    receipts = [event for event in story() if event.remoteIdentifier]
    assert {(event.eventType, event.componentType) for event in receipts} == {("RECEIVE", "Remote Output Port")}
    for event in receipts:
        remote = (event.remoteIdentifier or "").removeprefix("urn:nifi:")
        assert (event.transitUri or "").endswith(remote)


def test_all_hosts_are_under_example_com() -> None:
    for event in story():
        hosts = re.findall(r"[a-z0-9]+://([^/:]+)", event.transitUri or "")
        for host in (event.actorHostname, *hosts):
            assert host.endswith(".example.com")


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


@pytest.mark.parametrize(("name", "value"), [("events", -1), ("nodes", 0), ("batch_size", 0), ("start_time_ms", -1)])
def test_senseless_options_are_refused_by_name(name: str, value: int) -> None:
    build: Callable[..., SampleOptions] = SampleOptions
    with pytest.raises(ValueError, match=f"sample {name}: expected at least"):
        build(**{name: value})
