"""OpenLineage events: one of a run becomes one event of it, with its inputs as parents and its outputs as children.

The run is a FlowFile whose uuid is the run id. A dataset is a FlowFile whose uuid is made from its namespace and
name, and its version where the version facet names one; so what one run writes and another reads is one node of the
lineage. Outputs count as made once a run completes or says so while it runs; a run that starts, fails or is aborted
has no children. Where an event names datasets on one side only, the run itself takes the other, since a run may
name its inputs when it starts and its outputs when it completes. The whole event is kept in `Event.extra`.

An event about a dataset alone becomes one of its FlowFile: that it was made, dropped or changed, or that it was renamed
from another one, which is then its parent. An event about a job alone becomes one of a FlowFile whose uuid is made from
the job's namespace and name, without parents and children: it says what runs of the job would read and write.

An event is known by the digest of its canonical JSON: the same event sent again is a repetition, and any difference
makes it another observation. Events that an older custody stored are known by job, run, type and time
(`former_ordinal`), and are repetitions if their JSON is the same.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TypedDict

import msgspec

from custody.capture.canonical_json import decoded_with_digest
from custody.capture.validate import Context
from custody.capture.values import Document, integer, mapping, mappings, parse_iso, require, text
from custody.errors import InvalidInputError
from custody.format.identifiers import digest_ordinal, uuid_of_name
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
_USUAL_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_LIFECYCLES = {"CREATE": EventType.CREATE, "DROP": EventType.DROP}
"""Changes of a dataset that are no mere change of attributes."""
DATASET = "DATASET"
JOB = "JOB"
"""In `openlineage.event_type`, of events that are about a dataset or a job alone."""
FAILED_STATES = frozenset(["FAIL", "ABORT"])
"""In `openlineage.event_type`, of the end of a run that did not do its work."""
_MAKES_OUTPUTS = {"RUNNING", "OTHER", "COMPLETE"}


def read_element(raw: bytes, _: Context) -> Sequence[Event]:
    """Return the one event of an event about a run, a dataset or a job.

    Raises:
        InvalidInputError: a key is missing or a value is of the wrong type.
    """
    document, digest = decoded_with_digest(raw)
    # Put together as text: decoding and encoding would change numbers.
    extra = f'{{"openlineage":{msgspec.json.format(raw, indent=-1).decode()}}}'
    if "run" not in document and "dataset" in document:
        return (_dataset_event(document, extra, digest),)
    if "run" not in document and "job" in document:
        return (_job_event(document, extra, digest),)
    require(document, "eventTime", "run", "job")
    return (_run_event(document, extra, digest),)


def former_ordinal(event: Event) -> int | None:
    """Return the ordinal that an older custody gave the same run event; None for an event that it did not take.

    None also for events of other formats, whose ordinals did not change.
    """
    if event.source_format != SOURCE_FORMAT:
        return None
    attributes = event.updated_attributes
    namespace, name = attributes.get("openlineage.job.namespace"), attributes.get("openlineage.job.name")
    run_id, kind = attributes.get("openlineage.run_id"), attributes.get("openlineage.event_type")
    if run_id is None or event.source_event_id is None:
        return None
    said = event.source_event_id.removeprefix(f"{run_id}/{kind}/")
    # These parts make ordinals that are stored: never change them, nor their order.
    return digest_ordinal(["openlineage", namespace, name, run_id, kind, said], event.event_time)


# Datasets are named again and again, by all runs that read or write them.
@lru_cache(maxsize=1 << 13)
def dataset_uuid(namespace: str, name: str, version: str | None = None) -> str:
    """Return the FlowFile uuid of a dataset, or of one version of it."""
    return uuid_of_name("dataset", namespace, name, *([] if version is None else [version]))


def run_uuid(run_id: str) -> str:
    """Return the FlowFile uuid of a run."""
    if _USUAL_UUID.fullmatch(run_id):
        return run_id
    try:
        return str(uuid.UUID(run_id))
    except ValueError:
        return uuid_of_name("run", run_id)


def kind_said(event: Event) -> str | None:
    """Return what an event is about: a run's state such as `START`, DATASET or JOB; None where it does not say so.

    It is an attribute, and part of the id at the source for whom that attribute is masked.
    """
    if event.source_format != SOURCE_FORMAT:
        return None
    said = event.updated_attributes.get("openlineage.event_type")
    if said in _TYPES or said in (DATASET, JOB):
        return said
    parts = (event.source_event_id or "").split("/")
    if parts[0] in (DATASET, JOB):
        return parts[0]
    return parts[-2] if len(parts) > 2 and parts[-2] in _TYPES else None


class DatasetName(msgspec.Struct, frozen=True):
    """A dataset, or one version of it."""

    namespace: str
    name: str
    version: str | None = None

    @property
    def uuid(self) -> str:
        """The FlowFile uuid."""
        return dataset_uuid(self.namespace, self.name, self.version)


class _Identifier(msgspec.Struct):
    namespace: str
    name: str


class _Version(msgspec.Struct):
    label: str | None = msgspec.field(default=None, name="datasetVersion")


class _Change(msgspec.Struct):
    former: _Identifier | None = msgspec.field(default=None, name="previousIdentifier")


class _NamingFacets(msgspec.Struct):
    version: _Version | None = None
    change: _Change | None = msgspec.field(default=None, name="lifecycleStateChange")


class _Named(msgspec.Struct):
    namespace: str
    name: str
    facets: _NamingFacets | None = None


class _Naming(msgspec.Struct):
    dataset: _Named | None = None
    inputs: list[_Named] | None = None
    outputs: list[_Named] | None = None


class _Kept(msgspec.Struct):
    openlineage: _Naming


_KEPT = msgspec.json.Decoder(_Kept)


def datasets_named(event: Event) -> list[DatasetName]:
    """Return the datasets that a stored event names, such as inputs and outputs of its run; none where it cannot say.

    It reads `extra`, where a mask may have put other texts: a masked name gives another uuid, which nothing has.
    """
    if event.source_format != SOURCE_FORMAT or event.extra is None:
        return []
    try:
        kept = _KEPT.decode(event.extra).openlineage
    except msgspec.MsgspecError:
        return []
    named = [*([kept.dataset] if kept.dataset else ()), *(kept.inputs or ()), *(kept.outputs or ())]
    names = []
    for one in named:
        version = one.facets.version.label if one.facets and one.facets.version else None
        names.append(DatasetName(one.namespace, one.name, version or None))
        if one.facets and one.facets.change and one.facets.change.former:
            names.append(DatasetName(one.facets.change.former.namespace, one.facets.change.former.name))
    return names


def _run_event(document: Document, extra: str, digest: str) -> Event:
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
    own_uuid = run_uuid(run_id)
    inputs = [_dataset(item) for item in mappings("inputs", document.get("inputs") or [])]
    outputs = [_dataset(item) for item in mappings("outputs", document.get("outputs") or [])]
    parents, children = _relatives(own_uuid, inputs, outputs if kind in _MAKES_OUTPUTS else [])
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
        flowfile_uuid=own_uuid,
        file_size=_output_size(document) if kind in _MAKES_OUTPUTS else 0,
        details=_details(kind, facets),
        parent_uuids=parents,
        child_uuids=children,
        updated_attributes=attributes,
        platform="openlineage",
        source_format=SOURCE_FORMAT,
        source_node=f"openlineage:{namespace}",
        source_ordinal=_ordinal(digest, time),
        source_event_id=f"{run_id}/{kind}/{said}",
        extra=extra,
    )


def _dataset_event(document: Document, extra: str, digest: str) -> Event:
    """Return the event of what happened to a dataset outside of a run."""
    require(document, "eventTime", "dataset")
    dataset = mapping("dataset", document["dataset"])
    uuid_, name = _dataset(dataset)
    namespace = text("dataset.namespace", dataset["namespace"])
    change = _facets(dataset, "dataset.facets").get("lifecycleStateChange")
    lifecycle = change.get("lifecycleStateChange") if isinstance(change, dict) else None
    former = _former_name(change)
    event_type = _LIFECYCLES.get(str(lifecycle), EventType.ATTRIBUTES_MODIFIED)
    attributes: dict[str, str | None] = {
        "openlineage.event_type": DATASET,
        "openlineage.dataset.namespace": namespace,
        "openlineage.dataset.name": name,
        "filename": name,
    }
    if isinstance(lifecycle, str):
        attributes["openlineage.lifecycle"] = lifecycle
    return Event(
        event_type=EventType.CLONE if former else event_type,
        event_time=parse_iso("eventTime", text("eventTime", document["eventTime"])),
        component_id=f"{namespace}/{name}",
        component_type="OpenLineage dataset",
        component_name=name,
        flowfile_uuid=uuid_,
        file_size=0,
        details=f"Renamed from {former[1]}" if former else None,
        parent_uuids=(dataset_uuid(*former),) if former else (),
        child_uuids=(uuid_,) if former else (),
        **_common(document, attributes, namespace, extra, digest),
    )


def _job_event(document: Document, extra: str, digest: str) -> Event:
    """Return the event of what is said of a job, without a run of it."""
    require(document, "eventTime", "job")
    job = mapping("job", document["job"])
    require(job, "namespace", "name")
    namespace, name = text("job.namespace", job["namespace"]), text("job.name", job["name"])
    for key in ("inputs", "outputs"):
        for item in mappings(key, document.get(key) or []):
            _dataset(item)
    attributes: dict[str, str | None] = {
        "openlineage.event_type": JOB,
        "openlineage.job.namespace": namespace,
        "openlineage.job.name": name,
        "filename": name,
    }
    return Event(
        event_type=EventType.ATTRIBUTES_MODIFIED,
        event_time=parse_iso("eventTime", text("eventTime", document["eventTime"])),
        component_id=f"{namespace}/{name}",
        component_type=_job_type(_facets(job, "job.facets")),
        component_name=name,
        flowfile_uuid=uuid_of_name("job", namespace, name),
        file_size=0,
        **_common(document, attributes, namespace, extra, digest),
    )


class _Common(TypedDict):
    updated_attributes: dict[str, str | None]
    platform: str
    source_format: str
    source_node: str
    source_ordinal: int
    source_event_id: str
    extra: str


def _common(document: Document, attributes: dict[str, str | None], namespace: str, extra: str, digest: str) -> _Common:
    """Return the fields that events about a dataset and a job share."""
    if isinstance(producer := document.get("producer"), str):
        attributes["openlineage.producer"] = producer
    said = text("eventTime", document["eventTime"])
    return {
        "updated_attributes": attributes,
        "platform": "openlineage",
        "source_format": SOURCE_FORMAT,
        "source_node": f"openlineage:{namespace}",
        "source_ordinal": _ordinal(digest, parse_iso("eventTime", said)),
        "source_event_id": f"{attributes['openlineage.event_type']}/{attributes['filename']}/{said}",
        "extra": extra,
    }


def _ordinal(digest: str, time: int) -> int:
    # These parts make ordinals that are stored: never change them, nor their order.
    return digest_ordinal(["openlineage-event", digest], time)


def _former_name(change: object) -> tuple[str, str] | None:
    """Return namespace and name that a dataset had before it was renamed."""
    match change:
        case {
            "lifecycleStateChange": "RENAME",
            "previousIdentifier": {"namespace": str(namespace), "name": str(name)},
        }:
            return namespace, name
    return None


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
    # Nearly every event is asked: patterns of `match` take four times as long.
    parent = facets.get("parent")
    if not isinstance(parent, dict):
        return None
    job, run = parent.get("job"), parent.get("run")
    if not isinstance(job, dict) or not isinstance(run, dict):
        return None
    namespace, name, run_id = job.get("namespace"), job.get("name"), run.get("runId")
    if isinstance(namespace, str) and isinstance(name, str) and isinstance(run_id, str):
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
            case {"outputStatistics": {"size": int() as size}}:
                yield max(0, integer("outputStatistics.size", size))
            case {"outputStatistics": {"size": msgspec.Raw() as size}}:  # with a point
                yield max(0, integer("outputStatistics.size", msgspec.json.decode(size)))
