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
from collections.abc import Sequence
from functools import lru_cache
from typing import Annotated, NamedTuple, TypedDict

import msgspec

from custody.capture.canonical_json import decoded_with_digest
from custody.capture.validate import Context
from custody.capture.values import Document, integer, mapping, mappings, parse_iso, require, text
from custody.errors import InvalidInputError
from custody.format.identifiers import digest_ordinal, uuid_of_name
from custody.made_types import made_at_import
from custody.model import Event, EventType

SOURCE_FORMAT = PLATFORM = "openlineage"
SOURCE_PREFIX = "openlineage:"
"""Before the namespace of a job or a dataset, the name of a source."""
KIND = "openlineage.event_type"
JOB_NAMESPACE, JOB_NAME = "openlineage.job.namespace", "openlineage.job.name"
RUN_ID, PARENT_RUN_ID = "openlineage.run_id", "openlineage.parent.run_id"
PRODUCER = "openlineage.producer"
FILENAME = "filename"
"""Names of attributes; those of a run's event are in the order of `RUN_ATTRIBUTES`."""
RUN_ATTRIBUTES = (KIND, JOB_NAMESPACE, JOB_NAME, RUN_ID, PRODUCER, PARENT_RUN_ID, FILENAME)
ORDINAL_NAME, FORMER_ORDINAL_NAME = "openlineage-event", "openlineage"
"""What the names of ordinals begin with. They are stored: never change them."""
KEPT_BEFORE, KEPT_AFTER = '{"openlineage":', "}"
"""Around the text of an event, in `extra`."""
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
USUAL_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_LIFECYCLES = {"CREATE": EventType.CREATE, "DROP": EventType.DROP}
"""Changes of a dataset that are no mere change of attributes."""
DATASET = "DATASET"
JOB = "JOB"
"""In `openlineage.event_type`, of events that are about a dataset or a job alone."""
FAILED_STATES = frozenset(["FAIL", "ABORT"])
"""In `openlineage.event_type`, of the end of a run that did not do its work."""
MAKES_OUTPUTS = {"RUNNING", "OTHER", "COMPLETE"}
_SIZE_MAX = 1 << 53


def read_element(raw: bytes, _: Context) -> Sequence[Event]:
    """Return the one event of an event about a run, a dataset or a job.

    Raises:
        InvalidInputError: a key is missing or a value is of the wrong type.
    """
    document, digest = decoded_with_digest(raw)
    extra = kept_text(raw)
    if "run" not in document and "dataset" in document:
        return (_dataset_event(document, extra, digest),)
    if "run" not in document and "job" in document:
        return (_job_event(document, extra, digest),)
    require(document, "eventTime", "run", "job")
    return (_run_event(document, extra, digest),)


def kept_text(raw: bytes) -> str:
    """Return the `extra` of an event; it is put together as text, since decoding and encoding would change numbers."""
    return f"{KEPT_BEFORE}{msgspec.json.format(raw, indent=-1).decode()}{KEPT_AFTER}"


def document_of(event: Event) -> bytes | None:
    """Return the document that a stored event of OpenLineage came as, None of any other event."""
    extra = event.extra
    if event.source_format != SOURCE_FORMAT or extra is None or not extra.startswith(KEPT_BEFORE):
        return None
    return extra[len(KEPT_BEFORE) : -len(KEPT_AFTER)].encode()


def former_ordinal(event: Event) -> int | None:
    """Return the ordinal that an older custody gave the same run event; None for an event that it did not take.

    None also for events of other formats, whose ordinals did not change.
    """
    if event.source_format != SOURCE_FORMAT:
        return None
    attributes = event.updated_attributes
    namespace, name = attributes.get(JOB_NAMESPACE), attributes.get(JOB_NAME)
    run_id, kind = attributes.get(RUN_ID), attributes.get(KIND)
    if run_id is None or event.source_event_id is None:
        return None
    said = event.source_event_id.removeprefix(f"{run_id}/{kind}/")
    # These parts make ordinals that are stored: never change them, nor their order.
    return digest_ordinal([FORMER_ORDINAL_NAME, namespace, name, run_id, kind, said], event.event_time)


# Datasets are named again and again, by all runs that read or write them.
@lru_cache(maxsize=1 << 13)
def dataset_uuid(namespace: str, name: str, version: str | None = None) -> str:
    """Return the FlowFile uuid of a dataset, or of one version of it."""
    return uuid_of_name("dataset", namespace, name, *([] if version is None else [version]))


def run_uuid(run_id: str) -> str:
    """Return the FlowFile uuid of a run."""
    if USUAL_UUID.fullmatch(run_id):
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
    said = event.updated_attributes.get(KIND)
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

    @property
    def version(self) -> str | None:
        """The version where one is named; an empty one names none."""
        version = self.facets.version if self.facets else None
        return version.label or None if version else None


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
        names.append(DatasetName(one.namespace, one.name, one.version))
        if one.facets and one.facets.change and one.facets.change.former:
            names.append(DatasetName(one.facets.change.former.namespace, one.facets.change.former.name))
    return names


class _StatisticsSaid(msgspec.Struct, gc=False):
    # What is larger, or below nothing, is left to who reads the document.
    size: Annotated[int, msgspec.Meta(ge=0, le=_SIZE_MAX)] | None = None


class _OutputFacetsSaid(msgspec.Struct, gc=False):
    statistics: _StatisticsSaid | None = msgspec.field(default=None, name="outputStatistics")


class _DatasetSaid(_Named, gc=False):
    """A dataset as an event of a run names it."""

    output_facets: _OutputFacetsSaid | None = msgspec.field(default=None, name="outputFacets")

    @property
    def uuid(self) -> str:
        """The FlowFile uuid."""
        return dataset_uuid(self.namespace, self.name, self.version)

    @property
    def size(self) -> int:
        """How many bytes a run wrote to it, 0 where its statistics do not say so."""
        return self.size_said or 0

    @property
    def size_said(self) -> int | None:
        """The size in its statistics, None where there is none."""
        statistics = self.output_facets.statistics if self.output_facets else None
        return statistics.size if statistics else None


class _RunIdSaid(msgspec.Struct, gc=False):
    run_id: str = msgspec.field(name="runId")


class _ParentSaid(msgspec.Struct, gc=False):
    job: _Identifier
    run: _RunIdSaid


class _ErrorSaid(msgspec.Struct, gc=False):
    message: str | None = None


class _RunFacetsSaid(msgspec.Struct, gc=False):
    parent: _ParentSaid | None = None
    error: _ErrorSaid | None = msgspec.field(default=None, name="errorMessage")


class _RunSaid(msgspec.Struct, gc=False):
    run_id: str = msgspec.field(name="runId")
    facets: _RunFacetsSaid | None = None


class _JobTypeSaid(msgspec.Struct, gc=False):
    integration: str | None = None
    job_type: str | None = msgspec.field(default=None, name="jobType")


class _JobFacetsSaid(msgspec.Struct, gc=False):
    job_type: _JobTypeSaid | None = msgspec.field(default=None, name="jobType")


class _JobSaid(msgspec.Struct, gc=False):
    namespace: str
    name: str
    facets: _JobFacetsSaid | None = None


class RunEventSaid(msgspec.Struct, gc=False):
    """What of an event of a run its fields are made from, of the types that the specification has for them."""

    run: _RunSaid
    job: _JobSaid
    event_time: str = msgspec.field(name="eventTime")
    event_type: str | None = msgspec.field(default=None, name="eventType")
    producer: str | None = None
    inputs: list[_DatasetSaid] | None = None
    outputs: list[_DatasetSaid] | None = None


made_at_import(RunEventSaid)


class RunFacts(NamedTuple):
    """What the event of a run says, and others may not."""

    event_type: EventType
    time: int
    kind: str
    said_time: str
    namespace: str
    name: str
    run_id: str
    flowfile_uuid: str
    parents: tuple[str, ...]
    children: tuple[str, ...]
    producer: str | None
    parent_run_id: str | None
    process_group_id: str | None
    process_group_name: str | None
    filename: str | None
    component_type: str
    file_size: int
    details: str | None


def kind_of(said: str | None) -> str:
    """Return the state of a run that an event's type names.

    Raises:
        InvalidInputError: it names none.
    """
    kind = (said or "OTHER").upper()
    if kind not in _TYPES:
        raise InvalidInputError(f"eventType: expected one of {', '.join(_TYPES)}, got {kind[:40]!r}")
    return kind


def type_of_run(kind: str, *, has_relatives: bool) -> EventType:
    """Return the type of the event of a run in this state, which names datasets or does not."""
    event_type = _TYPES[kind]
    # The run has ended, no data were named.
    return EventType.DROP if event_type is EventType.JOIN and not has_relatives else event_type


def component_type_of(integration: str | None, job_type: str | None) -> str:
    """Return the component type of a job by what its facet says."""
    return " ".join(word for word in (integration, job_type) if word) or "OpenLineage"


def details_of(kind: str, error: str | None) -> str | None:
    """Return the details of the event of a run in this state, by the message of its error."""
    return error or {"COMPLETE": "Run completed", "FAIL": "Run failed", "ABORT": "Run aborted"}.get(kind)


def run_facts(said: RunEventSaid) -> RunFacts:
    """Return what an event says of its run.

    Raises:
        InvalidInputError: its type or its time is none.
    """
    job, run = said.job, said.run
    kind = kind_of(said.event_type)
    time = parse_iso("eventTime", said.event_time)
    own_uuid = run_uuid(run.run_id)
    inputs, outputs = said.inputs or (), said.outputs or ()
    makes_outputs = kind in MAKES_OUTPUTS
    parents, children = _relatives(own_uuid, inputs, outputs if makes_outputs else ())
    event_type = type_of_run(kind, has_relatives=bool(parents or children))
    parent = run.facets.parent if run.facets else None
    named = outputs or inputs
    return RunFacts(
        event_type=event_type,
        time=time,
        kind=kind,
        said_time=said.event_time,
        namespace=job.namespace,
        name=job.name,
        run_id=run.run_id,
        flowfile_uuid=own_uuid,
        parents=parents,
        children=children,
        producer=said.producer,
        parent_run_id=parent.run.run_id if parent else None,
        process_group_id=f"{parent.job.namespace}/{parent.job.name}" if parent else None,
        process_group_name=parent.job.name if parent else None,
        filename=named[0].name if named else None,
        component_type=component_type_of(*_words(job.facets.job_type if job.facets else None)),
        file_size=sum(output.size for output in outputs) if makes_outputs else 0,
        details=details_of(kind, run.facets.error.message if run.facets and run.facets.error else None),
    )


def _run_event(document: Document, extra: str, digest: str) -> Event:
    facts = run_facts(_run_event_said(document))
    values = (
        facts.kind,
        facts.namespace,
        facts.name,
        facts.run_id,
        facts.producer,
        facts.parent_run_id,
        facts.filename,
    )
    named = zip(RUN_ATTRIBUTES, values, strict=True)
    attributes: dict[str, str | None] = {name: value for name, value in named if value is not None}
    return Event(
        event_type=facts.event_type,
        event_time=facts.time,
        component_id=f"{facts.namespace}/{facts.name}",
        component_type=facts.component_type,
        component_name=facts.name,
        process_group_id=facts.process_group_id,
        process_group_name=facts.process_group_name,
        flowfile_uuid=facts.flowfile_uuid,
        file_size=facts.file_size,
        details=facts.details,
        parent_uuids=facts.parents,
        child_uuids=facts.children,
        updated_attributes=attributes,
        platform=PLATFORM,
        source_format=SOURCE_FORMAT,
        source_node=f"{SOURCE_PREFIX}{facts.namespace}",
        source_ordinal=_ordinal(digest, facts.time),
        source_event_id=f"{facts.run_id}/{facts.kind}/{facts.said_time}",
        extra=extra,
    )


def _run_event_said(document: Document) -> RunEventSaid:
    """Return what a document says of a run; what has an unusual type and is no must says nothing.

    Raises:
        InvalidInputError: a key is missing or a value is of the wrong type.
    """
    job, run = mapping("job", document["job"]), mapping("run", document["run"])
    require(job, "namespace", "name")
    require(run, "runId")
    producer = document.get("producer")
    facets = _facets(run, "run.facets")
    kind = text("eventType", document.get("eventType") or "OTHER")
    return RunEventSaid(
        run=_RunSaid(
            text("run.runId", run["runId"]), _RunFacetsSaid(_parent(facets), _ErrorSaid(_error_message(facets)))
        ),
        job=_JobSaid(
            text("job.namespace", job["namespace"]),
            text("job.name", job["name"]),
            _JobFacetsSaid(_job_type(_facets(job, "job.facets"))),
        ),
        event_type=kind,
        event_time=text("eventTime", document["eventTime"]),
        producer=producer if isinstance(producer, str) else None,
        inputs=[_dataset(item) for item in mappings("inputs", document.get("inputs") or [])],
        outputs=[
            _dataset(item, has_size=kind.upper() in MAKES_OUTPUTS)
            for item in mappings("outputs", document.get("outputs") or [])
        ],
    )


def _dataset_event(document: Document, extra: str, digest: str) -> Event:
    """Return the event of what happened to a dataset outside of a run."""
    require(document, "eventTime", "dataset")
    dataset = mapping("dataset", document["dataset"])
    said = _dataset(dataset)
    namespace, name, own_uuid = said.namespace, said.name, said.uuid
    change = _facets(dataset, "dataset.facets").get("lifecycleStateChange")
    lifecycle = change.get("lifecycleStateChange") if isinstance(change, dict) else None
    former = _former_name(change)
    event_type = _LIFECYCLES.get(str(lifecycle), EventType.ATTRIBUTES_MODIFIED)
    attributes: dict[str, str | None] = {
        KIND: DATASET,
        "openlineage.dataset.namespace": namespace,
        "openlineage.dataset.name": name,
        FILENAME: name,
    }
    if isinstance(lifecycle, str):
        attributes["openlineage.lifecycle"] = lifecycle
    return Event(
        event_type=EventType.CLONE if former else event_type,
        event_time=parse_iso("eventTime", text("eventTime", document["eventTime"])),
        component_id=f"{namespace}/{name}",
        component_type="OpenLineage dataset",
        component_name=name,
        flowfile_uuid=own_uuid,
        file_size=0,
        details=f"Renamed from {former[1]}" if former else None,
        parent_uuids=(dataset_uuid(*former),) if former else (),
        child_uuids=(own_uuid,) if former else (),
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
        KIND: JOB,
        JOB_NAMESPACE: namespace,
        JOB_NAME: name,
        FILENAME: name,
    }
    return Event(
        event_type=EventType.ATTRIBUTES_MODIFIED,
        event_time=parse_iso("eventTime", text("eventTime", document["eventTime"])),
        component_id=f"{namespace}/{name}",
        component_type=component_type_of(*_words(_job_type(_facets(job, "job.facets")))),
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
        attributes[PRODUCER] = producer
    said = text("eventTime", document["eventTime"])
    return {
        "updated_attributes": attributes,
        "platform": PLATFORM,
        "source_format": SOURCE_FORMAT,
        "source_node": f"{SOURCE_PREFIX}{namespace}",
        "source_ordinal": _ordinal(digest, parse_iso("eventTime", said)),
        "source_event_id": f"{attributes[KIND]}/{attributes[FILENAME]}/{said}",
        "extra": extra,
    }


def _ordinal(digest: str, time: int) -> int:
    # These parts make ordinals that are stored: never change them, nor their order.
    return digest_ordinal([ORDINAL_NAME, digest], time)


def _former_name(change: object) -> tuple[str, str] | None:
    """Return namespace and name that a dataset had before it was renamed."""
    match change:
        case {
            "lifecycleStateChange": "RENAME",
            "previousIdentifier": {"namespace": str(namespace), "name": str(name)},
        }:
            return namespace, name
    return None


def _dataset(document: Document, *, has_size: bool = False) -> _DatasetSaid:
    """Return a dataset; with its size where that counts.

    Raises:
        InvalidInputError: it has no name, or no whole number for a size.
    """
    require(document, "namespace", "name")
    namespace, name = text("namespace", document["namespace"]), text("name", document["name"])
    version = _facets(document, "dataset.facets").get("version")
    label = version.get("datasetVersion") if isinstance(version, dict) else None
    return _DatasetSaid(
        namespace,
        name,
        _NamingFacets(_Version(label if isinstance(label, str) else None)),
        _OutputFacetsSaid(_StatisticsSaid(_size(document) if has_size else None)),
    )


def _size(output: Document) -> int | None:
    match output.get("outputFacets"):
        case {"outputStatistics": {"size": int() as size}}:
            return max(0, integer("outputStatistics.size", size))
        case {"outputStatistics": {"size": msgspec.Raw() as size}}:  # with a point
            return max(0, integer("outputStatistics.size", msgspec.json.decode(size)))
    return None


def _relatives(
    run: str, inputs: Sequence[_DatasetSaid], outputs: Sequence[_DatasetSaid]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if not inputs and not outputs:
        return (), ()
    # Never an empty side: an edge from or to the run joins the datasets of its other events.
    parents = tuple(dict.fromkeys([dataset.uuid for dataset in inputs])) or (run,)
    children = tuple(dict.fromkeys([dataset.uuid for dataset in outputs])) or (run,)
    return parents, children


def _facets(document: Document, key: str) -> Document:
    facets = document.get("facets")
    return {} if facets is None else mapping(key, facets)


def _parent(facets: Document) -> _ParentSaid | None:
    """Return what is said of the run that started this one."""
    # Nearly every event is asked: patterns of `match` take four times as long.
    parent = facets.get("parent")
    if not isinstance(parent, dict):
        return None
    job, run = parent.get("job"), parent.get("run")
    if not isinstance(job, dict) or not isinstance(run, dict):
        return None
    namespace, name, run_id = job.get("namespace"), job.get("name"), run.get("runId")
    if isinstance(namespace, str) and isinstance(name, str) and isinstance(run_id, str):
        return _ParentSaid(_Identifier(namespace, name), _RunIdSaid(run_id))
    return None


def _job_type(facets: Document) -> _JobTypeSaid | None:
    facet = facets.get("jobType")
    if not isinstance(facet, dict):
        return None
    words = [word if isinstance(word := facet.get(key), str) else None for key in ("integration", "jobType")]
    return _JobTypeSaid(*words)


def _words(said: _JobTypeSaid | None) -> tuple[str | None, str | None]:
    return (said.integration, said.job_type) if said else (None, None)


def _error_message(facets: Document) -> str | None:
    error = facets.get("errorMessage")
    message = error.get("message") if isinstance(error, dict) else None
    return message if isinstance(message, str) else None
