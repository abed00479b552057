"""Where a content is in software, asked on the page of an event in a real browser, by tables that are published."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from custody.repository import Repository
from tests.pages.test_in_browser import built, opened, settled
from tests.swh.test_contents import HELD, git_hash, repository
from tests.unit.serving.serve_process import Served, served

__all__ = ["built", "repository"]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(repository: Repository) -> Iterator[Served]:
    with served(repository.settings.root, "--door", "pages") as running:
        yield running


def test_a_content_that_software_holds_is_shown_with_revision_path_and_origin(server: Served) -> None:
    with opened(server.url) as page:
        page.goto(f"{server.url}/ui/event.html?writer=main&event=0")
        settled(page)
        page.get_by_role("button", name="Look for it").click()
        table = page.get_by_role("region", name="Where this content is in software", exact=True).last
        table.get_by_role("rowheader").first.wait_for()
        rows = [row.locator("th, td").all_inner_texts() for row in table.locator("tbody tr").all()]
        anchors, moments, paths, origins = zip(*rows, strict=True)
        assert anchors == (f"swh:1:rev:{'14' * 20}", f"swh:1:rev:{'15' * 20}")
        assert [moment[:11] for moment in moments] == ["01 Jan 1970"] * 2
        assert (set(paths), set(origins)) == ({"main.c"}, {"https://example.org/50"})
        # What is named there is no link: nothing leads a reader to another server by itself.
        assert table.get_by_role("link").count() == 0


def test_a_content_that_no_software_holds_is_told_with_its_identifier(server: Served) -> None:
    with opened(server.url) as page:
        page.goto(f"{server.url}/ui/event.html?writer=main&event=1")
        settled(page)
        page.get_by_role("button", name="Look for it").click()
        page.get_by_text(f"swh:1:cnt:{git_hash(b'of nobody')}").wait_for()
        assert git_hash(HELD) not in page.content()
