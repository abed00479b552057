"""The web crawler as a DAG: its tasks are the steps of the library, and a run crawls the whole site."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from custody.examples.web_crawler import STEPS

# Airflow's own warnings are not this project's errors.
pytestmark = pytest.mark.filterwarnings("default")


def test_every_step_is_a_task_and_the_archive_comes_after_the_last_round(load_dag: Callable[..., Any]) -> None:
    dag = load_dag("web_crawler")
    names = [task.task_id for task in dag.topological_sort()]
    in_a_round = [step.task_id for step in STEPS[1:-3]]
    archive = [step.task_id for step in STEPS[-3:]]
    assert names == [
        "get_http",
        *(f"round_{number}.{name}" for number in (1, 2, 3) for name in in_a_round),
        *archive,
    ]
    for first, second in pairwise(names):
        assert dag.get_task(first).downstream_task_ids == {second}
    for step in STEPS:
        assert f"`{step.task_id}`" in dag.doc_md
        tasks = [task for task in dag.tasks if task.task_id.rpartition(".")[2] == step.task_id]
        assert {task.step for task in tasks} == {step.name}
