"""The pages in a real browser on a real repository: what they show, that nothing breaks out, and that all can use them.

The pictures of docs/pages.md are made here. `CUSTODY_PAGES_BASE` names a repository that is taken instead of
samples, such as one of millions of events; then no picture is made.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from custody.model import Event
from custody.repository import Repository
from custody.serving.access import Scope
from custody_pages import build
from tests.airflow import browser
from tests.support import append, event, run_steps, sample
from tests.unit.serving.serve_process import Served, served, token

pytestmark = pytest.mark.slow

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"
IMAGE_BYTES_MAX = 300_000
BASE = os.environ.get("CUSTODY_PAGES_BASE")
SAMPLES = 3000
BEFORE = json.dumps({"order": 45226, "amount": 10, "currency": "EUR"}, indent=1).encode()
AFTER = json.dumps({"order": 45226, "amount": 12345678901234567890, "currency": "EUR"}, indent=1).encode()
ORDER = "0dd0ca5e-0000-4000-8000-000000000001"
CHILDREN = [f"0dd0ca5e-0000-4000-8000-0000000001{number:02}" for number in range(12)]
HOSTILE_UUID = "bad00000-0000-4000-8000-000000000001"
MANY = "fa000000-0000-4000-8000-000000000000"
MANY_CHILDREN = 2900
HOSTILE = (
    "<img src=x onerror=\"window.broken='image'\">",
    "<script>window.broken='script'</script>",
    "${window.broken='template'}{{7*7}}",
    "\"'><svg onload=window.broken='svg'>",
    "javascript:window.broken='address'",
    "\u202egnp.exe\u202c right to left",
    "x" * 3000,
    "a\nb\tc\\d",
)
HTML = b"<html><body><script>window.broken='content'</script><h1>Not a page</h1></body></html>"
SVG = b"<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'><script>window.broken='picture'</script></svg>"


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    """The pages as they are now; built here where they can be."""
    browser.need_pages()


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """Samples, then in a later revision an order whose content was changed, hostile texts, and a wide lineage."""
    root = tmp_path_factory.mktemp("pages") / "repository"
    if BASE is None:
        Repository.create(root)
        append(Repository.open(root), sample(SAMPLES))
    else:
        shutil.copytree(BASE, root)
    opened = Repository.open(root)
    run_steps(opened.settings)
    with opened.writer() as writer:
        # Large enough that each is a file of its own, with a range behind the first one.
        before, after = (writer.content.put(text + b" " * 70_000).claim for text in (BEFORE, AFTER))
        hostile, picture = (writer.content.put(text).claim for text in (HTML, SVG))
    append(opened, _story(before, after, hostile, picture))
    run_steps(opened.settings)
    return Repository.open(root)


def _story(before: Any, after: Any, hostile: Any, picture: Any) -> list[Event]:
    names = {"filename": "order-45226.json"}
    order = {"flowfile_uuid": ORDER, "component_name": "Enrich order", "component_type": "ConvertRecord"}
    received = event(10_000, **order, event_type="RECEIVE", content_claim=before, updated_attributes=names)
    changed = event(
        10_001,
        **order,
        event_type="CONTENT_MODIFIED",
        content_claim=after,
        previous_content_claim=before,
        previous_attributes=names | {"price": "10", "to-go": "1"},
        updated_attributes={"price": "12", "currency": "EUR", "to-go": None},
    )
    fork = event(10_002, **order, event_type="FORK", parent_uuids=[ORDER], child_uuids=CHILDREN)
    sent = [
        event(
            10_010 + at,
            event_type="SEND",
            flowfile_uuid=child,
            component_name="Put order",
            transit_uri=f"hdfs://orders/{at}",
            relationship="failure" if at == 3 else None,
            updated_attributes={"filename": f"part-{at}.json"},
        )
        for at, child in enumerate(CHILDREN)
    ]
    odd = event(
        10_100,
        flowfile_uuid=HOSTILE_UUID,
        event_type="CONTENT_MODIFIED",
        component_name=HOSTILE[0],
        component_type=HOSTILE[3],
        transit_uri=HOSTILE[4],
        details=HOSTILE[1],
        content_claim=hostile,
        previous_content_claim=picture,
        previous_attributes={text[:200]: text for text in HOSTILE},
        updated_attributes={"filename": HOSTILE[0], **{text[:200]: text[::-1] for text in HOSTILE}},
    )
    many = [f"fa000000-0000-4000-8000-{number:012d}" for number in range(1, MANY_CHILDREN + 1)]
    wide = event(10_200, event_type="FORK", flowfile_uuid=MANY, parent_uuids=[MANY], child_uuids=many)
    return [received, changed, fork, *sent, odd, wide]


@pytest.fixture(scope="module")
def server(repository: Repository) -> Iterator[Served]:
    with served(repository.settings.root, "--door", "pages") as running:
        yield running


opened = browser.page


def settled(page: Any) -> None:
    page.wait_for_load_state("networkidle")
    # Not by a function that is asked again and again: the policy of the pages forbids to make one of a text.
    page.locator(".loading").first.wait_for(state="detached")


def led(page: Any, act: Callable[[], object]) -> None:
    """Do what leads to another document, and wait for it."""
    with page.expect_navigation():
        act()
    settled(page)


def total(page: Any) -> str:
    status = page.get_by_role("region", name="Events that match").first.get_by_role("status")
    text = status.inner_text()
    assert isinstance(text, str)
    return text


def picture(page: Any, name: str) -> None:
    if BASE is not None:
        return
    page.mouse.move(640, 790)
    IMAGES.mkdir(exist_ok=True)
    path = IMAGES / f"{name}.png"
    page.screenshot(path=path)
    assert path.stat().st_size < IMAGE_BYTES_MAX


def test_from_a_search_to_the_event_its_contents_its_lineage_and_an_earlier_state(
    server: Served, repository: Repository
) -> None:
    live = repository.search("").total
    with opened(server.url) as page:
        page.goto(f"{server.url}/")
        settled(page)
        assert total(page) == f"{live:,} events"
        _complete_a_query(page)
        led(page, page.get_by_role("link", name="Only component_name put order").click)
        assert total(page) == "12 events"
        assert "f=component_name%3Aput+order" in page.url
        picture(page, "pages-search")
        page.get_by_text("Export all matches").click()
        with page.expect_download() as saved:
            page.get_by_role("button", name="NDJSON").click()
        assert len(saved.value.path().read_text().splitlines()) == 12 + 1
        led(page, page.get_by_role("link", name="Remove component_name put order").first.click)
        page.get_by_label("Query").fill(f'flowfile_uuid:"{ORDER}" AND event_type:CONTENT_MODIFIED')
        led(page, lambda: page.get_by_label("Query").press("Enter"))
        assert total(page) == "1 event"
        led(
            page,
            page.get_by_role("region", name="Events that match").get_by_role("rowheader").get_by_role("link").click,
        )
        _read_the_event(page)
        _follow_the_lineage(page)
        # The story came with the newest revision.
        before = repository.workspace("main").catalog.load().revision - 1
        then = repository.search("", writer="main", as_of=before).total
        assert then == SAMPLES if BASE is None else 0 < then < live
        page.goto(f"{server.url}/ui/search.html?writer=main&as_of={before}")
        settled(page)
        assert total(page) == f"{then:,} events"
        page.goto(f"{server.url}/ui/proof.html")
        settled(page)
        led(page, page.get_by_role("link", name=f"Look as of it: {before}", exact=True).click)
        assert total(page) == f"{then:,} events"


def _complete_a_query(page: Any) -> None:
    field = page.get_by_label("Query")
    field.press_sequentially("event_ty")
    page.get_by_role("option", name="event_type").wait_for()
    field.press("ArrowDown")
    field.press("Enter")
    assert field.input_value() == "event_type:"
    field.press_sequentially("SEN")
    page.get_by_role("option", name="SEND").wait_for()
    field.press("ArrowDown")
    field.press("Enter")
    assert field.input_value() == "event_type:SEND "
    led(page, lambda: field.press("Enter"))
    assert page.url.endswith("/search.html?q=event_type%3ASEND+")
    command = page.get_by_text("The same answer elsewhere")
    command.click()
    assert page.get_by_label("Command line").input_value() == "custody search --limit 100 event_type:SEND"
    command.click()


def _read_the_event(page: Any) -> None:
    attributes = page.get_by_role("region", name="Attributes").last
    assert attributes.get_by_role("row").count() == 5
    page.get_by_label("Only what changed").check()
    rows = [row.split("\t") for row in attributes.inner_text().splitlines() if "\t" in row]
    assert ["price", "10", "12", "changed"] in rows
    assert ["to-go", "1", "not there", "removed"] in rows
    assert not any(row[0] == "filename" for row in rows)
    after = page.get_by_role("region", name="Content after the event", exact=True)
    # As it is written: JavaScript's own number would end in 000.
    after.get_by_text("12345678901234567890").wait_for()
    after.get_by_role("button", name="Hex").click()
    after.get_by_text("7b 0a 20 22 6f 72 64 65").wait_for()
    after.get_by_role("button", name="Later bytes").click()
    after.get_by_text("Bytes 4,096 to 8,191").wait_for()
    after.get_by_role("button", name="Text").click()
    page.get_by_role("button", name="Difference").click()
    difference = page.get_by_role("region", name="From the content before to the content after").last
    difference.locator(".minus").wait_for()
    assert "− " + ' "amount": 10,' in difference.inner_text()
    assert "+ " + ' "amount": 12345678901234567890,' in difference.inner_text()
    picture(page, "pages-event")
    with page.expect_download() as saved:
        after.get_by_role("button", name="Save").click()
    assert saved.value.path().read_bytes() == AFTER + b" " * 70_000


def _follow_the_lineage(page: Any) -> None:
    led(page, page.get_by_role("main").get_by_role("link", name="Lineage").click)
    page.locator(".react-flow__node").first.wait_for()
    table = page.get_by_role("region", name="FlowFiles of this lineage")
    assert table.get_by_role("row").count() == 14
    table.get_by_role("button", name="part-3.json").click()
    page.locator(".flowfile.on-way").first.wait_for()
    assert f"chosen={CHILDREN[3]}" in page.url
    page.get_by_label("Only what failed").check()
    page.wait_for_function("document.querySelectorAll('tbody tr').length === 2")
    page.get_by_label("Only what failed").uncheck()
    page.locator(".react-flow__node").nth(5).wait_for()
    page.wait_for_timeout(500)
    picture(page, "pages-lineage")
    with page.expect_download() as saved:
        page.get_by_role("button", name="SVG").click()
    assert saved.value.path().read_text().lstrip().startswith(("<svg", "<?xml"))


def test_a_bar_of_the_histogram_selects_its_time_and_facets_toggle(server: Served, repository: Repository) -> None:
    with opened(server.url) as page:
        page.goto(f"{server.url}/ui/search.html")
        settled(page)
        bars = page.get_by_role("group", name="When").get_by_role("link")
        bars.first.focus()
        page.keyboard.press("End")
        led(page, lambda: page.keyboard.press("Enter"))
        assert "since=" in page.url
        assert "until=" in page.url
        chosen = page.get_by_role("region", name="Chosen")
        assert chosen.get_by_role("link").count() == 1
        bounds = parse_qs(urlsplit(page.url).query)
        span = f"event_time:[{bounds['since'][0]} TO {bounds['until'][0]}]"
        of_bar = repository.search(span).total
        assert total(page) == f"{of_bar:,} event{'s' if of_bar != 1 else ''}"
        kind = page.get_by_role("link", name=re.compile("^Only event_type")).first
        name = kind.inner_text().split()[2]
        led(page, kind.click)
        of_kind = repository.search(f"event_type:{name.upper()} AND {span}").total
        assert total(page) == f"{of_kind:,} event{'s' if of_kind != 1 else ''}"
        led(page, page.go_back)
        assert page.get_by_role("region", name="Chosen").get_by_role("link").count() == 1


def test_chosen_columns_stay_when_the_question_changes(server: Served) -> None:
    with opened(server.url) as page:
        page.goto(f"{server.url}/ui/search.html")
        settled(page)
        page.locator("summary").filter(has_text="Columns").click()
        page.get_by_label("Transit URI").check()
        page.get_by_label("Size", exact=True).uncheck()
        led(page, page.get_by_role("link", name="Only event_type send").click)
        heads = page.get_by_role("region", name="Events that match").get_by_role("columnheader").all_inner_texts()
        assert "Transit URI" in heads
        assert "Size" not in heads
        page.get_by_label("Query").fill("source_node:*")
        led(page, lambda: page.get_by_label("Query").press("Enter"))
        assert "columns=" in page.url
        assert "f=event_type%3Asend" in page.url


def test_new_events_come_while_the_page_follows(tmp_path: Path) -> None:
    root = tmp_path / "repository"
    Repository.create(root)
    repository = Repository.open(root)
    append(repository, [event(number) for number in range(3)])
    with served(root, "--door", "pages") as running, opened(running.url) as page:
        page.goto(f"{running.url}/ui/search.html")
        settled(page)
        page.get_by_label("Show new events as they come").check()
        append(repository, [event(number) for number in range(3, 5)])
        page.get_by_text("2 new events").wait_for()
        assert page.get_by_role("region", name="Events that match").get_by_role("rowheader").count() == 5
        assert total(page).startswith("5 events")


def test_hostile_texts_stay_text(server: Served, repository: Repository) -> None:
    [odd] = repository.search(f'flowfile_uuid:"{HOSTILE_UUID}"').events
    # Some of them are no queries.
    with opened(server.url, 400) as page:
        for path in (
            f'search.html?q=flowfile_uuid:"{HOSTILE_UUID}"&columns=event_time,component_type,transit_uri,details,filename',
            f"event.html?writer=main&event={odd.event.event_id}&whole=true",
            f"lineage.html?flowfile={HOSTILE_UUID}",
        ):
            page.goto(f"{server.url}/ui/{path}")
            settled(page)
            page.get_by_text(HOSTILE[0]).first.wait_for()
            _nothing_broke(page)
        page.goto(f"{server.url}/ui/event.html?writer=main&event={odd.event.event_id}&whole=true")
        settled(page)
        shown = page.get_by_role("region", name="Attributes").last.inner_text()
        for text in HOSTILE:
            assert text[::-1] in shown.replace("\t", "\t"), text[:40]
        page.get_by_text("<h1>Not a page</h1>").first.wait_for()
        # As a picture, SVG runs nothing.
        page.get_by_role("img", name="The content as a picture").wait_for()
        page.wait_for_timeout(300)
        _nothing_broke(page)
        for hostile in HOSTILE:
            page.goto(f"{server.url}/ui/search.html")
            page.get_by_label("Query").fill(hostile)
            led(page, lambda: page.get_by_label("Query").press("Enter"))
            _nothing_broke(page)


def _nothing_broke(page: Any) -> None:
    assert page.evaluate("window.broken ?? null") is None
    assert page.locator("img[src=x], main script, svg[onload]").count() == 0


AXE = """async () => (await axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa']}))
    .violations.map(one => `${one.id}: ${one.nodes.map(node => `${node.target} ${node.failureSummary}`).join('; ')}`)"""


def looked_at(page: Any, axe: str, path: str, width: int) -> list[str]:
    """What keeps people from using a page that is open, all of it unfolded; it is no wider than the window."""
    page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
    page.wait_for_load_state("networkidle")
    page.locator(".loading").first.wait_for(state="detached")
    # Not as a script of the page, which its policy forbids.
    page.evaluate(axe)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{path} is wider than {width}"
    return [f"{path}: {problem}" for problem in page.evaluate(AXE)]


@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 320, 3840])
def test_everybody_can_use_every_page(server: Served, repository: Repository, colours: str, width: int) -> None:
    [changed] = repository.search(f'flowfile_uuid:"{ORDER}" AND event_type:CONTENT_MODIFIED').events
    axe = (build.WORK / "source" / "node_modules" / "axe-core" / "axe.min.js").read_text(encoding="utf-8")
    problems: list[str] = []
    with opened(server.url, 400, color_scheme=colours, viewport={"width": width, "height": 800}) as page:
        for path in (
            "search.html?f=event_type:SEND&since=2026-03-01",
            "search.html?q=event_type:SEN",
            "search.html?q=filename:nobody-has-this",
            f"event.html?writer=main&event={changed.event.event_id}",
            f"lineage.html?flowfile={ORDER}",
            "lineage.html",
            "run.html?dag_id=a&run_id=b",
            "status.html",
            "proof.html",
        ):
            page.goto(f"{server.url}/ui/{path}")
            settled(page)
            if path.startswith("lineage.html?"):
                page.locator(".react-flow__node").first.wait_for()
            problems += looked_at(page, axe, path, width)
    assert not problems, "\n".join(problems)


def test_a_query_that_cannot_be_read_says_where(server: Served) -> None:
    with opened(server.url, 400) as page:
        page.goto(f"{server.url}/ui/search.html?q=event_type:SNED")
        page.get_by_role("alert").get_by_text("Did you mean SEND?").wait_for()
        assert page.get_by_label("Query").input_value() == "event_type:SNED"


def test_what_lies_behind_a_bound_is_counted_where_it_can_be_shown(server: Served) -> None:
    with opened(server.url) as page:
        page.goto(f"{server.url}/ui/lineage.html?flowfile={ORDER}&depth=0")
        settled(page)
        # Each part of the order was sent, by an event that lies behind the bound.
        table = page.get_by_role("region", name="FlowFiles of this lineage")
        more = table.get_by_role("button", name="Show 1 more event")
        more.first.wait_for()
        assert more.count() == len(CHILDREN)
        more.first.click()
        table.get_by_role("button", name="Fold").wait_for()
        more.nth(len(CHILDREN) - 1).wait_for(state="detached")
        assert more.count() == len(CHILDREN) - 1


def test_a_lineage_of_thousands_is_a_picture_of_the_nearest_and_stays_usable(server: Served) -> None:
    with opened(server.url) as page:
        # Warm: what is measured is the page, not the start of the browser.
        page.goto(f"{server.url}/ui/lineage.html?flowfile={ORDER}")
        page.locator(".react-flow__node").first.wait_for()
        started = time.monotonic()
        page.goto(f"{server.url}/ui/lineage.html?flowfile={MANY}&depth=all")
        page.get_by_text(f"{MANY_CHILDREN + 1:,} FlowFiles").wait_for()
        answered = time.monotonic() - started
        # Its layout goes on in a worker: the page answers meanwhile.
        page.get_by_role("button", name=MANY[:8]).first.click()
        clicked = time.monotonic() - started
        page.locator(".react-flow__node").first.wait_for()
        drawn = time.monotonic() - started
        seconds = f"table after {answered:.2f} s, usable after {clicked:.2f} s, picture after {drawn:.2f} s"
        assert answered < 5, seconds
        assert clicked - answered < 2, seconds
        assert "The picture has the 300 nearest FlowFiles" in page.get_by_role("status").first.inner_text()
        assert page.get_by_role("region", name="FlowFiles of this lineage").get_by_role("rowheader").count() == 300


def test_a_token_is_asked_for_kept_in_the_tab_and_its_rights_hold(repository: Repository) -> None:
    root = repository.settings.root
    reader = token(root, "reader", Scope.READ)["authorization"].removeprefix("Bearer ")
    try:
        with (
            served(root, "--door", "pages", CUSTODY__SERVE__TOKEN_FILE="tokens") as running,
            opened(running.url, 401, 403) as page,
        ):
            page.goto(f"{running.url}/ui/search.html")
            page.get_by_label("Token").fill(reader)
            page.get_by_role("button", name="Use it in this tab").click()
            settled(page)
            assert total(page).endswith("events")
            [changed] = repository.search(f'flowfile_uuid:"{ORDER}" AND event_type:CONTENT_MODIFIED').events
            page.goto(f"{running.url}/ui/event.html?writer=main&event={changed.event.event_id}")
            page.get_by_text("Enrich order").wait_for()
            page.get_by_text("Your token does not allow this").first.wait_for()
            assert page.evaluate("localStorage.length") == 0
            assert reader not in page.content()
    finally:
        (root / "tokens").unlink()


def test_contents_that_are_no_text_are_compared_byte_by_byte(tmp_path: Path) -> None:
    root = tmp_path / "repository"
    repository = Repository.create(root)
    before = bytes(range(256)) * 1200
    after = bytearray(before) + b"more"
    for at in (3, 4, 300_000):
        after[at] ^= 0xFF
    with repository.writer() as writer:
        claims = [writer.content.put(content).claim for content in (before, bytes(after))]
    changed = event(1, event_type="CONTENT_MODIFIED", content_claim=claims[1], previous_content_claim=claims[0])
    append(repository, [changed])
    axe = (build.WORK / "source" / "node_modules" / "axe-core" / "axe.min.js").read_text(encoding="utf-8")
    with served(root, "--door", "pages") as running, opened(running.url, bypass_csp=True) as page:
        asked: list[int] = []
        page.on("request", lambda one: asked.append(_length(one.headers.get("range"))))
        page.goto(f"{running.url}/ui/event.html?writer=main&event=0")
        settled(page)
        page.get_by_role("button", name="Difference").press("Enter")
        part = page.get_by_role("region", name="From the content before to the content after")
        part.get_by_text("2 bytes differ among those from 0 to 2,047, of 307,204.").wait_for()
        first = part.get_by_role("row").nth(1)
        assert [mark.inner_text() for mark in first.locator("mark").all()] == ["03 04", "fc fb"]
        assert first.get_by_role("cell").last.inner_text() == "2"
        assert looked_at(page, axe, "event", 1280) == []
        # By the keyboard, and past what is alike.
        part.get_by_role("button", name="Next difference").press("Enter")
        part.get_by_text("Differs at 300,000.").wait_for()
        part.get_by_text("1 byte differs among those from 299,008 to 301,055").wait_for()
        part.get_by_role("button", name="Next difference").press("Enter")
        part.get_by_text("Differs at 307,200.").wait_for()
        part.get_by_text("4 bytes differ among those from 307,200 to 307,203, of 307,204.").wait_for()
        assert part.get_by_role("button", name="Next difference").is_disabled()
        assert max(asked) <= 256 << 10, "ranges are bounded"
        shown = part.locator("pre").last.inner_text()
    # The command of this environment, wherever the test is started from.
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "CUSTODY_REPOSITORY": str(root), "PATH": path}
    done = subprocess.run(["bash", "-c", shown], env=environment, capture_output=True, text=True, check=False)
    assert [line.split() for line in done.stdout.splitlines()] == [
        [str(at + 1), f"{before[at]:o}", f"{after[at]:o}"] for at in (3, 4, 300_000)
    ]
    assert "EOF" in done.stderr, "the other one is longer"


def _length(asked: str | None) -> int:
    found = re.fullmatch(r"bytes=(\d+)-(\d+)", asked or "")
    return int(found[2]) - int(found[1]) + 1 if found else 0
