"""OpenLineage run events: the one form in which custody writes events as runs, https://openlineage.io/spec 2-0-2."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from custody.format.identifiers import uuid_of_name

_PRODUCER = "https://pypi.org/project/custody"
_SCHEMA = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
_FACET_SCHEMA = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunFacet"
_VERSION_SCHEMA = (
    "https://openlineage.io/spec/facets/1-0-1/DatasetVersionDatasetFacet.json#/$defs/DatasetVersionDatasetFacet"
)
NAMESPACE = "custody"
"""Of jobs and of FlowFiles."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Dataset:
    """A dataset; a FlowFile is one, named by its uuid."""

    name: str
    namespace: str = NAMESPACE
    version: str | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """A job, whose runs an event tells of."""

    name: str
    namespace: str = NAMESPACE


class RunState(StrEnum):
    """How far a run has come."""

    START = "START"
    RUNNING = "RUNNING"
    COMPLETE = "COMPLETE"
    FAIL = "FAIL"


def run_event(
    reference: str,
    time_ms: int,
    job: Job,
    facet: Mapping[str, object],
    inputs: Iterable[Dataset],
    outputs: Iterable[Dataset],
    *,
    run_id: str | None = None,
    state: RunState = RunState.COMPLETE,
) -> dict[str, object]:
    """Return an event as one of a run: a finished one of its own, where it names none.

    The same `reference` always gives the same run id. `facet` becomes the facet `custody_event` of the run, without
    what is None.
    """
    moment = _EPOCH + timedelta(milliseconds=time_ms)
    head = {"_producer": _PRODUCER, "_schemaURL": _FACET_SCHEMA}
    present = {name: value for name, value in facet.items() if value is not None}
    return {
        "eventType": state.value,
        "eventTime": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "producer": _PRODUCER,
        "schemaURL": _SCHEMA,
        "run": {"runId": run_id or uuid_of_name("run", reference), "facets": {"custody_event": {**head, **present}}},
        "job": {"namespace": job.namespace, "name": job.name},
        "inputs": [_document(item) for item in inputs],
        "outputs": [_document(item) for item in outputs],
    }


def _document(dataset: Dataset) -> dict[str, object]:
    document: dict[str, object] = {"namespace": dataset.namespace, "name": dataset.name}
    if dataset.version is not None:
        version = {"_producer": _PRODUCER, "_schemaURL": _VERSION_SCHEMA, "datasetVersion": dataset.version}
        document["facets"] = {"version": version}
    return document
