"""What the pages change, in a real browser: replays, the quarantine, differences; and the pages below any path."""

from __future__ import annotations

import json
import re
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as AsgiScope

from custody.capture import Format
from custody.clock import SystemClock
from custody.config.sections import ListenerSection
from custody.flow import Component
from custody.repository import EventSelection, Repository
from custody.serving.access import Scope
from custody.serving.application import Access, application
from custody.serving.door import Services
from custody.serving.doors import open_doors
from custody_pages import build
from tests.pages.test_in_browser import BASE, HOSTILE, built, led, looked_at, opened, picture, settled, total
from tests.support import append, event, run_steps
from tests.unit.serving.serve_process import Served, served, token
from tests.unit.serving.test_api_changes import GOOD, quarantined, with_orders

__all__ = ["built"]

pytestmark = pytest.mark.slow

LOAD = Component(id="dag.load", type="LoadOrders")
SORT = Component(id="dag.sort", type="SortOrders", name=HOSTILE[0])
ORDERS = 12
SORTED = "component_id:dag.sort AND event_type:DROP"


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """A flow took orders out of a queue, one event of it is forgotten, and two pieces are in quarantine."""
    root = tmp_path_factory.mktemp("changes") / "repository"
    if BASE is not None:
        shutil.copytree(BASE, root)
    repository = with_orders(root, LOAD, SORT, ORDERS)
    quarantined(repository, json.dumps(GOOD).encode())
    quarantined(repository, HOSTILE[1].encode())
    [one, *_] = repository.search("component_id:dag.load", oldest_first=True).events
    repository.forget(EventSelection(event_ids=[one.event.event_id]), HOSTILE[2], "main")
    return Repository.open(root)


@pytest.fixture(scope="module")
def server(repository: Repository) -> Iterator[Served]:
    with served(repository.settings.root, "--door", "pages") as running:
        yield running


def waiting(repository: Repository) -> int:
    return sum(queue.count for queue in repository.status().queues)


def test_an_event_is_sent_again_by_a_plan_that_says_what_it_does(server: Served, repository: Repository) -> None:
    [one, *_] = repository.search(SORTED).events
    before = waiting(repository)
    with opened(server.url) as page:
        page.goto(f"{server.url}/ui/event.html?writer={one.writer}&event={one.event.event_id}")
        settled(page)
        page.get_by_role("button", name="Make the plan").click()
        plan = page.get_by_role("region", name="The plan")
        plan.get_by_role("heading", name="Run it").wait_for()
        assert "1 event" in plan.inner_text()
        assert waiting(repository) == before
        plan.get_by_role("button", name="Send 1 FlowFile again").click()
        dialog = page.get_by_role("dialog")
        assert "enters its queue once more" in dialog.inner_text()
        dialog.get_by_role("button", name="No, leave it").click()
        assert waiting(repository) == before
        plan.get_by_role("button", name="Send 1 FlowFile again").click()
        page.get_by_role("dialog").get_by_role("button", name="Send 1 FlowFile again").click()
        outcome = page.get_by_role("status", name="What the run did")
        outcome.wait_for()
        assert re.search(r"Sent\s+1\b", outcome.inner_text())
        assert waiting(repository) == before + 1
        # The address has plan and run: whoever opens it sees the same, and nothing is sent by that.
        page.goto(page.url)
        settled(page)
        page.get_by_role("status", name="What the run did").wait_for()
        assert waiting(repository) == before + 1


def test_all_that_a_search_finds_is_sent_again_and_what_cannot_be_has_a_reason(
    server: Served, repository: Repository
) -> None:
    before = waiting(repository)
    with opened(server.url) as page:
        page.goto(f"{server.url}/ui/search.html?q=component_id:dag.*")
        settled(page)
        led(page, page.get_by_role("link", name="Send them again").click)
        page.get_by_role("button", name="Make the plan").click()
        table = page.get_by_role("region", name="Events that cannot be sent again").last
        table.wait_for()
        picture(page, "pages-replay")
        assert table.get_by_role("cell", name="no-source-queue", exact=True).count() >= ORDERS - 1
        page.get_by_role("button", name=f"Send {ORDERS} FlowFiles again").click()
        page.get_by_role("dialog").get_by_role("button", name="Send").click()
        page.get_by_role("status", name="What the run did").wait_for()
        assert waiting(repository) == before + ORDERS


def test_pieces_of_the_quarantine_are_tried_again_from_the_page(server: Served, repository: Repository) -> None:
    with opened(server.url) as page:
        page.goto(f"{server.url}/ui/status.html")
        settled(page)
        table = page.get_by_role("region", name="Quarantine")
        rows = table.get_by_role("rowheader").count()
        assert page.get_by_role("button", name="Try 0 chosen pieces again").is_disabled()
        table.get_by_role("checkbox").first.check()
        page.get_by_role("button", name="Try 1 chosen piece again").click()
        page.get_by_role("dialog").get_by_role("button", name="No, leave it").click()
        page.get_by_role("button", name=f"Try all {rows} again").click()
        page.get_by_role("dialog").get_by_role("button", name=f"Try all {rows} again").click()
        outcome = page.get_by_role("status", name="What became of the pieces")
        outcome.wait_for()
        assert re.search(r"Events stored\s+1\b", outcome.inner_text())
        assert re.search(r"Rejected again\s+1\b", outcome.inner_text())
        page.get_by_role("region", name="Long work").get_by_text("Another try").first.wait_for()
        run = page.locator("summary").filter(has_text="scheduled__2026-03-02")
        run.click()
        page.get_by_role("region", name="Steps of").get_by_text("rollover").first.wait_for()
    assert repository.search(f'flowfile_uuid:"{GOOD["entityId"]}"').total == 1


def test_a_piece_of_the_quarantine_is_read_as_another_format_from_the_page(tmp_path: Path) -> None:
    repository = Repository.create(tmp_path / "repository")
    # It begins as a bundle of NiFi's reporting task does: told by its beginning it is refused.
    key = quarantined(repository, json.dumps([]).encode())
    said = repository.quarantine.raw(key)
    other = json.dumps(GOOD).encode()
    taken = quarantined(repository, other)
    with served(repository.settings.root, "--door", "pages") as running, opened(running.url) as page:
        page.goto(f"{running.url}/ui/status.html")
        settled(page)
        choice = page.get_by_label("Read the pieces as")
        assert [one.inner_text() for one in choice.locator("option").all()[1:]] == [each.value for each in Format]
        table = page.get_by_role("region", name="Quarantine")
        table.get_by_role("row").filter(has_text=taken).get_by_role("checkbox").check()
        outcome = page.get_by_role("status", name="What became of the pieces")
        for name, stored in (("openlineage", 0), ("nifi", 1)):
            choice.select_option(name)
            command = f"custody quarantine resubmit --format {name} {taken}"
            assert command in page.locator("pre").all_inner_texts()
            with page.expect_request(lambda one: one.url.endswith("quarantine/resubmissions")) as asked:
                page.get_by_role("button", name="Try 1 chosen piece again").click()
                page.get_by_role("dialog").get_by_role("button", name="Try 1 chosen piece again").click()
            assert asked.value.post_data_json == {"keys": [taken], "format": name}
            outcome.get_by_text("Events stored").wait_for()
            assert re.search(rf"Events stored\s+{stored}\b", outcome.inner_text())
            if not stored:
                table.get_by_role("row").filter(has_text=taken).get_by_role("checkbox").check()
    assert repository.quarantine.raw(key) == said
    assert repository.search(f'flowfile_uuid:"{GOOD["entityId"]}"').total == 1


def test_what_changed_between_two_revisions_and_why(server: Served, repository: Repository) -> None:
    with opened(server.url) as page:
        page.goto(f"{server.url}/ui/proof.html")
        settled(page)
        led(page, page.get_by_role("link", name="What changed:").first.click)
        page.get_by_role("region", name="Forgotten, held, lost").get_by_text(HOSTILE[2]).wait_for()
        page.get_by_label("From revision or time").fill("0")
        led(page, page.get_by_role("button", name="Compare").click)
        page.get_by_text("from revision 0 to").wait_for()
        assert page.evaluate("window.broken ?? null") is None


@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 320, 3840])
def test_everybody_can_use_what_changes_something(
    server: Served, repository: Repository, colours: str, width: int
) -> None:
    newest = repository.workspace("main").catalog.load().revision
    [one, *_] = repository.search("component_id:dag.load").events
    axe = (build.WORK / "source" / "node_modules" / "axe-core" / "axe.min.js").read_text(encoding="utf-8")
    problems: list[str] = []
    with opened(server.url, color_scheme=colours, viewport={"width": width, "height": 800}) as page:
        for path in (
            "replay.html?q=component_id:dag.*",
            f"event.html?writer={one.writer}&event={one.event.event_id}",
            "status.html",
            f"proof.html?writer=main&former=0&later={newest}",
        ):
            page.goto(f"{server.url}/ui/{path}")
            settled(page)
            if path.startswith(("replay", "event")):
                page.get_by_role("button", name="Make the plan").click()
                page.get_by_role("region", name="Events that cannot be sent again").last.wait_for()
            if path.startswith("replay"):
                page.get_by_role("button", name=re.compile("Send .* again")).click()
                page.get_by_role("dialog").wait_for()
            problems += looked_at(page, axe, path, width)
    assert not problems, "\n".join(problems)


def test_who_may_only_read_is_shown_the_command(repository: Repository) -> None:
    root = repository.settings.root
    reader = token(root, "reader", Scope.READ)["authorization"].removeprefix("Bearer ")
    [one, *_] = repository.search(SORTED).events
    quarantined(repository, b"never an event")
    try:
        with (
            served(root, "--door", "pages", CUSTODY__SERVE__TOKEN_FILE="tokens") as running,
            opened(running.url, 401, 403) as page,
        ):
            page.goto(f"{running.url}/ui/event.html?writer={one.writer}&event={one.event.event_id}")
            page.get_by_label("Token").first.fill(reader)
            page.get_by_role("button", name="Use it in this tab").first.click()
            page.goto(page.url)
            page.get_by_text("it needs the scope replay").wait_for()
            assert page.get_by_role("button", name="Make the plan").count() == 0
            page.goto(f"{running.url}/ui/status.html")
            page.get_by_text("your token needs the scope manage").wait_for()
            assert page.get_by_role("button", name=re.compile("^Try all")).count() == 0
    finally:
        (root / "tokens").unlink()


PREFIX = "/team/air/custody"


def kept(app: ASGIApp) -> ASGIApp:
    """A mount, as Airflow's: the application sees the whole path."""
    return Starlette(routes=[Mount(PREFIX, app)])


def cut(app: ASGIApp) -> ASGIApp:
    """A proxy that takes the prefix away, and says nothing of it."""

    async def passed(scope: AsgiScope, receive: Receive, send: Send) -> None:
        path = scope["path"].removeprefix(PREFIX)
        await app({**scope, "path": path, "raw_path": path.encode()}, receive, send)

    return passed


@contextmanager
def below(repository: Repository, wrap: Any) -> Iterator[str]:
    """The server's doors, below a path; the address of it."""
    services = Services(repository, repository.settings, SystemClock())
    with open_doors(["pages"], services) as doors:
        app = wrap(application(ListenerSection(), doors, Access()))
        server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, lifespan="off", log_config=None))
        thread = threading.Thread(target=server.run)
        thread.start()
        try:
            while not server.started:
                time.sleep(0.01)
            port = server.servers[0].sockets[0].getsockname()[1]
            yield f"http://127.0.0.1:{port}{PREFIX}"
        finally:
            server.should_exit = True
            thread.join()


@pytest.mark.parametrize("wrap", [kept, cut])
def test_all_works_below_a_path(repository: Repository, wrap: Any) -> None:
    [one, *_] = repository.search(SORTED).events
    before = waiting(repository)
    with below(repository, wrap) as url, opened(url) as page:
        # Nothing outside of the path is asked for: `opened` checks it.
        page.goto(f"{url}/")
        settled(page)
        assert page.url == f"{url}/ui/search.html"
        assert total(page) == f"{repository.search('').total:,} events"
        led(page, page.get_by_role("rowheader").get_by_role("link").first.click)
        page.goto(f"{url}/ui/event.html?writer={one.writer}&event={one.event.event_id}")
        settled(page)
        page.get_by_role("button", name="Make the plan").click()
        page.get_by_role("button", name="Send 1 FlowFile again").click()
        page.get_by_role("dialog").get_by_role("button", name="Send").click()
        page.get_by_role("status", name="What the run did").wait_for()
        assert waiting(repository) == before + 1
        for path in ("lineage", "run", "status", "proof"):
            page.goto(f"{url}/ui/{path}.html?flowfile={one.event.flowfile_uuid}")
            settled(page)


WIDE = "fa110000-0000-4000-8000-000000000000"
CHILDREN = 5000


def test_a_lineage_of_five_thousand_is_painted_at_once_and_never_freezes(tmp_path: Path) -> None:
    root = tmp_path / "repository"
    repository = Repository.create(root)
    uuids = [f"fa110000-0000-4000-8000-{number:012d}" for number in range(1, CHILDREN + 1)]
    fork = event(1, event_type="FORK", flowfile_uuid=WIDE, parent_uuids=[WIDE], child_uuids=uuids)
    sent = [
        event(2 + at, event_type="SEND", flowfile_uuid=one, transit_uri=f"hdfs://orders/{at}")
        for at, one in enumerate(uuids)
    ]
    append(repository, [fork, *sent])
    run_steps(repository.settings)
    with served(root, "--door", "pages") as running, opened(running.url) as page:
        # Warm: what is measured is the page, not the start of the browser.
        page.goto(f"{running.url}/ui/search.html")
        settled(page)
        page.add_init_script(
            "window.longest = 0; new PerformanceObserver(list => { for (const one of list.getEntries())"
            " window.longest = Math.max(window.longest, one.duration) }).observe({type: 'longtask', buffered: true})"
        )
        started = time.monotonic()
        page.goto(f"{running.url}/ui/lineage.html?flowfile={WIDE}&depth=all")
        page.get_by_text(f"{CHILDREN + 1:,} FlowFiles with {CHILDREN + 1:,} events").wait_for()
        table = time.monotonic() - started
        paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime") / 1000
        # Its layout goes on in a worker, however long it takes.
        page.locator(".react-flow__node").first.wait_for(timeout=120_000)
        drawn = time.monotonic() - started
        longest = page.evaluate("window.longest") / 1000
        seconds = f"paint {paint:.2f} s, table {table:.2f} s, picture {drawn:.2f} s, longest task {longest:.2f} s"
        print(seconds)  # noqa: T201 - the figures of docs/design/068
        assert page.get_by_role("region", name="FlowFiles of this lineage").get_by_role("rowheader").count() == 300
        assert "The picture has the 300 nearest" in page.get_by_role("status").first.inner_text()
        assert paint < 2, seconds
        assert table < 5, seconds
        assert longest < 1, seconds


def test_a_bar_is_cut_finer_down_to_single_events(server: Served, repository: Repository) -> None:
    with opened(server.url) as page:
        page.goto(f"{server.url}/ui/search.html")
        settled(page)
        counts: list[int] = []
        for _ in range(3):
            bars = page.get_by_role("group", name="When").get_by_role("link")
            bars.first.wait_for()
            labels = [bars.nth(at).get_attribute("aria-label") or "" for at in range(bars.count())]
            sizes = [int(label.rsplit(": ", 1)[1].split()[0].replace(",", "")) for label in labels]
            assert sum(sizes) == int(total(page).split()[0].replace(",", ""))
            counts.append(sum(sizes))
            fullest = sizes.index(max(sizes))
            led(page, lambda fullest=fullest, bars=bars: bars.nth(fullest).dispatch_event("click"))  # type: ignore[misc]
            assert total(page).split()[0] == f"{max(sizes):,}"
        assert "since=" in page.url
