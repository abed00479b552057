"""The events door behind the entrance, in this process, and what is delivered to it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from starlette.testclient import TestClient

from custody.clock import Clock, SystemClock
from custody.repository import Repository
from custody.serving.application import application
from custody.serving.door import Services
from custody.serving.doors import open_doors
from tests.unit.capture.sample_inputs import own_event

NDJSON = {"content-type": "application/x-ndjson"}


class EventsServer:
    """A client of the door, and the services behind it."""

    def __init__(self, client: TestClient, services: Services) -> None:
        self.client = client
        self.services = services

    def post(self, body: bytes, query: str = "", **headers: str) -> Any:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.client.post(f"/events{query}", content=body, headers={**NDJSON, **named})


@contextmanager
def events_server(
    root: Path, clock: Clock | None = None, *, capture: Mapping[str, object] | None = None, **limits: object
) -> Iterator[EventsServer]:
    """Open the door on a repository; `limits` replace settings of the section `serve`, `capture` those of that one."""
    repository = Repository.open(root)
    options = repository.settings.serve.model_copy(update=limits)
    bounded = repository.settings.capture.model_copy(update=capture or {})
    settings = repository.settings.model_copy(update={"serve": options, "capture": bounded})
    services = Services(repository, settings, clock or SystemClock())
    try:
        with (
            open_doors(["events"], services) as doors,
            TestClient(
                application(options, doors), base_url="http://localhost", raise_server_exceptions=False
            ) as client,
        ):
            yield EventsServer(client, services)
    finally:
        services.close()


def ndjson(events: Iterable[dict[str, object]]) -> bytes:
    return b"".join(json.dumps(item).encode() + b"\n" for item in events)


def numbered(numbers: Iterable[int], **changes: object) -> list[dict[str, object]]:
    """Events with ordinals of their own."""
    return [own_event(number, source_node="shop", source_ordinal=number, **changes) for number in numbers]


def arrow(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return bytes(sink.getvalue())


def as_table(events: list[dict[str, object]]) -> pa.Table:
    """Events as columns, as a producer would write them."""
    attributes = pa.map_(pa.string(), pa.string())
    columns: dict[str, Any] = {}
    for name in sorted(set().union(*events)):
        values: list[Any] = [item.get(name) for item in events]
        kind = attributes if name.endswith("_attributes") else None
        columns[name] = pa.array([list(value.items()) for value in values] if kind else values, kind)
    return pa.table(columns)
