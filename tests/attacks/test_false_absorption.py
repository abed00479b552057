"""Who can write to the store says that another writer's events are elsewhere, so that no answer has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from custody.catalog import Action, AddTombstone, seal
from custody.catalog.transaction_pb2 import Absorb
from custody.config import load_settings
from custody.repository import Repository
from tests.attacks.attacker import Attacker, build, document, findings
from tests.support import append, event, run_steps


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Ten events of writer `main` and ten of writer `edge`."""
    build(tmp_path / "repository", passes=1)
    settings = load_settings(tmp_path / "repository")
    section = settings.repository.model_copy(update={"writer": "edge"})
    edge = Repository(settings.model_copy(update={"repository": section}))
    append(edge, [event(100 + number) for number in range(10)])
    run_steps(edge.settings)
    return tmp_path / "repository"


def absorb_edge(root: Path, first_event_id: int = 10) -> None:
    state = Attacker(root, "edge").catalog.load()
    entry = Absorb(
        writer="edge",
        database="provenance",
        catalog_id=state.catalog_id.bytes,
        revision=state.revision,
        digest=state.digest,
        first_event_id=first_event_id,
    )
    Attacker(root).commit(Action(absorb=entry))


def test_a_writer_that_was_never_sealed_is_not_passed_over(root: Path) -> None:
    assert findings(root) == set()
    absorb_edge(root)
    page = Repository(load_settings(root)).search("")
    assert page.total == 20
    assert any("'edge'" in notice and "never retired" in notice for notice in page.notices)
    assert findings(root) == {"absorb-false"}


def test_sql_has_the_events_as_well(root: Path) -> None:
    absorb_edge(root)
    assert document(root, "sql", "select count(*) as number from events") == (0, {"number": 20})


def test_a_writer_that_was_sealed_and_not_copied_is_named(root: Path) -> None:
    """Its events are in no answer: readers count no copies, verification does."""
    seal(Attacker(root, "edge").catalog, "retired")
    absorb_edge(root)
    assert findings(root, "--quick") == {"absorb-false"}


def test_tombstones_of_a_false_archive_hide_nothing_of_an_earlier_answer(root: Path) -> None:
    edge = Attacker(root, "edge")
    absorb_edge(root, first_event_id=0)
    stone = AddTombstone(id=b"s" * 16, to_time_ms=1 << 60, reason="all of it")
    Attacker(root).commit(Action(add_tombstone=stone))
    at = {"main": 0, "edge": edge.catalog.load().revision}
    assert {found.writer for found in Repository(load_settings(root)).search("", as_of=at).events} == {"edge"}
