"""Notifications on a producer that hands them over with contents, and the files that one process makes of them."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from custody.clock import ManualClock
from custody.config import Settings
from custody.flow.content import with_content
from custody.lease import Attempt
from custody.model import Event
from custody.ngsi.http_notification import Accepts, Arrival, read_arrival
from custody.ngsi_sink.opening import open_sink
from custody.repository import Repository
from tests.support import files_below, run_steps

COUNT = 45_000
"""Of which each has one entity: five chunks."""
NOW_MS = 1_772_600_767_089
_DESTINATIONS = 7
_TOGETHER = 500
NGSI = '[ngsi]\nhdfs_username = "warden"\nhive = false\nbatch_size = 1000\nfile_format = "{mode}"\n'
HEADERS = {"content-type": "application/json", "fiware-service": "parks", "fiware-servicepath": "/north"}


def notify(repository: Repository) -> None:
    """Store the notifications as the receiver does."""
    accepts = Accepts.of(repository.settings.ngsi)
    with repository.writer() as writer:
        for first in range(0, COUNT, _TOGETHER):
            bodies = [_body(number) for number in range(first, first + _TOGETHER)]
            events: list[Event] = []
            for number, (body, content) in enumerate(zip(bodies, writer.content.put_many(bodies), strict=True), first):
                sent = {**HEADERS, "fiware-correlator": str(number)}
                read = read_arrival(Arrival(body, sent, "http://localhost/notify", None, NOW_MS + number), accepts)
                events += [with_content(event, content) for event in read.events]
            writer.append(events)


def hand_notifications_over(root: Path, mode: str) -> None:
    """Store the notifications on the producer, and give them to the store with their contents."""
    settings = root / "custody.toml"
    # Logs of the usual size, and no more of them than a pass does in a minute.
    settings.write_text(settings.read_text().replace("log_bytes_target = 60000", "log_bytes_target = 8000000"))
    with settings.open("a") as file:
        file.write(NGSI.format(mode=mode) + '[content]\nhandoff = "store"\n')
    repository = Repository.open(root)
    notify(repository)
    repository.hand_over()
    repository.hand_over_contents()


def written_locally(root: Path, mode: str) -> dict[str, bytes]:
    """Return the files that one process writes of the same notifications, on one disk."""
    root.mkdir()
    (root / "custody.toml").write_text(NGSI.format(mode=mode))
    repository = Repository.open(root)
    notify(repository)
    run_steps(repository.settings)
    with open_sink(
        Repository(Settings.from_json(repository.settings.to_json()), clock=ManualClock(NOW_MS + 10**6)),
        Attempt.new("local"),
    ) as opened:
        opened.run(until_ms=NOW_MS + COUNT)
    return files_below(root / "hdfs")


def _body(number: int) -> bytes:
    kind = number % _DESTINATIONS
    value = {"type": "Number", "value": number, "metadata": {}}
    # Attributes that come later: columns that nobody could know before.
    more = {f"at{number // 20_000}": {"type": "Text", "value": f'{number}, "q"', "metadata": {}}} if kind else {}
    entity = {"id": f"Bench{kind}", "type": "Bench", "seats": value, **more}
    return msgspec.json.encode({"subscriptionId": "1", "data": [entity]})


def chunks_planned_by_executors(report: dict[str, object]) -> int:
    """How many chunks of notifications executors planned, by the report of the step."""
    # Airflow has the details as text.
    [chunks] = re.findall(r"(\d+) chunks planned by executors", str(report["details"]))
    return int(chunks)
