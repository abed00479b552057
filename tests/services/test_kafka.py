"""Exports to a real Kafka: every event in order, also when the broker ends and comes back, and when a run is killed."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from custody.export.export_run import refused_entries
from custody.lease import Attempt
from custody.repository import Repository
from tests.services.kafka import kafka
from tests.support import INCLUDE, append, event
from tests.unit.export.test_export_run import box, made

pytestmark = pytest.mark.slow
confluent_kafka = pytest.importorskip("confluent_kafka")
KILLS = 12
EVENTS = 20_000
RUN = """
import sys
from custody.cli.main import main
sys.argv = ["custody", "-r", sys.argv[1], "export", "box", "--follow", "--poll", "0.05"]
main()
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with kafka(tmp_path_factory.mktemp("kafka")) as address:
        yield address


def records(broker: str, topic: str, seconds: float = 5.0) -> list[tuple[str, dict[str, Any]]]:
    """All records of a topic, key and event, in the order of their partition."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": broker, "group.id": topic, "auto.offset.reset": "earliest", "enable.partition.eof": True}
    )
    partitions = [confluent_kafka.TopicPartition(topic, number, 0) for number in range(3)]
    consumer.assign(partitions)
    taken: list[tuple[str, dict[str, Any]]] = []
    ends: set[int] = set()
    until = time.monotonic() + seconds
    while len(ends) < len(partitions) and time.monotonic() < until:
        record = consumer.poll(0.2)
        if record is None:
            continue
        if record.error():
            assert record.error().name() == "_PARTITION_EOF", record.error()
            ends.add(record.partition())
            continue
        taken.append((record.key().decode(), json.loads(record.value())))
        until = time.monotonic() + seconds
    consumer.close()
    return taken


def test_a_topic_gets_every_event_of_a_writer_in_order(tmp_path: Path, broker: str) -> None:
    repository = made(tmp_path / "r", kind="kafka", url=broker, topic="in-order", batch_events=100)
    append(repository, [event(number) for number in range(1000)])
    with box(repository).started(Attempt.new("test")) as run:
        assert run.deliver_waiting().delivered == 1000
    taken = records(broker, "in-order")
    assert {key for key, _ in taken} == {"main"}
    assert [item["eventOrdinal"] for _, item in taken] == list(range(1000))


def test_a_record_that_is_too_large_goes_to_the_quarantine(tmp_path: Path, broker: str) -> None:
    repository = made(
        tmp_path / "r", kind="kafka", url=broker, topic="sizes", options={"message.max.bytes": "20000000"}
    )
    append(repository, [event(0), event(1, updated_attributes={"a": "x" * 900_000, "b": "y" * 900_000}), event(2)])
    with box(repository).started(Attempt.new("test")) as run:
        report = run.deliver_waiting()
    assert (report.delivered, report.refused) == (2, 1)
    assert [entry.index for entry in refused_entries(repository.quarantine, "box")] == [1]
    # The first of a batch may be there twice: it was sent with the one that was refused.
    assert {item["eventOrdinal"] for _, item in records(broker, "sizes")} == {0, 2}


def test_followers_that_are_killed_again_and_again_lose_nothing(tmp_path: Path, broker: str) -> None:
    repository = made(tmp_path / "r", kind="kafka", url=broker, topic="killed", batch_events=50)
    environment = {"PYTHONPATH": str(INCLUDE)}
    followers = 0
    process: subprocess.Popen[bytes] | None = None
    with repository.writer() as writer:
        for start in range(0, EVENTS, 500):
            writer.append([event(number) for number in range(start, start + 500)])
            if process is None and followers <= KILLS:
                process = subprocess.Popen([sys.executable, "-c", RUN, str(tmp_path / "r")], env=environment)
                followers += 1
            elif process is not None:
                time.sleep(0.6)
                process.kill()
                process.wait()
                process = None
    if process is not None:
        process.kill()
        process.wait()
    assert followers > KILLS
    with box(Repository.open(tmp_path / "r")).started(Attempt.new("test")) as run:
        run.deliver_waiting()
    ordinals = [item["eventOrdinal"] for _, item in records(broker, "killed")]
    firsts = list(dict.fromkeys(ordinals))
    # In order but for what a killed run's successor told again, and nothing is missing.
    assert firsts == list(range(EVENTS))
    assert len(ordinals) <= EVENTS + 50 * followers


def test_a_broker_that_comes_back_gets_what_waited(tmp_path: Path) -> None:
    repository = made(
        tmp_path / "r", kind="kafka", url="127.0.0.1:1", topic="back", timeout_seconds=2.0, retry_seconds=0
    )
    append(repository, [event(number) for number in range(10)])
    with pytest.raises(OSError, match="Kafka topic 'back'"), box(repository).started(Attempt.new("test")) as run:
        run.deliver_waiting()
    with kafka(tmp_path / "kafka") as address:
        settings = tmp_path / "r" / "custody.toml"
        settings.write_text(settings.read_text().replace("127.0.0.1:1", address))
        with box(repository).started(Attempt.new("test")) as run:
            assert run.deliver_waiting().delivered == 10
        assert [item["eventOrdinal"] for _, item in records(address, "back")] == list(range(10))
