"""The documents that the API answers with, and their schemas in its OpenAPI description."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from custody.catalog.difference_summary import DifferenceSummary
from custody.catalog.transaction_summary import TransactionSummary
from custody.flowfile_repository import QueueStatus
from custody.lineage import Cut, FlowFileNode, Lineage, NodeKind
from custody.made_types import made_at_import
from custody.maintenance.attestations import KeptAttestation
from custody.quarantine import QuarantineEntry
from custody.query import SearchStats
from custody.read.search import SearchResult, StoredEvent
from custody.repository import status
from custody.repository.status import RepositoryStatus
from custody.retention import Hold, RetentionPlan
from custody.serving.api_changes import CHANGE_DOCUMENTS
from custody.serving.api_keeping import KEEPING_DOCUMENTS
from custody.serving.api_problems import ProblemDocument
from custody.serving.api_software import SoftwarePlaces
from custody.serving.content_place import ContentPlace
from custody.serving.dag_runs import DagRun, DagRuns
from custody.serving.event_document import EventDocument, event_json
from custody.serving.sql_forms import SqlForm
from custody.store import Traffic

_REFERENCE = "#/components/schemas/{name}"


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """An event of a listing, with the writer that counted its id."""

    writer: str
    event: msgspec.Raw
    """An `EventDocument` as JSON: made of the event at once, without objects in between."""


class EventPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of a search."""

    total: int
    """Exact; also what cannot be read any more is counted."""
    items: list[Listed]
    next: str | None
    """Where the next page is, relative to this address; null behind the last one."""
    lost: int
    """So many matches on the way to this page cannot be read; `notices` say what holds them."""
    as_of: dict[str, int]
    """The revisions that the answer is made of, by writer; given back as `as_of`, it stays the same."""
    notices: tuple[str, ...] = ()
    explain: dict[str, SearchStats] | None = None
    store: Traffic | None = None
    """With `explain`, what the search asked of an object store; null where it asked for nothing."""


class OneEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event in full, with what can be asked next."""

    writer: str
    event: dict[str, Any]
    attributes: dict[str, str]
    """Those after the event."""
    content: ContentPlace | None
    previous_content: ContentPlace | None
    links: dict[str, str]
    as_of: dict[str, int]
    """The revision of the writer; none while the event waits in a journal."""


class Facets(msgspec.Struct, frozen=True, kw_only=True):
    """How many matching events have each value of some fields, the most frequent first."""

    facets: dict[str, dict[str, int]]
    notices: tuple[str, ...] = ()


class HistogramBucket(msgspec.Struct, frozen=True, kw_only=True):
    """Events that match from `first_ms` to `last_ms`, ms since the epoch, both included."""

    first_ms: int
    last_ms: int
    events: int


class Histogram(msgspec.Struct, frozen=True, kw_only=True):
    """How many matching events happened in each of some spans of time of the same length, the oldest first."""

    buckets: list[HistogramBucket]
    total: int
    notices: tuple[str, ...] = ()


class LineageEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An event of a lineage, with the writer that counted its id."""

    writer: str
    event: msgspec.Raw
    failed: bool = False
    """Whether it tells of a failure."""


class LineageNode(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A FlowFile, a run, a job or a dataset of a lineage with its own events, the oldest first."""

    uuid: str
    kind: NodeKind
    events: list[LineageEvent]
    parents: tuple[str, ...]
    children: tuple[str, ...]
    cut: Cut | None = None
    """The bound behind which there is more of it."""
    namespace: str | None = None
    """Of a run's job, a job or a dataset."""
    name: str | None = None
    """Of a run's job, a job or a dataset; of a FlowFile its events have a file name."""
    version: str | None = None
    """Of a dataset whose versions are told apart."""
    failed: bool = False
    """Whether one of its events tells of a failure."""


class LineageDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A lineage; `frontier` names the FlowFiles that have more behind a bound, each with the bound."""

    starts: tuple[str, ...]
    """The uuids of the nodes at which it begins."""
    nodes: list[LineageNode]
    events: int
    is_complete: bool
    frontier: dict[str, Cut]
    identifiers: dict[str, tuple[str, ...]]
    unknown_events: list[dict[str, Any]]
    as_of: dict[str, int]
    """The revisions that it is made of, by writer."""
    notices: tuple[str, ...] = ()


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """Transactions of one writer, the newest first."""

    writer: str
    items: list[TransactionSummary]
    next: str | None


class CatalogDifference(msgspec.Struct, frozen=True, kw_only=True):
    """What differs between two revisions; `sizes` says how many entries of each kind there are."""

    writer: str
    former: int
    later: int
    sizes: dict[str, int]
    entries: DifferenceSummary
    """The first thousand of each kind."""


class CatalogChain(msgspec.Struct, frozen=True, kw_only=True):
    """What a check of a writer's transactions came to: each against its predecessor, and checkpoints against them."""

    writer: str
    revision: int | None
    """The newest one, up to which the chain was followed; null where a defect hides it, or nothing was committed."""
    digest: str | None
    """Of that transaction, SHA-256 as hex: who keeps it can tell later whether anything before it was changed."""
    revisions: int
    """So many transactions were read; those before were pruned."""
    checkpoints: int
    defects: list[str]
    notices: list[str]


class Fields(msgspec.Struct, frozen=True, kw_only=True):
    """What can be searched, for whoever completes a query."""

    fields: list[str]
    attributes: list[str]
    event_types: list[str]
    facets: list[str]


class Quarantined(msgspec.Struct, frozen=True, kw_only=True):
    """What could not be stored, the newest first."""

    items: list[QuarantineEntry]
    total: int


class Attestations(msgspec.Struct, frozen=True, kw_only=True):
    """What the attestations that are kept prove."""

    items: list[KeptAttestation]


class Holds(msgspec.Struct, frozen=True, kw_only=True):
    """What no retention lets go."""

    items: list[Hold]


class SqlQuestion(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One SELECT; at most so many rows and seconds."""

    query: str
    format: SqlForm = SqlForm.JSON
    """Other forms may have ten times as many rows; the header `Custody-Is-Cut` says whether there are more."""
    limit: int = 1000
    seconds: float = 10
    writer: str | None = None
    as_of: str | None = None


class SqlRows(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of a query; `is_cut` where there are more than were asked for."""

    columns: list[str]
    types: list[str]
    rows: list[list[Any]]
    is_cut: bool
    notices: tuple[str, ...] = ()


class SearchQuestion(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A search whose query is text or structured, as docs/query.md has it; for queries too long for an address."""

    query: str | dict[str, Any] = ""
    limit: int | None = None
    cursor: str | None = None
    oldest_first: bool = False
    writer: str | None = None
    as_of: str | None = None


made_at_import(SqlQuestion, SearchQuestion)


class Welcome(msgspec.Struct, frozen=True, kw_only=True):
    """Where everything is, and what the caller may do."""

    version: str
    can: list[str]
    writers: list[str]
    links: dict[str, str]
    notices: list[str]
    """What is away, or of an earlier moment: every answer is made of what is left."""


ANSWERS: tuple[type, ...] = (
    EventPage,
    OneEvent,
    Facets,
    LineageDocument,
    Timeline,
    Histogram,
    CatalogDifference,
    CatalogChain,
    DagRuns,
    DagRun,
    Fields,
    Quarantined,
    Holds,
    Attestations,
    SqlRows,
    SqlQuestion,
    SearchQuestion,
    Welcome,
    RepositoryStatus,
    RetentionPlan,
    ProblemDocument,
    EventDocument,
    QuarantineEntry,
    *CHANGE_DOCUMENTS,
    *KEEPING_DOCUMENTS,
    SoftwarePlaces,
)


def listed(stored: Iterable[StoredEvent], characters_max: int) -> list[Listed]:
    """Return events with their writers as the API gives them; values of attributes are cut to `characters_max`."""
    return [Listed(writer=one.writer, event=event_json(one.event, characters_max)) for one in stored]


def event_page(
    result: SearchResult, following: str | None, characters_max: int, asked: Traffic, *, explain: bool
) -> EventPage:
    """Return a page of a search; `asked` is what it asked of an object store."""
    return EventPage(
        total=result.total,
        items=listed(result.events, characters_max),
        next=following,
        lost=result.lost,
        as_of=dict(result.as_of),
        notices=result.notices,
        explain=dict(result.explained) if explain else None,
        store=asked if explain and asked.count else None,
    )


def lineage_document(lineage: Lineage, characters_max: int) -> LineageDocument:
    """Return a lineage; values of attributes are cut to `characters_max`."""
    nodes = [
        LineageNode(
            uuid=node.uuid,
            kind=node.kind,
            events=_lineage_events(node, characters_max),
            parents=node.parents,
            children=node.children,
            cut=node.cut,
            namespace=node.namespace,
            name=node.name,
            version=node.version,
            failed=node.failed,
        )
        for node in lineage.nodes.values()
    ]
    return LineageDocument(
        starts=lineage.starts,
        nodes=nodes,
        events=lineage.events,
        is_complete=lineage.is_complete,
        frontier=lineage.cut,
        identifiers=lineage.identifiers,
        unknown_events=[msgspec.to_builtins(unknown) for unknown in lineage.unknown_events],
        as_of=dict(lineage.as_of),
        notices=lineage.notices,
    )


def _lineage_events(node: FlowFileNode, characters_max: int) -> list[LineageEvent]:
    told = zip(node.writers, node.events, node.events_failed, strict=True)
    return [
        LineageEvent(writer=writer, event=event_json(event, characters_max), failed=failed)
        for writer, event, failed in told
    ]


def schemas() -> Mapping[str, Any]:
    """Return the schemas of all documents, by their names."""
    # Of its own module only checkers see this class: `custody status` is to load no more than it needs.
    vars(status)["QueueStatus"] = QueueStatus
    _, components = msgspec.json.schema_components(ANSWERS, ref_template=_REFERENCE)
    event = {"$ref": _REFERENCE.format(name="EventDocument")}
    for name in ("Listed", "LineageEvent", "OneEvent"):
        components[name]["properties"]["event"] = event
    return components


def schema_of(answer: type) -> dict[str, Any]:
    """Return the reference to the schema of a document."""
    return {"$ref": _REFERENCE.format(name=answer.__name__)}
