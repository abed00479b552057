"""One small body of very many bad pieces: what it costs in files, in bytes of the disk, and in pieces that are held."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from custody.capture import Format
from custody.repository import Repository
from tests.attacks.every_door import Body, EveryDoor, every_door
from tests.unit.capture.sample_inputs import any_avro, avro_file, notification, own_event, payloads

PIECES = 20_000
BODIES = {
    "numbers in an array": json.dumps(list(range(PIECES)), separators=(",", ":")).encode(),
    "empty objects": b"[" + b",".join([b"{}"] * PIECES) + b"]",
    "broken lines": b"".join(b'{"a": [%d\n' % number for number in range(PIECES)),
    "empty lines of objects": b"{}\n" * PIECES,
    "arrays in an array": b"[" + b"[]," * PIECES + b"[]]",
    "texts": b"[" + b",".join(b'"%d"' % number for number in range(PIECES)) + b"]",
    "events without a type": json.dumps([{**payloads(1)[0], "eventType": ""}] * 3000).encode(),
    "copies that contradict each other": json.dumps(
        [own_event(number, source_node="one", source_ordinal=1) for number in range(3000)]
    ).encode(),
    "records of Avro": any_avro([{"flowfile_uuid": "x", "event_type": str(number)} for number in range(5000)]),
    "payloads in Avro": avro_file([{**payloads(1)[0], "eventType": ""}] * 3000),
    "entities without a name": json.dumps([notification({"id": ""})] * 3000).encode(),
}
DOORS = ("events", "openlineage", "site-to-site", "site-to-site-raw", "spool", "file", "landing", "ngsi")
FILES_MAX = 4
"""Of one body: what is rejected, what is stored with a warning, and what a file's first batches had."""


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EveryDoor]:
    with every_door(tmp_path_factory.mktemp("doors") / "r") as doors:
        yield doors


@pytest.mark.parametrize("kind", BODIES)
@pytest.mark.parametrize("door", DOORS)
def test_a_body_of_many_bad_pieces_costs_a_file_of_about_its_size(at: EveryDoor, door: str, kind: str) -> None:
    data = BODIES[kind]
    form = Format.NIFI_AVRO if "Avro" in kind else Format.CUSTODY if "copies" in kind else Format.NIFI
    media_type = "avro/binary" if "Avro" in kind else "application/json"
    before = set(at.quarantine_files())
    at.doors[door](Body(data, form, media_type))
    made = [path for path in at.quarantine_files() if path not in before]
    assert len(made) <= FILES_MAX
    # Reasons of the first thousand pieces beside their bytes.
    assert sum(path.stat().st_size for path in made) <= 4 * len(data) + 1_000_000


def test_what_a_body_of_bad_pieces_holds_in_memory_does_not_grow_with_their_reasons(at: EveryDoor) -> None:
    body = Body(b"[" + b",".join(b"%d" % number for number in range(200_000)) + b"]")
    at.file(Body(b"[0]"))
    tracemalloc.start()
    try:
        at.file(body)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 40 << 20


@pytest.mark.parametrize("door", ["file", "site-to-site", "spool"])
def test_no_piece_is_lost_however_many_there_are(tmp_path: Path, door: str) -> None:
    bad = [{**payloads(1)[0], "eventOrdinal": number, "entitySize": -1 - number} for number in range(2500)]
    events = bad if door != "spool" else [own_event(1, source_ordinal=n, file_size=-1 - n) for n in range(2500)]
    lines = b"".join(json.dumps(event).encode() + b"\n" for event in events)
    with every_door(tmp_path / "r") as at:
        data = lines if door == "spool" else json.dumps(events).encode()
        at.doors[door](Body(data, Format.NIFI))
        kept = [at.repository.quarantine.raw(key) for key in at.repository.quarantine.known_keys()]
        assert len(at.quarantine_files()) == 1
        assert sum(entry.pieces for entry in at.repository.quarantine.entries()) == 2500
    found = []
    for raw in kept:
        document = json.loads(raw)
        found += document if isinstance(document, list) else [document]
    assert found == events


def test_joined_pieces_that_can_be_read_by_now_are_stored_and_leave(tmp_path: Path) -> None:
    root = tmp_path / "r"
    Repository.create(root)
    (root / "custody.toml").write_text("[capture]\nevent_bytes_max = 4096\n")
    large = [{**event, "details": "x" * 5000} for event in payloads(1500)]
    path = tmp_path / "large.json"
    path.write_text(json.dumps(large))
    with Repository.open(root).ingest() as ingest:
        assert ingest.file(path).rejected == 1500
    (root / "custody.toml").write_text("")
    repository = Repository.open(root)
    with repository.ingest() as ingest:
        reports = list(ingest.resubmit_each(list(repository.quarantine.known_keys())))
    assert sum(report.stored for report in reports) == 1500
    assert list(repository.quarantine.known_keys()) == []
    assert list((root / "quarantine").iterdir()) == []


def test_the_same_body_again_adds_nothing_to_the_quarantine(tmp_path: Path) -> None:
    with every_door(tmp_path / "r") as at:
        for door in ("file", "events", "site-to-site"):
            data = BODIES["empty objects"]
            at.doors[door](Body(data))
            before = at.quarantine_files()
            if door == "file":
                with at.repository.ingest() as ingest:
                    ingest.file(at.root / "files" / "body-1.json", format=Format.NIFI)
            else:
                at.doors[door](Body(data))
            assert at.quarantine_files() == before
