"""The page about FlowFiles in queues: its examples run, its tables name what there is, its picture is what is drawn."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from custody.cli.main import cli
from custody.flowfile_repository import Connection, QueueSession
from custody.repository import Repository
from tests.docs.pages import DOCS, examples, read, table
from tests.docs.update import settings_fields

PAGE = read("flow.md")
PRINTED = {
    "session": "north 9 bytes\nsouth 8 bytes\n",
    "priority": "['1', '3']\n",
    "pressure": r"full: the queue 'orders' \(2 FlowFiles, 0 bytes\)\. .*\n2\n",
    "penalty": "second.csv\n",
    "everywhere": "",
}


def test_every_python_example_is_run() -> None:
    assert set(PRINTED) | {"crawl"} == set(examples(PAGE))


@pytest.mark.parametrize("name", PRINTED)
def test_an_example_runs_and_prints_what_it_should(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Repository.create("provenance")
    exec(compile(examples(PAGE)[name], f"flow.md: {name}", "exec"), {"__name__": "example"})  # noqa: S102
    printed = capsys.readouterr().out
    assert printed == PRINTED[name] or re.fullmatch(PRINTED[name], printed)


def test_the_crawl_runs_and_its_picture_is_the_one_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for line in examples(PAGE)["crawl"].splitlines():
        command = line.partition("#")[0].partition("&&")[0].split('"')
        words = [word for number, part in enumerate(command) for word in ([part] if number % 2 else part.split())]
        done = CliRunner().invoke(cli, words[1:], env={"CUSTODY_REPOSITORY": str(tmp_path / "provenance")})
        assert done.exit_code == 0, (words, done.output)
    drawn = (tmp_path / "lineage.svg").read_text()
    kept = (DOCS / "images" / "web-crawler.svg").read_text()
    assert drawn == kept, "run: custody example crawl FOLDER --picture docs/images/web-crawler.svg"


def test_every_method_of_a_session_is_in_the_table() -> None:
    listed = {name for row in table(PAGE, "method | does") for name in re.split(r", ", row[0])}
    public = {name for name in dir(QueueSession) if not name.startswith("_") and callable(getattr(QueueSession, name))}
    assert listed == public


def test_every_bound_of_a_queue_is_in_the_table_with_its_default() -> None:
    rows = {row[0]: row[1] for row in table(PAGE, "bound | default")}
    defaults = msgspec.structs.asdict(Connection(name="any"))
    shown = {(): "none", None: "none", 10_000: "10,000", 1 << 30: "1 GiB", 0: "0"}
    assert rows == {name: shown[value] for name, value in defaults.items() if name != "name"}


def test_the_settings_that_the_page_names_exist() -> None:
    names = re.findall(r"`(flowfiles\.\w+|repository\.\w+)`\]", PAGE)
    assert names
    assert set(names) <= {name for name, _ in settings_fields()}
