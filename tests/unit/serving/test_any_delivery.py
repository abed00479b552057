"""Whatever is sent to the doors that take events: it is stored or refused, and no door says that it failed itself."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from custody.clock import SystemClock
from custody.repository import Repository
from custody.serving.application import Access, application
from custody.serving.door import Services
from custody.serving.doors import open_doors
from tests.fuzzing import HEADER_VALUES, ODD, Answered, Asked, asked
from tests.nifi_client import attributes, packed
from tests.support import event
from tests.unit.capture.sample_inputs import payloads, run_event

Ask = Callable[[Asked], Answered]
PORT = "/nifi-api/data-transfer/input-ports/{}/transactions"
FORMS = (
    *("/api/v1/lineage", "/openlineage/api/v1/lineage", "/api/v1/lineage/batch", "/events", "/contents/{}"),
    *("/nifi-api/site-to-site", "/nifi-api/site-to-site/peers", PORT, f"{PORT}/{{}}", f"{PORT}/{{}}/flow-files"),
)
NAMES = (
    *("content-type", "content-encoding", "content-length", "x-nifi-site-to-site-protocol-version", "authorization"),
    *("x-nifi-site-to-site-use-compression", "x-nifi-site-to-site-request-expiration", "content-digest", "prefer"),
)
HEADERS = st.lists(
    st.tuples(
        st.sampled_from(NAMES),
        HEADER_VALUES
        | st.sampled_from(["gzip", "application/json", "application/x-ndjson", "avro/binary", "1", "9", "true"])
        | st.just("application/vnd.apache.arrow.stream"),
    ),
    max_size=4,
)
WHOLE = (
    json.dumps(run_event()).encode(),
    json.dumps([run_event()] * 2).encode(),
    json.dumps(payloads(3)).encode(),
    json.dumps({"event_type": "CREATE", "event_time": event().event_time, "component_id": None}).encode(),
    packed(attributes(), json.dumps(payloads(2)).encode()),
)


def damaged(draw: st.DrawFn) -> bytes:
    """A body that a client could send, with a piece cut out, doubled, or replaced; perhaps zipped."""
    body = draw(st.sampled_from(WHOLE))
    first, last = sorted(draw(st.tuples(*[st.integers(0, len(body))] * 2)))
    piece = draw(st.binary(max_size=12) | st.sampled_from([b"", body[first:last] * 2, b'"' * 3, b"[" * 3000, b"\xff"]))
    changed = body[:first] + piece + body[last:]
    return gzip.compress(changed) if draw(st.booleans()) else changed


BODIES = st.composite(damaged)() | st.binary(max_size=60) | st.sampled_from([b"", b"null", b"[]", b"{}", *WHOLE])
WORDS = st.sampled_from(ODD) | st.uuids().map(str)
TARGETS = st.builds(lambda form, one, other: form.format(one, other), st.sampled_from(FORMS), WORDS, WORDS)
REQUESTS = st.builds(
    Asked, st.sampled_from(["POST", "POST", "PUT", "GET", "DELETE", "X"]), TARGETS, HEADERS.map(tuple), BODIES
)


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    repository = Repository.create(tmp_path_factory.mktemp("delivered") / "repository")
    with ExitStack() as held:
        services = Services(repository, repository.settings, SystemClock())
        held.callback(services.close)
        doors = held.enter_context(open_doors(("openlineage", "events", "site-to-site"), services))
        app = application(repository.settings.serve, doors, Access())
        runner = held.enter_context(asyncio.Runner())
        yield lambda request: runner.run(asked(app, request))


@pytest.mark.parametrize("examples", [120, pytest.param(5000, marks=pytest.mark.slow)])
def test_no_delivery_makes_a_door_fail(ask: Ask, examples: int) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(request_=REQUESTS)
    def deliver(request_: Asked) -> None:
        answer = ask(request_)
        # 503 is back-pressure, which tells the sender to come again.
        assert answer.status < 500 or (answer.status == 503 and "retry-after" in answer.headers), (request_, answer)

    deliver()
    # The doors go on to take what is whole.
    sent = Asked("POST", "/api/v1/lineage", (("content-type", "application/json"),), WHOLE[0])
    assert ask(sent).status in (200, 201)
