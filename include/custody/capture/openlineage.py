"""OpenLineage run events: each becomes one event of the run, with its inputs as parents and its outputs as children.

The run is a FlowFile whose uuid is the run id. A dataset is a FlowFile whose uuid is made from its namespace and
name, and its version where the version facet names one; so what one run writes and another reads is one node of the
lineage. Outputs count as made once a run completes or says so while it runs; a run that starts, fails or is aborted
has no children. Where an event names datasets on one side only, the run itself takes the other, since a run may
name its inputs when it starts and its outputs when it completes. The whole event is kept in `Event.extra`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence

import msgspec

from custody.capture.identity import digest_ordinal, uuid_of_name
from custody.capture.validate import Context
from custody.capture.values import Document, integer, mapping, mappings, parse_iso, require, text
from custody.errors import InvalidInputError
from custody.model import Event, EventType

SOURCE_FORMAT = "openlineage"
KEYS = frozenset(["run", "job", "dataset", "producer", "schemaURL", "inputs", "outputs", "eventTime", "eventType"])
"""Keys that tell this format from others."""

_TYPES = {
    "START": EventType.CREATE,
    "RUNNING": EventType.ATTRIBUTES_MODIFIED,
    "OTHER": EventType.ATTRIBUTES_MODIFIED,
    "COMPLETE": EventType.JOIN,
    "FAIL": EventType.DROP,
    "ABORT": EventType.DROP,
}
_MAKES_OUTPUTS = {"RUNNING", "OTHER", "COMPLETE"}


def read_element(raw: bytes, _: Context) -> Sequence[Event]:
    """Return the one event of a run event.

    Raises:
        InvalidInputError: it is a dataset or job event, a key is missing or a value is of the wrong type.
    """
    document = msgspec.json.decode(raw)
    if "run" not in document and ("dataset" in document or "job" in document):
        raise InvalidInputError("run: expected a run event, got one about a dataset or a job alone")
    require(document, "eventTime", "run", "job")
    return (_event(document, msgspec.json.format(raw, indent=-1).decode()),)


def dataset_uuid(namespace: str, name: str, version: str | None = None) -> str:
    """Return the FlowFile uuid of a dataset, or of one version of it."""
    return uuid_of_name("dataset", namespace, name, *([] if version is None else [version]))


def _event(document: Document, compact: str) -> Event:
    job, run = mapping("job", document["job"]), mapping("run", document["run"])
    require(job, "namespace", "name")
    require(run, "runId")
    namespace, name = text("job.namespace", job["namespace"]), text("job.name", job["name"])
    run_id = text("run.runId", run["runId"])
    kind = text("eventType", document.get("eventType") or "OTHER").upper()
    if kind not in _TYPES:
        raise InvalidInputError(f"eventType: expected one of {', '.join(_TYPES)}, got {kind[:40]!r}")
    said = text("eventTime", document["eventTime"])
    time = parse_iso("eventTime", said)
    run_uuid = _run_uuid(run_id)
    inputs = [_dataset(item) for item in mappings("inputs", document.get("inputs") or [])]
    outputs = [_dataset(item) for item in mappings("outputs", document.get("outputs") or [])]
    parents, children = _relatives(run_uuid, inputs, outputs if kind in _MAKES_OUTPUTS else [])
    event_type = _TYPES[kind]
    if event_type is EventType.JOIN and not (parents or children):
        event_type = EventType.DROP  # the run has ended, no data were named
    attributes: dict[str, str | None] = {
        "openlineage.event_type": kind,
        "openlineage.job.namespace": namespace,
        "openlineage.job.name": name,
        "openlineage.run_id": run_id,
    }
    if isinstance(producer := document.get("producer"), str):
        attributes["openlineage.producer"] = producer
    facets = _facets(run, "run.facets")
    parent = _parent(facets)
    if parent is not None:
        attributes["openlineage.parent.run_id"] = parent[2]
    if outputs or inputs:
        attributes["filename"] = (outputs or inputs)[0][1]
    return Event(
        event_type=event_type,
        event_time=time,
        component_id=f"{namespace}/{name}",
        component_type=_job_type(_facets(job, "job.facets")),
        component_name=name,
        process_group_id=None if parent is None else f"{parent[0]}/{parent[1]}",
        process_group_name=None if parent is None else parent[1],
        flowfile_uuid=run_uuid,
        file_size=_output_size(document) if kind in _MAKES_OUTPUTS else 0,
        details=_details(kind, facets),
        parent_uuids=parents,
        child_uuids=children,
        updated_attributes=attributes,
        platform="openlineage",
        source_format=SOURCE_FORMAT,
        source_node=f"openlineage:{namespace}",
        # These parts make ordinals that are stored: never change them, nor their order.
        source_ordinal=digest_ordinal(["openlineage", namespace, name, run_id, kind, said], time),
        source_event_id=f"{run_id}/{kind}/{said}",
        # Put together as text: decoding and encoding would change numbers.
        extra=f'{{"openlineage":{compact}}}',
    )


def _run_uuid(run_id: str) -> str:
    try:
        return str(uuid.UUID(run_id))
    except ValueError:
        return uuid_of_name("run", run_id)


def _dataset(document: Document) -> tuple[str, str]:
    """Return uuid and name of a dataset."""
    require(document, "namespace", "name")
    namespace, name = text("namespace", document["namespace"]), text("name", document["name"])
    version = _facets(document, "dataset.facets").get("version")
    label = version.get("datasetVersion") if isinstance(version, dict) else None
    return dataset_uuid(namespace, name, label if isinstance(label, str) and label else None), name


def _relatives(
    run: str, inputs: list[tuple[str, str]], outputs: list[tuple[str, str]]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if not inputs and not outputs:
        return (), ()
    # Never an empty side: an edge from or to the run joins the datasets of its other events.
    parents = tuple(dict.fromkeys(uuid_ for uuid_, _ in inputs)) or (run,)
    children = tuple(dict.fromkeys(uuid_ for uuid_, _ in outputs)) or (run,)
    return parents, children


def _facets(document: Document, key: str) -> Document:
    facets = document.get("facets")
    return {} if facets is None else mapping(key, facets)


def _parent(facets: Document) -> tuple[str, str, str] | None:
    """Return job namespace, job name and run id of the run that started this one."""
    match facets.get("parent"):
        case {"job": {"namespace": str(namespace), "name": str(name)}, "run": {"runId": str(run_id)}}:
            return namespace, name, run_id
    return None


def _job_type(facets: Document) -> str:
    facet = facets.get("jobType")
    if isinstance(facet, dict):
        words = [word for key in ("integration", "jobType") if isinstance(word := facet.get(key), str) and word]
        if words:
            return " ".join(words)
    return "OpenLineage"


def _details(kind: str, facets: Document) -> str | None:
    error = facets.get("errorMessage")
    message = error.get("message") if isinstance(error, dict) else None
    if isinstance(message, str) and message:
        return message
    return {"COMPLETE": "Run completed", "FAIL": "Run failed", "ABORT": "Run aborted"}.get(kind)


def _output_size(document: Document) -> int:
    """Return the bytes that the run wrote, as far as the outputs' statistics say."""
    return sum(_sizes(mappings("outputs", document.get("outputs") or [])))


def _sizes(outputs: Sequence[Document]) -> Iterator[int]:
    for output in outputs:
        match output.get("outputFacets"):
            case {"outputStatistics": {"size": int() | float() as size}}:
                yield max(0, integer("outputStatistics.size", size))
