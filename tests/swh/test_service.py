"""The services over real HTTP and real gRPC: the answers of the database, and what is refused."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import grpc
import httpx
import pytest
from fastapi import FastAPI
from google.protobuf.field_mask_pb2 import FieldMask
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from custody.clock import ManualClock
from custody.config import Settings
from custody.errors import ConfigurationError, NotFoundError, StorageError
from custody.model.visibility import Visibility
from custody.repository import Repository
from custody.serving import Tokens, checked_tokens
from custody.serving.provenance_pb2 import WhereAreOneRequest, WhereIsOneRequest, WhereIsOneResult
from custody.serving.published_database import LOOK_SECONDS, PublishedDatabase
from custody.serving.swh_grpc import serving_rpc
from custody.serving.swh_rest import swh_app
from custody.swh import Swhid, Whereabouts
from custody.swh.publishing import database_folder
from custody.vfs import PosixFileSystem
from tests.swh.database import publish_reference, swhid
from tests.swh.graphs import Shape, random_graph
from tests.swh.reference import Reference
from tests.swh.serving import Serving, self_signed, serving
from tests.swh.test_database import UNKNOWN, expected_first

METHODS = "/swh.provenance.ProvenanceService/"
TOKEN = "a-token-of-this-test"  # noqa: S105
GRAPH = random_graph(Shape(5, 30, 25, 12, 4, 3, 3, 20, 0.1))


@pytest.fixture(scope="module")
def reference() -> Reference:
    return Reference(GRAPH, "all")


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory, reference: Reference) -> Repository:
    repository = Repository.create(tmp_path_factory.mktemp("service") / "repository")
    publish_reference(repository.settings, "first", reference, "all")
    return repository


@pytest.fixture(scope="module")
def at(published: Repository) -> Iterator[Serving]:
    with serving(published.settings.root) as address:
        yield address


def questions(settings: Settings, clock: ManualClock | None = None) -> PublishedDatabase:
    def content_of(event_id: int, writer: str | None, visibility: Visibility | None) -> Swhid:
        raise NotFoundError(f"no event {event_id} of {writer}")

    return PublishedDatabase(settings, PosixFileSystem(), clock or ManualClock(0), content_of)


def changed(repository: Repository, **options: object) -> Settings:
    settings = repository.settings
    return settings.model_copy(update={"swh": settings.swh.model_copy(update=options)})


def ask(app: FastAPI, *requests: tuple[str, str, dict[str, Any]]) -> list[httpx.Response]:
    """Send requests to an application of this process, all at once."""

    async def send() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return await asyncio.gather(*(client.request(method, url, **more) for method, url, more in requests))

    return asyncio.run(send())


def shown(place: Whereabouts) -> dict[str, object]:
    return {
        "swhid": str(place.swhid),
        "is_known": place.is_known,
        "anchor": None if place.anchor is None else str(place.anchor),
        "author_date": place.author_date,
        "origin": place.origin,
    }


def test_every_content_and_directory_is_answered_over_http(at: Serving, reference: Reference) -> None:
    expected = list(expected_first(reference).values())
    with httpx.Client(base_url=at.rest, timeout=60) as client:
        for place in expected[::7]:
            answer = client.get(f"/whereis/{place.swhid}")
            assert (answer.status_code, answer.json()) == (200, shown(place))
        asked = [str(place.swhid) for place in expected]
        answer = client.post("/whereare", json={"swhids": [*asked, str(UNKNOWN)]})
        assert answer.json()["answers"] == [*map(shown, expected), shown(Whereabouts(UNKNOWN, is_known=False))]
        assert client.get("/health").json() == {"status": "ok", "revision": 0}


def test_occurrences_are_the_oldest_ones_and_say_whether_these_are_all(at: Serving, reference: Reference) -> None:
    holding = reference.holding()
    content = max(reference.graph.of("cnt"), key=lambda node: len(holding.get(node, [])))
    held = holding[content]
    assert len(held) > 3
    for limit in (1, 3, len(held), 1000):
        answer = httpx.get(f"{at.rest}/occurrences/{swhid(reference, content)}?limit={limit}", timeout=60).json()
        assert answer["is_complete"] == (limit >= len(held))
        assert [(one["author_date"], one["anchor"]) for one in answer["occurrences"]] == [
            (date, str(swhid(reference, revrel))) for date, revrel in held[:limit]
        ]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "error"),
    [
        ("GET", f"/whereis/{UNKNOWN}", None, 404, "not-found"),
        ("GET", "/whereis/swh:1:cnt:zz", None, 400, "invalid-input"),
        ("GET", f"/occurrences/{UNKNOWN}", None, 404, "not-found"),
        ("GET", f"/occurrences/{UNKNOWN}?limit=0", None, 400, "invalid-input"),
        ("GET", f"/occurrences/{UNKNOWN}?limit=1001", None, 400, "invalid-input"),
        ("GET", f"/occurrences/{UNKNOWN}?limit=-1", None, 400, "invalid-input"),
        ("GET", "/events/7/occurrences", None, 404, "not-found"),
        ("GET", "/events/seven/occurrences", None, 400, "invalid-input"),
        ("POST", "/whereare", b"", 400, "invalid-input"),
        ("POST", "/whereare", b'{"swhids": [1]}', 400, "invalid-input"),
        ("POST", "/whereare", b'{"swhids": [], "more": 1}', 400, "invalid-input"),
        ("POST", "/whereare", b'{"swhids": ["swh:2:cnt:"]}', 400, "invalid-input"),
        ("POST", "/whereare", b" " * 70_000, 413, "too-large"),
        ("GET", "/whereare", None, 405, "method"),
        ("GET", "/elsewhere", None, 404, "no-route"),
    ],
)
def test_what_cannot_be_answered_has_a_status_and_one_shape(
    at: Serving, method: str, path: str, body: bytes | None, status: int, error: str
) -> None:
    answer = httpx.request(method, at.rest + path, content=body, timeout=60)
    assert (answer.status_code, answer.json()["error"]) == (status, error)
    assert set(answer.json()) == {"error", "message"}


def test_more_questions_than_the_settings_allow_are_refused(published: Repository) -> None:
    settings = changed(published, questions_max=2)
    app = swh_app(questions(settings), settings)
    [two, three] = ask(app, *(("POST", "/whereare", {"json": {"swhids": [str(UNKNOWN)] * n}}) for n in (2, 3)))
    assert two.status_code == 200
    assert (three.status_code, three.json()["error"]) == (400, "invalid-input")
    assert "at most 2 identifiers" in three.json()["message"]


def test_who_brings_no_token_is_refused_over_http_and_the_health_is_told_to_all(published: Repository) -> None:
    app = swh_app(questions(published.settings), published.settings, Tokens([TOKEN]))
    path = f"/whereis/{UNKNOWN}"
    given = [{}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Bearer {TOKEN}"}, {"X-Auth-Token": TOKEN}]
    answers = ask(app, *(("GET", path, {"headers": headers}) for headers in given), ("GET", "/health", {}))
    assert [answer.status_code for answer in answers] == [401, 401, 404, 404, 200]
    assert answers[0].headers["www-authenticate"] == "Bearer"


def test_more_requests_than_the_settings_allow_are_told_to_come_again(published: Repository) -> None:
    settings = changed(published, requests_max=1)
    app = swh_app(questions(settings), settings)
    answers = ask(app, *[("GET", f"/whereis/{UNKNOWN}", {})] * 8)
    busy = [answer for answer in answers if answer.status_code == 503]
    assert busy and {answer.json()["error"] for answer in busy} == {"busy"}
    assert busy[0].headers["retry-after"] == "1"
    assert ask(app, ("GET", f"/whereis/{UNKNOWN}", {}))[0].status_code == 404


def test_damage_is_told_without_the_names_of_files(tmp_path: Path, reference: Reference) -> None:
    repository = Repository.create(tmp_path / "repository")
    publish_reference(repository.settings, "first", reference, "all")
    app = swh_app(questions(repository.settings), repository.settings)
    for path in database_folder(repository.settings).glob("builds/*/*/tables/node_ids/*.parquet"):
        path.write_bytes(b"\xff" * path.stat().st_size)
    [answer] = ask(app, ("GET", f"/whereis/{swhid(reference, reference.graph.of('cnt')[0])}", {}))
    assert (answer.status_code, answer.json()["error"]) == (500, "corruption")
    assert str(tmp_path) not in answer.text


def test_a_build_that_is_published_meanwhile_is_answered_from_soon(tmp_path: Path, reference: Reference) -> None:
    repository = Repository.create(tmp_path / "repository")
    publish_reference(repository.settings, "first", reference, "all")
    clock = ManualClock(0)
    asked = questions(repository.settings, clock)
    other = Reference(random_graph(Shape(9, 30, 25, 12, 4, 3, 3, 20, 0.1)), "all")
    publish_reference(repository.settings, "second", other, "all")
    asked.database()
    assert asked.revision == 0
    clock.advance(LOOK_SECONDS * 1000)
    expected = expected_first(other)
    assert asked.whereis_many([place.swhid for place in expected.values()]) == list(expected.values())
    assert asked.revision == 1


def test_where_nothing_is_published_no_service_starts(repository: Repository) -> None:
    with pytest.raises(NotFoundError, match="Run: custody swh build"):
        questions(repository.settings)


def test_other_machines_need_a_token(published: Repository) -> None:
    settings = changed(published, host="0.0.0.0")  # noqa: S104
    with pytest.raises(ConfigurationError, match=r"swh\.host '0\.0\.0\.0': expected an address of this machine"):
        checked_tokens(settings.root, "swh", settings.swh)


def where_is_one(channel: grpc.Channel, text: str, mask: FieldMask | None = None, token: str = "") -> WhereIsOneResult:
    call = channel.unary_unary(METHODS + "WhereIsOne", WhereIsOneRequest.SerializeToString, WhereIsOneResult.FromString)
    metadata = [("authorization", f"Bearer {token}")] if token else []
    result: WhereIsOneResult = call(WhereIsOneRequest(swhid=text, mask=mask), metadata=metadata, timeout=60)
    return result


def result(place: Whereabouts) -> WhereIsOneResult:
    anchor = None if place.anchor is None else str(place.anchor)
    return WhereIsOneResult(swhid=str(place.swhid), anchor=anchor, origin=place.origin)


def test_every_content_and_directory_is_answered_over_grpc(at: Serving, reference: Reference) -> None:
    expected = list(expected_first(reference).values())
    with grpc.insecure_channel(at.rpc) as channel:
        for place in expected[::7]:
            assert where_is_one(channel, str(place.swhid)) == result(place)
        call = channel.unary_stream(
            METHODS + "WhereAreOne", WhereAreOneRequest.SerializeToString, WhereIsOneResult.FromString
        )
        asked = [str(place.swhid) for place in expected]
        results = list(call(WhereAreOneRequest(swhid=[*asked, str(UNKNOWN)]), timeout=60))
        assert results == [result(place) for place in expected], "what is not known is left out"
        with pytest.raises(grpc.RpcError) as refused:
            list(call(WhereAreOneRequest(swhid=[asked[0], "swh:1:cnt:"]), timeout=60))
        assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT


def test_the_bytes_on_the_wire_are_those_of_software_heritage_s_clients(at: Serving, reference: Reference) -> None:
    place = next(place for place in expected_first(reference).values() if place.origin)
    text = str(place.swhid).encode()
    with grpc.insecure_channel(at.rpc) as channel:
        answer = channel.unary_unary("/swh.provenance.ProvenanceService/WhereIsOne")(b"\x12\x32" + text, timeout=60)
    anchor, origin = str(place.anchor).encode(), str(place.origin).encode()
    assert answer == b"\x0a\x32" + text + b"\x12\x32" + anchor + b"\x1a" + bytes([len(origin)]) + origin


def test_a_mask_chooses_fields(at: Serving, reference: Reference) -> None:
    place = next(place for place in expected_first(reference).values() if place.origin)
    with grpc.insecure_channel(at.rpc) as channel:
        for paths, anchor, origin in (
            ([], True, True),
            (["origin"], False, True),
            (["anchor"], True, False),
            (["revision", "release"], True, False),
            (["swhid"], False, False),
        ):
            result = where_is_one(channel, str(place.swhid), FieldMask(paths=paths))
            assert (result.swhid, result.HasField("anchor"), result.HasField("origin")) == (
                str(place.swhid),
                anchor,
                origin,
            )


def test_grpc_says_what_is_wrong(at: Serving) -> None:
    with grpc.insecure_channel(at.rpc) as channel:
        for text, code in ((str(UNKNOWN), grpc.StatusCode.NOT_FOUND), ("", grpc.StatusCode.INVALID_ARGUMENT)):
            with pytest.raises(grpc.RpcError) as refused:
                where_is_one(channel, text)
            assert refused.value.code() == code


def test_grpc_tells_its_health_and_its_services(at: Serving) -> None:
    with grpc.insecure_channel(at.rpc) as channel:
        asked = health_pb2.HealthCheckRequest(service="swh.provenance.ProvenanceService")
        assert health_pb2_grpc.HealthStub(channel).Check(asked, timeout=60).status == 1
        listed = reflection_pb2.ServerReflectionRequest(list_services="")
        [answer] = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(iter([listed]), timeout=60)
        names = {service.name for service in answer.list_services_response.service}
        assert names >= {"swh.provenance.ProvenanceService", "grpc.health.v1.Health"}


def test_grpc_over_tls_wants_a_token_too(published: Repository, tmp_path: Path, reference: Reference) -> None:
    certificate, key = self_signed(tmp_path)
    settings = changed(published, tls_certificate=certificate, tls_key=key, questions_max=3)
    place = next(place for place in expected_first(reference).values() if place.origin)
    with serving_rpc(questions(settings), settings, Tokens([TOKEN])) as address:
        trust = grpc.ssl_channel_credentials(certificate.read_bytes())
        with grpc.secure_channel(address, trust) as channel:
            assert where_is_one(channel, str(place.swhid), token=TOKEN) == result(place)
            for token in ("", "another-token-of-others"):
                with pytest.raises(grpc.RpcError) as refused:
                    where_is_one(channel, str(place.swhid), token=token)
                assert refused.value.code() == grpc.StatusCode.UNAUTHENTICATED
            assert health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=60).status == 1
            many = channel.unary_stream(
                METHODS + "WhereAreOne", WhereAreOneRequest.SerializeToString, WhereIsOneResult.FromString
            )
            asked = WhereAreOneRequest(swhid=[str(place.swhid)] * 8)
            results = list(many(asked, metadata=[("x-auth-token", TOKEN)], timeout=60))
            assert results == [result(place)] * 8, "more than one request's worth is answered in parts"


def test_an_address_that_is_taken_is_told(published: Repository, at: Serving) -> None:
    settings = changed(published, grpc_port=int(at.rpc.rpartition(":")[2]))
    with pytest.raises(StorageError, match="cannot listen on"), serving_rpc(questions(settings), settings):
        pass


def test_sigterm_ends_both_services(published: Repository) -> None:
    with serving(published.settings.root, "--quiet") as running:
        assert httpx.get(f"{running.rest}/health", timeout=60).status_code == 200
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(60) == 0


def test_heads_and_connections_have_the_bounds_of_every_server_of_custody(
    published: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUSTODY__SWH__HEAD_SECONDS", "1")
    monkeypatch.setenv("CUSTODY__SWH__BODY_SECONDS", "1")
    monkeypatch.setenv("CUSTODY__SWH__CONNECTIONS_MAX", "5")
    with serving(published.settings.root, "--quiet") as running, ExitStack() as held:
        place = urlsplit(running.rest)

        def sent(data: bytes) -> socket.socket:
            connection = socket.create_connection((place.hostname or "", place.port or 0), timeout=60)
            connection.sendall(data)
            return held.enter_context(connection)

        half = [sent(b"GET /health HTTP/1.1\r\n") for _ in range(20)]
        assert httpx.get(f"{running.rest}/health", timeout=60).status_code == 200
        answers = [_all_of(connection) for connection in half]
        assert all(answer == b"" or answer.startswith(b"HTTP/1.1 408") for answer in answers)
        assert any(answer for answer in answers)
        head = b"POST /whereare HTTP/1.1\r\nHost: localhost\r\nContent-Length: 20\r\n"
        assert _all_of(sent(head + b"\r\n{")).startswith(b"HTTP/1.1 408")
        assert _all_of(sent(head + b"X-Pad: " + b"p" * 20_000 + b"\r\n\r\n")).startswith(b"HTTP/1.1 431")
        twice = b"Authorization: a\r\nAuthorization: b\r\nConnection: close\r\n\r\n"
        assert b"ambiguous" in _all_of(sent(b"GET /whereis/x HTTP/1.1\r\nHost: localhost\r\n" + twice))


def _all_of(connection: socket.socket) -> bytes:
    received = b""
    try:
        while piece := connection.recv(65_536):
            received += piece
    except ConnectionError:
        pass
    return received
