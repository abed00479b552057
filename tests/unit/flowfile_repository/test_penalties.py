"""A penalty holds wherever the FlowFile goes to: to another queue, or back to its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from custody.flow import Component
from custody.repository import Repository

COMPONENT = Component(id="orders.send", type="Send")


@pytest.mark.parametrize("goes_back", [True, False])
def test_a_penalised_flowfile_waits_while_others_overtake_it(goes_back: bool, tmp_path: Path) -> None:
    with Repository.create(tmp_path / "repository").flowfiles() as flow:
        flow.connect("orders")
        with flow.session(COMPONENT) as session:
            for name in "abc":
                session.transfer(session.create({"filename": name}), "orders")
        with flow.session(COMPONENT) as session:
            late, soon = session.get_many("orders", 2)
            session.penalise(late, 3_600_000)
            for flowfile in (late, soon):
                if goes_back:
                    session.put_back(flowfile)
                else:
                    session.transfer(flowfile, "orders")
        assert flow.queues.size("orders").penalised == 1
        with flow.session(COMPONENT) as session:
            names = [flowfile.attributes["filename"] for flowfile in session.get_many("orders", 9)]
            assert sorted(names) == ["b", "c"]
            session.rollback()


def test_a_rollback_with_a_penalty_lets_what_was_taken_wait(tmp_path: Path) -> None:
    with Repository.create(tmp_path / "repository").flowfiles() as flow:
        flow.connect("orders")
        with flow.session(COMPONENT) as session:
            session.transfer(session.create({"filename": "a"}), "orders")
        session = flow.session(COMPONENT)
        assert session.get("orders") is not None
        session.rollback(penalty_ms=3_600_000)
        with flow.session(COMPONENT) as session:
            assert session.get("orders") is None
