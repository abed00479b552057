"""Whatever is asked of the service of software: an answer says what is wrong with it, never that the service failed."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.types import ASGIApp

from custody.clock import ManualClock
from custody.repository import Repository
from custody.serving.provenance_pb2 import WhereAreOneRequest, WhereIsOneRequest, WhereIsOneResult
from custody.serving.published_database import PublishedDatabase
from custody.serving.swh_door import EventContents
from custody.serving.swh_grpc import serving_rpc
from custody.serving.swh_rest import swh_app
from custody.vfs import PosixFileSystem
from tests.fuzzing import HEADER_VALUES, ODD, Asked, ask_all, targets
from tests.support import event
from tests.swh.database import publish_reference
from tests.swh.graphs import Shape, random_graph
from tests.swh.reference import Reference
from tests.swh.test_database import UNKNOWN

ROUTES = (
    *("/whereis/{}", "/whereare", "/occurrences/{}", "/events/{}/occurrences", "/events/7/occurrences", "/health"),
    *(f"/occurrences/{UNKNOWN}", f"/whereis/{UNKNOWN}", "/whereis/{}/{}", "/{}", "//{}", "/events/{}"),
)
HEADERS = st.lists(
    st.tuples(
        st.sampled_from(["host", "authorization", "x-auth-token", "content-type", "content-length"]), HEADER_VALUES
    ),
    max_size=3,
).map(tuple)
BODIES = st.binary(max_size=60) | st.sampled_from(
    [
        *(
            b"",
            b"{}",
            b"[]",
            b"null",
            b'{"swhids": []}',
            b'{"swhids": null}',
            b'{"swhids": ["swh:1:cnt:"]}',
            b"\xff\xfe",
        ),
        *(
            b"[" * 5000,
            b'{"swhids": ' + b"[" * 2000,
            b'{"swhids": ["\\ud800"]}',
            b'{"swhids": [1e400]}',
            b'{"a":' * 500,
        ),
    ]
)
REQUESTS = st.builds(
    Asked, st.sampled_from(["GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "X"]), targets(*ROUTES), HEADERS, BODIES
)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    repository = Repository.create(tmp_path_factory.mktemp("asked") / "repository")
    repository.append([event(number) for number in range(10)])
    reference = Reference(random_graph(Shape(5, 10, 8, 4, 2, 2, 2, 6, 0.1)), "all")
    publish_reference(repository.settings, "first", reference, "all")
    return repository


@pytest.fixture(scope="module")
def questions(repository: Repository) -> PublishedDatabase:
    return PublishedDatabase(repository.settings, PosixFileSystem(), ManualClock(0), EventContents(repository).swhid)


@pytest.fixture(scope="module")
def app(repository: Repository, questions: PublishedDatabase) -> ASGIApp:
    return swh_app(questions, repository.settings)


@pytest.fixture(scope="module")
def rpc(repository: Repository, questions: PublishedDatabase) -> Iterator[grpc.Channel]:
    with serving_rpc(questions, repository.settings) as address, grpc.insecure_channel(address) as channel:
        yield channel


@pytest.mark.parametrize("text", ["../../etc", "..", "", "%2e%2e%2f", "%00", "MAIN", "x" * 300, "%ff", "a%20b", "%0a"])
def test_a_writer_that_is_no_name_is_refused(app: ASGIApp, text: str) -> None:
    [answer] = ask_all(app, [Asked("GET", f"/events/1/occurrences?writer={text}")])
    assert (answer.status, answer.error) == (400, "invalid-input")
    assert b"writer" in answer.body


@pytest.mark.parametrize("text", ODD)
def test_every_route_says_what_is_wrong_with_an_odd_word(app: ASGIApp, text: str) -> None:
    for form in (f"/events/{text}/occurrences", f"/whereis/{text}", f"/occurrences/{text}"):
        [answer] = ask_all(app, [Asked("GET", form)])
        assert answer.status in (400, 404), (form, answer)
    for query in (f"writer={text}", f"limit={text}", f"writer=nobody&limit={text}"):
        [answer] = ask_all(app, [Asked("GET", f"/events/1/occurrences?{query}")])
        assert answer.status in (400, 404), (query, answer)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(REQUESTS)
def test_no_request_makes_the_service_fail(app: ASGIApp, request_: Asked) -> None:
    [answer] = ask_all(app, [request_])
    assert answer.status < 500, (request_, answer)
    assert answer.status == 200 or request_.method == "HEAD" or answer.error


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text(max_size=60), max_size=3), st.lists(st.text(max_size=10), max_size=3))
def test_no_call_makes_the_service_fail(rpc: grpc.Channel, texts: list[str], paths: list[str]) -> None:
    one = rpc.unary_unary("/swh.provenance.ProvenanceService/WhereIsOne", WhereIsOneRequest.SerializeToString)
    many = rpc.unary_stream(
        "/swh.provenance.ProvenanceService/WhereAreOne",
        WhereAreOneRequest.SerializeToString,
        WhereIsOneResult.FromString,
    )
    asked = WhereIsOneRequest(swhid=texts[0] if texts else "")
    asked.mask.paths.extend(paths)
    fine = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND)
    with pytest.raises(grpc.RpcError) as refused:
        one(asked, timeout=60)
    assert refused.value.code() in fine
    if texts:
        with pytest.raises(grpc.RpcError) as refused:
            list(many(WhereAreOneRequest(swhid=texts), timeout=60))
        assert refused.value.code() in fine


@pytest.mark.parametrize("raw", [b"\xff\xff\xff", b"\x0a\xff", b"\x12\x02\xff\xfe"])
def test_a_message_that_is_none_does_not_end_the_service(rpc: grpc.Channel, raw: bytes) -> None:
    for name in ("WhereIsOne", "WhereAreOne"):
        with pytest.raises(grpc.RpcError) as refused:
            list(rpc.unary_stream(f"/swh.provenance.ProvenanceService/{name}")(raw, timeout=60))
        assert refused.value.code() in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.INTERNAL)
