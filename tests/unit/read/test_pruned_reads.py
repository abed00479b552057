"""SQL and searches leave out what the catalog's statistics rule out, and answer as if they read everything."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from custody.catalog.pruning import PrunedReads
from custody.cli.main import cli
from custody.model import Event
from custody.repository import Repository
from tests.support import append, event, run_steps

LOGS, EACH = 4, 300


def _event(number: int) -> Event:
    log = number // EACH
    return event(
        number,
        flowfile_uuid=f"00000000-0000-4000-8000-{number:012d}",
        file_size=log * 10_000 + number % EACH,
        source_node=f"Node-{log}",
        source_ordinal=number,
        event_time=1_772_409_600_000 + number * 1000,
        lineage_start_date=1_772_409_600_000 + log * 3_600_000,
    )


EVENTS = [_event(number) for number in range(LOGS * EACH)]


@pytest.fixture(scope="module", params=["before a checkpoint", "behind a checkpoint"])
def repository(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """Four logs of several blocks; each has sizes, sources and FlowFiles of its own."""
    root = tmp_path_factory.mktemp("pruned") / "repository"
    Repository.create(root)
    (root / "custody.toml").write_text("[eventlog]\nblock_bytes_max = 16384\n")
    opened = Repository.open(root)
    for log in range(LOGS):
        append(opened, EVENTS[log * EACH : (log + 1) * EACH])
        run_steps(opened.settings)
    append(opened, [event(9999, file_size=5, source_node="tail")])
    if request.param == "behind a checkpoint":
        opened.workspace().catalog.write_checkpoint()
        opened = Repository.open(root)
        state = opened.workspace().catalog.load()
        assert not any(file.footer for file in state.files.values()), "the checkpoint keeps no footer"
    return opened


def _where(condition: str, source: str = "events") -> str:
    return f"select event_id from {source} where {condition} order by 1"  # noqa: S608 - of this test


def rows(opened: Repository, text: str) -> tuple[list[dict[str, object]], PrunedReads]:
    with opened.sql(text) as result:
        return [row for batch in result.batches() for row in batch.to_pylist()], result.explained


def test_one_flowfile_is_found_in_one_block(repository: Repository) -> None:
    found, explained = rows(repository, _where(f"flowfile_uuid = '{_uuid(700)}'"))
    assert found == [{"event_id": 700}]
    assert explained.logs == LOGS
    assert explained.logs_pruned >= LOGS - 2
    assert explained.blocks == sum(len(pq.read_metadata(path).to_dict()["row_groups"]) for path in logs(repository))
    assert explained.blocks > 2 * LOGS
    assert explained.blocks - explained.blocks_pruned <= 2
    assert explained.by["flowfile_uuid bloom"] > 0


def logs(opened: Repository) -> list[Path]:
    return sorted(opened.settings.store.rglob("events/*.parquet"))


def _uuid(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012d}"


@pytest.mark.parametrize(
    ("condition", "reason"),
    [
        ("file_size between 20000 and 20005", "file_size bounds"),
        ("file_size > 29999", "file_size bounds"),
        ("source_node = 'Node-2'", "source_node bounds"),
        ("source_ordinal < 10", "source_ordinal bounds"),
        ("lineage_start_date >= '2026-03-02 03:00:00'", "lineage_start_date bounds"),
        ("event_time >= '2026-03-02T00:19:00Z'", "event_time bounds"),
        ("events.event_id in (3, 1100) and component_type is not null", "event_id bounds"),
    ],
)
def test_every_column_with_statistics_rules_out_blocks(repository: Repository, condition: str, reason: str) -> None:
    found, explained = rows(repository, _where(condition))
    # The same condition behind a subquery that reads everything: nothing can be left out before.
    whole, everything = rows(repository, _where(condition, "(from events) events"))
    assert found == whole
    assert found
    assert explained.by[reason] > 0
    assert explained.blocks_pruned > 0
    assert everything.blocks_pruned == 0


@pytest.mark.parametrize(
    "text",
    [
        "select count(*) n from events e join events f on e.event_id = f.event_id where e.event_id = 3",
        "select count(*) n from events where event_id = 3 or file_size >= 0",
        "select lower(details) as flowfile_uuid from events where flowfile_uuid = 'x'",
        "select count(*) n from events where not event_id = 3",
        "select count(*) n from events e(event_id) where event_id = 'main'",
        "select count(*) n from events using sample 100% (bernoulli) where event_id >= 3",
        "select (select count(*) from events) n from events where event_id = 3",
        "select count(*) n from events where event_id = 3.0",
    ],
)
def test_what_is_not_plain_leaves_out_nothing(repository: Repository, text: str) -> None:
    try:
        _, explained = rows(repository, text)
    except Exception as error:  # noqa: BLE001 - the engine may refuse the text; what counts is that nothing is left out
        assert "event_id" in str(error)
        return
    assert explained.blocks_pruned == 0


def test_each_place_that_reads_events_keeps_its_own(repository: Repository) -> None:
    first, second = _where("event_id = 3"), _where(f"flowfile_uuid = '{_uuid(1100)}'")
    text = f"with a as ({first}), b as ({second}) from a union all from b order by 1"
    found, explained = rows(repository, text)
    assert found == [{"event_id": 3}, {"event_id": 1100}]
    assert 0 < explained.blocks_pruned < explained.blocks


@pytest.mark.in_parts(4)
@settings(max_examples=12, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(
                st.sampled_from(["file_size", "event_id"]),
                st.sampled_from(["=", "<", "<=", ">", ">="]),
                st.integers(-1, 31000),
            ),
            st.tuples(
                st.just("source_node"),
                st.sampled_from(["=", "<", ">="]),
                st.sampled_from(["Node-1", "Node-9", "", "node-2"]),
            ),
            st.tuples(st.just("flowfile_uuid"), st.just("="), st.sampled_from([_uuid(0), _uuid(899), "none"])),
        ),
        min_size=1,
        max_size=3,
    )
)
def test_answers_are_those_of_reading_everything(
    repository: Repository, conditions: list[tuple[str, str, object]]
) -> None:
    where = " and ".join(
        f"{name} {sign} {value if isinstance(value, int) else chr(39) + str(value) + chr(39)}"
        for name, sign, value in conditions
    )
    found, _ = rows(repository, _where(where))
    whole, _ = rows(repository, _where(where, "(from events) events"))
    assert found == whole


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("file_size:[20000 TO 20004]", range(600, 605)),
        ("source_node:node-2 AND file_size:[20000 TO 20001]", range(600, 602)),
        ("source_ordinal:[0 TO 1]", range(2)),
    ],
)
def test_a_search_does_not_open_shards_whose_logs_cannot_match(
    repository: Repository, query: str, expected: range
) -> None:
    result = Repository.open(repository.settings.root).search(query, oldest_first=True)
    assert [item.event.event_id for item in result.events] == list(expected)
    explained = result.explained["main"]
    assert (explained.shards, explained.pruned, explained.pruned_by_statistics) == (LOGS, LOGS - 1, LOGS - 1)
    assert repository.search(f"NOT ({query})").total == LOGS * EACH + 1 - len(expected)


def test_a_scan_in_the_place_of_a_shard_reads_the_blocks_that_can_match(repository: Repository, tmp_path: Path) -> None:
    root = shutil.copytree(repository.settings.root, tmp_path / "copy")
    for shard in (root / "containers").rglob("index/*"):
        if shard.is_dir():
            shutil.rmtree(shard)
    result = Repository.open(root).search("file_size:[20000 TO 20004]", oldest_first=True)
    assert [item.event.event_id for item in result.events] == list(range(600, 605))
    explained = result.explained["main"]
    assert explained.scanned >= 1
    assert 0 < explained.scanned_blocks_pruned < explained.scanned_blocks


def test_the_commands_say_what_was_left_out(repository: Repository) -> None:
    root = str(repository.settings.root)
    text = _where(f"flowfile_uuid = '{_uuid(1)}'")
    asked = CliRunner().invoke(cli, ["-r", root, "sql", text, "--json", "--explain"])
    assert json.loads(asked.stdout) == {"event_id": 1}
    assert "blocks ruled out by" in asked.stderr
    assert "flowfile_uuid bloom" in asked.stderr
    nothing = CliRunner().invoke(cli, ["-r", root, "sql", "select count(*) from events", "--explain"])
    assert f"{LOGS} of {LOGS} logs; the catalog rules out nothing" in nothing.stderr
    searched = CliRunner().invoke(cli, ["-r", root, "search", "file_size:[20000 TO 20004]", "--explain"])
    assert "by statistics" in searched.stdout
