"""Somebody who has a question, and has never seen the pages: each way begins at the page that opens first."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from custody.repository import EventSelection, Repository
from tests.pages.test_in_browser import built, led, opened, settled, total
from tests.pages.test_time_in_browser import run_told
from tests.support import append, event, run_steps
from tests.unit.serving.serve_process import Served, served

__all__ = ["built"]

pytestmark = pytest.mark.slow

ORDER = "0a7e0000-0000-4000-8000-000000045226"


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    root = tmp_path_factory.mktemp("ways") / "repository"
    opened = Repository.create(root)
    named = {"updated_attributes": {"filename": "orders-45226.json"}}
    told = [
        event(1, event_type="RECEIVE", flowfile_uuid=ORDER, transit_uri="sftp://shop/45226", **named),
        event(2, event_type="CONTENT_MODIFIED", flowfile_uuid=ORDER, **named),
        event(3, event_type="SEND", flowfile_uuid=ORDER, transit_uri="hdfs://lake/day-1.json", **named),
        event(4, event_type="SEND", updated_attributes={"filename": "orders-99999.json"}),
        *run_told("nightly"),
        event(9),
    ]
    append(opened, told)
    run_steps(opened.settings)
    [gone] = opened.search('flowfile_uuid:"00000000-0000-4000-8000-000000000009"').events
    opened.forget(EventSelection(event_ids=[gone.event.event_id]), "asked for by the customer", "main", who="alice")
    return Repository.open(root)


@pytest.fixture(scope="module")
def server(repository: Repository) -> Iterator[Served]:
    with served(repository.settings.root, "--door", "pages") as running:
        yield running


@pytest.mark.parametrize("typed", ["45226", "order 45226", "#45226", "orders 45226 json"])
def test_which_file_an_order_ended_in(server: Served, typed: str) -> None:
    with opened(server.url) as page:
        page.goto(f"{server.url}/")
        settled(page)
        page.get_by_label("Query").fill(typed)
        led(page, lambda: page.get_by_label("Query").press("Enter"))
        led(page, page.get_by_role("link", name="Look for").click)
        assert total(page) == "3 events"
        led(page, page.get_by_role("cell").get_by_role("link", name="Lineage").first.click)
        ends = page.get_by_role("region", name="Where it came from, and where it ended")
        ends.get_by_role("link", name="hdfs://lake/day-1.json").wait_for()


def test_an_event_without_contents_says_where_they_changed(server: Served, repository: Repository) -> None:
    [sent] = repository.search("transit_uri:*day-1*").events
    with opened(server.url) as page:
        page.goto(f"{server.url}/ui/event.html?writer=main&event={sent.event.event_id}")
        page.get_by_text("the lineage has events of the type CONTENT_MODIFIED").wait_for()


def test_which_run_wrote_a_file_without_its_name(server: Served) -> None:
    with opened(server.url) as page:
        page.goto(f"{server.url}/")
        settled(page)
        page.get_by_text("Where do I find …?").click()
        led(page, page.get_by_role("link", name="Which run wrote a file?").click)
        runs = page.get_by_role("region", name="Newest runs of all DAGs")
        led(page, runs.get_by_role("link", name="nightly").click)
        page.get_by_role("link", name="hdfs://lake/nightly").wait_for()


def test_who_deleted_what(server: Served) -> None:
    with opened(server.url) as page:
        page.goto(f"{server.url}/")
        settled(page)
        page.get_by_text("Where do I find …?").click()
        led(page, page.get_by_role("link", name="Who deleted what?").click)
        deeds = page.get_by_role("region", name="Who forgot or held what, and what was lost").last
        deeds.get_by_text("asked for by the customer").wait_for()
        assert "alice" in deeds.inner_text()


def test_what_a_file_contained_before(server: Served) -> None:
    with opened(server.url) as page:
        page.goto(f"{server.url}/")
        settled(page)
        page.get_by_text("Where do I find …?").click()
        led(page, page.get_by_role("link", name="What did a file contain before?").click)
        assert total(page) == "1 event"
