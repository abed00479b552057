"""OpenLineage run events: the one form in which custody writes events as runs, https://openlineage.io/spec 2-0-2."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

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


def run_event(
    reference: str,
    time_ms: int,
    job: str,
    facet: Mapping[str, object],
    inputs: Iterable[Dataset],
    outputs: Iterable[Dataset],
) -> dict[str, object]:
    """Return an event as a finished run; the same `reference` always gives the same run id.

    `facet` becomes the facet `custody_event` of the run, without what is None.
    """
    moment = _EPOCH + timedelta(milliseconds=time_ms)
    head = {"_producer": _PRODUCER, "_schemaURL": _FACET_SCHEMA}
    present = {name: value for name, value in facet.items() if value is not None}
    return {
        "eventType": "COMPLETE",
        "eventTime": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "producer": _PRODUCER,
        "schemaURL": _SCHEMA,
        "run": {"runId": uuid_of_name("run", reference), "facets": {"custody_event": {**head, **present}}},
        "job": {"namespace": NAMESPACE, "name": job},
        "inputs": [_document(item) for item in inputs],
        "outputs": [_document(item) for item in outputs],
    }


def _document(dataset: Dataset) -> dict[str, object]:
    document: dict[str, object] = {"namespace": dataset.namespace, "name": dataset.name}
    if dataset.version is not None:
        version = {"_producer": _PRODUCER, "_schemaURL": _VERSION_SCHEMA, "datasetVersion": dataset.version}
        document["facets"] = {"version": version}
    return document
