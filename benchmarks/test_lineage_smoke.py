"""The benchmark of lineages runs, and all systems give the events that were planted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.lineage.__main__ import main
from benchmarks.lineage.workload import LAYOUTS, pieces, plant


@pytest.mark.benchmark
@pytest.mark.parametrize(("options", "suffix"), [((), ""), (("--row-copies",), "-row-copies")], ids=["blocks", "rows"])
def test_all_systems_give_the_same_lineages(tmp_path: Path, options: tuple[str, ...], suffix: str) -> None:
    output = tmp_path / "out"
    done = CliRunner().invoke(main, ["--quick", "--scratch", str(tmp_path), "--output", str(output), *options])
    assert done.exit_code == 0, done.output
    peers = json.loads((output / f"results-8000{suffix}.json").read_text())["peers"]
    assert set(peers) == {"custody", "SQLite", "DuckDB"}
    for peer in peers.values():
        assert {layout: len(walls) for layout, walls in peer["first"].items()} == dict.fromkeys(LAYOUTS, 2)
        assert peer["memory_bytes"] > 0


def test_planted_lineages_lie_where_they_are_said_to_lie() -> None:
    planted = plant(8000, 2, 300)
    owners: dict[int, str] = {}
    for table in pieces(8000, planted):
        owners.update(zip(table.column("event_id").to_pylist(), table.column("flowfile_uuid").to_pylist(), strict=True))
    assert len(owners) == 8000
    for lineage in planted:
        assert [owners[place] for place in lineage.places] == [event.flowfile_uuid for event in lineage.events]
        step = 5 if lineage.layout == "close" else 8000 // 300
        assert max(lineage.places) - min(lineage.places) < 300 * (step + 2)
