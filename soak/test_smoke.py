"""A soak of less than a minute, so that the long one does not rot; and the plan of its kills."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.append.machine import Machine
from soak.killing import plan_kills
from soak.pipeline import LoopPipeline
from soak.processes import DRIVER, KINDS, WORKER, WRITER
from soak.report import document, page
from soak.soak import Plan, Soak

EVERY = {WRITER: 5.0, DRIVER: 12.0, WORKER: 20.0}


def test_the_same_seed_plans_the_same_kills_and_another_one_others() -> None:
    planned = plan_kills(7, 3600, EVERY)
    assert planned == plan_kills(7, 3600, EVERY)
    assert planned != plan_kills(8, 3600, EVERY)
    counts = Counter(kill.kind for kill in planned)
    for kind in KINDS:
        assert 0.7 < counts[kind] * EVERY[kind] / 3600 < 1.3
    # What is planned does not change with the time: a longer soak begins like a shorter one.
    assert [kill for kill in planned if kill.at < 100] == plan_kills(7, 100, EVERY)


@pytest.mark.slow
@pytest.mark.spark
def test_a_short_soak_without_airflow_holds(tmp_path: Path) -> None:
    plan = Plan(seconds=40, seed=3, rate=150, limit_bytes=3 << 19, grace_seconds=1, seal_seconds=2, every=EVERY)
    outcome = Soak(plan, tmp_path / "soak", LoopPipeline, print).run()
    assert outcome.holds, "\n".join(outcome.problems())
    assert outcome.final.counts["acknowledged"] > 300
    assert outcome.final.counts["acknowledged and held"] > 0
    assert outcome.final.counts["sequential read: events found"] == outcome.final.counts["search: events found"]
    assert Counter(kill.kind for kill in outcome.killer.done)[WRITER] > 2
    assert all(outcome.asker.asked[name] > 3 for name in ("get by id", "newest", "by FlowFile", "count"))
    assert outcome.watcher.committed, "nothing became live"
    machine = Machine.look(tmp_path)
    assert "Everything held" in page(outcome, machine)
    sys.stdout.write(document(outcome, machine).decode()[:4000])
