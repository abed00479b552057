"""Each event of the sample has the shape and the values that the Site-to-Site reporter gives it."""

import re
from collections import defaultdict
from datetime import UTC, datetime

from custody.sample import SampleOptions, sample_events
from tests.unit.sample.story import BEAR_CHILDREN, ENDS, LOOKS, by_flowfile, story


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
