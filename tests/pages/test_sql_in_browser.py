"""The page for SQL in a real browser: rows as they are written, within bounds, and no more than rules show."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from custody.repository import Repository
from custody.serving.access import Scope, add_token
from custody.vfs import PosixFileSystem
from custody_pages import build
from tests.pages.test_in_browser import HOSTILE, built, led, looked_at, opened, picture, settled
from tests.support import append, event, run_steps, sample
from tests.unit.serving.serve_process import Served, served

pytestmark = pytest.mark.slow

__all__ = ["built"]
SECRET = "swordfish"  # noqa: S105 - what must not be shown
RULES = """
[[rule]]
who = ["clerk"]
see = [{process_group_name = "orders"}]
mask = ["password"]
"""


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    repository = Repository.create(tmp_path_factory.mktemp("sql") / "repository")
    append(repository, sample(2000))
    odd = {"filename": HOSTILE[0], "password": SECRET, "long": "x" * 5000}
    append(
        repository,
        [
            event(5000, details=HOSTILE[1], process_group_name="orders", updated_attributes=odd),
            event(5001, details=f"{SECRET} of others", process_group_name="others"),
        ],
    )
    run_steps(repository.settings)
    return Repository.open(repository.settings.root)


@pytest.fixture(scope="module")
def server(repository: Repository) -> Iterator[Served]:
    with served(repository.settings.root, "--door", "pages") as running:
        yield running


def test_a_question_stands_in_the_address_and_its_rows_are_as_they_are_written(server: Served) -> None:
    with opened(server.url, 400) as page:
        page.goto(f"{server.url}/")
        settled(page)
        led(page, page.get_by_role("link", name="SQL", exact=True).click)
        page.get_by_text("events: every event").click()
        columns = page.get_by_role("region", name="Columns of events")
        columns.get_by_text("flowfile_uuid", exact=True).wait_for()
        led(page, page.get_by_role("link", name="Events by type").click)
        rows = page.get_by_role("region", name="Rows").last
        assert rows.get_by_role("columnheader").first.inner_text().startswith("event_type")
        picture(page, "pages-sql")
        field = page.get_by_label("Query")
        # Numbers of 64 bits, which JavaScript would round; a text that would be a program.
        field.fill(
            "select 9007199254740993 as n, details, updated_attributes from events where details like '<script>%'"
        )
        led(page, lambda: field.press("Control+Enter"))
        assert "query=select+9007199254740993" in page.url
        assert rows.get_by_text("9007199254740993").count() == 1
        assert rows.get_by_text(HOSTILE[1]).count() == 1
        assert page.evaluate("window.broken") is None
        same = page.get_by_text("The same answer elsewhere")
        same.click()
        assert page.get_by_label("Command line").input_value().startswith("custody sql --limit 200 --timeout 10s ")
        assert '-d \'{"query"' in page.get_by_label("API", exact=True).input_value()
        page.goto(f"{server.url}/ui/sql.html?query=select+*+from+events&limit=7")
        settled(page)
        assert page.get_by_text("The first 7 rows; there are more.").count() == 1
        with page.expect_download() as saved:
            page.get_by_role("button", name="Save as JSON").click()
        assert '"columns"' in saved.value.path().read_text()
        with page.expect_download() as lines:
            page.get_by_role("button", name="Save all as JSON lines").click()
        assert lines.value.suggested_filename == "rows.ndjson"
        assert lines.value.path().read_text().startswith("{")
        page.goto(f"{server.url}/ui/sql.html?query=delete+from+events")
        page.get_by_role("alert").wait_for()
        assert "SELECT" in page.get_by_role("alert").inner_text()


def test_rows_are_those_that_rules_show(repository: Repository) -> None:
    root = repository.settings.root
    token = add_token(PosixFileSystem(), root / "tokens", "clerk", frozenset({Scope.READ}), "")
    (root / "rights.toml").write_text(RULES)
    with (
        served(
            root, "--door", "pages", CUSTODY__SERVE__TOKEN_FILE="tokens", CUSTODY__SERVE__RIGHTS_FILE="rights.toml"
        ) as running,
        opened(running.url, 401) as page,
    ):
        page.goto(f"{running.url}/ui/sql.html?query=select+*+from+events")
        page.get_by_label("Token").first.fill(token)
        page.get_by_role("button", name="Use it in this tab").first.click()
        page.get_by_text("1 row", exact=True).wait_for()
        assert SECRET not in page.content()
        assert '"password":"***"' in page.get_by_role("region", name="Rows").last.inner_text()


@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 320, 3840])
def test_everybody_can_use_the_page(server: Served, colours: str, width: int) -> None:
    axe = (build.WORK / "source" / "node_modules" / "axe-core" / "axe.min.js").read_text(encoding="utf-8")
    problems: list[str] = []
    with opened(server.url, 400, color_scheme=colours, viewport={"width": width, "height": 800}) as page:
        for path in ("sql.html", "sql.html?query=select+*+from+events&limit=3", "sql.html?query=no+select"):
            page.goto(f"{server.url}/ui/{path}")
            settled(page)
            problems += looked_at(page, axe, path, width)
    assert not problems, "\n".join(problems)


def test_an_empty_repository_has_a_page(tmp_path: Path) -> None:
    repository = Repository.create(tmp_path / "repository")
    with served(repository.settings.root, "--door", "pages") as running, opened(running.url) as page:
        page.goto(f"{running.url}/ui/sql.html?query=select+count(*)+from+events")
        settled(page)
        assert page.get_by_role("region", name="Rows").last.get_by_role("cell").inner_text() == "0"
