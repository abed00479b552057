"""The page of a lineage in a real browser: kinds of nodes, expanding, failures, the same answer elsewhere."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
import urllib.request
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from click.testing import CliRunner

from custody.cli.main import cli
from custody.repository import Repository
from tests.pages.test_in_browser import built, opened, settled
from tests.support import append, event, run_steps
from tests.unit.lineage.pipeline import CLEAN, CLEAN_UUID, CLEANING, RAW, RAW_UUID, REPORT_UUID, REPORTING, pipeline
from tests.unit.serving.serve_process import Served, served
from tests.unit.serving.test_api_lineage import plain

__all__ = ["built"]

pytestmark = pytest.mark.slow

CHAIN = [f"c4a10000-0000-4000-8000-00000000000{number}" for number in range(4)]
BROTHERS = [f"b4070000-0000-4000-8000-00000000000{number}" for number in range(3)]
WIDE = "1de00000-0000-4000-8000-000000000000"
FEW, MANY, HUGE = (f"1de00000-0000-4000-8000-00000000000{number}" for number in range(1, 4))


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """Two jobs with three datasets, a chain of three steps to a failure, and a FlowFile with busy children."""
    root = tmp_path_factory.mktemp("lineage") / "repository"
    opened_ = Repository.create(root)
    forks = [
        event(
            number,
            event_type="FORK",
            flowfile_uuid=one,
            parent_uuids=(one,),
            child_uuids=(CHAIN[number + 1], BROTHERS[number]),
            updated_attributes={"filename": f"step-{number}"},
        )
        for number, one in enumerate(CHAIN[:3])
    ]
    ends = [
        event(10, event_type="ROUTE", flowfile_uuid=CHAIN[3], relationship="failure", details="Connection refused"),
        event(11, event_type="DROP", flowfile_uuid=BROTHERS[2], details="done, no error", relationship="0 errors"),
    ]
    wide = event(20, event_type="FORK", flowfile_uuid=WIDE, parent_uuids=(WIDE,), child_uuids=(FEW, MANY, HUGE))
    busy = [
        event(100 + number, event_type="SEND", flowfile_uuid=uuid, source_node=uuid, source_ordinal=number)
        for uuid, events in ((FEW, 2), (MANY, 150), (HUGE, 1200))
        for number in range(events)
    ]
    append(opened_, [*pipeline(), *forks, *ends, wide, *busy])
    run_steps(opened_.settings)
    return Repository.open(root)


@pytest.fixture(scope="module")
def server(repository: Repository) -> Iterator[Served]:
    with served(repository.settings.root, "--door", "pages") as running:
        yield running


def drawn(page: Any, number: int) -> None:
    """Wait until so many nodes of the picture are in sight, and the table has as many rows."""
    listed(page, number)
    nodes = page.locator(".react-flow__node")
    nodes.nth(number - 1).wait_for()
    nodes.nth(number).wait_for(state="detached")


def listed(page: Any, number: int) -> None:
    """Wait until the table has so many rows; of the picture only what is in sight is there."""
    rows = table(page).get_by_role("rowheader")
    rows.nth(number - 1).wait_for()
    rows.nth(number).wait_for(state="detached")


def table(page: Any) -> Any:
    return page.get_by_role("region", name="FlowFiles of this lineage")


def in_picture(page: Any, uuid: str) -> Any:
    return page.locator(f'.react-flow__node[data-id="{uuid}"]')


def expanded(page: Any) -> list[str]:
    return parse_qs(urlsplit(page.url).query).get("expanded", [])


def test_a_pipeline_of_openlineage_is_jobs_and_datasets_by_shape_and_by_word(server: Served) -> None:
    with opened(server.url) as page:
        page.goto(f"{server.url}/ui/lineage.html?dataset={'/'.join(CLEAN)}")
        settled(page)
        drawn(page, 5)
        page.get_by_text("5 nodes with 4 events").wait_for()
        assert page.locator(".react-flow__edge").count() == 4
        shapes = {RAW_UUID: "path", CLEANING: "polygon", CLEAN_UUID: "path", REPORTING: "polygon", REPORT_UUID: "path"}
        for uuid, shape in shapes.items():
            assert in_picture(page, uuid).locator(f".outline {shape}").count() == 1, uuid
        told = {uuid: in_picture(page, uuid).inner_text() for uuid in shapes}
        assert told[RAW_UUID].split("\n")[:3] == ["raw/orders", "Dataset", "s3://lake"]
        assert told[CLEANING].split("\n")[:3] == ["clean orders", "Run · CREATE, JOIN", "shop"]
        # From left to right as the data went.
        left = [in_picture(page, uuid).bounding_box()["x"] for uuid in shapes]
        assert left == sorted(left)
        rows = table(page).locator("tbody tr")
        kinds = {
            row.locator("th button").first.inner_text(): row.locator("td").first.inner_text() for row in rows.all()
        }
        assert kinds == {
            "raw/orders": "Dataset",
            "clean orders": "Run",
            "clean/orders": "Dataset",
            "report": "Run",
            "daily report": "Dataset",
        }
        legend = page.get_by_role("list", name="What the shapes mean").inner_text()
        assert all(kind in legend for kind in ("FlowFile", "Run", "Job", "Dataset"))


def test_a_dataset_is_typed_in_and_one_side_is_chosen(server: Served) -> None:
    with opened(server.url) as page:
        page.goto(f"{server.url}/ui/lineage.html")
        page.get_by_label("FlowFile, event, run, dataset or identifier").fill("/".join(CLEAN))
        page.get_by_label("Direction").select_option("what led to it")
        with page.expect_navigation():
            page.get_by_role("button", name="Show", exact=True).click()
        settled(page)
        drawn(page, 3)
        assert {"what", "direction"} <= parse_qs(urlsplit(page.url).query).keys()


@pytest.mark.parametrize("by_mouse", [False, True], ids=["keyboard", "mouse"])
def test_what_is_expanded_stays_where_it_is_and_is_folded_again(server: Served, by_mouse: bool) -> None:
    def act(button: Any) -> None:
        if by_mouse:
            button.click()
        else:
            button.focus()
            page.keyboard.press("Enter")

    with opened(server.url) as page:
        page.goto(f"{server.url}/ui/lineage.html?dataset={'/'.join(RAW)}&depth=0")
        settled(page)
        drawn(page, 3)
        node = in_picture(page, CLEAN_UUID)
        more = node.get_by_role("button", name="Show 2 more events of clean/orders")
        more.wait_for()
        assert more.inner_text() == "+2"
        more.scroll_into_view_if_needed()
        before = node.bounding_box()
        act(more)
        listed(page, 5)
        # What came of it begins to its right, in sight.
        in_picture(page, REPORTING).wait_for()
        fold = node.get_by_role("button", name="Fold what was shown of clean/orders")
        fold.wait_for()
        after = node.bounding_box()
        assert abs(before["x"] - after["x"]) < 2
        assert abs(before["y"] - after["y"]) < 2
        assert fold.evaluate("element => element === document.activeElement"), "whoever pressed it still has it"
        assert expanded(page) == [CLEAN_UUID]
        assert "chosen=" not in page.url
        page.reload()
        settled(page)
        drawn(page, 5)
        act(fold)
        drawn(page, 3)
        more.wait_for()
        assert expanded(page) == []


def test_what_was_expanded_behind_an_expansion_is_folded_with_it(server: Served) -> None:
    with opened(server.url) as page:
        page.goto(f"{server.url}/ui/lineage.html?flowfile={CHAIN[0]}&depth=0")
        settled(page)
        drawn(page, 3)
        rows = table(page)
        for at, number in ((1, 5), (2, 7)):
            row = rows.locator(f"#row-{CHAIN[at]}")
            button = row.get_by_role("button", name=re.compile("^Show "))
            button.scroll_into_view_if_needed()
            before = row.bounding_box()["y"]
            button.click()
            listed(page, number)
            assert abs(row.bounding_box()["y"] - before) < 2, "the row stays where it is"
        assert expanded(page) == CHAIN[1:3]
        rows.locator(f"#row-{CHAIN[1]}").get_by_role("button", name="Fold").click()
        listed(page, 3)
        assert expanded(page) == []


def test_a_number_that_is_too_large_to_count_says_so(server: Served) -> None:
    with opened(server.url) as page:
        page.goto(f"{server.url}/ui/lineage.html?flowfile={WIDE}&depth=0")
        settled(page)
        drawn(page, 4)
        for uuid, number in ((FEW, "+2"), (MANY, "100+"), (HUGE, "100+")):
            in_picture(page, uuid).get_by_role("button").filter(
                has_text=re.compile(f"^{re.escape(number)}$")
            ).wait_for()
        said = table(page).locator(f"#row-{MANY}").get_by_role("button", name="Show 100 or more events")
        assert said.count() == 1


def test_only_what_failed_keeps_the_way_from_the_start(server: Served) -> None:
    with opened(server.url) as page:
        page.goto(f"{server.url}/ui/lineage.html?flowfile={CHAIN[0]}&depth=all")
        settled(page)
        drawn(page, 7)
        assert page.locator(".flowfile.failed").count() == 1
        page.get_by_label("Only what failed").check()
        drawn(page, 4)
        assert "failed=true" in page.url
        assert page.locator(".flowfile.faint").count() == 2
        assert page.locator(".react-flow__edge").count() == 3
        assert "✗ failed" in in_picture(page, CHAIN[3]).inner_text()
        assert "on the way to what failed" in table(page).locator(f"#row-{CHAIN[1]}").inner_text()
        assert "ROUTE (failed)" in table(page).locator(f"#row-{CHAIN[3]}").inner_text()
        with page.expect_download() as saved:
            page.get_by_role("button", name="SVG", exact=True).click()
        svg = saved.value.path().read_text()
        assert f"flowfile:{CHAIN[1]}" in svg
        assert not any(f"flowfile:{uuid}" in svg for uuid in BROTHERS)
        with page.expect_download() as saved:
            page.get_by_role("button", name="CSV of nodes").click()
        assert saved.value.suggested_filename == "lineage-nodes.csv"
        rows = list(csv.DictReader(io.StringIO(saved.value.path().read_text())))
        assert {row["flowfile_uuid"] for row in rows} == set(CHAIN)
        page.get_by_label("Only what failed").uncheck()
        drawn(page, 7)


def test_an_export_has_what_happened_up_to_the_time_that_is_chosen(server: Served) -> None:
    with opened(server.url) as page:
        page.goto(f"{server.url}/ui/lineage.html?flowfile={CHAIN[0]}&depth=all")
        settled(page)
        page.get_by_role("slider", name="Only up to").press("Home")
        page.get_by_text("hides later events on this page alone").wait_for()
        with page.expect_download() as saved:
            page.get_by_role("button", name="JSON", exact=True).click()
        assert json.loads(saved.value.path().read_text())["events"] == 1


@pytest.mark.parametrize(
    ("query", "buttons", "switch"),
    [
        (f"dataset={'/'.join(RAW)}&depth=0", [CLEAN_UUID], False),
        (f"flowfile={CHAIN[0]}&depth=0&writer=main&as_of=0", [CHAIN[1], CHAIN[2]], False),
        (f"what={CHAIN[0]}&depth=0&direction=down", [CHAIN[1], CHAIN[2], CHAIN[3]], True),
    ],
)
def test_the_command_and_the_request_that_are_shown_give_the_answer_of_the_page(
    server: Served, repository: Repository, query: str, buttons: list[str], switch: bool
) -> None:
    with opened(server.url) as page:
        page.goto(f"{server.url}/ui/lineage.html?{query}")
        settled(page)
        for uuid in buttons:
            row = table(page).locator(f"#row-{uuid}")
            row.get_by_role("button", name=re.compile("^Show ")).click()
            row.get_by_role("button", name="Fold").wait_for()
        if switch:
            page.get_by_label("Only what failed").check()
        page.get_by_text("The same answer elsewhere").click()
        line = page.get_by_label("Command line").input_value()
        request = page.get_by_label("API", exact=True).input_value()
        with urllib.request.urlopen(shlex.split(request)[-1]) as answer:  # noqa: S310 - the server of this test
            asked = json.load(answer)
        listed(page, len(asked["nodes"]))
        shown = {row.get_attribute("id").removeprefix("row-") for row in table(page).locator("tbody tr").all()}
    program, *words = shlex.split(line)
    assert program == "custody"
    result = CliRunner().invoke(cli, ["-r", str(repository.settings.root), *words, "--json"])
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    assert {node["uuid"] for node in asked["nodes"]} == shown
    assert plain(said["nodes"], by_writers=True) == plain(asked["nodes"])
    assert (said["starts"], said["cut"], said["events"]) == (asked["starts"], asked["frontier"], asked["events"])
    assert set(buttons) <= set(asked["starts"])
