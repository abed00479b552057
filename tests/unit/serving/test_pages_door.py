"""The pages are given out with a strict policy, at any mount, and say how to be built where they are not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient

from custody.clock import SystemClock
from custody.config.sections import DoorName, ListenerSection
from custody.repository import Repository
from custody.serving.access import Grant, Scope
from custody.serving.application import Access, application
from custody.serving.door import Services
from custody.serving.doors import open_doors
from custody.serving.pages_door import POLICY, PagesDoor

SEARCH = "<!doctype html><title>Search</title>"
SCRIPT = "export const one = 1;"


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    root = tmp_path_factory.mktemp("pages") / "repository"
    Repository.create(root)
    repository = Repository.open(root)
    opened = Services(repository, repository.settings, SystemClock())
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as the build leaves one, and a secret beside it."""
    folder = tmp_path_factory.mktemp("installed") / "built"
    (folder / "assets").mkdir(parents=True)
    (folder / "search.html").write_text(SEARCH)
    (folder / "assets" / "search-abc.js").write_text(SCRIPT)
    (folder.parent / "secret.html").write_text("not to be seen")
    (folder / "assets" / "outside.html").symlink_to(folder.parent / "secret.html")
    return folder


def client_of(services: Services, folder: Path) -> TestClient:
    app = application(ListenerSection(), [PagesDoor(services, folder)])
    return TestClient(app, base_url="http://localhost", follow_redirects=False)


def test_documents_and_scripts_come_with_the_policy_and_are_kept_as_long_as_they_may(
    services: Services, built: Path
) -> None:
    with client_of(services, built) as client:
        page, script = client.get("/ui/search.html?q=a"), client.get("/ui/assets/search-abc.js")
        assert (page.status_code, page.text) == (200, SEARCH)
        assert (script.status_code, script.text) == (200, SCRIPT)
        assert page.headers["content-type"].partition(";")[0] == "text/html"
        assert script.headers["content-type"].partition(";")[0] in ("text/javascript", "application/javascript")
        assert (page.headers["cache-control"], "immutable" in script.headers["cache-control"]) == ("no-cache", True)
        again = client.get("/ui/search.html", headers={"If-None-Match": page.headers["etag"]})
        assert again.status_code == 304
        for answer in (page, script, again, client.get("/ui/nothing.html")):
            assert answer.headers["content-security-policy"] == POLICY
            assert answer.headers["x-content-type-options"] == "nosniff"
    assert "unsafe" not in POLICY
    assert "*" not in POLICY


@pytest.mark.parametrize(
    "path",
    ["/ui/../secret.html", "/ui/%2e%2e/secret.html", "/ui/assets/..%2f..%2fsecret.html", "/ui/assets/outside.html"],
)
def test_nothing_outside_of_the_folder_is_given_out(services: Services, built: Path, path: str) -> None:
    with client_of(services, built) as client:
        answer = client.get(path)
        assert answer.status_code == 404
        assert "not to be seen" not in answer.text


def test_a_file_that_is_not_there_is_not_the_first_page(services: Services, built: Path) -> None:
    with client_of(services, built) as client:
        assert client.get("/ui/searches.html").status_code == 404
        assert client.get("/ui/assets/").status_code == 404
        assert client.post("/ui/search.html").status_code == 405


def test_the_icon_that_browsers_ask_for_by_themselves_is_that_of_the_build(services: Services, built: Path) -> None:
    app = application(ListenerSection(), [PagesDoor(services, built)])
    mounted = Starlette(routes=[Mount("/team/custody", app)])
    with TestClient(mounted, base_url="http://localhost") as client:
        assert client.get("/team/custody/favicon.ico").status_code == 404
        (built / "assets" / "icon-abc.svg").write_text("<svg/>")
        answer = client.get("/team/custody/favicon.ico")
    assert str(answer.url) == "http://localhost/team/custody/ui/assets/icon-abc.svg"
    assert answer.headers["content-type"].partition(";")[0] == "image/svg+xml"
    assert answer.headers["content-security-policy"] == POLICY


def test_without_a_build_a_page_says_how_to_make_one(services: Services, tmp_path: Path) -> None:
    with client_of(services, tmp_path / "not-there") as client:
        answer = client.get("/ui/search.html")
        assert (answer.status_code, "make pages" in answer.text) == (503, True)
        assert answer.headers["content-security-policy"] == POLICY
        (tmp_path / "not-there").mkdir()
        (tmp_path / "not-there" / "search.html").write_text(SEARCH)
        assert client.get("/ui/search.html").text == SEARCH


def test_every_way_in_leads_to_the_search_below_any_mount(services: Services, built: Path) -> None:
    app = application(ListenerSection(), [PagesDoor(services, built)])
    mounted = Starlette(routes=[Mount("/team/custody", app)])
    with TestClient(mounted, base_url="http://localhost") as client:
        for way in ("/team/custody/", "/team/custody/ui", "/team/custody/ui/"):
            answer = client.get(f"{way}?q=event_type%3ASEND")
            assert str(answer.url) == "http://localhost/team/custody/ui/search.html?q=event_type%3ASEND"
            assert answer.text == SEARCH


@pytest.mark.parametrize("names", [("pages",), ("api", "pages")])
def test_the_pages_bring_the_api_and_are_open_where_its_answers_are_not(
    services: Services, names: tuple[DoorName, ...]
) -> None:
    async def nobody(_: str) -> Grant | None:
        return None

    with ExitStack() as stack:
        doors = stack.enter_context(open_doors(names, services))
        assert sorted(door.name for door in doors) == ["api", "pages"]
        app = application(ListenerSection(), doors, Access(elsewhere=nobody))
        client = stack.enter_context(TestClient(app, base_url="http://localhost"))
        assert client.get("/ui/search.html").status_code in (200, 503)
        for path in ("/api/v1/", "/api/v1/events", "/api/v1/status", "/metrics"):
            assert client.get(path).status_code == 401, path


OWN = {"cookie": "other=1; _token=good", "host": "air.example"}


@pytest.mark.parametrize(
    ("headers", "is_known"),
    [
        ({"sec-fetch-site": "same-origin"}, True),
        ({"sec-fetch-site": "none"}, True),
        ({"sec-fetch-site": "same-site"}, False),
        ({"sec-fetch-site": "cross-site"}, False),
        ({"sec-fetch-site": "cross-site", "origin": "http://air.example"}, False),
        ({}, True),
        ({"origin": "http://air.example"}, True),
        ({"origin": "http://evil.example"}, False),
        ({"origin": "null"}, False),
        ({"cookie": "_token=bad", "sec-fetch-site": "same-origin"}, False),
        ({"cookie": "token=good", "sec-fetch-site": "same-origin"}, False),
        # Who brings a token is who the token says, not who the cookie does.
        ({"authorization": "Bearer bad", "sec-fetch-site": "same-origin"}, False),
        ({"authorization": "Bearer good", "sec-fetch-site": "cross-site", "cookie": ""}, True),
    ],
)
def test_the_cookie_of_a_session_counts_for_own_pages_alone(
    services: Services, headers: dict[str, str], is_known: bool
) -> None:
    async def known(brought: str) -> Grant | None:
        return Grant("ada", frozenset({Scope.READ})) if brought == "good" else None

    with ExitStack() as stack:
        doors = stack.enter_context(open_doors(("api",), services))
        app = application(ListenerSection(), doors, Access(elsewhere=known, session_cookie="_token"))
        client = stack.enter_context(TestClient(app, base_url="http://air.example"))
        sent = {**OWN, **headers}
        assert client.get("/api/v1/events", headers=sent).status_code == (200 if is_known else 401)
        body = {"query": ""}
        assert client.post("/api/v1/events/search", json=body, headers=sent).status_code == (200 if is_known else 401)
    with ExitStack() as stack:
        doors = stack.enter_context(open_doors(("api",), services))
        app = application(ListenerSection(), doors, Access(elsewhere=known))
        client = stack.enter_context(TestClient(app, base_url="http://air.example"))
        if "authorization" not in headers:
            assert client.get("/api/v1/events", headers={**OWN, "sec-fetch-site": "same-origin"}).status_code == 401
