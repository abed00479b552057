"""custody's pages in a real Airflow: in its frame by its user's session, in the tab of a run, alone, and refused.

`CUSTODY_PAGES_BASE` names a repository that is taken instead of samples, such as one of millions of events; then no
picture is made.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest

from custody.repository import Repository
from custody_local.airflow import LocalAirflow
from custody_local.settings import LOOPBACK, USER, passwords_file
from custody_pages import build
from tests.airflow import browser
from tests.pages.order_story import PARTS, SORTED, SORTED_QUERY, bundle_of, cut_and_sort, queued
from tests.pages.test_in_browser import BASE, led, looked_at, picture, settled, total
from tests.support import append, run_steps, sample
from tests.unit.serving.dag_run_story import READ, WROTE, RunStory

pytestmark = [pytest.mark.airflow, pytest.mark.slow]

PROJECT = Path(__file__).resolve().parents[2]
EVENTS = 1000
DAG = "provenance_export"
TASK = "deliver"
PASSWORD = "of-this-test"  # noqa: S105 - of users that this test makes
MAY = {
    "viewer": {"read"},
    "user": {"read", "replay"},
    "op": {"read", "content", "append", "manage", "replay"},
}
"""What a user of each of Airflow's roles may do; one user a role, of its name."""


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """Samples, then in a later revision an order that a flow cut into parts, sorted, and took out of its queue."""
    root = tmp_path_factory.mktemp("pages") / "repository"
    if BASE is None:
        Repository.create(root)
        append(Repository.open(root), sample(EVENTS))
    else:
        shutil.copytree(BASE, root)
    opened = Repository.open(root)
    run_steps(opened.settings)
    cut_and_sort(opened)
    run_steps(opened.settings)
    return Repository.open(root)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("airflow")


@pytest.fixture(scope="module")
def airflow(repository: Repository, home: Path) -> Iterator[LocalAirflow]:
    browser.need_pages()
    schedules = dict.fromkeys(
        (f"CUSTODY_{name}_SCHEDULE" for name in ("ROLLOVER", "INGEST", "RETENTION", "MAINTENANCE")), ""
    )
    users = ",".join([f"{USER}:admin", *(f"{role}:{role}" for role in MAY)])
    own = {
        "CUSTODY_SERVE_MOUNT": "/custody",
        "CUSTODY__SERVE__DOORS": '["pages"]',
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": users,
    }
    root = repository.settings.root
    with LocalAirflow(PROJECT, home=home, repository=root, settings={**schedules, **own}) as running:
        yield running


@pytest.fixture
def page(airflow: LocalAirflow) -> Iterator[Any]:
    """Airflow's page, logged in through its form."""
    with browser.page(airflow.url, timeout_ms=120_000) as page:
        browser.log_in(page, airflow.url, airflow.user, airflow.password)
        yield page


@contextmanager
def logged_in(airflow: LocalAirflow, home: Path, role: str, *refusals: int, **options: Any) -> Iterator[Any]:
    """Airflow's page, logged in as the user of a role."""
    _set_password(home, role)
    with browser.page(airflow.url, *refusals, timeout_ms=120_000, **options) as page:
        browser.log_in(page, airflow.url, role, PASSWORD)
        yield page


def _set_password(home: Path, role: str) -> None:
    passwords = json.loads(passwords_file(home).read_text())
    passwords_file(home).write_text(json.dumps({**passwords, role: PASSWORD}))


def framed(page: Any) -> Any:
    """The frame in Airflow's page that has custody's pages, which are there by the session of Airflow's user."""
    page.frame_locator("iframe").get_by_role("main").wait_for()
    frame = page.locator("iframe").element_handle().content_frame()
    settled(frame)
    return frame


def test_a_user_of_airflow_searches_in_its_frame_and_alone(
    airflow: LocalAirflow, repository: Repository, page: Any
) -> None:
    page.goto(f"{airflow.url}/plugin/provenance")
    frame = framed(page)
    assert total(frame) == f"{repository.search('').total:,} events"
    page.wait_for_timeout(1000)
    picture(page, "pages-airflow")
    page.goto(f"{airflow.url}/custody/ui/status.html")
    page.get_by_role("heading", name="Writers").wait_for()


def test_an_error_within_the_frame_fails_what_drives_the_browser(airflow: LocalAirflow) -> None:
    with (
        pytest.raises(AssertionError, match=r"console: seeded in the frame[\s\S]*error: thrown in the frame"),
        browser.page(airflow.url, timeout_ms=120_000) as page,
    ):
        browser.log_in(page, airflow.url, airflow.user, airflow.password)
        page.goto(f"{airflow.url}/plugin/provenance")
        frame = framed(page)
        frame.evaluate("console.error('seeded in the frame')")
        frame.evaluate("setTimeout(() => { throw new Error('thrown in the frame') })")
        page.wait_for_timeout(1000)


def test_from_a_search_to_a_replay_and_an_earlier_moment_within_the_frame(
    airflow: LocalAirflow, repository: Repository, page: Any
) -> None:
    page.goto(f"{airflow.url}/plugin/provenance")
    frame = framed(page)
    now = repository.search("").total
    field = frame.get_by_label("Query")
    field.fill(SORTED_QUERY)
    led(frame, lambda: field.press("Enter"))
    assert total(frame) == f"{PARTS} events"
    led(frame, frame.get_by_role("rowheader").get_by_role("link").first.click)
    frame.get_by_role("heading", name="What happened").wait_for()
    # Contents: what was taken out of the queue, as JSON and as bytes.
    after = frame.get_by_role("region", name="Content after the event", exact=True)
    after.get_by_text('"is": "sorted"').wait_for()
    after.get_by_role("button", name="Hex").click()
    after.get_by_text(SORTED[:8].hex(" ")).wait_for()
    with page.expect_download() as saved:
        after.get_by_role("button", name="Save").click()
    assert saved.value.path().read_bytes() == SORTED
    # The lineage, expanded from the parts of the order to the bundle that it came in, with another order.
    event = frame.url
    led(frame, frame.get_by_role("main").get_by_role("link", name="Lineage", exact=True).click)
    frame.locator(".react-flow__node").first.wait_for()
    table = frame.get_by_role("region", name="FlowFiles of this lineage")
    alone = table.get_by_role("rowheader").count()
    frame.locator(f"#row-{bundle_of(repository)}").get_by_role("button", name="more event").click()
    table.get_by_role("rowheader").nth(alone).wait_for()
    frame.locator(".react-flow__node").nth(alone).wait_for()
    # The replay of the event: a dialog of the page, since the frame may open none of the browser's.
    frame.goto(event)
    settled(frame)
    before = queued(repository)
    frame.get_by_role("button", name="Make the plan").click()
    frame.get_by_role("button", name="Send 1 FlowFile again").click()
    frame.get_by_role("dialog").get_by_role("button", name="Send").click()
    frame.get_by_role("status", name="What the run did").wait_for()
    assert queued(repository) == before + 1
    # Time travel: before the order was there.
    then = repository.search("", writer="main", as_of=_before(repository)).total
    assert 0 < then < now
    led(frame, frame.get_by_role("link", name="Search", exact=True).click)
    frame.get_by_role("combobox", name="Writer").select_option("main")
    frame.get_by_label("As of").fill(str(_before(repository)))
    led(frame, frame.get_by_role("button", name="Search", exact=True).click)
    assert total(frame) == f"{then:,} events"
    frame.get_by_label("Query").fill("component_id:dag.sort")
    led(frame, lambda: frame.get_by_label("Query").press("Enter"))
    assert total(frame) == "0 events"
    led(frame, frame.get_by_role("link", name="Show what is there now").click)
    assert int(total(frame).split()[0]) >= PARTS


def _before(repository: Repository) -> int:
    """The last revision of main before the order."""
    workspace = repository.workspace("main")
    known = range(max(workspace.state().floor, 0), workspace.catalog.load().revision + 1)
    live = [
        at for at in known if repository.search(f"flowfile_uuid:{bundle_of(repository)}", as_of=at, writer="main").total
    ]
    return live[0] - 1


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_everybody_can_use_the_pages_in_the_frame(
    airflow: LocalAirflow, repository: Repository, home: Path, colours: str
) -> None:
    axe = (build.WORK / "source" / "node_modules" / "axe-core" / "axe.min.js").read_text(encoding="utf-8")
    run_id = _run_told(airflow, repository, colours)
    [sorted_, *_] = repository.search(SORTED_QUERY).events
    problems: list[str] = []
    with logged_in(airflow, home, "op", color_scheme=colours) as page:
        page.goto(f"{airflow.url}/plugin/provenance")
        frame = framed(page)
        for path in (
            "search.html?f=event_type:SEND",
            f"event.html?writer={sorted_.writer}&event={sorted_.event.event_id}",
            f"lineage.html?flowfile={sorted_.event.flowfile_uuid}",
            f"run.html?dag_id={DAG}&run_id={run_id}",
            "sql.html",
            "status.html",
            "proof.html",
        ):
            frame.goto(f"{airflow.url}/custody/ui/{path}")
            settled(frame)
            assert frame.evaluate("window.parent !== window")
            # The frame has the colours of the page around it.
            assert frame.evaluate("document.documentElement.dataset.theme") == colours, path
            problems += looked_at(frame, axe, path, page.viewport_size["width"])
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("role", ["op", "viewer"])
def test_the_tab_of_a_run_shows_contents_to_whom_airflow_allows_it(
    airflow: LocalAirflow, repository: Repository, home: Path, role: str
) -> None:
    run_id = _run_told(airflow, repository, role)
    may = "content" in MAY[role]
    with logged_in(airflow, home, role, *([] if may else [403])) as page:
        page.goto(f"{airflow.url}/dags/{DAG}/runs/{run_id}/plugin/provenance-run")
        frame = framed(page)
        frame.get_by_role("heading", name=f"{DAG}, run {run_id}").wait_for()
        for title, name, text in (
            ("What it wrote", f"hdfs://lake/{role}.bin", WROTE[:15].decode()),
            # JSON is shown on lines of its own.
            ("What it read", f"hdfs://landing/{role}", READ[1:15].decode()),
        ):
            row = frame.get_by_role("region", name=title, exact=True).get_by_role("row").filter(has_text=name)
            row.get_by_role("button", name="Show 1 content").click()
            shown = frame.get_by_role("region", name=f"Contents of {name}")
            if may:
                shown.get_by_text(text).first.wait_for()
            else:
                shown.get_by_text("Your token does not allow this").first.wait_for()
                assert text not in frame.content()


def test_the_tab_of_a_task_shows_what_this_task_read_and_wrote(
    airflow: LocalAirflow, repository: Repository, page: Any
) -> None:
    run_id = _run_told(airflow, repository, "of-a-task")
    page.goto(f"{airflow.url}/dags/{DAG}/runs/{run_id}/tasks/{TASK}/plugin/provenance-task")
    frame = framed(page)
    frame.get_by_role("heading", name=f"{DAG}, run {run_id}").wait_for()
    frame.get_by_text(f"Task {TASK}").wait_for()
    frame.get_by_role("link", name="hdfs://lake/of-a-task.bin").wait_for()


def _run_told(airflow: LocalAirflow, repository: Repository, name: str) -> str:
    """A new run of a DAG, and what the listener of runs would have told of it, and others of its files."""
    with airflow.client() as client:
        client.wait_for_dag(DAG)
        run_id = client.trigger(DAG)
    story = RunStory(
        dag_id=DAG, run_id=run_id, task_id=TASK, read=f"hdfs://landing/{name}", wrote=f"hdfs://lake/{name}.bin"
    )
    story.store(repository)
    return str(run_id)


@pytest.mark.parametrize("role", MAY)
def test_a_user_may_what_airflow_allows(airflow: LocalAirflow, home: Path, role: str) -> None:
    _set_password(home, role)
    with httpx.Client(base_url=airflow.url, trust_env=False, timeout=60) as client:
        login = client.post("/auth/token", json={"username": role, "password": PASSWORD})
        headers = {"Authorization": f"Bearer {login.json()['access_token']}"}
        assert set(client.get("/custody/api/v1/", headers=headers).json()["can"]) == MAY[role]
        for path, body, scope in (
            ("replay-plans", {"query": SORTED_QUERY}, "replay"),
            ("quarantine/resubmissions", {"everything": True}, "manage"),
        ):
            status = client.post(f"/custody/api/v1/{path}", json=body, headers=headers).status_code
            assert status == (202 if scope in MAY[role] else 403), (role, path)


def test_a_replay_is_begun_by_a_user_of_airflow(airflow: LocalAirflow, repository: Repository, page: Any) -> None:
    [one, *_] = repository.search(SORTED_QUERY, oldest_first=True).events
    before = repository.search("event_type:REPLAY").total
    page.goto(f"{airflow.url}/custody/ui/event.html?writer={one.writer}&event={one.event.event_id}")
    page.get_by_role("button", name="Make the plan").click()
    page.get_by_role("button", name="Send 1 FlowFile again").click()
    page.get_by_role("dialog").get_by_role("button", name="Send").click()
    page.get_by_role("status", name="What the run did").wait_for()
    found = repository.search("event_type:REPLAY")
    assert found.total > before
    # The newest: a repository that is taken instead of samples may have others.
    told = found.events[: found.total - before]
    assert {each.event.details for each in told} == {f"Replay requested by {airflow.user}"}


def test_strangers_and_other_sites_get_no_answer(airflow: LocalAirflow, page: Any) -> None:
    events = f"{airflow.url}/custody/api/v1/events"
    with httpx.Client(trust_env=False, timeout=60) as client:
        assert client.get(events).status_code == 401
        assert client.get(f"{airflow.url}/custody/ui/search.html").status_code == 200
        cookies = {cookie["name"]: cookie["value"] for cookie in page.context.cookies()}
        session = {"cookie": f"_token={cookies['_token']}"}
        assert client.get(events, headers=session).json()["total"] >= EVENTS
        for foreign in ({"origin": "http://evil.example"}, {"sec-fetch-site": "cross-site"}):
            order = client.post(
                f"{airflow.url}/custody/api/v1/quarantine/resubmissions",
                json={"everything": True},
                headers={**session, **foreign},
            )
            assert order.status_code in (401, 403), foreign
            asked = client.post(f"{events}/search", json={"query": ""}, headers={**session, **foreign})
            assert asked.status_code == 401, foreign


FOREIGN = b"<!doctype html><title>foreign</title><p>A page that somebody else's server sends.</p>"
SEND = """async ([address, type]) => {
    const said = {body: '{"everything": true}', headers: {'Content-Type': type}};
    const asked = {method: 'POST', mode: 'no-cors', credentials: 'include', ...said};
    return await fetch(address, asked).then(() => 'sent', (error) => String(error));
}"""
SUBMIT = """(address) => {
    const form = document.createElement('form');
    Object.assign(form, {method: 'POST', action: address, enctype: 'text/plain'});
    const field = Object.assign(document.createElement('input'), {name: '{"everything": true, "a', value: '": 1}'});
    form.append(field);
    document.body.append(form);
    form.submit();
}"""


@contextmanager
def another_origin() -> Iterator[str]:
    """The address of a server on another port of the same host: of another origin, and of the same site."""

    class Foreign(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(FOREIGN)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer((LOOPBACK, 0), Foreign) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://{LOOPBACK}:{server.server_port}"
        finally:
            server.shutdown()


@pytest.mark.parametrize("way", ["fetch", "form"])
def test_a_page_of_another_origin_sends_the_cookie_and_is_refused(airflow: LocalAirflow, page: Any, way: str) -> None:
    orders = f"{airflow.url}/custody/api/v1/quarantine/resubmissions"
    jobs = f"{airflow.url}/custody/api/v1/jobs"
    page.goto(f"{airflow.url}/custody/ui/status.html")
    before = page.evaluate("async (jobs) => (await (await fetch(jobs)).json()).total", jobs)
    # Its console has the refusals: the page of its own is not looked at.
    with another_origin() as elsewhere:
        foreign = page.context.new_page()
        foreign.goto(elsewhere)
        # By Chromium's own report: the headers that Playwright gave of the fetch had no cookie in a real Airflow.
        sent: list[dict[str, Any]] = []
        session = page.context.new_cdp_session(foreign)
        # Playwright takes no method of a built-in type.
        session.on("Network.requestWillBeSentExtraInfo", lambda told: sent.append(told))
        session.send("Network.enable")
        with foreign.expect_response(orders) as answered:
            if way == "fetch":
                assert foreign.evaluate(SEND, [orders, "text/plain"]) == "sent"
            else:
                foreign.evaluate(SUBMIT, orders)
        foreign.wait_for_timeout(1000)
        headers = [{name.lower(): value for name, value in one["headers"].items()} for one in sent]
        # The browser did send the session along: the site is the same. Nothing but the origin tells who asked.
        assert any("_token=" in one.get("cookie", "") and one.get("origin") == elsewhere for one in headers), sent
        assert answered.value.status in (401, 403)
        foreign.close()
    after = page.evaluate("async (jobs) => (await (await fetch(jobs)).json()).total", jobs)
    assert after == before
    # The same order of a page of custody's own is taken.
    taken = page.evaluate(
        """async (address) => (await fetch(address, {method: 'POST', body: '{"everything": true}',
        headers: {'Content-Type': 'application/json'}})).status""",
        orders,
    )
    assert taken == 202
