"""The page of a run in a real browser: what it read and wrote with the contents, odd names, and a way for everybody."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from custody.repository import Repository
from custody.serving.access import Scope
from custody_pages import build
from tests.pages.test_in_browser import HOSTILE, built, led, looked_at, opened, picture, settled
from tests.support import run_steps
from tests.unit.serving.dag_run_story import BEFORE, READ, WROTE, RunStory
from tests.unit.serving.serve_process import Served, served, token

__all__ = ["built"]

pytestmark = pytest.mark.slow

STORY = RunStory()
ODD = RunStory(
    dag_id=HOSTILE[0],
    run_id=f"{HOSTILE[1]} {HOSTILE[5]}",
    task_id=HOSTILE[2],
    read=HOSTILE[4],
    wrote=HOSTILE[3],
    component=HOSTILE[6],
)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    repository = Repository.create(tmp_path_factory.mktemp("runs") / "repository")
    STORY.store(repository)
    ODD.store(repository)
    run_steps(repository.settings)
    return Repository.open(repository.settings.root)


@pytest.fixture(scope="module")
def server(repository: Repository) -> Iterator[Served]:
    with served(repository.settings.root, "--door", "pages") as running:
        yield running


def address(server: Served, story: RunStory, **more: str) -> str:
    return f"{server.url}/ui/run.html?{urlencode({'dag_id': story.dag_id, 'run_id': story.run_id, **more})}"


def assets(page: Any, title: str) -> Any:
    return page.get_by_role("region", name=title, exact=True)


def test_a_run_shows_the_contents_of_what_it_wrote_and_read(server: Served) -> None:
    with opened(server.url) as page:
        page.goto(f"{server.url}/ui/run.html")
        settled(page)
        led(page, page.get_by_role("region", name="Newest runs of all DAGs").get_by_role("link", name="nightly").click)
        row = assets(page, "What it wrote").get_by_role("row").filter(has_text=STORY.wrote)
        show = row.get_by_role("button", name="Show 1 content")
        show.click()
        shown = page.get_by_role("region", name=f"Contents of {STORY.wrote}")
        # Whoever opens it by keys goes on in it, and comes back to where it was opened.
        assert page.evaluate("document.activeElement.getAttribute('aria-label')") == f"Contents of {STORY.wrote}"
        after = shown.get_by_role("region", name="Content after the event", exact=True)
        after.get_by_text("what the run wrote").first.wait_for()
        assert f"{len(WROTE) / 1024:.1f} KiB" in after.inner_text()
        before = shown.get_by_role("region", name="Content before the event", exact=True)
        before.get_by_text(BEFORE.decode()).wait_for()
        settled(page)
        picture(page, "pages-run")
        after.get_by_role("button", name="Hex").click()
        after.get_by_text(WROTE[:8].hex(" ")).first.wait_for()
        after.get_by_role("button", name="Later bytes").click()
        after.get_by_text("Bytes 4,096 to 8,191").wait_for()
        with page.expect_download() as saved:
            after.get_by_role("button", name="Save").click()
        assert saved.value.path().read_bytes() == WROTE
        # The address has what is shown.
        page.goto(page.url)
        settled(page)
        shown.get_by_text(BEFORE.decode()).wait_for()
        shown.get_by_role("button", name="Close").click()
        assert page.evaluate("document.activeElement.textContent") == "Show 1 content"
        assert shown.count() == 0
        assert "contents" not in parse_qs(urlsplit(page.url).query)
        read = assets(page, "What it read").get_by_role("row").filter(has_text=STORY.read)
        read.get_by_role("button", name="Show 1 content").click()
        shown = page.get_by_role("region", name=f"Contents of {STORY.read}")
        # JSON, as it is written.
        shown.get_by_text('"order": 45226').wait_for()
        led(page, shown.get_by_role("link", name="Event").click)
        page.get_by_role("heading", name="What happened").wait_for()
        assert (
            READ.decode()[1:15] in page.get_by_role("region", name="Content after the event", exact=True).inner_text()
        )


@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 320])
def test_odd_names_of_a_full_run_stay_text_and_everybody_can_use_its_page(
    server: Served, colours: str, width: int
) -> None:
    axe = (build.WORK / "source" / "node_modules" / "axe-core" / "axe.min.js").read_text(encoding="utf-8")
    problems: list[str] = []
    with opened(server.url, color_scheme=colours, viewport={"width": width, "height": 800}) as page:
        for more in ({}, {"task_id": ODD.task_id}):
            page.goto(address(server, ODD, **more))
            settled(page)
            page.get_by_text(ODD.dag_id).first.wait_for()
            for title in ("What it wrote", "What it read"):
                assets(page, title).get_by_role("button", name="Show 1 content").click()
                page.get_by_role("region", name="Content after the event", exact=True).first.wait_for()
                settled(page)
                problems += looked_at(page, axe, f"run.html, {title}", width)
            for name in (ODD.wrote, ODD.read, ODD.component):
                page.get_by_text(name).first.wait_for()
            assert page.evaluate("window.broken ?? null") is None
            assert page.locator("img[src=x], main script, svg[onload], a[href^=javascript]").count() == 0
            # The links of odd names lead to where they say.
            link = assets(page, "What it read").get_by_role("rowheader").get_by_role("link")
            assert "lineage.html?flowfile=" in link.get_attribute("href")
    assert not problems, "\n".join(problems)


def test_a_run_that_is_named_oddly_is_reached_by_its_link(server: Served) -> None:
    with opened(server.url) as page:
        page.goto(f"{server.url}/ui/run.html")
        settled(page)
        runs = page.get_by_role("region", name="Newest runs of all DAGs")
        led(
            page,
            runs.get_by_role("row").filter(has_text=ODD.run_id[:20]).get_by_role("rowheader").get_by_role("link").click,
        )
        assets(page, "What it wrote").get_by_text(ODD.wrote).wait_for()
        assert page.evaluate("window.broken ?? null") is None


def test_without_the_scope_the_page_says_so_and_shows_no_byte(repository: Repository) -> None:
    root = repository.settings.root
    reader = token(root, "reader", Scope.READ)["authorization"].removeprefix("Bearer ")
    try:
        with (
            served(root, "--door", "pages", CUSTODY__SERVE__TOKEN_FILE="tokens") as running,
            opened(running.url, 401, 403) as page,
        ):
            page.goto(address(running, STORY))
            page.get_by_label("Token").first.fill(reader)
            page.get_by_role("button", name="Use it in this tab").first.click()
            assets(page, "What it wrote").get_by_role("button", name="Show 1 content").click()
            page.get_by_text("Your token does not allow this").first.wait_for()
            assert WROTE[:18].decode() not in page.content()
    finally:
        (root / "tokens").unlink()
