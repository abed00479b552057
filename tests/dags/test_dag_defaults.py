"""Defaults of all DAGs: documented, owned, retried, bounded, Spark in its pool, no `ds` in a template."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from custody.errors import ConfigurationError

# Airflow's own warnings are not this project's errors.
pytestmark = pytest.mark.filterwarnings("default")

DAGS = Path(__file__).resolve().parents[2] / "dags"
NAMES = sorted(path.stem for path in DAGS.glob("*.py"))
ONE_PASS_AT_A_TIME = {
    "provenance_rollover",
    "provenance_retention",
    "provenance_maintenance",
    "provenance_replay",
    "provenance_export",
    "provenance_runs",
    "swh_provenance",
    "ngsi_to_hdfs",
    "web_crawler",
}
DAYS_MAX = {"swh_provenance": 7}
SCREEN_LINES = 70
# Undefined in a run that was triggered by hand or by an asset.
NOT_IN_EVERY_RUN = re.compile(r"\b(ds|ds_nodash|ts|ts_nodash|logical_date|execution_date|prev_\w+|next_\w+)\b")
GUARDED = re.compile(r"data_interval_(start|end) if data_interval_\1 is defined")


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """Returns all DAGs as they are under an environment."""
    os.environ.setdefault("AIRFLOW_HOME", str(tmp_path))
    from airflow.dag_processing.dagbag import DagBag

    def loaded(**environment: str) -> dict[str, Any]:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        bag = DagBag(DAGS)
        assert bag.import_errors == {}
        assert sorted(bag.dags) == NAMES
        dags: dict[str, Any] = bag.dags
        return dags

    return loaded


@pytest.fixture
def dags(load: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    return load()


@pytest.mark.parametrize("name", NAMES)
def test_a_dag_is_a_screen_of_declarations(name: str) -> None:
    tree = ast.parse((DAGS / f"{name}.py").read_text(encoding="utf-8"))
    first = tree.body[1].lineno
    last = tree.body[-1].end_lineno
    assert last is not None
    assert last - first < SCREEN_LINES
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    assert all(len(function.body) == 1 for function in functions), "logic belongs to plugins/ or include/"


@pytest.mark.parametrize("name", NAMES)
def test_every_dag_says_who_owns_it_and_how_long_and_how_often_it_tries(name: str, dags: dict[str, Any]) -> None:
    dag = dags[name]
    assert f"# {name.replace('_', ' ').capitalize()}" in dag.doc_md
    assert dag.description
    assert {"custody", "provenance"} <= set(dag.tags)
    assert timedelta(hours=1) <= dag.dagrun_timeout <= timedelta(days=DAYS_MAX.get(name, 1))
    assert (dag.max_active_runs == 1) == (name in ONE_PASS_AT_A_TIME)
    assert dag.start_date is not None
    for task in dag.tasks:
        assert (task.owner, task.weight_rule) == ("custody", "absolute")
        assert task.retries >= 2
        assert task.retry_delay >= timedelta(seconds=30)
        assert timedelta(0) < task.execution_timeout <= dag.dagrun_timeout
        assert [hook.__name__ for hook in (*task.on_failure_callback, *task.on_retry_callback)] == ["say_error"] * 2


def test_why_a_task_failed_is_a_line_of_its_log(caplog: pytest.LogCaptureFixture) -> None:
    from custody_airflow.dag_defaults import say_error

    say_error({"exception": ConfigurationError("CUSTODY_REPOSITORY: expected a folder, found nothing.")})
    say_error({})
    assert caplog.messages == ["ConfigurationError: CUSTODY_REPOSITORY: expected a folder, found nothing."]


def test_when_the_pool_is_full_the_rollover_goes_first_and_the_maintenance_last(dags: dict[str, Any]) -> None:
    weights = {name: {task.priority_weight for task in dag.tasks} for name, dag in dags.items()}
    assert all(len(found) == 1 for found in weights.values())
    order = sorted(weights, key=lambda name: -max(weights[name]))
    assert order[0] == "provenance_rollover"
    assert order[-1] == "provenance_maintenance"


@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_has_a_type_a_title_and_a_default_that_fits(name: str, dags: dict[str, Any]) -> None:
    params = dags[name].params
    assert len(params) >= 2
    for key in params:
        param = params.get_param(key)
        assert param.schema["type"]
        assert param.schema["title"]
        if key != "graph":  # what the form asks for has no default
            param.resolve()


@pytest.mark.parametrize("name", NAMES)
def test_templates_use_nothing_that_a_run_by_hand_or_by_an_asset_lacks(name: str, dags: dict[str, Any]) -> None:
    templates = [
        (task.task_id, text)
        for task in dags[name].tasks
        for field in task.template_fields
        for text in _texts(getattr(task, field, None))
        if "{{" in text
    ]
    assert templates
    for task_id, text in templates:
        assert not NOT_IN_EVERY_RUN.search(GUARDED.sub("", text)), (task_id, text)
        assert "data_interval" not in GUARDED.sub("", text).replace("and data_interval_start", "").replace(
            "and data_interval_end", ""
        ), (task_id, text)


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    return [text for part in value for text in _texts(part)] if isinstance(value, (list, tuple)) else []


def test_spark_tasks_are_in_the_pool_that_the_deployment_names_and_nothing_else_is(
    load: Callable[..., dict[str, Any]],
) -> None:
    from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

    for pool in ("custody_spark", ""):
        found = {
            (isinstance(task, SparkSubmitOperator), task.pool)
            for dag in load(CUSTODY_SPARK_POOL=pool).values()
            for task in dag.tasks
        }
        assert found == {(True, pool or "default_pool"), (False, "default_pool")}


def test_the_rollover_starts_by_its_schedule_by_its_journals_or_by_both(
    load: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    def timetable(**environment: str) -> Any:
        repository = str(tmp_path / "my repository")
        return load(CUSTODY_REPOSITORY=repository, **environment)["provenance_rollover"].timetable

    assert timetable().expression == "* * * * *"
    both = timetable(CUSTODY_ROLLOVER_WATCH="2")
    assert both.timetable.expression == "* * * * *"
    alone = timetable(CUSTODY_ROLLOVER_SCHEDULE="")
    for found in (both, alone):
        [asset] = found.asset_condition.objects
        assert (asset.name, asset.uri) == ("provenance_journals", "custody://provenance/journals")
        [watcher] = asset.watchers
        assert watcher.trigger.serialize() == (
            "custody_airflow.watch.JournalWatch",
            {"repository": str(tmp_path / "my repository"), "poke_seconds": 2.0, "again_seconds": 900.0},
        )


@pytest.mark.parametrize("value", ["soon", "0", "-1", "nan", "inf"])
def test_a_watch_that_is_no_time_is_refused_with_the_variable(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from custody_airflow.environment import rollover_watch

    monkeypatch.setenv("CUSTODY_ROLLOVER_WATCH", value)
    with pytest.raises(ConfigurationError, match=f"CUSTODY_ROLLOVER_WATCH.*'{value}'"):
        rollover_watch()


def test_assets_are_the_same_whatever_the_repository_is_called(
    load: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    """Airflow keeps one URI a name for good: an asset that changed one of the two would never become active."""

    def assets(name: str) -> list[tuple[str, str]]:
        dags = load(CUSTODY_REPOSITORY=str(tmp_path / name), CUSTODY_ROLLOVER_WATCH="1")
        watched = dags["provenance_rollover"].timetable.asset_condition.objects
        followed = dags["ngsi_to_hdfs"].timetable.asset_condition.objects
        return [(asset.name, asset.uri) for asset in (*watched, *followed)]

    assert len(assets("repository")) == 2
    assert assets("repository") == assets("another one")


def test_the_task_commit_names_the_asset_of_the_commits_but_an_event_needs_a_commit(dags: dict[str, Any]) -> None:
    commit = dags["provenance_rollover"].get_task("commit")
    assert [(type(outlet).__name__, outlet.name) for outlet in commit.outlets] == [
        ("AssetAlias", "provenance_commits_of_a_run")
    ]
    assert [(asset.name, asset.uri) for asset in commit.inlets] == [
        ("provenance_commits", "custody://provenance/commits")
    ]
