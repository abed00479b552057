"""The door for events of any producer: `POST /events` in JSON, NDJSON, Avro or Arrow, `PUT /contents/{sha256}` before.

Answers are given when the events are durable. Each event is stored once: it is known by its source and ordinal, by its
place in a batch with an `Idempotency-Key`, or by its content. So whoever got no answer sends the same again. Of a body
the good events are stored and each bad piece is named in the answer, by its position, and is in the quarantine; with
`Prefer: handling=strict` a body with a piece that cannot be read is refused as a whole.

An event that names a content which is not there is no bad piece: nothing of the body is stored, and the answer 409
names the missing contents.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from custody.capture import Accepted, CaptureLimits, Format, Outcome, Rejected
from custody.capture.custody_json import check_content_name
from custody.errors import InvalidInputError, NotFoundError
from custody.flow.content import StoredContent, with_content
from custody.ingest.ingest import BatchDelivery, ColumnDelivery, Delivery, DeliveryReport, delivery_of_text
from custody.serving.access import Scope
from custody.serving.application import Problem, grant_of, passed_on
from custody.serving.door import Measure, Services
from custody.serving.event_body import ARROW, AVRO, JSON, BodyHead, EventBody, read_body
from custody.serving.http_requests import BodyRefusedError, bounded_body, refuse_one_too_large, unzipped
from custody.serving.route_rights import DoorMount, DoorRoute, RouteRight, Shows
from custody.serving.uploads import Upload, Uploads
from custody.vfs import PosixFileSystem

_CONTENT = b"content_sha256"
_CODINGS = ("", "identity", "gzip", "x-gzip")
_NAME_CHARACTERS_MAX = 255
"""Of a key of a batch, and of the name of a source."""
_SHORT_BYTES = 4 << 10
"""A longer body is read in a thread. To change threads costs about as much as a body of this length."""
_LISTED_MAX = 1000
"""So many bad pieces are listed in an answer; all of them are counted."""


class _RefusedError(Exception):
    """A request that is answered with an error; nothing of it is stored."""

    def __init__(self, problem: Response) -> None:
        super().__init__()
        self.problem = problem


class EventsDoor:
    """Takes events, and the contents that they name.

    Args:
        services: of the server; the section `serve` has the limits.
    """

    name = "events"

    def __init__(self, services: Services) -> None:
        self._options = services.settings.serve
        self._capture = services.settings.capture
        self._services = services
        self._intake = services.intake
        self._limits = CaptureLimits(
            event_bytes_max=self._capture.event_bytes_max,
            file_bytes_max=self._capture.body_bytes_max,
            pieces_max=self._capture.body_events_max,
        )
        self._uploads = Uploads(
            PosixFileSystem(),
            services.settings.uploads,
            services.clock,
            self._options.uploads_bytes_max,
            self._options.upload_hours,
        )
        # One large body at a time: reading it takes memory, and the processor from everybody else.
        self._reading = asyncio.Semaphore(1)
        self._counts = {"stored": 0, "repeated": 0, "rejected": 0}
        self._contents = 0

    def routes(self) -> Sequence[DoorRoute | DoorMount]:
        """Return the routes of events and of contents."""
        right = RouteRight(Scope.APPEND, Shows.NOTHING)
        return [
            DoorRoute("/events", self.take, methods=["POST"], right=right),
            DoorRoute("/contents/{sha256}", self.keep_content, methods=["PUT"], right=right),
            DoorRoute("/contents/{sha256}", self.look_at_content, methods=["GET", "HEAD"], right=right),
        ]

    def ready(self) -> str | None:
        """Return why the last batch could not be stored, or none should be."""
        return self._services.problem() or self._intake.problem

    def metrics(self) -> Iterable[Measure]:
        """Return how many events were stored, repeated and rejected, and what waits of contents."""
        for outcome, count in self._counts.items():
            yield Measure(
                "events_delivered",
                "counter",
                "Events that came, by what became of them.",
                count,
                (("outcome", outcome),),
            )
        yield Measure("contents_delivered", "counter", "Contents that came before their events.", self._contents)
        waiting = self._uploads.waiting_bytes
        yield Measure("contents_waiting_bytes", "gauge", "Bytes of contents that wait for their events.", waiting)

    def close(self) -> None:
        """Do nothing: what waits belongs to the intake."""

    async def take(self, request: Request) -> Response:
        """Take the events of one body."""
        try:
            head = replace(_head(request), zone=self._services.settings.capture.nifi_zone)
            delivery = await self._delivery(request, head)
            report = await self._intake.take(delivery)
        except _RefusedError as refused:
            return refused.problem
        for outcome in self._counts:
            self._counts[outcome] += getattr(report.counts, outcome)
        return _json(200, _answer(report))

    async def keep_content(self, request: Request) -> Response:
        """Take one content, whose digest is in the path; a second delivery changes nothing."""
        sha256 = request.path_params["sha256"]
        try:
            check_content_name(sha256)
        except InvalidInputError as error:
            return Problem(400, "digest", str(error))
        declared = request.headers.get("content-length", "")
        size = int(declared[:20]) if declared.isdigit() else None
        if size is not None and size > self._options.content_bytes_max:
            raise self._too_large()
        if request.headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
            return Problem(415, "content-encoding", "expected a content as it is")
        sender = grant_of(request).name
        if self._uploads.has(sha256, sender):
            return _json(200, {"sha256": sha256, "is_new": False})
        upload = await asyncio.to_thread(self._uploads.begin, sha256, size, sender)
        try:
            await self._receive(request, upload)
            await asyncio.to_thread(upload.finish)
        except InvalidInputError as error:
            return Problem(422, "digest", str(error))
        finally:
            await asyncio.to_thread(upload.abandon)
        self._contents += 1
        return _json(201, {"sha256": sha256, "is_new": True})

    async def _receive(self, request: Request, upload: Upload) -> None:
        """Write the body of a request to a content.

        Raises:
            BodyRefusedError: it is too large, or too slow.
        """
        seconds = self._options.body_seconds
        stream = aiter(request.stream())
        received = 0
        while True:
            try:
                # Held to the time of a body for each piece, not for all of it: a content may be large.
                async with asyncio.timeout(seconds):
                    chunk = await anext(stream, None)
            except TimeoutError:
                raise BodyRefusedError(408, "slow", f"a piece took more than {seconds:g} s") from None
            if chunk is None:
                return
            received += len(chunk)
            if received > self._options.content_bytes_max:
                raise self._too_large()
            if chunk:
                await asyncio.to_thread(upload.write, chunk)
                passed_on(request, len(chunk))

    def _too_large(self) -> BodyRefusedError:
        most = self._options.content_bytes_max
        return BodyRefusedError(
            413, "too-large", f"expected a content of at most {most} bytes (serve.content_bytes_max)"
        )

    async def look_at_content(self, request: Request) -> Response:
        """Report whether a content of the sender waits for events; its bytes are not given out here."""
        sha256 = request.path_params["sha256"]
        try:
            check_content_name(sha256)
        except InvalidInputError as error:
            return Problem(400, "digest", str(error))
        if not self._uploads.has(sha256, grant_of(request).name):
            return Problem(404, "not-found", "no such content waits for events")
        return _json(200, {"sha256": sha256})

    async def _delivery(self, request: Request, head: BodyHead) -> Delivery:
        body = await bounded_body(request, self._capture.body_bytes_max, self._options.body_seconds)
        if not body.strip():
            raise _RefusedError(Problem(400, "empty", "expected at least one event, got an empty body"))
        # What names contents is read in a thread, too: to store them waits for the disk.
        if len(body) <= _SHORT_BYTES and not head.is_zipped and head.media_type in JSON and _CONTENT not in body:
            return self._checked(self._body(body, head), head, len(body))
        # The number of those that wait here is bounded, like all that wait, by `requests_max`.
        async with self._reading:
            return await asyncio.to_thread(self._read, body, head)

    def _read(self, body: bytes, head: BodyHead) -> Delivery:
        if head.is_zipped:
            try:
                body = unzipped(body, self._capture.body_bytes_max)
            except InvalidInputError as error:
                raise BodyRefusedError(400, "bad-gzip", str(error)) from None
        return self._checked(self._body(body, head), head, len(body))

    def _body(self, body: bytes, head: BodyHead) -> EventBody:
        try:
            return read_body(body, head, self._limits)
        except InvalidInputError as error:
            raise _RefusedError(Problem(422, "bad-body", str(error))) from None

    def _checked(self, read: EventBody, head: BodyHead, size: int) -> Delivery:
        """Return what is stored of a body, with its contents.

        Raises:
            _RefusedError: contents are missing, or it is to be stored as a whole and cannot.
        """
        bad = [outcome for outcome in read.outcomes if isinstance(outcome, Rejected)]
        bad += [outcome for batch in read.batches for outcome in batch.rejected]
        pieces = len(read.outcomes) + sum(len(batch.numbers) + len(batch.rejected) for batch in read.batches)
        if read.text is not None:
            refuse_one_too_large(read.text.pieces)
        elif pieces == 1:
            refuse_one_too_large(bad)
        if bad and head.is_strict:
            listed = [
                {"index": item.place.index, "code": item.problem.code, "message": item.problem.message}
                for item in bad[:_LISTED_MAX]
            ]
            document = {"error": "rejected", "message": f"{len(bad)} pieces cannot be stored", "rejected": listed}
            raise _RefusedError(_json(422, document))
        outcomes = self._with_contents(read, head.sender) if read.contents else read.outcomes
        fields = {"origin": head.origin, "format": read.format, "outcomes": outcomes, "size": size, "node": head.node}
        fields["producer"] = head.producer
        if read.text is not None:
            return delivery_of_text(read.text, head.origin, size, head.node, head.producer)
        if read.batches:
            return BatchDelivery(batches=read.batches, **fields)  # type: ignore[arg-type]
        if read.events is None:
            return Delivery(**fields)  # type: ignore[arg-type]
        return ColumnDelivery(events=read.events, rows=read.rows, **fields)  # type: ignore[arg-type]

    def _with_contents(self, read: EventBody, sender: str) -> Sequence[Outcome]:
        """Store the contents that the events name, and return the events with their claims."""
        wanted = sorted(set(read.contents.values()))
        missing = [sha256 for sha256 in wanted if not self._uploads.has(sha256, sender)]
        try:
            if missing:
                raise NotFoundError(missing[0])
            # Before the events, so that no event speaks of a content that is not there.
            stored = {sha256: self._stored(sha256, sender) for sha256 in wanted}
        except NotFoundError:
            message = "contents are missing: deliver them, PUT /contents/{sha256}, and then the same events again"
            document = {"error": "content-missing", "message": message, "missing": missing or wanted}
            raise _RefusedError(_json(409, document)) from None
        return [
            replace(outcome, event=with_content(outcome.event, stored[read.contents[number]]))
            if isinstance(outcome, Accepted) and number in read.contents
            else outcome
            for number, outcome in enumerate(read.outcomes)
        ]

    def _stored(self, sha256: str, sender: str) -> StoredContent:
        return self._services.writer.content.put_stream(self._uploads.read(sha256, sender))


def _head(request: Request) -> BodyHead:
    """Return what the head of a request says of its body.

    Raises:
        _RefusedError: it says something that the door does not know; a mistyped parameter is not passed over.
    """
    headers, query = request.headers, request.query_params
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type not in JSON | AVRO | {ARROW}:
        expected = "application/json, application/x-ndjson, avro/binary or application/vnd.apache.arrow.stream"
        raise _RefusedError(Problem(415, "content-type", f"expected {expected}"))
    coding = headers.get("content-encoding", "").strip().lower()
    if coding not in _CODINGS:
        raise _RefusedError(Problem(415, "content-encoding", "expected a body as it is, or gzip"))
    unknown = sorted(set(query) - {"format", "node"})
    if unknown or len(query.multi_items()) > len(query):
        raise _RefusedError(Problem(400, "query", "expected the parameters format and node, each at most once"))
    format = query.get("format")
    if format is not None and format not in list(Format):
        raise _RefusedError(Problem(400, "format", f"format: expected one of {', '.join(Format)}"))
    node, key = query.get("node"), headers.get("idempotency-key")
    for name, value in (("node", node), ("Idempotency-Key", key)):
        if value is not None and not 0 < len(value) <= _NAME_CHARACTERS_MAX:
            message = f"{name}: expected 1 to {_NAME_CHARACTERS_MAX} characters"
            raise _RefusedError(Problem(400, "name", message))
    return BodyHead(
        media_type=media_type,
        is_zipped=coding not in ("", "identity"),
        format=None if format is None else Format(format),
        node=node,
        key=key,
        is_strict="handling=strict" in headers.get("prefer", "").lower().replace(" ", ""),
        # Neither query nor login: both may hold secrets. The host is the sender's word.
        origin=request.url.path,
        sender=grant_of(request).name,
    )


def _answer(report: DeliveryReport) -> dict[str, object]:
    counts = report.counts
    return {
        "writer": counts.writer,
        "first_event_id": counts.first_event_id,
        "last_event_id": counts.last_event_id,
        "stored": counts.stored,
        "repeated": counts.repeated,
        "rejected": counts.rejected,
        "refused": [
            {
                "index": piece.index,
                "offset": piece.offset,
                "code": piece.code,
                "message": piece.message,
                "quarantine": piece.key,
            }
            for piece in report.refused[:_LISTED_MAX]
        ],
    }


def _json(status: int, document: object) -> Response:
    return Response(msgspec.json.encode(document), status, media_type="application/json")
