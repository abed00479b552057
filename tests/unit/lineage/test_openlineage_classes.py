"""The OpenLineage export beside OpenLineage's own classes, which are made from its JSON schema and check values."""

from __future__ import annotations

import json
from typing import Any

import pytest
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent
from openlineage.client.generated.base import EventType, RunFacet
from openlineage.client.serde import Serde

from custody.lineage import ExportFormat, export
from tests.unit.lineage.test_exports import NASTY, diagram_of, lineage_of, story


def in_their_classes(document: dict[str, Any]) -> RunEvent:
    """The event as an object of theirs; a key that they do not know, or one that is missing, is a TypeError."""
    values = dict(document)
    assert values.pop("schemaURL") == RunEvent._get_schema()
    run = dict(values.pop("run"))
    facets = {name: facet_of(facet) for name, facet in run.pop("facets").items()}
    return RunEvent(
        run=Run(**run, facets=facets),
        job=Job(**values.pop("job")),
        eventType=EventType(values.pop("eventType")),
        inputs=[InputDataset(**one) for one in values.pop("inputs")],
        outputs=[OutputDataset(**one) for one in values.pop("outputs")],
        **values,
    )


def facet_of(document: dict[str, Any]) -> RunFacet:
    values = dict(document)
    assert values.pop("_schemaURL") == RunFacet._get_schema()
    facet = RunFacet(producer=values.pop("_producer"))
    assert not any(name.startswith("_") for name in values), "these names are OpenLineage's"
    extended = facet.with_additional_properties(**values)
    assert isinstance(extended, RunFacet)
    return extended


def without_nothing(value: Any) -> Any:
    """The same without empty facets, which their classes write and leave out in other places."""
    if isinstance(value, dict):
        kept = {name: without_nothing(one) for name, one in value.items()}
        return {name: one for name, one in kept.items() if not (name.lower().endswith("facets") and not one)}
    return [without_nothing(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", ["a.txt", NASTY])
def test_each_run_event_is_what_their_classes_write(name: str) -> None:
    lines = export(diagram_of(lineage_of(story(name))), ExportFormat.OPENLINEAGE).splitlines()
    assert len(lines) == len(story())
    for line in lines:
        document = json.loads(line)
        assert without_nothing(json.loads(Serde.to_json(in_their_classes(document)))) == document


@pytest.mark.parametrize(
    "damage",
    [{"run": {"runId": "no uuid", "facets": {}}}, {"eventTime": "yesterday"}, {"eventType": "DONE"}, {"job": {}}],
)
def test_their_classes_refuse_what_is_not_openlineage(damage: dict[str, Any]) -> None:
    line = export(diagram_of(lineage_of(story())), ExportFormat.OPENLINEAGE).splitlines()[0]
    with pytest.raises((ValueError, TypeError)):
        in_their_classes({**json.loads(line), **damage})
