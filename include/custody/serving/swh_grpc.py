"""The gRPC service of Software Heritage, for its existing clients (`provenance.proto`).

Where the interface leaves the answer open, it is that of `ProvenanceDatabase`: the earliest revision or release, for
directories too. Field masks are honoured. Health and reflection are served like there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn

import grpc
from google.protobuf.field_mask_pb2 import FieldMask
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from custody.config import Settings
from custody.errors import CustodyError, InvalidInputError, NotFoundError, StorageError
from custody.serving.access import Tokens
from custody.serving.provenance_pb2 import (
    DESCRIPTOR,
    WhereAreOneRequest,
    WhereIsOneRequest,
    WhereIsOneResult,
)
from custody.serving.published_database import PublishedDatabase
from custody.swh.database import Whereabouts
from custody.swh.swhid import Swhid

SERVICE = DESCRIPTOR.services_by_name["ProvenanceService"].full_name
_THREADS = 4
"""Calls share one interpreter: more threads answer no faster."""
_ANCHOR_PATHS = frozenset({"anchor", "revision", "release"})
_LOGGER = logging.getLogger(__name__)


class _Servicer:
    def __init__(self, database: PublishedDatabase, settings: Settings) -> None:
        self._database = database
        self._questions_max = settings.swh.questions_max

    def where_is_one(self, request: WhereIsOneRequest, context: grpc.ServicerContext) -> WhereIsOneResult:
        try:
            return _result(self._database.whereis(Swhid.parse(request.swhid)), request.mask)
        except CustodyError as error:
            _abort(context, error)

    def where_are_one(self, request: WhereAreOneRequest, context: grpc.ServicerContext) -> Iterator[WhereIsOneResult]:
        try:
            swhids = iter([Swhid.parse(text) for text in request.swhid])
            # A part at a time, so that a long list takes no more memory than a short one.
            while part := list(islice(swhids, self._questions_max)):
                for place in self._database.whereis_many(part):
                    if place.is_known:
                        yield _result(place, request.mask)
        except CustodyError as error:
            _abort(context, error)


class _Admission(grpc.ServerInterceptor):  # type: ignore[misc]  # gRPC has no types
    """Lets in calls that bring a token; a call for the health needs none."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens

    def intercept_service(
        self, continuation: Callable[[grpc.HandlerCallDetails], Any], details: grpc.HandlerCallDetails
    ) -> Any:  # noqa: ANN401 - gRPC's handlers have no type
        metadata = {name.lower(): value for name, value in details.invocation_metadata if isinstance(value, str)}
        if details.method.startswith(f"/{health.SERVICE_NAME}/") or self._tokens.admit(metadata):
            return continuation(details)

        def refuse(_: object, context: grpc.ServicerContext) -> None:
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "expected a token: authorization: Bearer …, or x-auth-token")

        return grpc.unary_unary_rpc_method_handler(refuse)


@contextmanager
def serving_rpc(database: PublishedDatabase, settings: Settings, tokens: Tokens | None = None) -> Iterator[str]:
    """Serve in threads for the block and give the address; calls that have begun are answered before the block ends.

    Args:
        database: gives the answers.
        settings: of the repository; the section `swh` applies.
        tokens: a call has to bring one of them; None asks for none.

    Raises:
        StorageError: the address cannot be listened on.
    """
    options = settings.swh
    server = grpc.server(
        ThreadPoolExecutor(_THREADS, "custody-rpc"),
        interceptors=[] if tokens is None else [_Admission(tokens)],
        options=[
            # Otherwise a second service could take the same port without an error, and some of the calls.
            ("grpc.so_reuseport", 0),
            ("grpc.max_metadata_size", options.header_bytes_max),
            ("grpc.server_handshake_timeout_ms", int(options.head_seconds * 1000)),
            ("grpc.max_connection_idle_ms", options.idle_seconds * 1000),
        ],
        maximum_concurrent_rpcs=options.requests_max,
    )
    _register(server, database, settings)
    host = f"[{options.host}]" if ":" in options.host else options.host
    try:
        port = _bind(server, settings.root, options, f"{host}:{options.grpc_port or 0}")
    except RuntimeError as error:
        raise StorageError(f"cannot listen on {host}:{options.grpc_port}: {error}.") from error
    server.start()
    try:
        yield f"{host}:{port}"
    finally:
        server.stop(options.stop_seconds).wait()


def _register(server: grpc.Server, database: PublishedDatabase, settings: Settings) -> None:
    servicer = _Servicer(database, settings)
    handlers = {
        "WhereIsOne": grpc.unary_unary_rpc_method_handler(
            servicer.where_is_one, WhereIsOneRequest.FromString, WhereIsOneResult.SerializeToString
        ),
        "WhereAreOne": grpc.unary_stream_rpc_method_handler(
            servicer.where_are_one, WhereAreOneRequest.FromString, WhereIsOneResult.SerializeToString
        ),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    healthy = health.HealthServicer()
    # In the health protocol the empty name is the server as a whole.
    for name in ("", SERVICE):
        healthy.set(name, health_pb2.HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(healthy, server)
    reflection.enable_server_reflection((SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME), server)


def _bind(server: grpc.Server, root: Path, options: Any, address: str) -> int:  # noqa: ANN401
    if options.tls_certificate is None:
        return int(server.add_insecure_port(address))
    chain = (root / options.tls_certificate).read_bytes()
    # One file may hold the certificates and the key.
    key = chain if options.tls_key is None else (root / options.tls_key).read_bytes()
    authority = None if options.tls_client_ca is None else (root / options.tls_client_ca).read_bytes()
    credentials = grpc.ssl_server_credentials([(key, chain)], authority, require_client_auth=authority is not None)
    return int(server.add_secure_port(address, credentials))


def _result(place: Whereabouts, mask: FieldMask) -> WhereIsOneResult:
    paths: Sequence[str] = mask.paths
    result = WhereIsOneResult(swhid=str(place.swhid))
    if place.anchor is not None and (not paths or not _ANCHOR_PATHS.isdisjoint(paths)):
        result.anchor = str(place.anchor)
    if place.origin is not None and (not paths or "origin" in paths):
        result.origin = place.origin
    return result


def _abort(context: grpc.ServicerContext, error: CustodyError) -> NoReturn:
    if isinstance(error, InvalidInputError):
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
    if isinstance(error, NotFoundError):
        context.abort(grpc.StatusCode.NOT_FOUND, str(error))
    # Names of files are for the operator's log, not for the client.
    _LOGGER.error("a question failed: %s", error)
    code = grpc.StatusCode.UNAVAILABLE if isinstance(error, StorageError) else grpc.StatusCode.DATA_LOSS
    context.abort(code, "the database cannot be read; the service's log says which file")
    raise AssertionError("unreachable: abort raises")
