"""Search follows what comes, in a real browser: bursts, slow answers, a server that goes, facets that come later."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from custody.repository import Repository
from tests.pages.test_in_browser import built, opened, settled, total
from tests.support import append, event
from tests.unit.serving.serve_process import served

__all__ = ["built"]

pytestmark = pytest.mark.slow

BURST = 350
# Answers of searches come late; `most` is how many were asked for at once, `asked` how many in all.
SLOW = """
const fetched = window.fetch;
window.asked = 0; window.most = 0;
let open = 0;
window.fetch = async (address, options) => {
  if (!/\\/events\\?/.test(String(address))) return fetched(address, options);
  window.asked += 1;
  window.most = Math.max(window.most, ++open);
  try {
    await new Promise((done) => setTimeout(done, 3000));
    return await fetched(address, options);
  } finally {
    open -= 1;
  }
};
"""


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    root = tmp_path / "repository"
    Repository.create(root)
    opened = Repository.open(root)
    append(opened, [event(number) for number in range(120)])
    return opened


def _ids(page: Any) -> list[int]:
    heads = page.get_by_role("region", name="Events that match").get_by_role("rowheader")
    return [int(text) for text in heads.all_inner_texts()]


def test_a_burst_leaves_no_hole_and_facets_and_bars_come_after_it(repository: Repository) -> None:
    with served(repository.settings.root, "--door", "pages") as running, opened(running.url) as page:
        page.goto(f"{running.url}/ui/search.html")
        settled(page)
        page.get_by_label("Show new events as they come").check()
        append(repository, [event(number) for number in range(120, 120 + BURST)])
        page.get_by_text(f"{BURST} new events").wait_for()
        assert _ids(page) == list(range(119 + BURST, 19, -1))
        assert total(page).startswith(f"{120 + BURST} events")
        page.get_by_role("button", name="More events").click()
        page.get_by_text(f"{120 + BURST} of {120 + BURST} shown").wait_for()
        assert _ids(page) == list(range(119 + BURST, -1, -1))
        # Counted again a while later, once for all that came.
        numbers = page.get_by_role("region", name="Values of event_type").locator(".number")
        assert numbers.first.inner_text() == "120"
        numbers.get_by_text(str(120 + BURST)).wait_for()
        bars = page.get_by_role("group", name="When").get_by_role("link")
        names = [bar.get_attribute("aria-label") for bar in bars.all()]
        assert sum(int(name.rsplit(": ", 1)[1].split()[0]) for name in names) == 120 + BURST


def test_slow_answers_do_not_overtake_each_other(repository: Repository) -> None:
    with served(repository.settings.root, "--door", "pages") as running, opened(running.url) as page:
        page.add_init_script(SLOW)
        page.goto(f"{running.url}/ui/search.html?follow=true")
        page.get_by_role("region", name="Events that match").get_by_role("rowheader").first.wait_for()
        append(repository, [event(number) for number in range(120, 123)])
        page.get_by_text("3 new events").wait_for()
        page.wait_for_timeout(6000)
        assert page.evaluate("window.most") == 1
        assert page.evaluate("window.asked") > 2
        assert _ids(page)[:3] == [122, 121, 120]


def test_a_server_that_went_is_said_and_asked_again(repository: Repository) -> None:
    with served(repository.settings.root, "--door", "pages") as running, opened(running.url, 503) as page:
        page.goto(f"{running.url}/ui/search.html?follow=true")
        settled(page)
        page.route("**/api/v1/events?*", lambda route: route.fulfill(status=503, body="{}"))
        page.get_by_text("New events could not be asked for").wait_for()
        append(repository, [event(number) for number in range(120, 125)])
        page.unroute("**/api/v1/events?*")
        page.get_by_text("5 new events").wait_for()
        page.get_by_text("New events could not be asked for").wait_for(state="detached")
