"""The page Status in a real browser: what waits for whom, how the room will do, disks that are gone, a new look."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from custody.clock import ManualClock, SystemClock
from custody.recovery import STEPS
from custody.repository import Repository
from custody.repository.local_pass import PASSES, run_locally
from custody.workspace import Workspace
from custody_pages import build
from tests.pages.test_in_browser import built, led, looked_at, opened, picture, settled
from tests.support import append, event, run_steps
from tests.unit.journal.test_container_health import small_disk
from tests.unit.serving.dag_run_story import RunStory
from tests.unit.serving.serve_process import Served, served
from tests.unit.serving.test_api_changes import quarantined

__all__ = ["built", "small_disk"]

pytestmark = pytest.mark.slow

HOUR = 3_600_000
DAY = 24 * HOUR
WAITED_MS = 90_000
COMMITS = 5
DAYS_BETWEEN = 4
RUNS = 12
SETTINGS = """
[repository]
store = "bucket"
[content]
handoff = "store"
claim_bytes = 4096
[retention]
bytes_max = 1048576
"""


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """Commits of twenty days, journals of this name and of another machine that wait, contents, and runs of a DAG."""
    root = tmp_path_factory.mktemp("status") / "repository"
    Repository.create(root)
    (root / "custody.toml").write_text(SETTINGS)
    settings = Repository.open(root).settings
    # Some hours more than twenty days: no day ends while the tests run.
    clock = ManualClock(SystemClock().now_ms() - COMMITS * DAYS_BETWEEN * DAY - 2 * HOUR)
    for commit in range(COMMITS):
        append(Repository(settings, clock=clock), [event(100 * commit + number) for number in range(50)])
        clock.advance(WAITED_MS)
        for step in STEPS.values():
            for unit in step.units(settings):
                step.run(Workspace(settings, unit.writer, clock=clock), unit)
        clock.advance(DAYS_BETWEEN * DAY - WAITED_MS)
    # Another machine had the name of the writer, too.
    other = Repository.create(root.with_name("other"))
    append(other, [event(9000 + number) for number in range(4)])
    for journal in (other.settings.containers[0] / "main" / "journals").iterdir():
        shutil.copy(journal, settings.containers[0] / "main" / "journals" / journal.name)
    waiting = Repository(settings, clock=ManualClock(SystemClock().now_ms() - 2 * HOUR))
    append(waiting, [one for number in range(RUNS) for one in replace(RunStory(), run_id=f"run-{number:02}").told()])
    for number in range(3):
        Repository.open(root).append_with_content([event(6000 + number)], b"x" * 5000)
    return Repository.open(root)


@pytest.fixture(scope="module")
def server(repository: Repository) -> Iterator[Served]:
    with served(repository.settings.root, "--door", "pages") as running:
        yield running


def cells(page: Any, table: str) -> list[dict[str, str]]:
    """The rows of a table, each by the names of the columns."""
    region = page.get_by_role("region", name=table, exact=True)
    heads = region.get_by_role("columnheader").all_inner_texts()
    rows = region.locator("tbody tr").all()
    return [dict(zip(heads, row.locator("th, td").all_inner_texts(), strict=True)) for row in rows]


def fact(page: Any, section: str, name: str) -> str:
    region = page.get_by_role("region", name=section, exact=True)
    said = region.locator("dt").filter(has_text=name).locator("xpath=following-sibling::dd[1]").inner_text()
    assert isinstance(said, str)
    return said


def test_of_each_writer_it_is_said_what_waits_and_since_when(server: Served, repository: Repository) -> None:
    with opened(server.url) as page:
        page.goto(f"{server.url}/ui/status.html")
        settled(page)
        picture(page, "pages-status")
        [main] = cells(page, "Writers")
    told = repository.status().writers[0]
    assert told.journals_waiting >= 2
    assert main["Journals that wait"] == str(told.journals_waiting)
    assert main["Waiting since"].endswith("(2 hours ago)")
    assert main["Journals of others"] == "1"
    [contents] = repository.status().contents_not_handed_over
    assert contents.claims > 0
    assert main["Contents on this machine's disks alone"].startswith(f"{contents.claims} files (")


def test_how_long_events_waited_is_a_table_as_well_as_bars(server: Served) -> None:
    with opened(server.url) as page:
        page.goto(f"{server.url}/ui/status.html")
        settled(page)
        rows = cells(page, "Waits as a table")
        bars = page.locator("figure.histogram rect.bar").count()
    assert bars == len(rows) == COMMITS
    assert {(row["Waited"], row["Events"]) for row in rows} == {("90 s", "50")}
    assert rows[0]["Committed"].endswith(f"({DAYS_BETWEEN} days ago)")


def test_the_forecast_is_that_of_the_commits_and_of_the_budget(server: Served, repository: Repository) -> None:
    with opened(server.url) as page:
        page.goto(f"{server.url}/ui/status.html")
        settled(page)
        shown = {name: fact(page, "How the room will do", name) for name in ("Grows a day by", "The budget is reached")}
        page.get_by_text("At the pace of the commits of the last 20 days").wait_for()
        limit = page.get_by_role("listitem").filter(has_text="Budget").locator("strong").inner_text()
    items = httpx.get(f"{server.url}/api/v1/timeline/main?limit=500", timeout=60).json()["items"]
    budget = repository.status().budget
    assert budget.limit_bytes is not None
    span = SystemClock().now_ms() - min(item["commit_time_ms"] for item in items)
    a_day = sum(item["bytes_added"] for item in items) / (span / DAY)
    days = (budget.limit_bytes - budget.used_bytes) / a_day
    assert 50 < days < 200
    # The page reckons from its own now.
    assert shown["The budget is reached"] in {f"in {int(days) + off} days" for off in (-1, 0, 1)}
    number, unit = shown["Grows a day by"].split()
    assert (abs(float(number) - a_day / 1024) < 0.11, unit) == (True, "KiB")
    assert limit == "1.0 MiB"


def test_the_newest_ten_runs_of_dags_lead_to_their_pages(server: Served) -> None:
    with opened(server.url) as page:
        page.goto(f"{server.url}/ui/status.html")
        settled(page)
        rows = cells(page, "Newest runs of Airflow's DAGs")
        assert len(rows) == 10
        assert {(row["DAG"], row["State"]) for row in rows} == {("orders", "success")}
        named = rows[0]["Run id"]
        led(page, page.get_by_role("link", name=named).click)
        page.get_by_role("heading", name=f"orders, run {named}").wait_for()
        page.get_by_role("region", name="What it wrote", exact=True).wait_for()


@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 320])
def test_everybody_can_use_a_full_status(server: Served, colours: str, width: int) -> None:
    axe = (build.WORK / "source" / "node_modules" / "axe-core" / "axe.min.js").read_text(encoding="utf-8")
    with opened(server.url, color_scheme=colours, viewport={"width": width, "height": 800}) as page:
        page.goto(f"{server.url}/ui/status.html")
        settled(page)
        problems = looked_at(page, axe, "status.html", width)
    assert not problems, "\n".join(problems)


def test_containers_that_are_gone_or_full_are_marked(tmp_path: Path, small_disk: Path) -> None:
    root = tmp_path / "repository"
    Repository.create(root)
    gone = root / "disks" / "gone"
    gone.mkdir(parents=True)
    (root / "custody.toml").write_text(
        f'[repository]\ncontainers = ["containers/1", "{small_disk}/events"]\n'
        f'[content]\ncontainers = ["small={small_disk}/contents", "gone=disks/gone"]\nclaim_bytes = 4096\n'
    )
    (small_disk / "contents").mkdir()
    repository = Repository.open(root)
    with repository.writer() as writer:
        for number in range(8):
            writer.append_with_content([event(number)], bytes([number]) * 5000)
    run_steps(repository.settings)
    assert {one.name: one.state for one in repository.status().content_containers} == {"small": "ok", "gone": "ok"}
    shutil.rmtree(gone)
    _fill(small_disk)
    with served(root, "--door", "pages") as running, opened(running.url) as page:
        page.goto(f"{running.url}/ui/status.html")
        settled(page)
        contents = {row["Name"]: row for row in cells(page, "Containers of contents")}
        assert (contents["main small"]["State"], contents["main gone"]["State"]) == ("full", "missing")
        assert contents["main gone"]["Free"] == "–"
        disks = {row["Folder"]: row["State"] for row in cells(page, "Disks")}
        assert disks == {
            str(root / "containers" / "1"): "ok",
            f"{small_disk}/events": "full",
            str(repository.settings.store): "ok",
        }
        marked = page.locator("tr.removed").all_inner_texts()
        assert len(marked) == 3, marked
        # Why one is missing is said above all.
        page.get_by_role("region", name="Notices").get_by_text("gone").first.wait_for()


def _fill(disk: Path) -> None:
    with (disk / "ballast").open("wb", buffering=0) as ballast, suppress(OSError):
        while True:
            ballast.write(bytes(1 << 16))


def test_a_new_look_is_taken_at_every_part(tmp_path: Path) -> None:
    root = tmp_path / "repository"
    repository = Repository.create(root)
    append(repository, [event(1)])
    with served(root, "--door", "pages") as running, opened(running.url) as page:
        page.goto(f"{running.url}/ui/status.html?refresh=true")
        settled(page)
        for none in ("Nothing is in quarantine.", "None was begun from here.", "No report of a run is kept."):
            page.get_by_text(none).wait_for()
        assert cells(page, "Writers")[0]["Live events"] == "0"
        page.evaluate("window.same = true")
        append(repository, RunStory(run_id="of-just-now").told())
        quarantined(repository, b"{nonsense")
        httpx.post(f"{running.url}/api/v1/replay-plans", json={"query": ""}, timeout=60).raise_for_status()
        run_locally(PASSES["all"], repository.settings, run_id="scheduled__of-just-now")
        # Nobody touches the page.
        for name in ("Quarantine", "Long work", "Newest runs of Airflow's DAGs"):
            page.get_by_role("region", name=name, exact=True).wait_for()
        page.get_by_role("link", name="of-just-now").wait_for()
        page.locator("summary").filter(has_text="scheduled__of-just-now").wait_for()
        page.get_by_role("region", name="Waits as a table").wait_for()
        page.get_by_role("region", name="Writers").get_by_text("0 B").first.wait_for(state="detached")
        assert int(cells(page, "Writers")[0]["Live events"]) > 1
        assert page.evaluate("window.same") is True
