"""What nodes of a lineage are: runs, jobs and datasets by what stored events tell, through masks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import msgspec
import pytest

from custody.airflow_runs.run_events import RunFacts, asset_uuid, end_events, start_events
from custody.capture import dataset_uuid
from custody.lineage import Identity, Lineage, NodeKind, identities, trace
from custody.model import AttributeMask, Event
from tests.support import event
from tests.unit.capture.sample_inputs import run_event
from tests.unit.lineage.pipeline import (
    CLEAN,
    CLEAN_UUID,
    CLEANING,
    RAW,
    RAW_UUID,
    REPORT,
    REPORT_UUID,
    REPORTING,
    named,
    pipeline,
    taken_in,
)


def lineage_of(events: Sequence[Event], *starts: str) -> Lineage:
    numbered = [msgspec.structs.replace(one, event_id=number) for number, one in enumerate(events)]

    def lookup(uuids: Sequence[str], most: int) -> list[tuple[str, Event]]:
        wanted = set(uuids)
        found = [one for one in numbered if wanted & {one.flowfile_uuid, *one.parent_uuids, *one.child_uuids}]
        return [("main", one) for one in found][:most]

    return trace(lookup, starts, 1000)


def test_a_pipeline_is_datasets_with_runs_between_them() -> None:
    lineage = lineage_of(pipeline(), REPORT_UUID)
    told = {uuid: (node.kind, node.namespace, node.name) for uuid, node in lineage.nodes.items()}
    assert told == {
        RAW_UUID: (NodeKind.DATASET, *RAW),
        CLEANING: (NodeKind.RUN, "shop", "clean orders"),
        CLEAN_UUID: (NodeKind.DATASET, *CLEAN),
        REPORTING: (NodeKind.RUN, "shop", "report"),
        REPORT_UUID: (NodeKind.DATASET, *REPORT),
    }
    way = [RAW_UUID, CLEANING, CLEAN_UUID, REPORTING, REPORT_UUID]
    assert [lineage.nodes[one].children for one in way] == [(one,) for one in way[1:]] + [()]
    assert [lineage.nodes[one].label for one in way][:2] == ["s3://lake/raw/orders", "shop/clean orders"]


def test_a_flowfile_of_a_flow_stays_one_whatever_its_component_is_called() -> None:
    lineage = lineage_of([event(0, flowfile_uuid="f", component_type="OpenLineage dataset")], "f")
    assert (lineage.nodes["f"].kind, lineage.nodes["f"].name) == (NodeKind.FLOWFILE, None)


def test_versions_renamed_datasets_and_jobs_have_their_names() -> None:
    time = {"eventTime": "2026-03-04T05:06:07Z", "producer": "p", "schemaURL": "s"}
    former = {"previousIdentifier": named(CLEAN), "lifecycleStateChange": "RENAME"}
    events = taken_in(
        run_event(inputs=[{**named(RAW), "facets": {"version": {"datasetVersion": "7"}}}], outputs=[named(CLEAN)]),
        {**time, "dataset": {**named(REPORT), "facets": {"lifecycleStateChange": former}}},
        {**time, "job": {"namespace": "shop", "name": "clean orders"}},
    )
    found = identities(events)
    assert found[dataset_uuid(*RAW, "7")].label == "s3://lake/raw/orders@7"
    assert found[events[2].flowfile_uuid] == Identity(kind=NodeKind.JOB, namespace="shop", name="clean orders")
    alone = identities(events[1:2])
    assert {alone[uuid].label for uuid in (CLEAN_UUID, REPORT_UUID)} == {"/".join(CLEAN), "/".join(REPORT)}


@pytest.mark.parametrize("extra", [None, '{"openlineage":"***"}', '{"openlineage":{"inputs":[{"name":1}]}}', "no JSON"])
def test_an_event_that_cannot_say_more_still_says_that_it_is_of_a_run(extra: str | None) -> None:
    events = [msgspec.structs.replace(one, extra=extra) for one in pipeline()]
    lineage = lineage_of(events, CLEANING)
    assert lineage.nodes[CLEANING].kind == NodeKind.RUN
    assert lineage.nodes[RAW_UUID].kind == NodeKind.UNKNOWN
    assert lineage.nodes[RAW_UUID].name is None


@pytest.mark.parametrize(
    ("pattern", "hidden"),
    [
        ("openlineage.job.name", {CLEANING, REPORTING}),
        ("openlineage.job.namespace", {CLEANING, REPORTING}),
        ("filename", {RAW_UUID, CLEAN_UUID, REPORT_UUID}),
        ("openlineage.*", {CLEANING, REPORTING}),
    ],
)
def test_a_masked_name_is_not_told_and_what_it_is_stays(pattern: str, hidden: set[str]) -> None:
    mask = AttributeMask([pattern])
    lineage = lineage_of([mask.event(one) for one in pipeline()], CLEAN_UUID)
    assert {uuid for uuid, node in lineage.nodes.items() if node.name is None and node.namespace is None} == hidden
    kinds = [lineage.nodes[uuid].kind for uuid in (RAW_UUID, CLEANING, CLEAN_UUID)]
    assert kinds == [NodeKind.DATASET, NodeKind.RUN, NodeKind.DATASET]
    assert lineage.nodes[next(iter(hidden))].label is None


def test_a_mask_of_keys_in_what_was_sent_leaves_a_dataset_unknown() -> None:
    mask = AttributeMask(["name"])
    lineage = lineage_of([mask.event(one) for one in pipeline()], CLEAN_UUID)
    # One that an event made is known as a FlowFile, as before.
    assert [lineage.nodes[uuid].kind for uuid in (RAW_UUID, CLEAN_UUID)] == [NodeKind.UNKNOWN, NodeKind.FLOWFILE]
    assert not any(lineage.nodes[uuid].name for uuid in (RAW_UUID, CLEAN_UUID, REPORT_UUID))


def test_runs_of_airflow_are_runs_and_their_assets_datasets() -> None:
    moment = datetime(2026, 3, 1, tzinfo=UTC)
    facts = RunFacts(
        deployment="here", dag_id="d", run_id="r", run_after=moment, start=moment, end=moment, state="success"
    )
    task = replace(facts, task_id="t", inlets=["s3://in"], outlets=["s3://out"])
    told = [one for each in (facts, task) for one in (*start_events(each), *end_events(each))]
    found = identities([msgspec.convert(one, Event) for one in told])
    assert found[asset_uuid("s3://out")] == Identity(kind=NodeKind.DATASET, name="s3://out")
    assert found[asset_uuid("s3://in")] == Identity(kind=NodeKind.DATASET), "nobody told its address"
    runs = {one.label for one in found.values() if one.kind == NodeKind.RUN}
    assert runs == {"airflow/here/d", "airflow/here/d.t"}
