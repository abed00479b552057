"""The one rule of commands that delete or overwrite: plan and question, --yes, --dry-run."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner, Result

from custody.cli import consent as consent_module
from custody.cli.consent import Consent, asks_first
from tests.docs.update import commands

ASKING = {
    "catalog gc",
    "catalog load",
    "catalog prune",
    "catalog rebuild",
    "catalog repair",
    "catalog wipe",
    "containers claim",
    "containers drop",
    "content clean",
    "forget",
    "quarantine remove",
    "queue drop",
    "repair",
    "replay run",
    "retention apply",
    "writers absorb",
    "writers retire",
}


@click.command()
@asks_first
def delete(consent: Consent) -> None:
    """Delete something, which is a word here."""
    if not consent.yes:
        click.echo("the plan")
    if consent.ask("Delete it?"):
        click.echo("deleted")


def run(*arguments: str, answer: str = "") -> Result:
    return CliRunner().invoke(delete, [*arguments], input=answer)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consent_module, "is_terminal", lambda: True)


def test_every_command_that_deletes_or_overwrites_keeps_the_rule() -> None:
    options = {name: {option for part in command.params for option in part.opts} for name, command in commands()}
    assert {name.removeprefix("custody ") for name in options if "--yes" in options[name]} == ASKING
    assert all("--dry-run" in options[f"custody {name}"] for name in ASKING)


def test_without_a_terminal_the_plan_is_shown_and_nothing_is_changed() -> None:
    result = run()
    assert (result.exit_code, result.stdout) == (2, "the plan\n")
    assert "--yes" in result.stderr


@pytest.mark.parametrize("option", ["--yes", "--apply"])
def test_yes_does_it_unasked(option: str) -> None:
    result = run(option)
    assert (result.exit_code, result.stdout) == (0, "deleted\n")


def test_a_dry_run_only_shows_the_plan() -> None:
    result = run("--dry-run")
    assert (result.exit_code, result.stdout) == (0, "the plan\n")
    assert run("--dry-run", "--yes").exit_code == 2


@pytest.mark.usefixtures("terminal")
def test_on_a_terminal_the_user_decides() -> None:
    agreed = run(answer="y\n")
    assert (agreed.exit_code, agreed.stdout) == (0, "the plan\ndeleted\n")
    for answer in ("n\n", "\n"):
        declined = run(answer=answer)
        assert (declined.exit_code, declined.stdout) == (1, "the plan\n")
        assert "nothing was changed" in declined.stderr
