"""Whatever is sent to the receiver: it says what is wrong with it or stores it, and never that it failed itself."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from custody.clock import ManualClock
from custody.repository import Repository
from custody.serving.ngsi_intake import Intake
from custody.serving.ngsi_receiver import Receiver, receiver_app
from tests.fuzzing import HEADER_VALUES, ODD, Answered, Asked, asked, targets
from tests.unit.ngsi_sink.sink_repository import NOW_MS
from tests.unit.ngsi_sink.sink_repository import settings as repository_settings

NAMES = (
    *("host", "content-type", "content-length", "authorization", "x-auth-token", "link", "transfer-encoding"),
    *("fiware-service", "fiware-servicepath", "fiware-correlator", "ngsild-tenant", "ngsiv2-attrsformat"),
    "ngsild-attribute-format",
)
HEADERS = st.lists(st.tuples(st.sampled_from(NAMES), HEADER_VALUES), max_size=4)
WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(
    [*("id", "type", "data", "value", "metadata", "contextResponses", "contextElement", "attributes", "name", "object")]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=10,
)
ENTITIES = st.dictionaries(WORDS, VALUES, max_size=4).map(lambda found: {"id": "e", **found}) | VALUES
NOTIFICATIONS = st.one_of(
    ENTITIES,
    st.fixed_dictionaries({"data": st.lists(ENTITIES, max_size=3) | VALUES}, optional={"subscriptionId": VALUES}),
    st.fixed_dictionaries({"data": st.lists(ENTITIES, max_size=2), "type": st.just("Notification"), "id": VALUES}),
    st.fixed_dictionaries(
        {"data": st.lists(ENTITIES, max_size=2), "notifiedAt": WORDS | st.just("2026-03-04T05:06:07Z")}
    ),
    st.fixed_dictionaries(
        {"contextResponses": st.lists(ENTITIES.map(lambda found: {"contextElement": found}), max_size=2) | VALUES}
    ),
)
BODIES = st.one_of(
    NOTIFICATIONS.map(lambda found: json.dumps(found).encode()),
    NOTIFICATIONS.map(lambda found: json.dumps(found, ensure_ascii=False).encode()[:-1]),
    st.binary(max_size=40),
    st.sampled_from(
        [b"[" * 5000, b'{"data":' + b"[" * 2000, b'{"data":[{"id":"\\ud800"}]}', b'{"data":[{"id":"\\u0000"}]}']
    ),
)
ROUTES = st.sampled_from(["/notify", "/notify", "/notify", "/notify?subscriptionId=x"]) | targets(
    "/{}", "/notify/{}", "/health/{}"
)
REQUESTS = st.builds(
    Asked, st.sampled_from(["POST", "POST", "POST", "GET", "HEAD", "PUT", "X"]), ROUTES, HEADERS.map(tuple), BODIES
)


class Asking:
    """A receiver of this process with a repository of its own, in one loop for all that is asked."""

    def __init__(self, intake: Intake, app: Any) -> None:
        self.intake = intake
        self._app = app
        self._runner = asyncio.Runner()

    def __call__(self, request: Asked) -> Answered:
        return self._runner.run(asked(self._app, request))

    def close(self) -> None:
        self._runner.close()


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asking]:
    at = Repository(repository_settings(tmp_path_factory.mktemp("asked")))
    with ExitStack() as held:
        writer = held.enter_context(at.writer())
        intake = held.enter_context(Intake(writer, 16))
        app = receiver_app(Receiver(at.settings, intake, at.quarantine, ManualClock(NOW_MS)))
        asking = Asking(intake, app)
        held.callback(asking.close)
        yield asking


@settings(max_examples=250, deadline=None)
@given(request_=REQUESTS, is_described=st.booleans())
def test_no_request_makes_the_receiver_fail(ask: Asking, request_: Asked, is_described: bool) -> None:
    headers = request_.headers if is_described else (*request_.headers, ("content-type", "application/json"))
    before = ask.intake.stored
    answer = ask(Asked(request_.method, request_.target, headers, request_.body))
    assert answer.status < 500, (request_, answer)
    assert ask.intake.stored - before == (answer.status == 200 and answer.body.startswith(b'{"writer"'))
    assert answer.status == 200 or request_.method == "HEAD" or answer.error


@pytest.mark.parametrize("text", ODD)
def test_odd_words_in_every_place(ask: Asking, text: str) -> None:
    body = b'{"data": [{"id": "e", "type": "T", "a": {"value": 1}}]}'
    described = ("content-type", "application/json")
    for name in NAMES:
        if name != "content-type":
            assert ask(Asked("POST", "/notify", (described, (name, text)), body)).status in (200, 400, 413), (
                name,
                text,
            )
    assert ask(Asked("POST", f"/{text}", (described,), body)).status in (404, 405)
    for word in (text, f"/{text}"):
        sent = json.dumps({"subscriptionId": word, "data": [{"id": word or "e", "type": word, word: {"value": word}}]})
        assert ask(Asked("POST", "/notify", (described,), sent.encode())).status in (200, 400)
