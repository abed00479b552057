"""The API: what the command line knows, asked over HTTP below `/api/v1`; what changes something is in `api_changes.py`.

Every answer is a document of `serving/api_documents.py`, every error one of `serving/api_problems.py`. An event is
named by its writer and its id, for each writer counts ids of its own. `next` of a page is the address of the next one.

Each operation declares its right: a scope, and what its answer shows of events (`route_rights.py`). What is read needs
the scope `read`, bytes of contents need `content`; replays need `replay`, the quarantine `manage`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from itertools import islice
from threading import BoundedSemaphore
from typing import Annotated, Any, TypeVar
from urllib.parse import urlencode

import msgspec
from fastapi import Depends, FastAPI, Query, Request
from fastapi.openapi.utils import get_openapi
from pydantic import StringConstraints
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as AsgiScope

from custody.capture.nifi_json import event_to_json
from custody.catalog import Catalog, PrunedError, verify
from custody.catalog.difference_summary import DifferenceSummary, difference_summary, repairs_between
from custody.catalog.transaction_summary import summary_of
from custody.errors import BackpressureError, InvalidInputError, NotFoundError
from custody.flow.content import Availability, Content, ContentReader
from custody.format.names import is_name
from custody.lineage import Bounds, ExportFormat, Lineage, StartingPoint, StartKind, Toward, export
from custody.model import Event, EventType, shortened
from custody.model.visibility import Visibility
from custody.query import facet_fields
from custody.query.times import time_span
from custody.read.time_travel import AsOf as KnownMoment
from custody.read.time_travel import parse_revisions
from custody.repository import Repository
from custody.repository.status import RepositoryStatus
from custody.retention import RetentionPlan
from custody.serving.access import Scope
from custody.serving.api_changes import Changes, check_origin
from custody.serving.api_documents import (
    Attestations,
    CatalogChain,
    CatalogDifference,
    EventPage,
    Facets,
    Fields,
    Histogram,
    HistogramBucket,
    Holds,
    LineageDocument,
    OneEvent,
    Quarantined,
    SearchQuestion,
    SqlQuestion,
    SqlRows,
    Timeline,
    Welcome,
    event_page,
    lineage_document,
    schema_of,
    schemas,
)
from custody.serving.api_export import EXPORTS
from custody.serving.api_keeping import Keeping
from custody.serving.api_operation import ApiOperation, Operation
from custody.serving.api_problems import MEDIA_TYPE, GoneError, ProblemDocument, handle_problems
from custody.serving.api_software import SoftwarePlaces, SoftwareTables
from custody.serving.application import grant_of, visibility_of
from custody.serving.content_place import ContentPlaces
from custody.serving.dag_runs import DagRun, DagRuns, dag_run, dag_runs
from custody.serving.door import Measure, Services
from custody.serving.event_document import event_document
from custody.serving.export_process import exported
from custody.serving.http_requests import bounded_body
from custody.serving.route_rights import OPEN, DoorMount, DoorRoute, RouteRight, Shows
from custody.serving.sql_forms import ENCODERS, FirstRows, SqlForm, notices_header
from custody.sql.plain_values import plain_rows
from custody.store import counted
from custody.vfs import PosixFileSystem
from custody.workspace import Workspace
from custody.workspace.question import as_one_question

PREFIX = "/api/v1"
PAGE_MAX = 1000
NODES_MAX = 6000
QUARANTINED_MAX = 1000
DIFFERENCE_MAX = 1000
LOOKED_AT_MAX = 1000
"""So many transactions are looked at for those with reasons; `next` goes on behind them."""
BUCKETS_MAX = 500
SOFTWARE_MAX = 1000
SQL_ROWS_MAX = 10_000
SQL_SAVED_ROWS_MAX = 100_000
"""As JSON lines, CSV or Arrow."""
SQL_SECONDS_MAX = 60.0
STREAMS_MAX = 2
"""Exports, and queries in SQL, that one process answers at once: each reads as fast as its client takes it."""
_TEXT_MAX = 8000
_BODY_BYTES_MAX = 256 << 10
_REVISION = re.compile(r"\d{1,18}")
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")
_ID_MAX = (1 << 63) - 1
_TIME_MAX = 253_402_300_799_999  # the last millisecond of the year 9999
_FORMS = {
    "export": tuple(kind.media_type for kind in EXPORTS.values()),
    "nifi": ("application/json",),
    "content": ("application/octet-stream",),
    "previous_content": ("application/octet-stream",),
    "lineage_export": ("text/plain; charset=utf-8",),
    "sql": tuple(media_type for media_type, _ in ENCODERS.values()),
}
"""What the operations answer with besides a document of their own."""
# Airflow's server compresses in its event loop what has no coding: heartbeats of tasks would wait for it.
_AS_IT_IS = {"Content-Encoding": "identity"}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_Answer = TypeVar("_Answer")
_SEARCH_QUESTION = msgspec.json.Decoder(SearchQuestion)
_SQL_QUESTION = msgspec.json.Decoder(SqlQuestion)

Text = Annotated[str, Query(max_length=_TEXT_MAX, description="A query, as docs/query.md has it.")]
Writer = Annotated[str | None, Query(max_length=200, description="Only this writer's events.")]
AsOf = Annotated[
    str | None,
    Query(
        max_length=_TEXT_MAX,
        description="A time, a revision of `writer`, or `writer:revision,…`: among the events that were live then.",
    ),
]
Limit = Annotated[int | None, Query(ge=1, le=PAGE_MAX)]
Cursor = Annotated[str | None, Query(max_length=_TEXT_MAX)]
Moment = Annotated[str | None, Query(max_length=100, description="A time, as in queries: 2026-03-01, 3 hours ago.")]
Name = Annotated[str, Query(min_length=1, max_length=500)]
Starts = Annotated[
    list[Annotated[str, StringConstraints(max_length=2000)]] | None,
    Query(
        max_length=100,
        description="Where it begins. `event` is WRITER:ID, `dataset` is NAMESPACE/NAME, `run` is the id of a run of "
        "OpenLineage; `what` is a name of any kind, as on the command line.",
    ),
]
Id = int


class ApiDoor:
    """Answers questions about events; the library answers them, in threads.

    Args:
        services: of the server.
    """

    name = "api"

    def __init__(self, services: Services) -> None:
        self._services = services
        self._changes = _changes_of(services)
        self._app = api_application(services, self._changes)

    def routes(self) -> Sequence[DoorRoute | DoorMount]:
        """Return one mount; each operation below it has a right of its own."""
        return [DoorMount(PREFIX, self._app, right=OPEN, checks_itself=True)]

    def ready(self) -> str | None:
        """Return why all answers would be wrong; what else cannot be read is said by each answer."""
        return self._services.problem()

    def metrics(self) -> Iterable[Measure]:
        """Return nothing: the application counts requests and answers."""
        return ()

    def close(self) -> None:
        """End the jobs that go on."""
        self._changes.close()


def api_application(services: Services, changes: Changes | None = None) -> FastAPI:
    """Return the API of a repository; who mounts it says who may do what (`grant_of`), and closes `changes`."""
    app = FastAPI(title="custody", version="1", docs_url=None, redoc_url=None, openapi_url=None)
    app.router.redirect_slashes = False
    app.router.route_class = Operation
    _Api(services.repository, changes or _changes_of(services), SoftwareTables(services)).add_to(app)
    handle_problems(app, str(services.repository.settings.root))
    for route in app.routes:
        if not isinstance(route, Operation):
            raise TypeError(f"the API: expected operations with a right, got {type(route).__name__}")
    return app


def _changes_of(services: Services) -> Changes:
    return Changes(services, _body, _moment, _json, lambda: _SEEN.get())


def openapi_document(app: FastAPI) -> dict[str, Any]:
    """Return the description of the API, OpenAPI 3.1."""
    document = get_openapi(
        title="custody",
        version="1",
        routes=app.routes,
        # Relative: right below any path that the API is mounted at.
        servers=[{"url": "."}],
        description="Provenance of data: events, lineage, contents, and the record of what was done to them.",
    )
    # FastAPI's own shape of a refusal is never answered.
    components = document.setdefault("components", {})
    components["schemas"] = dict(schemas())
    components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    document["security"] = [{"token": []}]
    for path in document["paths"].values():
        for operation in path.values():
            operation["responses"].pop("422", None)
    return document


class _Api:
    """The operations; each method is one, and is called in a thread unless it reads a body."""

    def __init__(self, repository: Repository, changes: Changes, software: SoftwareTables) -> None:
        self._of_all = repository.answering()
        self._changes = changes
        self._software = software
        self._settings = repository.settings
        self._streams = BoundedSemaphore(STREAMS_MAX)

    @property
    def _repository(self) -> Repository:
        """The repository as the asker may see it."""
        visibility = _SEEN.get()
        return self._of_all if visibility is None else self._of_all.seen_by(visibility)

    def add_to(self, app: FastAPI) -> None:
        """Add all operations to an application."""
        app.add_middleware(_Seen)
        event = "/events/{writer}/{event_id}"
        shown, of_all = RouteRight(Scope.READ, Shows.VISIBLE), RouteRight(Scope.READ, Shows.ALL)
        nothing, of_input = RouteRight(Scope.READ, Shows.NOTHING), RouteRight(Scope.READ, Shows.INPUT)
        contents = RouteRight(Scope.CONTENT, Shows.VISIBLE)
        keeping = Keeping(self._changes, _body, _json, _now_ms)
        for each in (
            ApiOperation("/", self.welcome, Welcome, shown),
            ApiOperation("/fields", self.fields, Fields, nothing),
            ApiOperation("/events", self.events, EventPage, shown),
            ApiOperation("/events/facets", self.facets, Facets, shown),
            ApiOperation("/events/histogram", self.histogram, Histogram, shown),
            ApiOperation("/events/export", self.export, None, shown),
            ApiOperation(event, self.event, OneEvent, shown),
            ApiOperation(f"{event}/nifi", self.nifi, None, shown),
            ApiOperation(f"{event}/content", self.content, None, contents),
            ApiOperation(f"{event}/content", self.content, None, contents, "HEAD"),
            ApiOperation(f"{event}/content/previous", self.previous_content, None, contents),
            ApiOperation(f"{event}/content/previous", self.previous_content, None, contents, "HEAD"),
            ApiOperation(f"{event}/software", self.software, SoftwarePlaces, contents),
            ApiOperation("/lineage", self.lineage, LineageDocument, shown),
            ApiOperation("/lineage/export", self.lineage_export, None, shown),
            ApiOperation("/dag-runs", self.dag_runs, DagRuns, shown),
            ApiOperation("/dag-run", self.dag_run, DagRun, shown),
            ApiOperation("/status", self.status, RepositoryStatus, of_all),
            ApiOperation("/timeline/{writer}", self.timeline, Timeline, of_all),
            ApiOperation("/timeline/{writer}/difference", self.difference, CatalogDifference, of_all),
            ApiOperation("/timeline/{writer}/chain", self.chain, CatalogChain, of_all),
            ApiOperation("/quarantine", self.quarantine, Quarantined, of_input),
            ApiOperation("/holds", self.holds, Holds, of_all),
            ApiOperation("/retention/plan", self.retention, RetentionPlan, of_all),
            ApiOperation("/attestations", self.attestations, Attestations, of_all),
            ApiOperation("/events/search", self.search, EventPage, shown, "POST", SearchQuestion, is_question=True),
            ApiOperation("/sql", self.sql, SqlRows, shown, "POST", SqlQuestion, is_question=True),
            *self._changes.operations(),
            *keeping.operations(),
        ):
            app.router.routes.append(_route_of(each))
        described = cache(lambda: msgspec.json.encode(openapi_document(app)))

        def description() -> Response:
            return Response(described(), media_type="application/json")

        app.router.routes.append(
            Operation("/openapi.json", description, right=nothing, methods=["GET"], include_in_schema=False)
        )

    def welcome(self, request: Request) -> Response:
        """Where everything is, and what the caller may do."""
        plain = ("events", "lineage", "status", "quarantine", "holds", "fields", "sql", "jobs", "runs")
        links = {name: name for name in plain}
        return _json(
            Welcome(
                version=_version(),
                can=sorted(grant_of(request).scopes),
                writers=[workspace.writer for workspace in self._repository.workspaces()],
                links={
                    **links,
                    "facets": "events/facets",
                    "histogram": "events/histogram",
                    "export": "events/export",
                    "retention": "retention/plan",
                    "replay_plans": "replay-plans",
                },
                notices=[str(earlier) for earlier in self._repository.earlier_states()],
            )
        )

    def fields(self) -> Response:
        """What can be searched, for whoever completes a query."""
        index = self._repository.searchable
        return _json(
            Fields(
                fields=list(index.standard),
                attributes=list(index.attributes),
                event_types=[str(kind) for kind in EventType],
                facets=facet_fields(index.attributes, index.standard),
            )
        )

    def events(
        self,
        q: Text = "",
        *,
        limit: Limit = None,
        cursor: Cursor = None,
        oldest_first: bool = False,
        writer: Writer = None,
        as_of: AsOf = None,
        explain: bool = False,
    ) -> Response:
        """Events that match a query, the newest first."""
        question = SearchQuestion(
            query=q, limit=limit, cursor=cursor, oldest_first=oldest_first, writer=writer, as_of=as_of
        )
        own = {"q": q, "limit": limit, "oldest_first": oldest_first or None, "writer": writer, "as_of": as_of}

        def following(after: str) -> str:
            known = {name: value for name, value in {**own, "cursor": after}.items() if value not in (None, "")}
            return f"events?{urlencode(known)}"

        return _json(self._searched(question, following, explain=explain))

    async def search(self, request: Request) -> Response:
        """Events that match a query that is too long for an address, or structured."""
        question = await _body(request, _SEARCH_QUESTION)
        _check_writer(question.writer)
        if question.limit is not None and not 1 <= question.limit <= PAGE_MAX:
            raise InvalidInputError(f"limit: expected 1 to {PAGE_MAX}, got {question.limit}.")
        # The next page is asked for with the same body and this cursor.
        return _json(await run_in_threadpool(self._searched, question, str, explain=False))

    def facets(
        self,
        field: Annotated[list[str], Query(min_length=1, max_length=10)],
        q: Text = "",
        *,
        top: Annotated[int, Query(ge=1, le=10_000)] = 50,
        zone: Annotated[str | None, Query(max_length=100, description="Whose days, such as Asia/Kolkata.")] = None,
        writer: Writer = None,
        as_of: AsOf = None,
    ) -> Response:
        """How many matching events have each value of some fields; `day` is the day of the time, UTC or of `zone`."""
        counts, notices = self._repository.facets(
            q, field, writer=_check_writer(writer), as_of=_moment(as_of), zone=zone
        )
        shown = {name: dict(values.most_common(top)) for name, values in counts.items()}
        return _json(Facets(facets=shown, notices=notices))

    def histogram(
        self,
        since: Annotated[str, Query(max_length=100, description="A time, as in queries: its beginning.")],
        until: Moment = None,
        q: Text = "",
        *,
        buckets: Annotated[int, Query(ge=1, le=BUCKETS_MAX)] = 60,
        writer: Writer = None,
        as_of: AsOf = None,
    ) -> Response:
        """How many matching events happened in each span of a time; until now unless `until` is given."""
        first, last = _times(since, until)
        counted, notices = self._repository.histogram(
            q,
            0 if first is None else first,
            _now_ms() if last is None else last,
            buckets,
            writer=_check_writer(writer),
            as_of=_moment(as_of),
        )
        shown = [HistogramBucket(first_ms=one.first_ms, last_ms=one.last_ms, events=one.events) for one in counted]
        return _json(Histogram(buckets=shown, total=sum(one.events for one in counted), notices=notices))

    def export(
        self,
        q: Text = "",
        *,
        form: Annotated[str, Query(alias="format", pattern="^(ndjson|arrow|csv)$")] = "ndjson",
        since: Moment = None,
        until: Moment = None,
        writer: Writer = None,
        as_of: AsOf = None,
    ) -> Response:
        """All events of a query or of a time, as a stream."""
        first, last = _times(since, until)
        ends = [_iso(0 if first is None else first), _iso(_TIME_MAX if last is None else last)]
        span = "" if since is None and until is None else f"event_time:[{' TO '.join(ends)}]"
        query = f"({q}) AND {span}" if q and span else q or span
        stream = exported(self._repository, form, query, _check_writer(writer), _moment(as_of), _SEEN.get())
        # The first piece before the status: a query that cannot be read is answered as such.
        pieces = self._as_one_of_few(stream)
        return StreamingResponse(pieces, headers=dict(_AS_IT_IS), media_type=EXPORTS[form].media_type)

    def event(self, writer: str, event_id: Id, *, as_of: AsOf = None, whole: bool = False) -> Response:
        """One event in full, whether its contents can be had, and what can be asked next."""
        event = self._event(writer, event_id, as_of)
        shown = event if whole else shortened(event, self._settings.query.attribute_characters_max)
        contents = ContentPlaces(self._settings.content_store, as_of)
        here, then = f"events/{writer}/{event_id}", "" if as_of is None else f"?{urlencode({'as_of': as_of})}"
        return _json(
            OneEvent(
                writer=writer,
                event=event_document(shown),
                attributes=shown.attributes,
                content=contents.after(writer, event),
                previous_content=contents.before(writer, event),
                links={
                    "lineage": f"lineage?{urlencode({'flowfile': event.flowfile_uuid})}{then.replace('?', '&')}",
                    "nifi": f"{here}/nifi{then}",
                },
                as_of=self._revision_with(writer, event_id, _moment(as_of)),
            )
        )

    def nifi(self, writer: str, event_id: Id, *, as_of: AsOf = None) -> Response:
        """One event as NiFi's own JSON."""
        document = event_to_json(self._event(writer, event_id, as_of))
        return Response(msgspec.json.encode(document), media_type="application/json")

    def content(self, request: Request, writer: str, event_id: Id, *, as_of: AsOf = None) -> Response:
        """The content after an event, or a range of its bytes."""
        return self._content(request, self._found_content(writer, event_id, as_of, previous=False))

    def previous_content(self, request: Request, writer: str, event_id: Id, *, as_of: AsOf = None) -> Response:
        """The content before an event, or a range of its bytes."""
        return self._content(request, self._found_content(writer, event_id, as_of, previous=True))

    def software(
        self,
        writer: str,
        event_id: Id,
        *,
        previous: bool = False,
        limit: Annotated[int, Query(ge=1, le=SOFTWARE_MAX)] = 20,
        as_of: AsOf = None,
    ) -> Response:
        """Where the content after an event, or before it, is in software; all of its bytes are read for it."""
        content = self._found_content(writer, event_id, as_of, previous=previous)
        most = min(limit, self._settings.swh.occurrences_max)
        return _json(self._software.places(content, most))

    def lineage(
        self,
        what: Starts = None,
        flowfile: Starts = None,
        identifier: Starts = None,
        event: Starts = None,
        run: Starts = None,
        dataset: Starts = None,
        *,
        depth: Annotated[int | None, Query(ge=0, le=1000)] = 1,
        direction: Toward = Toward.BOTH,
        failed: Annotated[bool, Query(description="Only what failed, and the way to it.")] = False,
        events_max: Annotated[int, Query(ge=1, le=NODES_MAX)] = NODES_MAX,
        since: Moment = None,
        until: Moment = None,
        writer: Writer = None,
        as_of: AsOf = None,
    ) -> Response:
        """What led to FlowFiles, runs or datasets, and what came of them; one generation unless more are asked for."""
        points = _points(
            {
                StartKind.WHAT: what,
                StartKind.IDENTIFIER: identifier,
                StartKind.EVENT: event,
                StartKind.RUN: run,
                StartKind.DATASET: dataset,
                StartKind.FLOWFILE: flowfile,
            }
        )
        bounds = _bounds(events_max, depth, since, until, direction)
        lineage = self._lineage(points, bounds, writer, as_of, failed=failed)
        document = lineage_document(lineage, self._settings.query.attribute_characters_max)
        return _json(msgspec.structs.replace(document, as_of={}) if _hides_events() else document)

    def lineage_export(
        self,
        what: Starts = None,
        flowfile: Starts = None,
        identifier: Starts = None,
        event: Starts = None,
        run: Starts = None,
        dataset: Starts = None,
        *,
        form: Annotated[ExportFormat, Query(alias="format")] = ExportFormat.JSON,
        depth: Annotated[int | None, Query(ge=0, le=1000)] = 1,
        direction: Toward = Toward.BOTH,
        failed: Annotated[bool, Query(description="Only what failed, and the way to it.")] = False,
        events_max: Annotated[int, Query(ge=1, le=NODES_MAX)] = NODES_MAX,
        since: Moment = None,
        until: Moment = None,
        writer: Writer = None,
        as_of: AsOf = None,
    ) -> Response:
        """The same lineage in a format for other programs."""
        points = _points(
            {
                StartKind.WHAT: what,
                StartKind.IDENTIFIER: identifier,
                StartKind.EVENT: event,
                StartKind.RUN: run,
                StartKind.DATASET: dataset,
                StartKind.FLOWFILE: flowfile,
            }
        )
        bounds = _bounds(events_max, depth, since, until, direction)
        lineage = self._lineage(points, bounds, writer, as_of, failed=failed)
        # A picture is opened by a browser: its text is inert there, and as text it can do nothing at all.
        return Response(export(self._repository.diagram(lineage), form), media_type="text/plain; charset=utf-8")

    def dag_runs(
        self,
        *,
        dag_id: Name | None = None,
        limit: Annotated[int, Query(ge=1, le=QUARANTINED_MAX)] = 100,
        writer: Writer = None,
        as_of: AsOf = None,
    ) -> Response:
        """Runs of one of Airflow's DAGs, or of all, the newest first."""
        return _json(dag_runs(self._repository, dag_id, limit, writer, _moment(as_of)))

    def dag_run(
        self,
        dag_id: Name,
        run_id: Name,
        task_id: Name | None = None,
        map_index: Annotated[
            int | None, Query(ge=-1, le=_ID_MAX, description="-1 for a task that is not mapped.")
        ] = None,
        writer: Writer = None,
        as_of: AsOf = None,
    ) -> Response:
        """What a run of one of Airflow's DAGs, or a task of it, read and wrote."""
        contents = ContentPlaces(self._settings.content_store, as_of)
        return _json(dag_run(self._repository, contents, dag_id, run_id, task_id, map_index, writer, _moment(as_of)))

    def status(self) -> Response:
        """What is live, what waits, and the room that it takes."""
        return _json(self._repository.status())

    def timeline(
        self,
        writer: str,
        *,
        limit: Annotated[int, Query(ge=1, le=PAGE_MAX)] = 100,
        before: Annotated[int | None, Query(ge=0, le=_ID_MAX, description="Only revisions before this one.")] = None,
        since: Moment = None,
        reasons: Annotated[
            bool, Query(description="Only what forgot, held, released, lost or mended something, or let it go.")
        ] = False,
    ) -> Response:
        """What the transactions of a writer's catalog did, the newest first; perhaps those with reasons alone."""
        workspace = self._workspace(writer)
        state, catalog = workspace.state(), workspace.catalog
        floor = max(state.floor, 0)
        if since is not None:
            floor = max(floor, _first_since(catalog, time_span(since, _now_ms())[0]))
        last = state.revision if before is None else min(before - 1, state.revision)
        first = max(last - (LOOKED_AT_MAX if reasons else limit) + 1, floor)
        items = [] if last < first else [summary_of(one) for one in catalog.timeline(first, last)][::-1]
        if reasons:
            items = [one for one in items if one.reasons]
            first = first if len(items) <= limit else items[limit - 1].revision
            items = items[:limit]
        known = {"limit": limit, "before": first, "since": since, "reasons": "true" if reasons else None}
        following = (
            f"timeline/{writer}?{urlencode({name: value for name, value in known.items() if value is not None})}"
        )
        return _json(Timeline(writer=writer, items=items, next=following if last >= first > floor else None))

    def difference(
        self,
        writer: str,
        former: Annotated[str, Query(max_length=100, description="A revision, or a time.")],
        later: Annotated[
            str | None, Query(max_length=100, description="The same; the newest one if not given.")
        ] = None,
    ) -> Response:
        """What differs between two revisions of a writer's catalog: what became live or ceased to be, and why."""
        workspace = self._workspace(writer)
        catalog, visibility = workspace.catalog, workspace.visibility
        newest = catalog.load().revision
        ends = [newest if text is None else _revision(catalog, text) for text in (former, later)]
        repairs = repairs_between(catalog, ends[0], ends[1], LOOKED_AT_MAX)
        mask = None if visibility is None else visibility.mask
        summary = difference_summary(catalog.difference(*ends), mask, repairs)
        sizes = {name: len(getattr(summary, name)) for name in summary.__struct_fields__}
        cut = {name: getattr(summary, name)[:DIFFERENCE_MAX] for name in sizes}
        return _json(
            CatalogDifference(
                writer=writer, former=ends[0], later=ends[1], sizes=sizes, entries=DifferenceSummary(**cut)
            )
        )

    def chain(self, writer: str) -> Response:
        """Whether a writer's transactions are those that were committed; each one that is kept is read and checked."""
        catalog = self._workspace(writer).catalog
        with self._stream():
            found = verify(catalog, files=False)
        root = f"{self._settings.root}/"
        state = None if found.state is None or found.state.revision < 0 else found.state
        return _json(
            CatalogChain(
                writer=writer,
                revision=None if state is None else state.revision,
                digest=None if state is None else state.digest.hex(),
                revisions=found.revisions,
                checkpoints=found.checkpoints,
                defects=[str(defect).replace(root, "") for defect in found.defects],
                notices=[notice.replace(root, "") for notice in found.notices],
            )
        )

    def quarantine(self, *, limit: Annotated[int, Query(ge=1, le=QUARANTINED_MAX)] = 100) -> Response:
        """What could not be stored, and why; the newest first."""
        entries = sorted(self._repository.quarantine.entries(), key=lambda entry: -entry.received_ms)
        return _json(Quarantined(items=entries[:limit], total=len(entries)))

    def holds(self) -> Response:
        """What no retention lets go."""
        return _json(Holds(items=self._repository.holds()))

    def attestations(self) -> Response:
        """What the attestations that are kept prove of the catalogs."""
        return _json(Attestations(items=self._repository.attestations()))

    def retention(self) -> Response:
        """What the next retention would let go."""
        return _json(self._repository.plan_retention())

    async def sql(self, request: Request) -> Response:
        """The rows of one SELECT over events, logs and transactions."""
        question = await _body(request, _SQL_QUESTION)
        _check_writer(question.writer)
        most = SQL_ROWS_MAX if question.format is SqlForm.JSON else SQL_SAVED_ROWS_MAX
        if not 1 <= question.limit <= most or not 0 < question.seconds <= SQL_SECONDS_MAX:
            raise InvalidInputError(f"expected a limit of 1 to {most} rows, and at most {SQL_SECONDS_MAX:g} seconds.")
        if question.format is SqlForm.JSON:
            return _json(await run_in_threadpool(self._rows, question))
        return await run_in_threadpool(self._saved_rows, question)

    def _searched(self, question: SearchQuestion, following: Callable[[str], str], *, explain: bool) -> EventPage:
        with counted() as counter:
            result = self._repository.search(
                question.query,
                limit=question.limit,
                cursor=question.cursor,
                oldest_first=question.oldest_first,
                writer=_check_writer(question.writer),
                as_of=_moment(question.as_of),
            )
        after = None if result.cursor is None else following(result.cursor)
        longest = self._settings.query.attribute_characters_max
        page = event_page(result, after, longest, counter.traffic, explain=explain)
        return msgspec.structs.replace(page, as_of={}) if _hides_events() else page

    @as_one_question
    def _event(self, writer: str, event_id: int, as_of: str | None = None) -> Event:
        self._workspace(writer)
        if not 0 <= event_id <= _ID_MAX:
            raise NotFoundError(f"writer {writer!r} has no event {event_id}.")
        return self._repository.get(event_id, writer, as_of=_moment(as_of))

    def _revision_with(self, writer: str, event_id: int, moment: KnownMoment | None) -> dict[str, int]:
        """Return the revision that an event was found in; none where it waits in a journal, or events are hidden."""
        if _hides_events():
            return {}
        workspace = self._workspace(writer)
        if moment is None:
            state = workspace.state()
            return {writer: state.revision} if event_id < state.next_event_id else {}
        if isinstance(moment, datetime):
            return {writer: workspace.catalog.revision_at((moment - _EPOCH) // timedelta(milliseconds=1))}
        return {writer: moment if isinstance(moment, int) else moment[writer]}

    def _workspace(self, writer: str) -> Workspace:
        # A name that no writer has makes no folder, and is no path.
        if not is_name(writer) or writer not in [one.writer for one in self._repository.workspaces()]:
            raise NotFoundError(f"there is no writer {writer[:80]!r}.")
        return self._repository.workspace(writer)

    def _found_content(self, writer: str, event_id: int, as_of: str | None, *, previous: bool) -> Content:
        event = self._event(writer, event_id, as_of)
        claim = event.previous_content_claim if previous else event.content_claim
        state = ContentReader(PosixFileSystem(), self._settings.content_store).availability(claim)
        if state in (Availability.GONE, Availability.ERASED):
            raise GoneError(f"the content of event {event_id} of {writer} is {state}.")
        return self._repository.content(event, previous=previous)

    def _content(self, request: Request, content: Content) -> Response:
        """Return the bytes of a content, with a notice where its event states another one."""
        differs = content.differs
        told = [] if differs is None else [f"{differs}.".replace(f"{self._settings.root}/", "")]
        return _content_answer(request, content, notices_header(told))

    def _lineage(
        self,
        points: Sequence[StartingPoint],
        bounds: Bounds,
        writer: str | None,
        as_of: str | None,
        *,
        failed: bool,
    ) -> Lineage:
        for point in points:
            by, _, _ = point.text.rpartition(":")
            if point.kind is StartKind.EVENT and by:
                self._workspace(by)
        repository = self._repository
        lineage = repository.lineage_from(points, bounds, writer=_check_writer(writer), as_of=_moment(as_of))
        if failed:
            lineage = lineage.only_failures()
        longest = self._settings.query.attribute_characters_max
        return lineage.with_events(partial(shortened, characters_max=longest))

    def _rows(self, question: SqlQuestion) -> SqlRows:
        with (
            self._stream(),
            self._repository.sql(
                question.query,
                seconds_max=question.seconds,
                writer=question.writer,
                as_of=_moment(question.as_of),
            ) as result,
        ):
            # One row more is read, to see whether there is one.
            rows = list(islice(plain_rows(result.batches()), question.limit + 1))
            return SqlRows(
                columns=result.schema.names,
                types=[str(field.type) for field in result.schema],
                rows=rows[: question.limit],
                is_cut=len(rows) > question.limit,
                notices=result.notices,
            )

    def _saved_rows(self, question: SqlQuestion) -> Response:
        media_type, encode = ENCODERS[question.format]
        with (
            self._stream(),
            self._repository.sql(
                question.query,
                seconds_max=question.seconds,
                writer=question.writer,
                as_of=_moment(question.as_of),
            ) as result,
        ):
            found = FirstRows.of(result.schema, result.batches(), question.limit)
            notices = result.notices
        headers = {
            **_AS_IT_IS,
            "Cache-Control": "private, no-cache",
            "Custody-Is-Cut": str(found.is_cut).lower(),
            **notices_header(notices),
        }
        return Response(encode(found), headers=headers, media_type=media_type)

    @contextmanager
    def _stream(self) -> Iterator[None]:
        if not self._streams.acquire(blocking=False):
            raise BackpressureError(f"{STREAMS_MAX} exports or queries in SQL are being answered.")
        try:
            yield
        finally:
            self._streams.release()

    def _as_one_of_few(self, pieces: Generator[bytes]) -> Iterator[bytes]:
        """Return the pieces, the first of them read already."""
        held = self._stream()
        held.__enter__()
        try:
            first = next(pieces, b"")
        except BaseException:
            held.__exit__(None, None, None)
            raise

        def following() -> Iterator[bytes]:
            try:
                yield first
                yield from pieces
            finally:
                # Not left to the collector: a process may stand behind it.
                pieces.close()
                held.__exit__(None, None, None)

        return following()


def _route_of(operation: ApiOperation) -> Operation:
    """Return the route of an operation, with its description."""
    name, method = operation.answer.__name__, operation.method
    good: dict[str, Any] = {"content": {kind: {} for kind in _FORMS.get(name, ())}}
    if operation.document is not None:
        good["content"]["application/json"] = {"schema": schema_of(operation.document)}
    # What is refused before it comes here, such as a path that leads nowhere, has the server's own plain shape.
    content = {MEDIA_TYPE: {"schema": schema_of(ProblemDocument)}, "application/json": {}}
    bad = {"description": "A problem", "content": content}
    scope, shows = operation.right.scope, operation.right.shows
    extra: dict[str, Any] = {"security": [{"token": [scope]}], "x-custody-shows": shows}
    if operation.body is not None:
        extra["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": schema_of(operation.body)}},
        }
    known: dict[int | str, dict[str, Any]] = (
        {304: {"description": "As the sender has it already (If-None-Match)"}} if method == "GET" else {}
    )
    return Operation(
        operation.path,
        operation.answer,
        right=operation.right,
        methods=[method],
        operation_id=name if method != "HEAD" else f"{name}_head",
        summary=(operation.answer.__doc__ or name).splitlines()[0],
        response_model=None,
        responses={operation.status: {"description": "The answer", **good}, **known, "4XX": bad, "5XX": bad},
        status_code=operation.status,
        dependencies=[Depends(check_origin)] if operation.changes else None,
        openapi_extra=extra,
    )


# Without a default: an operation that is not called by `_Seen` fails, and does not show everything.
_SEEN: ContextVar[Visibility | None] = ContextVar("custody.seen")


class _Seen:
    """Lets every operation answer with what the sender of a request may see."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        token = _SEEN.set(visibility_of(scope))
        try:
            await self._app(scope, receive, send)
        finally:
            _SEEN.reset(token)


async def _body(request: Request, form: msgspec.json.Decoder[_Answer]) -> _Answer:
    data = await bounded_body(request, _BODY_BYTES_MAX, 30)
    try:
        return form.decode(data)
    # JSON that is nested too deeply ends in a RecursionError; text that is no UTF-8 in the other.
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"body: {error}.") from None


def _check_writer(writer: str | None) -> str | None:
    if writer is not None and not is_name(writer):
        raise NotFoundError(f"there is no writer {writer[:80]!r}.")
    return writer


def _hides_events() -> bool:
    """Whether events are hidden from the sender of the request: revisions would tell how often others store some."""
    seen = _SEEN.get()
    return seen is not None and seen.hides_events


def _moment(text: str | None) -> KnownMoment | None:
    """Return a revision, revisions of writers, or the end of what a text means as a time."""
    if text is None:
        return None
    revisions = int(text) if _REVISION.fullmatch(text) else parse_revisions(text)
    if revisions is not None:
        if _hides_events():
            raise InvalidInputError(
                "as_of: expected a time, for you may see some events only, and a revision counts all."
            )
        return revisions
    return _datetime(time_span(text, _now_ms())[1])


def _revision(catalog: Catalog, text: str) -> int:
    """Return the revision that a text means: a number, or the last one committed by a time."""
    moment = _moment(text)
    return moment if isinstance(moment, int) else catalog.revision_at(time_span(text, _now_ms())[1])


def _first_since(catalog: Catalog, time_ms: int) -> int:
    """Return the first revision that was committed at a time or after it."""
    try:
        return catalog.revision_at(time_ms - 1) + 1
    except (NotFoundError, PrunedError):
        return 0  # all that is kept came later


def _points(named: Mapping[StartKind, list[str] | None]) -> list[StartingPoint]:
    # FlowFiles last: what is expanded is one, and the lineage begins at what was asked for first.
    return [
        StartingPoint.of(text) if kind is StartKind.WHAT else StartingPoint(kind, text)
        for kind, texts in named.items()
        for text in texts or ()
    ]


def _bounds(events_max: int, depth: int | None, since: str | None, until: str | None, direction: Toward) -> Bounds:
    first, last = _times(since, until)
    return Bounds(events_max, depth, first, last, toward=direction)


def _times(since: str | None, until: str | None) -> tuple[int | None, int | None]:
    first = None if since is None else time_span(since, _now_ms())[0]
    last = None if until is None else time_span(until, _now_ms())[1]
    return first, last


def _datetime(time_ms: int) -> datetime:
    try:
        return _EPOCH + timedelta(milliseconds=time_ms)
    except OverflowError:
        raise InvalidInputError("time: expected one of the years 1 to 9999.") from None


def _iso(time_ms: int) -> str:
    return _datetime(time_ms).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _now_ms() -> int:
    return int(datetime.now(UTC).timestamp() * 1000)


def _content_answer(request: Request, content: Content, notices: Mapping[str, str]) -> Response:
    # Bytes from outside: a browser must neither guess their type nor run them.
    headers = {
        **notices,
        **_AS_IT_IS,
        "Accept-Ranges": "bytes",
        "Content-Disposition": "attachment",
        "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": "default-src 'none'; sandbox",
        "Cache-Control": "private, no-cache",
    }
    if content.sha256 is not None:
        headers["ETag"] = f'"{content.sha256}"'
    start, length = 0, content.size
    wanted = _RANGE.fullmatch(request.headers.get("range", ""))
    is_same = request.headers.get("if-range") in (None, headers.get("ETag"))
    status = 200
    if wanted is not None and any(wanted.groups()) and is_same:
        start, length = _range(wanted, content.size)
        status = 206
        headers["Content-Range"] = f"bytes {start}-{start + length - 1}/{content.size}"
        claim = msgspec.structs.replace(content.claim, offset=(content.claim.offset or 0) + start, size=length)
        content = msgspec.structs.replace(content, claim=claim)
    headers["Content-Length"] = str(length)
    if request.method == "HEAD":
        return Response(status_code=status, headers=headers, media_type="application/octet-stream")
    pieces = content.chunks()
    # The first piece before the status: a content that is damaged from the beginning on is answered as such.
    first = next(pieces, b"")

    def following() -> Iterator[bytes]:
        yield first
        yield from pieces

    return StreamingResponse(following(), status, headers, media_type="application/octet-stream")


def _range(wanted: re.Match[str], size: int) -> tuple[int, int]:
    first, last = wanted.groups()
    if not first:
        start, stop = max(size - int(last), 0), size
    else:
        start, stop = int(first), min(int(last) + 1 if last else size, size)
    if start >= stop:
        raise HTTPException(416, f"expected a range within {size} bytes", {"Content-Range": f"bytes */{size}"})
    return start, stop - start


def _json(document: object) -> Response:
    headers = {"Cache-Control": "private, no-cache", "Vary": "Accept, Authorization, Cookie"}
    return Response(msgspec.json.encode(document), headers=headers, media_type="application/json")


def _version() -> str:
    try:
        return version("custody")
    except PackageNotFoundError:
        return "unknown"
