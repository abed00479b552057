"""The promises of a repository: this one keeps them, a broken one is named, and other packages can plug theirs in."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from custody.cli.main import cli
from custody.config import SETTINGS_FILE
from custody.errors import ConfigurationError
from custody.flow import Session
from custody.lineage import Lineage
from custody.model import Acknowledged, Event
from custody.read.results import Events
from custody.repository import Component, Repository, open_repository
from custody_conformance.repositories import RepositoryConformance, main, plain_event, run_cases
from tests.support import INCLUDE


class TestThisRepository(RepositoryConformance):
    """What another package would write for its own."""

    factory = "custody.repository:Repository"


class _Buffering(Repository):
    """Acknowledges events that are only in memory, and stores them when it is asked for some."""

    _waiting: list[Event]

    def append(self, events: Iterable[Event], *, wait_seconds: float | None = None) -> Acknowledged:
        self._waiting = [*getattr(self, "_waiting", []), *events]
        first = sum(item.event_id >= 0 for item in super().events(count=10_000))
        return Acknowledged("main", range(first, first + len(self._waiting)))


class _Unordered(Repository):
    def get_many(self, event_ids: Sequence[int], *arguments: Any, **options: Any) -> Events:
        events = super().get_many(event_ids, *arguments, **options)
        events.sort(key=lambda item: list(event_ids).index(item.event_id))
        return events


class _Childless(Repository):
    def lineage(self, *arguments: Any, **options: Any) -> Lineage:
        lineage = super().lineage(*arguments, **options)
        for uuid in [uuid for uuid, node in lineage.nodes.items() if len(node.parents) > 1]:
            del lineage.nodes[uuid]
        return lineage


class _Committing(Repository):
    @contextmanager
    def session(self, component: Component, *arguments: Any, **options: Any) -> Iterator[Session]:
        with self.writer() as writer:
            session = Session(component, writer, self._clock)
            try:
                yield session
            finally:
                session.commit()


class _Renumbering(Repository):
    def roll_over(self, **options: Any) -> Any:
        reports = super().roll_over(**options)
        self.append([plain_event(999)])
        return reports


BROKEN = {
    "_Buffering": "test_what_was_acknowledged_survives_a_killed_process",
    "_Unordered": "test_many_events_come_in_the_order_of_ids",
    "_Childless": "test_a_lineage_has_ancestors_and_descendants",
    "_Committing": "test_a_session_is_stored_whole_or_not_at_all",
    "_Renumbering": "test_no_answer_changes_by_a_pass_or_a_new_start",
}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An installed package with an entry point, whose module has this file's classes."""
    folder = tmp_path / "site"
    info = folder / "other_repository-1.0.dist-info"
    info.mkdir(parents=True)
    (folder / "other_repository.py").write_text(Path(__file__).read_text())
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other-repository\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[custody.repositories]\nother = other_repository:_Unordered\nbroken = other_repository:Nobody\n"
    )
    monkeypatch.syspath_prepend(str(folder))
    yield "other_repository"
    sys.modules.pop("other_repository", None)


@pytest.mark.in_parts(4)
@pytest.mark.parametrize(("name", "case"), BROKEN.items())
def test_an_implementation_that_breaks_a_promise_is_told_which(package: str, name: str, case: str) -> None:
    outcomes = run_cases(f"{package}:{name}")
    assert outcomes[case] is not None
    assert sum(problem is None for problem in outcomes.values()) >= 1, "what it keeps is said as well"


def test_the_cases_run_without_pytest(package: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([f"{package}:_Unordered"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert "BROKEN many events come in the order of ids" in lines
    assert "kept   a batch with a bad event stores nothing" in lines
    assert main(["nothing"]) == 2


def test_the_suite_imports_no_pytest() -> None:
    source = "import sys, custody_conformance.repositories; assert 'pytest' not in sys.modules"
    subprocess.run([sys.executable, "-c", source], check=True, env={"PYTHONPATH": str(INCLUDE), "PATH": "/bin"})


def test_another_package_answers_for_a_repository(package: str, tmp_path: Path) -> None:
    root = tmp_path / "r"
    Repository.create(root)
    (root / SETTINGS_FILE).write_text('[repository]\nimplementation = "other"\n')
    opened = open_repository(root)
    assert type(opened).__name__ == "_Unordered"
    opened.append([plain_event(number) for number in range(3)])
    run = CliRunner().invoke
    assert run(cli, ["-r", str(root), "run", "all", "--local"]).exit_code == 0
    assert '"event_id":2' in run(cli, ["-r", str(root), "events", "--json"]).stdout
    assert run(cli, ["-r", str(root), "event", "1"]).exit_code == 0
    assert "3 events" in run(cli, ["-r", str(root), "search"]).stdout
    assert run(cli, ["-r", str(root), "lineage", "1"]).exit_code == 0


@pytest.mark.parametrize(
    "arguments",
    [["status"], ["compact"], ["run", "all"], ["run", "scrub", "--local"], ["lineage", "0", "--export", "dot"]],
    ids=" ".join,
)
def test_commands_on_custody_s_own_files_refuse_another_implementation(
    package: str, tmp_path: Path, arguments: list[str]
) -> None:
    root = tmp_path / "r"
    Repository.create(root)
    (root / SETTINGS_FILE).write_text('[repository]\nimplementation = "other"\n')
    open_repository(root).append([plain_event(0)])
    result = CliRunner().invoke(cli, ["-r", str(root), *arguments])
    assert result.exit_code == ConfigurationError.exit_code
    assert "custody's own files" in result.stderr


def test_an_implementation_that_is_not_there_is_named_with_those_that_are(package: str, tmp_path: Path) -> None:
    root = tmp_path / "r"
    Repository.create(root)
    (root / SETTINGS_FILE).write_text('[repository]\nimplementation = "nobody"\n')
    with pytest.raises(ConfigurationError, match=r"'nobody': no installed package has it. Installed: .*custody.*other"):
        open_repository(root)
    (root / SETTINGS_FILE).write_text('[repository]\nimplementation = "broken"\n')
    with pytest.raises(ConfigurationError, match="other_repository:Nobody of the entry point cannot be imported"):
        open_repository(root)
    assert metadata.entry_points(group="custody.repositories").names >= {"other", "broken"}
