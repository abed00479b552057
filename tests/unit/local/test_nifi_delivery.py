"""The demo's delivery over Site-to-Site: events come into a real input port, and once where they are sent twice."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from custody.cli.main import cli
from custody.repository import Repository
from custody_local.errors import LocalAirflowError
from custody_local.nifi_delivery import EXPORT, input_port, make_sender


def test_a_node_delivers_twice_and_each_event_is_stored_once(tmp_path: Path) -> None:
    Repository.create(tmp_path / "repository")
    with input_port(tmp_path / "repository") as port:
        for _ in range(2):  # the second one made anew, as by another demo
            events = make_sender(tmp_path / "nifi", port.url)
            done = CliRunner().invoke(cli, ["-r", str(tmp_path / "nifi"), "export", EXPORT])
            assert done.exit_code == 0, done.output
    assert port.said == f"{events} events were stored"
    repository = Repository.open(tmp_path / "repository")
    assert len(list(repository.events(0, 10_000))) == events == 500
    assert list(repository.quarantine.entries()) == []


def test_an_input_port_that_cannot_be_served_says_why(tmp_path: Path) -> None:
    with pytest.raises(LocalAirflowError, match="it ended and said"), input_port(tmp_path / "nothing"):
        pass
