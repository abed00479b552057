"""The door for OpenLineage: the endpoints of its clients; each event is stored once, and durable before the answer.

A client takes any 2xx for good, tries again after 503 (the Python clients; the Java client never does), and drops the
event for good after everything else. So what can be kept is answered with 2xx, also where it only went to the
quarantine, and 503 says that nothing is known to be stored.

Clients differ in what they make of the configured URL: the Python client appends `api/v1/lineage` to its folder, the
Java client takes a URL with a path as it is. So both paths are answered, at the root and below `/openlineage`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from custody.capture import Rejected
from custody.ingest.ingest import Delivery, DeliveryReport, RefusedPiece, UnreadDelivery, delivery_of_text
from custody.serving.access import Scope
from custody.serving.application import producer_of
from custody.serving.door import Measure, Services
from custody.serving.http_requests import BodyRefusedError, bounded_body
from custody.serving.lineage_body import BodyProcess, LineageBody, split_body
from custody.serving.route_rights import DoorMount, DoorRoute, RouteRight, Shows

ONE = "/api/v1/lineage"
BATCH = "/api/v1/lineage/batch"
PREFIX = "/openlineage"
_SHORT_BYTES = 16 << 10
"""A longer body is cut in a thread. To change threads costs about as much as a body of this length."""
_LONG_BYTES = 256 << 10
"""A longer event is read in a process. Decoding one of this length takes the interpreter for some milliseconds."""
_REASON_CHARACTERS_MAX = 300
_OF_FORMS = frozenset({"text/plain", "application/x-www-form-urlencoded", "multipart/form-data"})
"""Types that a page may send to any site without asking its server; no client of OpenLineage sends them."""
_FAILED_MAX = 1000
"""So many bad events of a batch are listed in the answer; all of them are counted."""


class OpenLineageDoor:
    """Takes run, dataset and job events, one or many in a body, plain or gzip.

    Args:
        services: of the server; the section `serve` has the limits.
    """

    name = "openlineage"

    def __init__(self, services: Services) -> None:
        self._options = services.settings.serve
        self._services = services
        self._capture = services.settings.capture
        self._intake = services.intake
        self._process = BodyProcess()
        # Now, for it takes a second or two: a client waits for the answer to its first large event for five.
        self._process.start()
        self._reading = asyncio.Semaphore(1)
        self._counts = {"stored": 0, "repeated": 0, "quarantined": 0}

    def routes(self) -> Sequence[DoorRoute | DoorMount]:
        """Return the endpoints of the Python and of the Java client."""
        paths = (ONE, PREFIX, f"{PREFIX}/", f"{PREFIX}{ONE}")
        batches = (BATCH, f"{PREFIX}{BATCH}")
        right = RouteRight(Scope.APPEND, Shows.NOTHING)
        return [
            *(DoorRoute(path, self.take, methods=["POST"], right=right) for path in paths),
            *(DoorRoute(path, self.take_batch, methods=["POST"], right=right) for path in batches),
        ]

    def ready(self) -> str | None:
        """Return why the last batch could not be stored, or none should be."""
        return self._services.problem() or self._intake.problem

    def metrics(self) -> Iterable[Measure]:
        """Return how many events were stored, repeated, or put into the quarantine."""
        for outcome, count in self._counts.items():
            yield Measure(
                "openlineage_events",
                "counter",
                "Events that came, by what became of them.",
                count,
                (("outcome", outcome),),
            )

    def close(self) -> None:
        """End the process that reads large bodies; what waits belongs to the intake."""
        self._process.close()

    async def take(self, request: Request) -> Response:
        """Take one event; an array, or an event a line, is answered as a batch is."""
        report = await self._stored(request)
        pieces = report.counts.read + sum(1 for piece in report.refused if piece.code != "contradiction")
        if pieces != 1:
            return _batch_answer(report)
        if report.refused:
            return _kept_answer(report.refused[0])
        document = {"stored": report.counts.stored, "repeated": report.counts.repeated}
        return _json(201 if report.counts.stored else 200, document)

    async def take_batch(self, request: Request) -> Response:
        """Take an array of events; the good ones are stored, whatever the others are."""
        return _batch_answer(await self._stored(request))

    async def _stored(self, request: Request) -> DeliveryReport:
        """Store what a request brings, and return what became of it.

        Raises:
            BodyRefusedError: it is too large, too slow, or encoded in an unknown way.
            CustodyError: it is unknown whether anything was stored.
        """
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() in _OF_FORMS:
            raise BodyRefusedError(415, "content-type", "expected Content-Type: application/json")
        coding = request.headers.get("content-encoding", "identity").strip().lower() or "identity"
        if coding not in ("identity", "gzip", "x-gzip"):
            raise BodyRefusedError(415, "content-encoding", "expected a body as it is, or gzip")
        limits = self._capture
        raw = await bounded_body(request, limits.body_bytes_max, self._options.body_seconds)
        body = LineageBody(
            raw, coding != "identity", limits.body_bytes_max, limits.body_events_max, limits.event_bytes_max
        )
        # Neither query nor login: both may hold secrets. The host is the sender's word.
        delivery = await self._delivery(body, request.url.path, producer_of(request))
        report = await self._intake.take(delivery)
        self._counts["stored"] += report.counts.stored
        self._counts["repeated"] += report.counts.repeated
        self._counts["quarantined"] += report.counts.rejected
        return report

    async def _delivery(self, body: LineageBody, origin: str, producer: str | None) -> Delivery:
        """Return what a body delivers: cut here or in a thread by its length, and read in a process if it has to be."""
        if not body.is_zipped and len(body.raw) <= _SHORT_BYTES:
            text = split_body(body)
            fields = {"origin": origin, "format": text.format, "size": len(body.raw), "producer": producer}
            return UnreadDelivery(outcomes=(), text=text, **fields)  # type: ignore[arg-type]
        # One at a time: reading takes memory, and the processor from everybody else.
        async with self._reading:
            return await asyncio.to_thread(self._read, body, origin, producer)

    def _read(self, body: LineageBody, origin: str, producer: str | None) -> Delivery:
        text = split_body(body)
        size = sum(len(piece.raw) for piece in text.pieces)
        if all(isinstance(piece, Rejected) or len(piece.raw) <= _LONG_BYTES for piece in text.pieces):
            return delivery_of_text(text, origin, size, producer=producer)
        outcomes = self._process.read(body)
        return Delivery(origin=origin, format=text.format, outcomes=outcomes, size=size, producer=producer)


def _kept_answer(piece: RefusedPiece) -> Response:
    """Return the answer for a body that went to the quarantine as a whole.

    400 for what is no JSON at all, as it cannot have been an event. Everything else is 202: a client that got 4xx would
    not send it again either, and its log would call it lost, which it is not.
    """
    document = {"error": piece.code, "message": piece.message[:_REASON_CHARACTERS_MAX], "quarantine": piece.key}
    return _json(400 if piece.code in ("not-json", "bad-gzip", "empty", "not-an-object") else 202, document)


def _batch_answer(report: DeliveryReport) -> Response:
    """Return the answer for several events, in the form that the specification has for batches."""
    good = report.counts.stored + report.counts.repeated
    failed = report.counts.rejected
    document = {
        "status": "success" if not failed else "partial_success",
        "summary": {
            "received": good + failed,
            "successful": good,
            "failed": failed,
            "retriable": 0,
            "non_retriable": failed,
            "stored": report.counts.stored,
            "repeated": report.counts.repeated,
        },
        "failed_events": [
            {
                "index": piece.index,
                "offset": piece.offset,
                "reason": piece.message[:_REASON_CHARACTERS_MAX],
                "retriable": False,
                "code": piece.code,
                "quarantine": piece.key,
            }
            for piece in report.refused[:_FAILED_MAX]
        ],
    }
    return _json(200, document)


def _json(status: int, document: object) -> Response:
    return Response(msgspec.json.encode(document), status, media_type="application/json")
