"""The settings of exports: where the events of a repository are delivered to, one table `[exports.NAME]` for each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from custody.config.sections import Section, Unset

_NEEDS_HTTP = ("http", "openlineage", "site-to-site")


class ExportTarget(Section):
    """One receiver of events, `[exports.NAME]`."""

    kind: Literal["http", "site-to-site", "openlineage", "kafka", "files"] = Field(
        description="What takes the events. http: POST of JSON arrays as NiFi's reporting task writes them. "
        "site-to-site: an input port of a NiFi. openlineage: an OpenLineage endpoint. kafka: a topic. files: a folder "
        "or a bucket.",
    )
    url: str = Field(
        min_length=1,
        description="Of http and openlineage the address that takes POST, of site-to-site that of the NiFi, of kafka "
        "the brokers (host:port,host:port), of files a folder, s3://, gs:// or az://.",
    )
    port: str = Field("provenance", min_length=1, description="Of site-to-site: the name of the input port.")
    topic: str = Field(
        "provenance", pattern=r"^[A-Za-z0-9._-]{1,249}$", description="Of kafka: the topic, which has to exist."
    )
    format: Literal["ndjson", "parquet"] = Field("ndjson", description="Of files: how events are written.")
    token: Annotated[str | None, Unset] = Field(
        None, description="Of http and openlineage: the bearer token that goes with each request."
    )
    ca_file: Annotated[Path | None, Unset] = Field(
        None, description="Certificates of the authorities that are trusted, PEM. Unset: those of the system."
    )
    certificate_file: Annotated[Path | None, Unset] = Field(
        None, description="The client's own certificate, PEM, for a receiver that asks for one."
    )
    key_file: Annotated[Path | None, Unset] = Field(None, description="The key of certificate_file, PEM.")
    options: dict[str, str] = Field(
        default_factory=dict,
        description="Of kafka: further settings of its client, librdkafka, such as security.protocol.",
    )
    query: str = Field(
        "", description="Only events that match are delivered; as for `custody search`. Empty: all events."
    )
    batch_events: int = Field(1000, ge=1, le=100_000, description="Most events of one delivery.")
    batch_bytes: int = Field(
        8 << 20, ge=4096, le=256 << 20, description="Bytes at which a delivery is cut; a larger event goes alone."
    )
    timeout_seconds: float = Field(30.0, gt=0, allow_inf_nan=False, description="How long an answer is waited for.")
    retry_seconds: float = Field(
        60.0,
        ge=0,
        allow_inf_nan=False,
        description="How long a run tries a receiver that does not take events, before it ends with an error. With "
        "--follow it tries on.",
    )
    begin: Literal["oldest", "newest"] = Field(
        "oldest", description="Where a new export begins: at the oldest event, or behind the newest."
    )

    @model_validator(mode="after")
    def _fits_its_kind(self) -> Self:
        parts = urlsplit(self.url)
        if self.kind in _NEEDS_HTTP and (parts.scheme not in ("http", "https") or not parts.hostname):
            raise ValueError(f"url: {self.kind} needs an address that begins with http:// or https:// and names a host")
        if "@" in parts.netloc:
            raise ValueError("url: expected no credentials in it. Use token, certificate_file or the environment")
        if (self.key_file is None) != (self.certificate_file is None):
            raise ValueError("certificate_file and key_file belong together")
        return self
