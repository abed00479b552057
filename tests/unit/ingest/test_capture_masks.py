"""Masks at capture: whichever way events come in, no masked value is on the disk; what was masked is known again."""

from __future__ import annotations

import base64
import gzip
import io
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from starlette.testclient import TestClient

from custody.capture import CaptureLimits
from custody.client import Spool
from custody.client.spool_delivery import SpoolDelivery
from custody.clock import ManualClock, SystemClock
from custody.flow import Component
from custody.ingest.spool_ingest import RepositorySender
from custody.model import MASK, Event, to_batch
from custody.repository import Repository
from custody.serving.application import application
from custody.serving.door import Services
from custody.serving.doors import open_doors
from tests.support import event, files_below, run_steps
from tests.unit.capture.sample_inputs import (
    array,
    avro_file,
    dto,
    entity,
    lines,
    notification,
    own_event,
    payloads,
    run_event,
)
from tests.unit.serving.events_server import arrow, as_table
from tests.unit.serving.test_events_door import AVRO_SCHEMA
from tests.unit.serving.test_site_to_site_door import Port, packet

SECRET = "swordfish"  # noqa: S105 - what must be on no disk
MASKS = ["*PASSword*", "seats"]
COMPONENT = Component(id="till", type="Till")
NAME = "db.password"
BEFORE = {"filename": "a.csv", NAME: f"old-{SECRET}", "kind": "order"}
AFTER = {NAME: SECRET, "Password": f"{SECRET}2", "kind": "order"}
FACET = {"environmentVariables": [{"name": "DB_PASSWORD", "value": SECRET}], "login": {"password": SECRET}}


def made(folder: Path, *masks: str) -> Repository:
    """A repository whose files are not compressed, so that a value is found in their bytes."""
    repository = Repository.create(folder)
    masked(repository, *masks)
    return Repository.open(folder)


def masked(repository: Repository, *masks: str) -> Repository:
    """The same repository with other masks."""
    settings = f'[capture]\nmask_attributes = {json.dumps(masks)}\n[eventlog]\ncompression = "none"\n'
    (repository.settings.root / "custody.toml").write_text(settings + f'[index]\nattributes = ["{NAME}"]\n')
    return Repository.open(repository.settings.root)


def nifi(count: int = 3) -> list[dict[str, Any]]:
    return [{**one, "previousAttributes": {**BEFORE}, "updatedAttributes": {**AFTER}} for one in payloads(count)]


def odd(count: int = 3) -> list[dict[str, Any]]:
    """Payloads that go the careful way: with keys that custody does not know."""
    return [{**one, "site": {"password": SECRET, "name": "east"}} for one in nifi(count)]


def rest() -> list[dict[str, Any]]:
    listed = [{"name": name, "value": AFTER.get(name), "previousValue": BEFORE.get(name)} for name in AFTER]
    return [dto(number, attributes=listed, more={"password": SECRET}) for number in (1, 2, 3)]


def runs() -> list[dict[str, Any]]:
    return [run_event(number=number, run={"runId": f"run-{number}", "facets": FACET}) for number in (1, 2, 3)]


def own() -> list[dict[str, Any]]:
    extra = json.dumps({"password": SECRET})
    changes = {"previous_attributes": BEFORE, "updated_attributes": AFTER, "extra": extra}
    return [own_event(number, source_node="shop", source_ordinal=number, **changes) for number in (1, 2, 3)]


def benches() -> list[dict[str, Any]]:
    return [notification({**entity(number), "password": {"type": "Text", "value": SECRET}}) for number in (1, 2, 3)]


FILES: dict[str, bytes] = {
    "NiFi's array": array(nifi(40)),
    "NiFi's lines": lines(nifi()),
    "NiFi's array with odd events": array([*nifi(2), *odd(4)[2:]]),
    "NiFi's odd lines": lines(odd()),
    "NiFi's array, packed": gzip.compress(array(nifi())),
    "NiFi's REST": json.dumps({"provenanceEvents": rest()}).encode(),
    "NiFi's Avro": avro_file(nifi()),
    "OpenLineage": lines(runs()),
    "NGSI": lines(benches()),
    "custody": lines(own()),
}
"""Files with the secret in every attribute; those of NGSI have it in their payload, which no event has."""


def plain(count: int) -> list[Event]:
    extra = json.dumps({"password": SECRET})
    return [event(n, previous_attributes=BEFORE, updated_attributes=AFTER, extra=extra) for n in range(count)]


def ingest(repository: Repository, data: bytes, name: str = "file") -> Any:
    path = repository.settings.root.parent / name
    path.write_bytes(data)
    with repository.ingest() as work:
        return work.file(path)


@contextmanager
def doors(repository: Repository, *names: str) -> Iterator[TestClient]:
    services = Services(repository, repository.settings, SystemClock())
    try:
        with (
            open_doors(names, services) as opened,  # type: ignore[arg-type]
            TestClient(
                application(repository.settings.serve, opened),
                base_url="http://localhost",
                raise_server_exceptions=False,
            ) as client,
        ):
            yield client
    finally:
        services.close()


def posted(repository: Repository, body: bytes, kind: str, door: str = "events", path: str = "/events") -> None:
    with doors(repository, door) as client:
        answer = client.post(path, content=body, headers={"content-type": kind, "fiware-service": "parks"})
        assert answer.status_code < 300, answer.text
        assert SECRET not in answer.text
        assert SECRET not in client.get("/metrics").text


def avro_records() -> bytes:
    sink = io.BytesIO()
    fastavro.writer(sink, AVRO_SCHEMA, [{"transit_uri": None, **own_event(1, updated_attributes=AFTER)}])
    return bytes(sink.getvalue())


def by_session(repository: Repository) -> None:
    with repository.session(COMPONENT) as session:
        flowfile = session.create(BEFORE)
        session.modify_attributes(flowfile, AFTER)


def by_queues(repository: Repository) -> None:
    with repository.flowfiles() as flow:
        flow.connect("orders", consumer="sort")
        with flow.session(COMPONENT) as session:
            session.transfer(session.create(BEFORE), "orders")
        with flow.session(COMPONENT) as session:
            flowfile = session.get("orders")
            assert flowfile is not None
            # The flow goes on with the values: only its record has none.
            assert flowfile.attributes[NAME] == BEFORE[NAME]
            session.put_attributes(flowfile, AFTER)
            session.remove(flowfile)


def by_site_to_site(repository: Repository) -> None:
    port = Port(repository.settings.root, ManualClock(1_772_409_600_000))
    try:
        assert port.deliver(packet([*nifi(), *odd(5)[3:]])).status_code == 200
    finally:
        port.close()


def by_spool(repository: Repository) -> None:
    folder = repository.settings.root.parent / "spool"
    with Spool(folder) as spool:
        spool.append(plain(3))
    with repository.ingest() as work:
        SpoolDelivery(folder, RepositorySender(work, CaptureLimits(1 << 20), "spool")).deliver()


def columns(count: int) -> pa.RecordBatch:
    return to_batch(plain(count), 0).drop_columns(["event_id"])


ARROW, AVRO, LINES = "application/vnd.apache.arrow.stream", "application/avro", "application/x-ndjson"
WAYS: dict[str, Callable[[Repository], object]] = {
    **{name: partial(ingest, data=data) for name, data in FILES.items()},
    "append few": lambda repository: repository.append(plain(3)),
    "append many": lambda repository: repository.append(plain(100)),
    "append few columns": lambda repository: repository.append_columns(columns(3)),
    "append many columns": lambda repository: repository.append_columns(columns(100).slice(10, 60)),
    "append with content": lambda repository: repository.append_with_content(plain(2), b"of a content"),
    "session": by_session,
    "queues": by_queues,
    "spool": by_spool,
    "events door, lines": lambda repository: posted(repository, lines(own()), LINES),
    "events door, Arrow": lambda repository: posted(repository, arrow(as_table(own())), ARROW),
    "events door, Avro": lambda repository: posted(repository, avro_records(), AVRO),
    "OpenLineage door": lambda repository: posted(
        repository, json.dumps(runs()[0]).encode(), "application/json", "openlineage", "/api/v1/lineage"
    ),
    "Site-to-Site": by_site_to_site,
}


def is_in(data: bytes) -> bool:
    """Whether the secret is among some bytes, as text or as what usual encodings make of it."""
    spellings = [
        SECRET.encode(),
        SECRET.encode("utf-16-le"),
        base64.b64encode(SECRET.encode())[:-2],
        SECRET[::-1].encode(),
    ]
    return any(one in data for one in spellings)


def found_in(repository: Repository, *but: str) -> list[str]:
    """The files of a repository in which the secret is."""
    root = repository.settings.root
    return [name for name, data in files_below(root).items() if not name.startswith(but) and is_in(data)]


@pytest.mark.parametrize("way", list(WAYS))
def test_no_way_in_brings_a_masked_value_to_the_disk(
    way: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    plainly = made(tmp_path / "plain" / "r")
    WAYS[way](plainly)
    # What the test looks for is there where nothing is masked; of NGSI an event never has values.
    assert bool(found_in(plainly, "flowfiles/")) == (way != "NGSI")
    repository = made(tmp_path / "masked" / "r", *MASKS)
    WAYS[way](repository)
    # Of FlowFiles that wait the values are needed: the queue is no record of what happened.
    assert found_in(repository, "flowfiles/" if way == "queues" else "-") == []
    events, others = list(repository.events()), list(plainly.events())
    assert len(events) == len(others) > 0
    for one, other in zip(events, others, strict=True):
        for name in ("previous_attributes", "updated_attributes"):
            values = getattr(one, name)
            assert values.keys() == getattr(other, name).keys()
            shown = {key: value for key, value in getattr(other, name).items() if "password" not in key.lower()}
            assert {key: value for key, value in values.items() if key in shown} == shown or way in (
                "session",
                "queues",
            )
            assert {value for key, value in values.items() if key not in shown} <= {MASK, None}
        assert (one.source_node, one.source_ordinal) == (other.source_node, other.source_ordinal) or way == "queues"
    out, err = capfd.readouterr()
    assert SECRET not in out + err + caplog.text


def test_logs_and_index_have_what_the_journals_had(tmp_path: Path) -> None:
    for masks, expected in (((), True), (MASKS, False)):
        repository = made(tmp_path / f"r{len(masks)}", *masks)
        for name in ("append many", "NiFi's array", "OpenLineage"):
            WAYS[name](repository)
        run_steps(repository.settings)
        opened = Repository.open(repository.settings.root)
        assert [opened.search(f"attribute.{NAME}:{text}").total > 0 for text in (SECRET, f'"{MASK}"')] == [
            expected,
            not expected,
        ]
        assert bool(found_in(opened)) is expected


FORMATS = (
    "NiFi's array",
    "NiFi's lines",
    "NiFi's odd lines",
    "NiFi's REST",
    "NiFi's Avro",
    "OpenLineage",
    "NGSI",
    "custody",
)


@pytest.mark.parametrize("first", [(), MASKS], ids=["mask switched on", "mask switched off"])
@pytest.mark.parametrize("name", FORMATS)
def test_what_is_sent_again_after_the_masks_changed_is_a_repetition(
    name: str, first: Sequence[str], tmp_path: Path
) -> None:
    repository = made(tmp_path / "r", *first)
    stored = ingest(repository, FILES[name])
    assert (stored.stored, stored.rejected) == (stored.read, 0)
    other = masked(repository, *(() if first else MASKS))
    again = ingest(other, FILES[name], "again")
    assert (again.stored, again.repeated, again.rejected) == (0, stored.read, 0)
    preview = other.ingest_preview().preview(tmp_path / "again")
    assert (preview.to_store, preview.repeated) == (0, stored.read)
    if name == "NiFi's array":  # from a log as from a journal
        run_steps(other.settings, "rollover", "compress", "index", "commit")
        again = ingest(Repository.open(other.settings.root), FILES[name], "once-more")
        assert (again.stored, again.repeated, again.rejected) == (0, stored.read, 0)


@pytest.mark.parametrize("masks", [(), MASKS])
def test_what_differs_beside_the_masked_values_is_still_a_contradiction(masks: Sequence[str], tmp_path: Path) -> None:
    repository = made(tmp_path / "r", *MASKS)
    ingest(repository, FILES["NiFi's array"])
    other = masked(repository, *masks)
    changed = nifi(40)
    changed[7]["updatedAttributes"] = {**AFTER, "kind": "another"}
    del changed[8]["updatedAttributes"]["Password"]
    changed[9] = {**changed[9], "updatedAttributes": {**AFTER, NAME: "another value of what was masked"}}
    report = ingest(other, array(changed), "changed")
    assert (report.stored, report.repeated, report.rejected) == (0, 38, 2)
    assert SECRET not in "".join(report.problems)


def test_a_message_about_attributes_does_not_show_their_values(tmp_path: Path) -> None:
    repository = made(tmp_path / "r", *MASKS)
    wrong = {**payloads(1)[0], "updatedAttributes": {NAME: SECRET, "n": 1}}
    listed = [{"name": "n", "value": {"password": SECRET}, "previousValue": None}]
    for number, data in enumerate((array([wrong]), lines([dto(1, attributes=listed)]), avro_file(nifi())[:-30])):
        report = ingest(repository, data, str(number))
        assert report.rejected >= 1
        assert SECRET not in "".join(report.problems)
    assert SECRET not in "".join(entry.message for entry in repository.quarantine.entries())
    # The pieces themselves are kept as they came: they are tried again from there.
    assert {name.split("/")[0] for name in found_in(repository)} == {"quarantine"}


def test_what_is_tried_again_from_the_quarantine_is_masked(tmp_path: Path) -> None:
    repository = made(tmp_path / "r", *MASKS)
    ingest(repository, array([{**nifi(1)[0], "eventType": "A_NEW_ONE"}]))  # stored with a warning, whose copy is kept
    [entry] = repository.quarantine.entries()
    assert {name.split("/")[0] for name in found_in(repository)} == {"quarantine"}
    with repository.ingest() as work:
        assert work.resubmit(entry.key).repeated == 1
    assert found_in(repository) == []
    ingest(repository, array([{**nifi(1)[0], "eventOrdinal": 77, "entitySize": -1}]), "bad")
    [entry] = repository.quarantine.entries()
    assert SECRET.encode() in repository.quarantine.raw(entry.key)


def test_the_body_of_a_notification_is_a_content_and_no_attribute(tmp_path: Path) -> None:
    repository = made(tmp_path / "r", *MASKS)
    posted(repository, json.dumps(benches()[0]).encode(), "application/json", "ngsi", "/notify")
    assert {name.split("/")[2] for name in found_in(repository)} == {"content"}
    [stored] = repository.events()
    assert repository.content(stored).read() == json.dumps(benches()[0]).encode()


def test_own_attributes_are_kept_however_wide_the_mask(tmp_path: Path) -> None:
    repository = made(tmp_path / "r", "*")
    repository.append_with_content(plain(1), b"a content")
    [stored] = repository.events()
    assert repository.content(stored).read() == b"a content"
    assert {name for name, value in stored.updated_attributes.items() if value != MASK} == {"content.sha256"}


def test_an_event_without_a_value_of_a_masked_attribute_is_not_replayed(tmp_path: Path) -> None:
    repository = made(tmp_path / "r", *MASKS)
    with repository.flowfiles() as flow:
        flow.connect("orders", consumer="sort")
        with flow.session(COMPONENT) as session:
            for attributes in (BEFORE, {"kind": "order"}):
                session.transfer(session.create(attributes), "orders")
        with flow.session(COMPONENT) as session:
            while (flowfile := session.get("orders")) is not None:
                session.remove(flowfile)
    plan = repository.plan_replay("event_type:DROP")
    assert len(plan.events) == 1
    [refusal] = plan.refused
    assert (refusal.code, refusal.detail) == ("masked-attribute", NAME)
    assert SECRET not in refusal.message
