"""A repository with notifications that were received, and the sink that writes them; no process, no socket."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from custody.clock import Clock, ManualClock
from custody.config import Settings
from custody.errors import StorageError
from custody.flow.content import with_content
from custody.ingest.slots import SlotWriter
from custody.lease import Attempt
from custody.model import Event
from custody.ngsi.http_notification import Accepts, Arrival, read_arrival
from custody.ngsi.parameters import Parameters
from custody.ngsi_sink.batch_file import WRITER, FileAppend
from custody.ngsi_sink.opening import OpenSink, open_sink, open_target
from custody.ngsi_sink.run import SinkReport
from custody.ngsi_sink.target import Target
from custody.repository import Repository
from custody.vfs import PosixFileSystem
from tests.support import files_below, run_steps

NOW_MS = 1_772_600_767_089
ROWS = "/user/warden/parks/north/Bench1_Bench/Bench1_Bench.txt"
TREES = "/user/warden/parks/north/Tree_Bench/Tree_Bench.txt"
"""The files of two entities."""
HEADERS = {"content-type": "application/json", "fiware-service": "parks", "fiware-servicepath": "/north"}


def settings(root: Path, **ngsi: object) -> Settings:
    return Settings.model_validate(
        {
            "root": root,
            "repository": {"containers": ["disk1"], "writer_slots": 2},
            "ngsi": {"hdfs_username": "warden", "hive": False, "batch_retry_intervals": "10", "batch_ttl": 1, **ngsi},
        }
    )


def bench(number: int, entity: str = "Bench1", **values: Any) -> bytes:
    """A notification whose value tells it from all others."""
    attributes = values or {"seats": {"type": "Number", "value": 1000 + number, "metadata": {}}}
    return json.dumps({"subscriptionId": "1", "data": [{"id": entity, "type": "Bench", **attributes}]}).encode()


def receive(repository: Repository, bodies: Sequence[bytes], at_ms: int = NOW_MS, **headers: str) -> list[str]:
    """Store notifications as the receiver does; return the FlowFiles of their events."""
    accepts = Accepts.of(repository.settings.ngsi)
    uuids = []
    with repository.writer() as writer:
        for place, body in enumerate(bodies):
            sent_headers = {**HEADERS, **headers, "fiware-correlator": f"{at_ms}-{place}"}
            read = read_arrival(Arrival(body, sent_headers, "http://localhost/notify", None, at_ms), accepts)
            assert read.events, read.refusal
            [stored] = writer.content.put_many([body])
            writer.append([with_content(event, stored) for event in read.events])
            uuids += [event.flowfile_uuid for event in read.events]
    return uuids


def append(writer: SlotWriter, repository: Repository, number: int, at_ms: int = NOW_MS) -> None:
    """Let a writer that is open store one notification, which is acknowledged on return."""
    body = bench(number)
    sent_headers = {**HEADERS, "fiware-correlator": str(number)}
    read = read_arrival(
        Arrival(body, sent_headers, "http://localhost/notify", None, at_ms), Accepts.of(repository.settings.ngsi)
    )
    [content] = writer.content.put_many([body])
    writer.append([with_content(event, content) for event in read.events])


def received(root: Path, bodies: Sequence[bytes], clock: Clock | None = None, **ngsi: object) -> Repository:
    """A repository in whose event logs some notifications are."""
    root.mkdir(parents=True, exist_ok=True)
    repository = Repository(settings(root, **ngsi), clock=clock or ManualClock(NOW_MS))
    receive(repository, bodies)
    run_steps(repository.settings)
    return repository


def opened(
    repository: Repository, target: Target | None = None, attempt: str = "test/1", **options: Any
) -> AbstractContextManager[OpenSink]:
    return open_sink(
        repository, Attempt.parse(attempt), target=target, sleep=options.pop("sleep", lambda _: None), **options
    )


def files(repository: Repository) -> dict[str, bytes]:
    return {f"/{path}": data for path, data in files_below(repository.settings.root / "hdfs").items()}


class Refusing:
    """A target that refuses some files, as long as it is told to."""

    def __init__(self, inner: Target) -> None:
        self._inner = inner
        self.lengths: set[str] = set()
        self.writes: set[str] = set()
        """Parts of paths; what has one of them in it is refused."""
        self.attempts = 0

    def length(self, path: str) -> int:
        self._refuse(path, self.lengths)
        return self._inner.length(path)

    def absent(self, paths: Sequence[str]) -> set[str]:
        return set()  # as `apply_together`

    def apply(self, part: FileAppend, data: memoryview) -> None:
        self._refuse(part.path, self.writes)
        self._inner.apply(part, data)

    def apply_together(
        self, parts: Sequence[FileAppend], data: Sequence[memoryview], check: Callable[[], None]
    ) -> set[int]:
        return set()  # each is asked for, so that each can be refused

    def uri(self, path: str) -> str:
        return self._inner.uri(path)

    def close(self) -> None:
        self._inner.close()

    def _refuse(self, path: str, refused: set[str]) -> None:
        self.attempts += 1
        if any(word in path for word in refused):
            raise StorageError(f"{path}: permission denied")


def persist(repository: Repository, target: Refusing | None = None, until_ms: int | None = None) -> SinkReport:
    with opened(repository, target) as job:
        return job.run(until_ms=until_ms)


def again(repository: Repository, target: Refusing | None = None) -> SinkReport:
    with opened(repository, target) as job:
        return job.resubmit()


def values(repository: Repository, path: str = ROWS) -> list[str]:
    return [json.loads(line)["attrValue"] for line in files(repository).get(path, b"").splitlines()]


def send_events(repository: Repository) -> list[Event]:
    return list(repository.events(0, 10_000, WRITER))


def refusing(repository: Repository) -> Refusing:
    parameters = Parameters.from_section(repository.settings.ngsi, repository.settings.root)
    return Refusing(open_target(parameters, PosixFileSystem(), repository.settings.root))
