"""Rights of routes: each route of each door, asked by everybody who may not; and a new route without a right."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest
from fastapi import FastAPI
from google.protobuf import descriptor_pb2
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route
from starlette.testclient import TestClient

from custody.clock import SystemClock
from custody.repository import Repository
from custody.serving.access import Scope, Tokens
from custody.serving.api_door import PREFIX, ApiDoor
from custody.serving.application import Access, application
from custody.serving.door import Services
from custody.serving.published_database import PublishedDatabase
from custody.serving.swh_door import EventContents
from custody.serving.swh_grpc import serving_rpc
from custody.vfs import PosixFileSystem
from tests.attacks.asked_server import CONTENT, SECRET, Asked, asked_server

FILLED = {
    "writer": "main",
    "event_id": "1",
    "sha256": "0" * 64,
    "swhid": "swh:1:cnt:" + "0" * 40,
    "plan": "0000000000001-" + "0" * 32,
    "job_id": "0000000000001-" + "0" * 16,
    "token": "an-unknown-token-of-nobody",
    "port": "00000000-0000-5000-8000-000000000000",
    "path": "search.html",
    "target": "v2/notify",
}
BODIES: dict[str, list[dict[str, Any]]] = {
    "/events/search": [{"query": f"details:{SECRET}"}, {"query": ""}],
    "/sql": [{"query": "SELECT * FROM events"}, {"query": "SELECT * FROM logs"}],
    "/replay-plans": [{"query": ""}],
}
QUERIES: dict[str, list[dict[str, str]]] = {
    "/events": [{"q": ""}, {"q": f"details:{SECRET}"}, {"as_of": "0"}],
    "/events/facets": [{"field": "process_group_name"}, {"field": "component_name"}],
    "/events/histogram": [{"since": "2026-01-01", "until": "2026-12-31"}],
    "/lineage": [{"event": "main:1"}, {"flowfile": "x"}],
    "/lineage/export": [{"event": "main:1"}],
    "/timeline/{writer}/difference": [{"former": "0"}],
    "/dag-run": [{"dag_id": "a", "run_id": "b"}],
}
OF_EVERYBODY = {
    *("/healthz", "/readyz", "/", "/favicon.ico", "/ui", "/ui/", "/ui/{path}"),
    # NiFi brings its token in the path, and later what stands for it: each answers 403 or 404 by itself.
    *("/nifi-api/site-to-site", "/t/{token}/nifi-api/site-to-site", "/nifi-api/site-to-site/peers"),
    "/nifi-api/data-transfer/input-ports/{port}/transactions",
    "/nifi-api/data-transfer/input-ports/{port}/transactions/{transaction}",
    "/nifi-api/data-transfer/input-ports/{port}/transactions/{transaction}/flow-files",
}


class Walked(NamedTuple):
    """A route of the application, its full path, and the part of it below its own application."""

    path: str
    own: str
    methods: tuple[str, ...]
    right: Any
    """None for a route that declares none."""


def walked(app: Any, prefix: str = "", of_mount: Any = None) -> Iterator[Walked]:
    """Every route of an application and of those that are mounted in it, as they are found in it."""
    for route in app.routes:
        right = of_mount or getattr(route, "right", None)
        if isinstance(route, Mount) and hasattr(route._base_app, "routes"):
            of_all = None if getattr(route, "checks_itself", False) else right
            yield from walked(route._base_app, prefix + route.path, of_all)
        elif isinstance(route, Mount):
            yield Walked(f"{prefix}{route.path}/{{path}}", "/{path}", ("GET",), right)
        else:
            assert isinstance(route, Route), f"{prefix}: a route of another kind, {type(route).__name__}"
            # One to an object takes every method.
            methods = tuple(sorted(route.methods or ("GET", "POST")))
            yield Walked(prefix + route.path, route.path, methods, right)


def filled_in(path: str) -> str:
    return re.sub(r"\{(\w+)(?::\w+)?\}", lambda match: FILLED.get(match[1], "none"), path)


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    with asked_server(tmp_path_factory.mktemp("asked") / "repository") as server:
        yield server


def questions(asked: Asked) -> Iterator[tuple[Walked, str, str, dict[str, Any]]]:
    """Each route with each of its methods, and questions that it can answer."""
    for route in walked(asked.app):
        for method in route.methods:
            bodies = BODIES.get(route.own, [{}]) if method in ("POST", "PUT") else [None]
            for body in bodies:
                for query in QUERIES.get(route.own, [{}]) if method == "GET" else [{}]:
                    yield route, method, filled_in(route.path), {"json": body, "params": query}


def test_the_walk_finds_the_routes_of_every_door(asked: Asked) -> None:
    paths = {route.path for route in walked(asked.app)}
    assert len(paths) > 60
    for part in (
        "/metrics",
        "/api/v1/sql",
        "/events",
        "/ngsi/",
        "/swh/whereis",
        "/ui/",
        "/nifi-api/",
        "/api/v1/lineage",
    ):
        assert any(part in path for path in paths), part


def test_every_route_declares_a_right_and_few_are_open(asked: Asked) -> None:
    rights = {route.path: route.right for route in walked(asked.app)}
    assert not [path for path, right in rights.items() if right is None]
    assert {path for path, right in rights.items() if right.scope is None} == OF_EVERYBODY


def test_no_route_answers_who_brings_no_token_or_an_unknown_one(asked: Asked) -> None:
    for name in ("no token", "unknown token"):
        for route, method, path, options in questions(asked):
            if route.path in OF_EVERYBODY:
                continue
            answer = asked.client.request(method, path, headers=asked.headers[name], **options)
            assert answer.status_code == 401, (name, method, path, answer.text)


def test_no_route_answers_a_token_for_another_door(asked: Asked) -> None:
    for name, scope in (("producer", Scope.APPEND), ("reader", Scope.READ)):
        for route, method, path, options in questions(asked):
            assert route.right is not None, f"{path} declares no right"
            if route.right.scope in (None, scope):
                continue
            answer = asked.client.request(method, path, headers=asked.headers[name], **options)
            assert answer.status_code == 403, (name, method, path, answer.text)


def test_no_answer_tells_who_may_see_nothing_or_some_of_what_is_hidden(asked: Asked) -> None:
    told = {"admin": 0, "clerk": 0, "nothing": 0}
    for name in told:
        for route, method, path, options in questions(asked):
            if name == "admin" and method != "GET":
                continue  # it may change things
            answer = asked.client.request(method, path, headers=asked.headers[name], **options)
            # No pages are built where the tests run.
            assert answer.status_code < 500 or route.path in OF_EVERYBODY, (path, answer.text)
            # A refusal may repeat the question.
            is_repeated = answer.status_code >= 400 and SECRET in str(options)
            is_told = SECRET in answer.text and not is_repeated
            told[name] += is_told
            assert name == "admin" or not is_told, (name, method, path, answer.text[:500])
    assert told["admin"] > 9


def test_what_counts_all_events_is_refused_to_who_may_see_some(asked: Asked) -> None:
    counting = [
        (route, method, path, options)
        for route, method, path, options in questions(asked)
        if getattr(route.right, "shows", None) in ("all", "input")
    ]
    assert len(counting) > 15
    for _, method, path, options in counting:
        for name in ("clerk", "nothing"):
            answer = asked.client.request(method, path, headers=asked.headers[name], **options)
            assert answer.status_code == 403, (name, method, path, answer.text)


def test_software_is_not_asked_by_an_event_that_is_hidden(asked: Asked) -> None:
    found = asked.repository.search("", limit=20).events
    [hidden] = [one.event.event_id for one in found if one.event.file_size == len(CONTENT)]
    texts = {}
    for name in ("clerk", "nothing", "admin"):
        answer = asked.client.get(f"/swh/events/{hidden}/occurrences?writer=main", headers=asked.headers[name])
        texts[name] = answer.json()["message"]
        assert answer.status_code == 404, answer.text
    unknown = asked.client.get("/swh/events/99/occurrences?writer=main", headers=asked.headers["clerk"]).json()
    assert texts["clerk"] == texts["nothing"] == unknown["message"].replace("99", str(hidden))
    assert texts["admin"] != texts["clerk"], "who may see it learns that the graph has no such content"


def opened(root: Path, add: Any) -> TestClient:
    """The API with an operation that a developer forgot to give a right."""
    repository = Repository.create(root)
    services = Services(repository, repository.settings, SystemClock())
    door = ApiDoor(services)
    [mount] = door.routes()
    assert isinstance(mount, Mount)
    add(mount._base_app)
    app = application(repository.settings.serve, [door], Access(Tokens(["a-token-of-this-test"])))
    return TestClient(app, base_url=f"http://localhost{PREFIX}/", raise_server_exceptions=False)


def test_a_new_operation_without_a_right_answers_nobody(tmp_path: Path) -> None:
    def overview() -> PlainTextResponse:
        return PlainTextResponse("17 events")

    def add(api: FastAPI) -> None:
        api.add_api_route("/overview", overview)

    client = opened(tmp_path / "repository", add)
    for headers in ({}, {"authorization": "Bearer a-token-of-this-test"}):
        answer = client.get("overview", headers=headers)
        assert (answer.status_code, "17" in answer.text) == (403, False)


def test_a_door_with_a_route_without_a_right_is_not_opened(tmp_path: Path) -> None:
    class Forgotten:
        name = "forgotten"
        scope = None

        def routes(self) -> list[Route]:
            return [Route("/forgotten", lambda _: PlainTextResponse("17 events"))]

        def ready(self) -> None:
            return None

        def metrics(self) -> tuple[()]:
            return ()

        def close(self) -> None:
            pass

    repository = Repository.create(tmp_path / "repository")
    with pytest.raises(TypeError, match="forgotten: expected routes with a right"):
        application(repository.settings.serve, [Forgotten()], Access())  # type: ignore[list-item]


def test_no_method_of_grpc_answers_who_brings_no_token_or_an_unknown_one(asked: Asked) -> None:
    settings = asked.repository.settings
    contents = EventContents(asked.repository)
    database = PublishedDatabase(settings, PosixFileSystem(), SystemClock(), contents.swhid)
    known = (("authorization", "Bearer a-token-of-this-test"),)
    with (
        serving_rpc(database, settings, Tokens(["a-token-of-this-test"])) as address,
        grpc.insecure_channel(address) as channel,
    ):
        methods = list(methods_of(channel, known))
        assert len(methods) >= 3
        for method in methods:
            for metadata in ((), (("authorization", "Bearer an-unknown-token-of-nobody"),)):
                call = channel.stream_stream(method, request_serializer=bytes, response_deserializer=bytes)
                with pytest.raises(grpc.RpcError) as refused:
                    list(call(iter([b""]), metadata=metadata, timeout=30))
                assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED, method


def methods_of(channel: grpc.Channel, metadata: Any) -> Iterator[str]:
    """The methods of all services, as the server itself names them; the health is for everybody."""
    ask = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo
    [listed] = ask(iter([reflection_pb2.ServerReflectionRequest(list_services="")]), metadata=metadata)
    for service in listed.list_services_response.service:
        if service.name == "grpc.health.v1.Health":
            continue
        request = reflection_pb2.ServerReflectionRequest(file_containing_symbol=service.name)
        [found] = ask(iter([request]), metadata=metadata)
        for data in found.file_descriptor_response.file_descriptor_proto:
            file = descriptor_pb2.FileDescriptorProto.FromString(data)
            for one in file.service:
                if f"{file.package}.{one.name}" == service.name:
                    yield from (f"/{service.name}/{method.name}" for method in one.method)


def test_no_answer_tells_a_revision_to_who_may_see_some(asked: Asked) -> None:
    def document(path: str, name: str, status: int = 200) -> Any:
        answer = asked.client.get(f"/api/v1/{path}", headers=asked.headers[name])
        assert answer.status_code == status, (path, answer.text)
        return answer.json()

    event_id = document("events?", "clerk")["items"][0]["event"]["event_id"]
    for path in ("events?", f"events/main/{event_id}?", f"lineage?event=main:{event_id}&"):
        assert document(path, "admin")["as_of"], path
        assert document(path, "clerk")["as_of"] == {}, path
        assert document(f"{path}as_of=now", "clerk")["as_of"] == {}, path
        # Nor is one to be found by trying.
        for moment in ("1", "main:1", "999", "main:999"):
            assert "expected a time" in document(f"{path}as_of={moment}", "clerk", 400)["detail"], path
    found = asked.client.post("/api/v1/events/search", json={"query": ""}, headers=asked.headers["clerk"]).json()
    assert found["as_of"] == {}
