"""A verification of one writer knows that files of the others belong to them."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from custody.cli.main import cli
from custody.config import load_settings
from custody.repository import Repository
from tests.support import append, event, run_steps


def test_live_files_of_other_writers_are_not_foreign(tmp_path: Path) -> None:
    root = tmp_path / "repository"
    Repository.create(root)
    for writer in ("main", "edge"):
        settings = load_settings(root)
        section = settings.repository.model_copy(update={"writer": writer})
        repository = Repository(settings.model_copy(update={"repository": section}))
        append(repository, [event(number) for number in range(3)])
        run_steps(repository.settings)
    (root / "store" / "stray").write_bytes(b"of nobody")
    for options in ((), ("--orphans",)):
        result = CliRunner().invoke(cli, ["-r", str(root), "verify", "-w", "edge", *options])
        assert result.exit_code == 0, result.output
        assert "stray" in result.output, "what is nobody's is still named"
        assert "main" not in result.output
    [report] = json.loads(CliRunner().invoke(cli, ["-r", str(root), "verify", "-w", "edge", "--json"]).stdout)
    assert (report["writer"], report["orphans"]) == ("edge", [])
