"""What the nodes of a lineage are: FlowFiles of a flow, runs of jobs, jobs, or datasets, and how these are called.

For the lineage all of them are FlowFiles, known by a uuid. What each is follows from the events that were stored of it,
and from those that name it, whenever a lineage is read: nothing about it is stored, so it counts for old events, too.
Only events that the asker may see tell it, with their masks: a name whose attribute is masked is not told.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum

import msgspec

from custody.capture.openlineage import DATASET, JOB, datasets_named, kind_said
from custody.model import MASK, Event

AIRFLOW = "airflow"
"""The source format of what Airflow's listener tells; `airflow_runs/run_events.py` makes such events."""


class NodeKind(StrEnum):
    """What a node is; UNKNOWN is what may not or cannot be seen and still connects others."""

    FLOWFILE = "FLOWFILE"
    RUN = "RUN"
    JOB = "JOB"
    DATASET = "DATASET"
    UNKNOWN = "UNKNOWN"


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """What a node is, and its names as far as they may be told."""

    kind: NodeKind
    namespace: str | None = None
    """Of a job or a dataset; of a run of Airflow its node."""
    name: str | None = None
    """Of a run the name of its job; of a FlowFile none, since its file name may change."""
    version: str | None = None

    @property
    def label(self) -> str | None:
        """Namespace, name and version as one text; a dataset is a starting point of a lineage by it."""
        if self.name is None:
            return None
        text = self.name if self.namespace is None else f"{self.namespace}/{self.name}"
        return text if self.version is None else f"{text}@{self.version}"


def identities(events: Iterable[Event]) -> dict[str, Identity]:
    """Return what is known of FlowFiles besides that they are such, by uuid."""
    found: dict[str, Identity] = {}
    for event in events:
        for uuid, identity in _told(event):
            known = found.get(uuid)
            # Each event of a run names it; what is masked in one may be named by another.
            if known is None or (known.name is None and identity.name is not None):
                found[uuid] = identity
    return found


def _told(event: Event) -> Iterator[tuple[str, Identity]]:
    if event.source_format == AIRFLOW:
        yield from _told_by_airflow(event)
        return
    said = kind_said(event)
    if said is None:
        return
    attributes = event.updated_attributes
    if said == DATASET:
        yield event.flowfile_uuid, _named(NodeKind.DATASET, attributes, "openlineage.dataset", event)
    else:
        kind = NodeKind.JOB if said == JOB else NodeKind.RUN
        yield event.flowfile_uuid, _named(kind, attributes, "openlineage.job", event)
    # The attribute with the name of a dataset is the file name; for whom it is masked, none is told.
    hides = MASK in (attributes.get("filename"), attributes.get("openlineage.dataset.name"))
    for dataset in datasets_named(event):
        if hides:
            yield dataset.uuid, Identity(kind=NodeKind.DATASET)
        else:
            yield (
                dataset.uuid,
                Identity(
                    kind=NodeKind.DATASET, namespace=dataset.namespace, name=dataset.name, version=dataset.version
                ),
            )


def _named(kind: NodeKind, attributes: dict[str, str | None], prefix: str, event: Event) -> Identity:
    namespace, name = attributes.get(f"{prefix}.namespace"), attributes.get(f"{prefix}.name", event.component_name)
    if MASK in (namespace, name) or (kind == NodeKind.DATASET and attributes.get("filename") == MASK):
        return Identity(kind=kind)
    return Identity(kind=kind, namespace=namespace, name=name)


def _told_by_airflow(event: Event) -> Iterator[tuple[str, Identity]]:
    if event.transit_uri is not None:
        # What a task wrote has an event of its own, by the task.
        yield event.flowfile_uuid, Identity(kind=NodeKind.DATASET, name=event.transit_uri)
        return
    yield (
        event.flowfile_uuid,
        Identity(kind=NodeKind.RUN, namespace=event.source_node, name=event.component_id),
    )
    for uuid in (*event.parent_uuids, *event.child_uuids):
        if uuid != event.flowfile_uuid:
            # What was only read has no event that says its address.
            yield uuid, Identity(kind=NodeKind.DATASET)
