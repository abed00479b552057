"""The pages by keys alone: from a search to an event, its lineage, what lies behind a bound, and a replay."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from custody.repository import Repository
from tests.pages.order_story import PARTS, SORTED_QUERY, bundle_of, cut_and_sort, queued
from tests.pages.test_in_browser import built, led, opened, settled, total
from tests.support import append, event, run_steps
from tests.unit.serving.serve_process import Served, served

__all__ = ["built"]

pytestmark = pytest.mark.slow

KEYS_MAX = 150
FOCUS = """() => {
    const one = document.activeElement;
    const style = getComputedStyle(one);
    const name = (one.labels?.[0] ?? one).innerText ?? '';
    return {tag: one.tagName, text: one.getAttribute('aria-label') ?? name.trim(), id: one.id,
        row: one.closest('tr')?.id ?? '',
        seen: style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0,
        inside: one.closest('dialog') !== null};
}"""


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    repository = Repository.create(tmp_path_factory.mktemp("keys") / "repository")
    append(repository, [event(number) for number in range(20)])
    cut_and_sort(repository)
    run_steps(repository.settings)
    return Repository.open(repository.settings.root)


@pytest.fixture(scope="module")
def server(repository: Repository) -> Iterator[Served]:
    with served(repository.settings.root, "--door", "pages") as running:
        yield running


def focus(page: Any) -> dict[str, Any]:
    """What has the focus: its tag, its name, and whether that is to be seen."""
    found: dict[str, Any] = page.evaluate(FOCUS)
    return found


def go_to(page: Any, tag: str, text: str, row: str = "", *, exact: bool = False) -> None:
    """Go on by the tab key until something has the focus; all on the way, it is to be seen where one is."""
    passed = []
    for _ in range(KEYS_MAX):
        page.keyboard.press("Tab")
        at = focus(page)
        passed.append(f"{at['tag']} {at['text'][:30]}")
        assert at["seen"] or at["tag"] == "BODY", at
        is_named = text == at["text"] if exact else text in at["text"]
        if at["tag"] == tag and is_named and at["row"].endswith(row):
            return
    raise AssertionError(f"no {tag} {text!r} after {KEYS_MAX} keys, but {passed}")


def enter(page: Any) -> None:
    led(page, lambda: page.keyboard.press("Enter"))


def test_from_a_search_to_a_replay_without_a_pointer(server: Served, repository: Repository) -> None:
    with opened(server.url) as page:
        page.goto(f"{server.url}/ui/search.html")
        settled(page)
        # The first key leads to what skips the navigation, and on from there.
        page.keyboard.press("Tab")
        assert focus(page)["text"] == "Skip to the content"
        assert page.locator(".skip").bounding_box()["x"] >= 0
        page.keyboard.press("Enter")
        assert focus(page)["id"] == "content"
        go_to(page, "INPUT", "Query")
        page.keyboard.type(SORTED_QUERY)
        page.keyboard.press("Escape")
        enter(page)
        assert total(page) == f"{PARTS} events"
        [newest, *_] = repository.search(SORTED_QUERY).events
        go_to(page, "A", str(newest.event.event_id), exact=True)
        enter(page)
        page.get_by_role("heading", name="What happened").wait_for()
        of_event = page.url
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        go_to(page, "A", "Lineage", exact=True)
        enter(page)
        page.locator(".react-flow__node").first.wait_for()
        table = page.get_by_role("region", name="FlowFiles of this lineage")
        alone = table.get_by_role("rowheader").count()
        go_to(page, "BUTTON", "more event", bundle_of(repository))
        page.keyboard.press("Enter")
        table.get_by_role("rowheader").nth(alone).wait_for()
        # Whoever pressed it still has the focus, on what folds it again.
        assert focus(page)["text"].startswith("Fold")
        page.goto(of_event)
        settled(page)
        _replay(page, repository)


def _replay(page: Any, repository: Repository) -> None:
    before = queued(repository)
    go_to(page, "BUTTON", "Make the plan")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Send 1 FlowFile again").wait_for()
    assert focus(page)["tag"] == "BUTTON"
    go_to(page, "BUTTON", "Send 1 FlowFile again")
    page.keyboard.press("Enter")
    page.get_by_role("dialog").wait_for()
    # A dialog has the focus, keeps it, and gives it back.
    assert focus(page)["inside"]
    for _ in range(6):
        page.keyboard.press("Tab")
        at = focus(page)
        assert at["inside"] or at["tag"] == "BODY", at
    page.keyboard.press("Escape")
    page.get_by_role("dialog").wait_for(state="hidden")
    assert focus(page)["text"] == "Send 1 FlowFile again"
    assert queued(repository) == before
    page.keyboard.press("Enter")
    for _ in range(6):
        if "Send" in focus(page)["text"] and focus(page)["inside"]:
            break
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.get_by_role("status", name="What the run did").wait_for()
    assert queued(repository) == before + 1
    # What had the focus may be gone with the dialog; the reader is not sent to the top of the page.
    assert focus(page)["tag"] != "BODY"
