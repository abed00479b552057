"""`custody queue`: what waits is shown without touching it; queues are made, bounded, emptied and removed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from custody.cli.main import cli
from custody.flow import Component
from custody.flowfile_repository import Connection
from custody.repository import Repository

LOAD = Component(id="orders.load", type="Load")
PARSE = Component(id="orders.parse", type="Parse")


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """Five FlowFiles of 0, 3, 6, 9 and 12 bytes, the last ones first; one of them is penalised."""
    made = Repository.create(tmp_path / "repository")
    with made.flowfiles() as flow:
        flow.connect("orders", prioritizers=("attribute:priority",))
        flow.connect("done")
        with flow.session(LOAD) as session:
            for number in range(5):
                flowfile = session.create({"filename": f"{number}.csv", "priority": str(9 - number)})
                session.write_bytes(flowfile, b"abc" * number)
                session.transfer(flowfile, "orders")
                if number == 3:
                    session.penalise(flowfile, 3_600_000)
    return made


def run(repository: Repository, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["--repository", str(repository.settings.root), "queue", *arguments])


def documents(result: Result) -> list[Any]:
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def files(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(path.relative_to(folder)): (path.stat().st_size, path.stat().st_mtime_ns) for path in folder.rglob("*")}


def names(repository: Repository, queue: str = "orders") -> list[str]:
    return [item.flowfile.attributes["filename"] for item in repository.queues().flowfiles(queue, 100)]


def test_list_and_show_say_what_waits_and_change_nothing(repository: Repository) -> None:
    before = files(repository.settings.root)
    done, orders = documents(run(repository, "list", "--json"))
    assert (done["connection"]["name"], done["count"], done["oldest_ms"]) == ("done", 0, None)
    assert {key: orders[key] for key in ("count", "content_bytes", "taken", "penalised", "swapped", "is_full")} == {
        "count": 5,
        "content_bytes": 30,
        "taken": 0,
        "penalised": 1,
        "swapped": 0,
        "is_full": False,
    }
    shown = documents(run(repository, "show", "orders", "--limit", "2", "--json"))
    assert [(item["flowfile"]["attributes"]["filename"], item["state"]) for item in shown] == [
        ("4.csv", "waiting"),
        ("3.csv", "penalised"),
    ]
    table = run(repository, "show", "orders").stdout
    assert "filename=0.csv, path=./, priority=9" in table
    assert files(repository.settings.root) == before


def test_a_look_needs_no_slot_and_shows_what_sessions_work_on(repository: Repository) -> None:
    with repository.flowfiles() as flow:
        session = flow.session(PARSE)
        assert session.get("orders") is not None
        (_, orders) = documents(run(repository, "list", "--json"))
        assert (orders["count"], orders["taken"]) == (5, 1)
        last = documents(run(repository, "show", "orders", "--json"))[-1]
        assert (last["flowfile"]["attributes"]["filename"], last["state"]) == ("4.csv", "taken")
        session.rollback()


def test_connect_makes_a_queue_and_changes_only_the_bounds_that_are_named(repository: Repository) -> None:
    everything = [
        *("--prioritizer", "oldest", "--prioritizer", "attribute:size"),
        *("--count-max", "7", "--bytes-max", "1000", "--expiration", "2h", "--consumer", "orders_dag"),
    ]
    made = documents(run(repository, "connect", "late", *everything, "--json"))[0]
    assert made == {
        "name": "late",
        "prioritizers": ["oldest", "attribute:size"],
        "count_max": 7,
        "bytes_max": 1000,
        "expiration_ms": 7_200_000,
        "consumer": "orders_dag",
    }
    assert set(made) == set(Connection.__struct_fields__)
    changed = documents(run(repository, "connect", "late", "--fifo", "--count-max", "0", "--consumer", "", "--json"))[0]
    assert changed == {**made, "prioritizers": [], "count_max": 0, "consumer": None}
    assert "up to 1000 B, for 7200 s" in run(repository, "list").stdout
    assert run(repository, "connect", "late", "--fifo", "--prioritizer", "oldest").exit_code == 2
    refused = run(repository, "connect", "late", "--prioritizer", "no.such:function")
    assert refused.exit_code == 11
    assert "prioritizer 'no.such:function'" in refused.stderr
    assert run(repository, "connect", "../late").exit_code != 0


def test_remove_takes_an_empty_queue_and_refuses_another_one(repository: Repository) -> None:
    assert documents(run(repository, "remove", "done", "--json")) == [{"removed": "done"}]
    refused = run(repository, "remove", "orders")
    assert refused.exit_code == 13
    assert "expected an empty one, got 5 FlowFiles" in refused.stderr
    assert run(repository, "remove", "done").exit_code == 12


def test_drop_shows_its_plan_and_with_consent_ends_flowfiles_with_a_reason(repository: Repository) -> None:
    # One slot for the session that goes on meanwhile.
    file = repository.settings.root / "custody.toml"
    file.write_text(file.read_text() + "[repository]\nwriter_slots = 2\n")
    repository = Repository.open(repository.settings.root)
    with repository.flowfiles() as flow:
        working = flow.session(PARSE)
        assert working.get("orders") is not None  # 4.csv
        plan = run(repository, "drop", "orders", "--reason", "sent twice", "--dry-run", "--json")
        told = {"queue": "orders", "flowfiles": 4, "stay": 1, "taken": 1, "is_applied": False}
        assert documents(plan) == [told]
        assert run(repository, "drop", "orders", "--reason", "sent twice").exit_code == 2
        assert len(names(repository)) == 5
        chosen = repository.queues().flowfiles("orders", 2)[1].flowfile.uuid
        one = run(repository, "drop", "orders", "--reason", "sent twice", "--flowfile", chosen, "--yes", "--json")
        assert documents(one) == [told | {"flowfiles": 1, "stay": 4, "is_applied": True}]
        rest = run(repository, "drop", "orders", "--reason", "sent twice", "--who", "auditor", "--yes")
        assert "orders: 3 FlowFiles dropped, 1 stay (1 of them being worked on)" in rest.stderr
        working.rollback()
    assert names(repository) == ["4.csv"], "the penalised one went, too"
    drops = [stored.event for stored in repository.search("event_type:DROP").events]
    assert [event.details for event in drops] == ["Discard reason: sent twice"] * 4
    assert {event.component_name for event in drops} >= {"custody queue drop, auditor"}
    assert run(repository, "drop", "none", "--reason", "x", "--yes").exit_code == 12


def test_checkpoint_writes_a_snapshot(repository: Repository) -> None:
    home = repository.settings.flowfiles_home
    assert not (home / "snapshot").exists()
    told = documents(run(repository, "checkpoint", "--json"))
    assert told == [{"queues": 2, "flowfiles": 5, "content_bytes": 30}]
    assert (home / "snapshot").exists()
    assert names(repository) == ["4.csv", "3.csv", "2.csv", "1.csv", "0.csv"]


def test_a_damaged_log_is_named_by_list_and_leaves_the_rest_of_the_status(repository: Repository) -> None:
    log = next((repository.settings.flowfiles_home / "log").iterdir())
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    refused = run(repository, "list")
    assert refused.exit_code == 20
    assert str(log) in refused.stderr
    assert log.read_bytes() == data
    status = repository.status()
    assert status.queues == ()
    assert any("queues of FlowFiles cannot be read" in notice for notice in status.notices)


def test_status_shows_queues_where_there_are_some(repository: Repository, tmp_path: Path) -> None:
    shown = CliRunner().invoke(cli, ["--repository", str(repository.settings.root), "status"])
    assert "orders" in shown.stdout
    bare = Repository.create(tmp_path / "bare")
    assert run(bare, "list").exit_code == 0
    assert "oldest waits since" not in CliRunner().invoke(cli, ["-r", str(bare.settings.root), "status"]).stdout
    assert not bare.settings.flowfiles_home.exists()
