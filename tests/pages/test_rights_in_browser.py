"""Whom rules show some events only, in a real browser: no page has a word of the others, and says what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from custody.repository import Repository
from custody.serving.access import Scope
from tests.pages.test_in_browser import built, led, opened, settled, total
from tests.support import append, run_steps
from tests.unit.serving.dag_run_story import GROUP, RunStory
from tests.unit.serving.serve_process import Served, served, token
from tests.unit.serving.test_rights import CLERK, CONTENT, RULES, SECRET
from tests.unit.serving.test_rights import opened as with_secrets

__all__ = ["built"]

pytestmark = pytest.mark.slow

STORY = RunStory(read=f"hdfs://{SECRET}/landing", wrote="hdfs://lake/orders.bin", component=SECRET)
REFUSED = "this tells of all events, and you may see some of them only"
NAMED = f"{SECRET}-3"
"""A hidden FlowFile that an event names which the clerk may see."""


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """Events of which the clerk may see half, and a run of the DAG orders, which the clerk may see."""
    repository = with_secrets(tmp_path_factory.mktemp("rights") / "repository", with_hidden=True)
    # The earlier run wrote what this one read: a name that the clerk's events have not.
    told = [one for one in STORY.told() if one.component_name != "land"]
    append(repository, [*told, *STORY.moved(repository)])
    run_steps(repository.settings)
    (repository.settings.root / "rights.toml").write_text(RULES)
    return Repository.open(repository.settings.root)


@pytest.fixture(scope="module")
def tokens(repository: Repository) -> dict[str, str]:
    root = repository.settings.root
    made = {name: token(root, name, *Scope)["authorization"] for name in ("admin-1", "clerk")}
    return {name: header.removeprefix("Bearer ") for name, header in made.items()}


@pytest.fixture(scope="module")
def server(repository: Repository, tokens: dict[str, str]) -> Iterator[Served]:
    settings = {"CUSTODY__SERVE__TOKEN_FILE": "tokens", "CUSTODY__SERVE__RIGHTS_FILE": "rights.toml"}
    with served(repository.settings.root, "--door", "pages", **settings) as running:
        yield running


def logged_in(page: Any, server: Served, token_: str) -> None:
    page.goto(f"{server.url}/ui/search.html")
    page.get_by_label("Token").first.fill(token_)
    page.get_by_role("button", name="Use it in this tab").first.click()
    settled(page)


def secrets_of(page: Any) -> bool:
    """Whether the page has a word of what is hidden: in texts, in attributes, in what is folded."""
    page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
    settled(page)
    shown = page.evaluate(
        "[document.documentElement.outerHTML, ...[...document.querySelectorAll('input')].map(one => one.value)]"
    )
    text = "".join(shown).replace(NAMED, "")
    return SECRET in text or CONTENT[:20].decode() in text


def test_no_page_has_a_word_of_what_its_reader_may_not_see(
    server: Served, repository: Repository, tokens: dict[str, str]
) -> None:
    seen = repository.seen_by(CLERK)
    hidden = next(iter(repository.search(f"component_name:{SECRET} AND NOT process_group_id:{GROUP}").events))
    [fork] = seen.search("event_type:FORK AND flowfile_uuid:the-fork").events
    told: dict[str, dict[str, bool]] = {}
    for name in ("clerk", "admin-1"):
        may = name != "clerk"
        gave = told[name] = {}
        with opened(server.url, 401, 403, 404) as page:
            logged_in(page, server, tokens[name])
            assert total(page) == f"{(repository if may else seen).search('').total:,} events"
            gave["search"] = secrets_of(page)
            page.goto(f"{server.url}/ui/event.html?writer=main&event={fork.event.event_id}")
            settled(page)
            page.get_by_role("heading", name="What happened").wait_for()
            assert secrets_of(page) is False
            page.goto(f"{server.url}/ui/event.html?writer=main&event={hidden.event.event_id}")
            settled(page)
            gave["event"] = secrets_of(page)
            assert page.get_by_role("alert").count() == (0 if may else 1)
            page.goto(f"{server.url}/ui/lineage.html?flowfile={NAMED}&depth=3")
            settled(page)
            page.locator(".react-flow__node").first.wait_for()
            gave["lineage"] = secrets_of(page)
            page.goto(f"{server.url}/ui/run.html?dag_id={STORY.dag_id}&run_id={STORY.run_id}")
            settled(page)
            wrote = page.get_by_role("region", name="What it wrote", exact=True)
            wrote.get_by_role("link", name=STORY.wrote).wait_for()
            assert wrote.get_by_role("button", name="Show 1 content").count() == (1 if may else 0)
            if may:
                wrote.get_by_role("button", name="Show 1 content").click()
            gave["run"] = secrets_of(page)
            for other in ("status", "proof"):
                page.goto(f"{server.url}/ui/{other}.html")
                settled(page)
                assert page.get_by_text(REFUSED).count() == 0 if may else page.get_by_text(REFUSED).count() > 0, other
                # Neither counts nor names: `/status` and the timelines are of all events.
                assert page.get_by_text("Live events").count() == 0 or may
                assert not secrets_of(page) or may, other
    assert told["clerk"] == dict.fromkeys(("search", "event", "lineage", "run"), False)
    # The same pages do have it, for who may see everything.
    assert told["admin-1"] == dict.fromkeys(("search", "event", "lineage", "run"), True)


def test_a_query_for_what_is_hidden_finds_nothing(server: Served, tokens: dict[str, str]) -> None:
    with opened(server.url, 401) as page:
        logged_in(page, server, tokens["clerk"])
        field = page.get_by_label("Query")
        field.fill(f"component_name:{SECRET}")
        led(page, lambda: field.press("Enter"))
        assert total(page) == "0 events"
        # Values are completed from what may be seen.
        field.fill("component_name:sw")
        page.wait_for_timeout(1500)
        assert page.get_by_role("option").filter(has_text=SECRET).count() == 0
