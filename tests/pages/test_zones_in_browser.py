"""Times in a real browser far from UTC: what is typed is the reader's time, and so is what is shown and counted."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from urllib.parse import parse_qs, urlsplit
from zoneinfo import ZoneInfo

import pytest

from custody.repository import Repository
from tests.pages.test_in_browser import built, led, opened, settled, total
from tests.support import append, event, run_steps
from tests.unit.serving.serve_process import Served, served

__all__ = ["built"]

pytestmark = pytest.mark.slow

HOUR = 3_600_000
START = int(datetime(2026, 3, 6, tzinfo=UTC).timestamp() * 1000)
HOURS = 24 * 5
KOLKATA, ST_JOHNS = "Asia/Kolkata", "America/St_Johns"
# In St. John's 8 March 2026 has 23 hours.
LONG_AGO = int(datetime(2025, 6, 1, 23, 30, tzinfo=UTC).timestamp() * 1000)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """An event in each hour of five days; of another kind, one nine months before."""
    root = tmp_path_factory.mktemp("zones") / "repository"
    Repository.create(root)
    opened = Repository.open(root)
    append(opened, [event(at, event_time=START + at * HOUR, event_type="SEND") for at in range(HOURS)])
    append(opened, [event(HOURS, event_time=LONG_AGO, event_type="DROP")])
    run_steps(opened.settings)
    return Repository.open(root)


@pytest.fixture(scope="module")
def server(repository: Repository) -> Iterator[Served]:
    with served(repository.settings.root, "--door", "pages") as running:
        yield running


def _day(zone: str, year: int, month: int, day: int) -> tuple[int, int]:
    """The first and the last millisecond of a day in a zone."""
    first = datetime(year, month, day, tzinfo=ZoneInfo(zone))
    ends = [first, datetime(year, month, day, tzinfo=ZoneInfo(zone)) + timedelta(days=1)]
    start, end = (int(one.timestamp() * 1000) for one in ends)
    return start, end - 1


def _bars(page: Any) -> list[str]:
    bars = page.get_by_role("group", name="When").get_by_role("link")
    return [bar.get_attribute("aria-label") for bar in bars.all()]


@pytest.mark.parametrize(("zone", "shown", "hours"), [(KOLKATA, "UTC+05:30", 24), (ST_JOHNS, "UTC−0", 23)])
def test_a_typed_day_is_the_readers_also_where_its_clock_changes(
    server: Served, repository: Repository, zone: str, shown: str, hours: int
) -> None:
    first, last = _day(zone, 2026, 3, 8)
    within = repository.search(f"event_time:[{first} TO {last}]").total
    assert within == hours
    with opened(server.url, timezone_id=zone) as page:
        page.goto(f"{server.url}/ui/search.html")
        settled(page)
        header = page.get_by_role("banner").inner_text()
        assert shown in header
        page.get_by_label("From").fill("2026-03-08")
        page.get_by_label("To", exact=True).fill("2026-03-08")
        led(page, lambda: page.get_by_label("To", exact=True).press("Enter"))
        assert total(page) == f"{hours} events"
        bounds = parse_qs(urlsplit(page.url).query)
        ends = [int(datetime.fromisoformat(bounds[name][0]).timestamp() * 1000) for name in ("since", "until")]
        assert ends == [first, last]
        # As it was typed, and as a mark that can be taken away.
        assert page.get_by_label("From").input_value() == "2026-03-08"
        assert page.get_by_role("link", name="Remove 2026-03-08 – 2026-03-08").count() == 1
        led(page, lambda: page.get_by_label("To", exact=True).press("Enter"))
        assert total(page) == f"{hours} events"
        # Where it is another offset than now, the times say it.
        newest = page.get_by_role("region", name="Events that match").locator("td.event_time").first.inner_text()
        moment = datetime.fromtimestamp((START + (last - START) // HOUR * HOUR) / 1000, ZoneInfo(zone))
        assert newest.startswith(moment.strftime("%d Mar 2026, %H:%M:%S"))


def test_bars_of_days_are_the_readers_days(server: Served, repository: Repository) -> None:
    with opened(server.url, timezone_id=KOLKATA) as page:
        page.goto(f"{server.url}/ui/search.html")
        settled(page)
        page.get_by_role("group", name="When").wait_for()
        names = _bars(page)
        # 23:30 UTC is the next day there.
        assert names[0] == "2025-06-02: 1 event"
        counted = {name.split(":")[0]: int(name.split(": ")[1].split()[0]) for name in names}
        for day in range(6, 12):
            first, last = _day(KOLKATA, 2026, 3, day)
            assert counted.get(f"2026-03-{day:02}", 0) == repository.search(f"event_time:[{first} TO {last}]").total
        bar = page.get_by_role("group", name="When").get_by_role("link", name="2026-03-08: 24 events")
        led(page, lambda: bar.press("Enter"))
        assert total(page) == "24 events"
        assert page.get_by_label("From").input_value() == "2026-03-08"


def test_an_address_means_the_same_moment_for_readers_of_any_zone(server: Served) -> None:
    path = "search.html?since=2026-03-07T18:30:00.000Z&until=2026-03-08T18:29:59.999Z"
    fields = {}
    for zone in (KOLKATA, ST_JOHNS, "UTC"):
        with opened(server.url, timezone_id=zone) as page:
            page.goto(f"{server.url}/ui/{path}")
            settled(page)
            assert total(page) == "24 events"
            fields[zone] = page.get_by_label("From").input_value()
            # A day of an address is one of UTC, whoever reads it.
            page.goto(f"{server.url}/ui/search.html?since=2026-03-08&until=2026-03-08")
            settled(page)
            assert total(page) == "24 events"
            led(page, partial(page.get_by_label("Query").press, "Enter"))
            assert total(page) == "24 events"
    assert fields == {KOLKATA: "2026-03-08", ST_JOHNS: "2026-03-07 15:00", "UTC": "2026-03-07 18:30"}


def test_how_long_ago_is_shown_by_keyboard_and_remembered(server: Served) -> None:
    with opened(server.url, timezone_id=ST_JOHNS) as page:
        page.goto(f"{server.url}/ui/search.html?q=event_type:DROP")
        settled(page)
        choice = page.get_by_label("Times")
        choice.focus()
        choice.press("ArrowDown")
        cell = page.get_by_role("region", name="Events that match").locator("td.event_time")
        assert cell.inner_text().endswith(("months ago", "year ago", "years ago", "last year"))
        page.goto(f"{server.url}/ui/status.html")
        settled(page)
        assert page.get_by_label("Times").input_value() == "ago"
        assert "ago" in page.get_by_role("region", name="Writers").locator("time").first.inner_text()
        page.get_by_label("Times").select_option("Exact")
        assert "20" in page.get_by_role("region", name="Writers").locator("time").first.inner_text()
