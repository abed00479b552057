"""How custody's own servers listen: what they share, and the sections of the two."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from custody.config.section import Section, Unset


class ListenerSection(Section):
    """What every server of custody is told."""

    host: str = Field(
        "127.0.0.1",
        min_length=1,
        description="Address to listen on. Beyond this machine the server starts only with a token_file or a "
        "tls_client_ca.",
    )
    port: int = Field(0, ge=0, le=65_535, description="Port to listen on; 0 takes a free one.")
    header_bytes_max: int = Field(
        16 << 10, ge=1024, le=1 << 20, description="Most bytes of a request's line and headers together."
    )
    head_seconds: float = Field(
        10.0,
        gt=0,
        allow_inf_nan=False,
        description="How long a request's line and headers may take to arrive; then the connection is closed.",
    )
    body_seconds: float = Field(
        30.0,
        gt=0,
        allow_inf_nan=False,
        description="How long a request's body may take to arrive; then it is answered with 408.",
    )
    idle_seconds: int = Field(
        30, ge=1, le=3600, description="How long a connection stays open after an answer, for another request."
    )
    connections_max: int = Field(
        2048,
        ge=1,
        le=65_536,
        description="Connections at once. Where there are as many, a new one takes the place of one without a request "
        "under way; where all have one it is answered with 503. At most as many as the system allows open files.",
    )
    connections_per_address_max: int = Field(
        1024, ge=1, le=65_536, description="The same for connections from one address."
    )
    requests_max: int = Field(
        64, ge=1, le=65_536, description="Requests that wait at once; more are answered with 503 and Retry-After."
    )
    stop_seconds: int = Field(
        30, ge=1, description="How long requests that have begun may go on after SIGTERM, before they are cut off."
    )
    token_file: Annotated[Path | None, Unset] = Field(
        None,
        description="File with one token a line, of 16 characters or more, readable by its owner only; a request has "
        "to bring one as Authorization: Bearer or X-Auth-Token. Unset: none is asked for.",
    )
    tls_certificate: Annotated[Path | None, Unset] = Field(
        None, description="File with the certificate chain of the server (PEM); with it, it speaks TLS only."
    )
    tls_key: Annotated[Path | None, Unset] = Field(None, description="File with the key of the certificate (PEM).")
    tls_client_ca: Annotated[Path | None, Unset] = Field(
        None,
        description="File with certificates (PEM) of which one has to have signed the certificate that a client "
        "shows; needs tls_certificate.",
    )


class ReceiverSection(ListenerSection):
    """How the receiver of NGSI notifications listens, `custody ngsi serve`; what it takes is in `ngsi`."""

    port: int = Field(5050, ge=0, le=65_535, description="Port to listen on; 0 takes a free one.")
    requests_max: int = Field(
        512, ge=1, le=65_536, description="Requests that wait at once; more are answered with 503 and Retry-After."
    )


class SwhSection(ListenerSection):
    """The service of the provenance tables of software, `custody swh serve`."""

    port: int = Field(5060, ge=0, le=65_535, description="Port of the REST service; 0 takes a free one.")
    grpc_port: Annotated[int | None, Unset] = Field(
        None, ge=0, le=65_535, description="Port of the gRPC service; 0 takes a free one. Unset: it is not served."
    )
    questions_max: int = Field(
        1000, ge=1, le=100_000, description="Most identifiers that one request asks for; more are refused."
    )
    occurrences_max: int = Field(
        1000, ge=1, le=100_000, description="Most revisions and releases that one answer lists, the oldest ones."
    )
    cache_bytes: int = Field(
        256 << 20, ge=0, description="How much of what was decoded lately is kept in memory, in bytes."
    )
