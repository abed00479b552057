"""Time in a real browser: the slider of a lineage, and earlier moments on every page that can be asked about them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest

from custody.airflow_runs import RunFacts, end_events, start_events
from custody.model import Event
from custody.repository import Repository
from tests.pages.test_in_browser import built, led, opened, settled, total
from tests.support import append, event, run_steps
from tests.unit.serving.serve_process import Served, served

__all__ = ["built"]

pytestmark = pytest.mark.slow

ORDER = "71e00000-0000-4000-8000-000000000000"
PARTS = [f"71e00000-0000-4000-8000-00000000000{number}" for number in range(1, 4)]
DAY = 86_400_000
START = int(datetime(2026, 3, 2, 8, tzinfo=UTC).timestamp() * 1000)
MOMENTS = [START, START + 5, START + 20, START + DAY, START + 2 * DAY]
"""When the order came, was cut into parts, and when its parts were sent: two at once, and a day later the last one."""


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """An order that is cut and sent within days; before a second pass it was not all known."""
    root = tmp_path_factory.mktemp("time") / "repository"
    opened = Repository.create(root)
    with opened.flowfiles() as flow:
        flow.connect("orders")
    came = event(1, event_time=MOMENTS[0], event_type="RECEIVE", flowfile_uuid=ORDER, transit_uri="sftp://shop/orders")
    cut = event(
        2, event_time=MOMENTS[1], event_type="FORK", flowfile_uuid=ORDER, parent_uuids=[ORDER], child_uuids=PARTS
    )
    append(opened, [came, cut, *run_told("early")])
    run_steps(opened.settings)
    sent = [
        event(10 + at, event_time=when, event_type="SEND", flowfile_uuid=uuid, transit_uri=f"hdfs://lake/part-{at}")
        for at, (uuid, when) in enumerate(zip(PARTS, MOMENTS[2:], strict=True))
    ]
    append(opened, [*sent, *run_told("late")])
    run_steps(opened.settings)
    return Repository.open(root)


def run_told(run_id: str) -> list[Event]:
    """What the listener of runs would have told of a run of the DAG orders, whose task wrote a file."""
    moment = datetime(2026, 3, 1, tzinfo=UTC)
    run = RunFacts(
        deployment="airflow",
        dag_id="orders",
        run_id=run_id,
        run_after=moment,
        state="success",
        start=moment,
        end=moment,
    )
    task = replace(run, task_id="sort", outlets=[f"hdfs://lake/{run_id}"])
    documents = [one for facts in (run, task) for one in (*start_events(facts), *end_events(facts))]
    return [msgspec.convert(one, Event) for one in documents]


@pytest.fixture(scope="module")
def server(repository: Repository) -> Iterator[Served]:
    with served(repository.settings.root, "--door", "pages") as running:
        yield running


def _flowfiles(page: Any) -> Any:
    return page.get_by_role("region", name="FlowFiles of this lineage").get_by_role("rowheader")


def test_the_slider_shows_a_lineage_as_it_grew_and_stands_in_the_address(server: Served) -> None:
    with opened(server.url) as page:
        page.goto(f"{server.url}/ui/lineage.html?flowfile={ORDER}&depth=all")
        settled(page)
        page.locator(".react-flow__node").nth(3).wait_for()
        slider = page.get_by_role("slider", name="Only up to")
        ends = page.get_by_role("region", name="Where it came from, and where it ended")
        assert (slider.get_attribute("max"), slider.input_value()) == ("4", "4")
        assert ends.get_by_text("Went to").count() == 3
        assert "until=" not in page.url
        slider.press("Home")
        page.locator("tbody tr").nth(1).wait_for(state="detached")
        assert _flowfiles(page).count() == 1
        assert ends.get_by_text("Went to").count() == 0
        assert ends.get_by_role("link", name="sftp://shop/orders").count() == 1
        row = page.get_by_role("region", name="FlowFiles of this lineage").get_by_role("row").last
        # What happened later to a FlowFile that was there is not shown either.
        assert "FORK" not in row.inner_text()
        page.locator(".react-flow__node").nth(1).wait_for(state="detached")
        assert page.locator(".react-flow__node").count() == 1
        # Each step shows what came next, however long that took: the parts, then where they went.
        for at, (flowfiles, gone) in enumerate([(4, 0), (4, 1), (4, 2)], start=1):
            slider.press("ArrowRight")
            page.wait_for_timeout(400)
            assert slider.get_attribute("aria-valuetext").endswith(f"moment {at + 1} of 5")
            assert (_flowfiles(page).count(), ends.get_by_text("Went to").count()) == (flowfiles, gone)
        page.locator(".react-flow__node").nth(3).wait_for()
        assert "until=2026-03-03T08%3A00%3A00.000Z" in page.url
        kept = page.url
        page.goto(f"{server.url}/ui/status.html")
        page.goto(kept)
        settled(page)
        assert (slider.input_value(), ends.get_by_text("Went to").count()) == ("3", 2)
        slider.press("End")
        page.wait_for_timeout(400)
        assert (ends.get_by_text("Went to").count(), "until=" in page.url) == (3, False)


def test_the_fixed_link_of_a_lineage_shows_it_as_it_was(tmp_path: Path) -> None:
    repository = Repository.create(tmp_path / "repository")
    append(repository, [event(1, event_type="CREATE", flowfile_uuid=ORDER)])
    run_steps(repository.settings)
    with served(repository.settings.root, "--door", "pages") as running, opened(running.url) as page:
        page.goto(f"{running.url}/ui/lineage.html?flowfile={ORDER}&depth=all")
        settled(page)
        led(page, page.get_by_role("link", name="Fixed link").click)
        assert f"as_of=main%3A{repository.workspace().state().revision}" in page.url
        assert _flowfiles(page).count() == 1
        # It is the link already.
        assert page.get_by_role("link", name="Fixed link").count() == 0
        fixed = page.url
        child = "0dd0ca5e-0000-4000-8000-00000000c41d"
        append(
            repository, [event(2, event_type="CLONE", flowfile_uuid=ORDER, parent_uuids=[ORDER], child_uuids=[child])]
        )
        run_steps(repository.settings)
        page.goto(fixed)
        settled(page)
        assert _flowfiles(page).count() == 1
        page.goto(f"{running.url}/ui/lineage.html?flowfile={ORDER}&depth=all")
        settled(page)
        assert _flowfiles(page).count() == 2


def test_a_slider_that_is_dragged_leaves_the_picture_of_where_it_stopped(server: Served) -> None:
    with opened(server.url) as page:
        page.goto(f"{server.url}/ui/lineage.html?flowfile={ORDER}&depth=all")
        page.locator(".react-flow__node").nth(3).wait_for()
        slider = page.get_by_role("slider", name="Only up to")
        box = slider.bounding_box()
        page.mouse.move(box["x"] + box["width"] - 2, box["y"] + box["height"] / 2)
        page.mouse.down()
        for there_and_back in range(4):
            page.mouse.move(box["x"] + (2 if there_and_back % 2 == 0 else box["width"] - 2), box["y"] + 5, steps=20)
        page.mouse.move(box["x"] + 2, box["y"] + 5, steps=20)
        page.mouse.up()
        page.locator(".react-flow__node").nth(1).wait_for(state="detached")
        page.wait_for_timeout(500)
        assert (slider.input_value(), _flowfiles(page).count()) == ("0", 1)
        assert page.locator(".react-flow__node").count() == 1


def test_a_moment_that_is_chosen_goes_along_from_page_to_page(server: Served, repository: Repository) -> None:
    past = Repository.open(repository.settings.root)
    before = past.search("", writer="main", as_of=0).total
    now = past.search("").total
    [later, *_] = past.search("event_type:SEND").events
    with opened(server.url, 404) as page:
        page.goto(f"{server.url}/ui/search.html")
        settled(page)
        assert total(page) == f"{now:,} events"
        assert page.get_by_text("what was live as of").count() == 0
        page.get_by_role("combobox", name="Writer").select_option("main")
        page.get_by_label("As of").fill("0")
        led(page, page.get_by_role("button", name="Search", exact=True).click)
        assert total(page) == f"{before:,} events"
        page.get_by_text("This is what was live as of 0.").wait_for()
        led(page, page.get_by_role("rowheader").get_by_role("link").first.click)
        page.get_by_text("This is what was live as of 0.").wait_for()
        # An event that was not there yet.
        page.goto(f"{server.url}/ui/event.html?writer=main&event={later.event.event_id}")
        page.get_by_role("heading", name="What happened").wait_for()
        page.get_by_label("As of").fill("0")
        led(page, page.get_by_role("button", name="Look then").click)
        page.get_by_role("alert").wait_for()
        led(page, page.get_by_role("link", name="Show what is there now").click)
        page.get_by_role("heading", name="What happened").wait_for()
        led(page, page.go_back)
        page.get_by_role("alert").wait_for()
        led(page, page.get_by_role("link", name="Search", exact=True).click)
        assert total(page) == f"{before:,} events"
        # A revision is one of a writer, which goes along: from a search to a lineage, and from there to an event.
        led(page, page.get_by_role("cell").get_by_role("link", name="Lineage").first.click)
        assert parse_qs(urlsplit(page.url).query)["writer"] == ["main"]
        page.get_by_text("This is what was live as of 0.").wait_for()
        ends = page.get_by_role("region", name="Where it came from, and where it ended")
        led(page, ends.get_by_role("link").first.click)
        page.get_by_role("heading", name="What happened").wait_for()
        led(page, page.get_by_role("link", name="Lineage", exact=True).first.click)
        page.get_by_label("FlowFile, event, run, dataset or identifier").fill(ORDER)
        page.get_by_label("Generations").select_option("all")
        led(page, page.get_by_role("button", name="Show", exact=True).click)
        page.get_by_text("4 FlowFiles with 2 events").wait_for()
        assert page.get_by_role("region", name="Where it came from").get_by_text("Went to").count() == 0
        led(page, page.get_by_role("link", name="Run", exact=True).click)
        page.get_by_role("textbox", name="DAG").fill("orders")
        page.get_by_label("Run id").fill("early")
        led(page, page.get_by_role("button", name="Show", exact=True).click)
        runs = page.get_by_role("region", name="Newest runs of orders")
        runs.get_by_role("link", name="early").wait_for()
        assert runs.get_by_role("link", name="late").count() == 0
        led(page, page.get_by_role("link", name="SQL", exact=True).click)
        page.get_by_label("Query").fill("select count(*) as events from events")
        led(page, page.get_by_role("button", name="Ask").click)
        assert page.get_by_role("region", name="Rows").last.get_by_role("cell").inner_text() == str(before)
        led(page, page.get_by_role("link", name="Show what is there now").click)
        assert page.get_by_role("region", name="Rows").last.get_by_role("cell").inner_text() == str(now)


def test_a_replay_of_an_earlier_moment_is_planned_of_what_was_there(server: Served, repository: Repository) -> None:
    now = repository.search("event_type:SEND").total
    before = repository.search("event_type:SEND", writer="main", as_of=0).total
    assert 0 < before < now
    with opened(server.url) as page:
        page.goto(f"{server.url}/ui/replay.html?q=event_type:SEND")
        settled(page)
        for moment, known in (("", now), ("0", before)):
            page.get_by_role("combobox", name="Writer").select_option("main")
            page.get_by_label("As of").fill(moment)
            led(page, page.get_by_role("button", name="Choose these events").click)
            page.get_by_role("button", name="Make the plan").click()
            table = page.get_by_role("region", name="Events that cannot be sent again").last
            table.wait_for()
            assert table.get_by_role("rowheader").count() == known


@pytest.mark.parametrize("page_name", ["status", "proof", "keep"])
def test_a_page_of_now_says_of_no_moment_that_it_shows_it(server: Served, page_name: str) -> None:
    with opened(server.url) as page:
        page.goto(f"{server.url}/ui/{page_name}.html?as_of=0")
        settled(page)
        assert page.get_by_text("what was live as of").count() == 0
