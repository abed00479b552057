"""Event logs, their index, the catalog: sections of the settings."""

from __future__ import annotations

from typing import Annotated, Literal, Self, get_args

from pydantic import Field, field_validator, model_validator

from custody.config.section import Section, Unset

_IndexedField = Literal[
    "event_type",
    "flowfile_uuid",
    "component_id",
    "component_type",
    "component_name",
    "process_group_id",
    "transit_uri",
    "filename",
    "relationship",
    "source_queue_identifier",
    "alternate_identifier_uri",
    "source_system_flowfile_identifier",
    "content_claim_container",
    "content_claim_section",
    "content_claim_identifier",
    "source_node",
    "details",
]


class EventLogSection(Section):
    """How event logs are written."""

    block_bytes_max: int = Field(
        1 << 20,
        ge=4096,
        le=64 << 20,
        description="Largest compression block (Parquet row group), in uncompressed bytes. "
        "A point read decodes one block.",
    )
    log_bytes_target: int = Field(
        256 << 20,
        ge=4096,
        le=16 << 30,
        description="Size of an event log, in uncompressed bytes: a larger group is split into several logs, "
        "small groups that follow each other are merged into one.",
    )
    compression: Literal["zstd", "gzip", "none"] = Field(
        "zstd",
        description="Codec of a block. zstd is both smaller and faster than gzip on provenance events.",
    )
    compression_level: Annotated[int | None, Unset] = Field(
        None,
        ge=1,
        le=22,
        description="Level of the codec, 1 to 22 for zstd and 1 to 9 for gzip; unset takes the codec's own default.",
    )

    @model_validator(mode="after")
    def _level_fits_codec(self) -> Self:
        highest = {"zstd": 22, "gzip": 9, "none": 0}[self.compression]
        if self.compression_level is not None and self.compression_level > highest:
            raise ValueError(
                f"compression_level: {self.compression} takes 1 to {highest}"
                if highest
                else "compression_level: none takes no level"
            )
        return self


class IndexSection(Section):
    """What can be searched."""

    fields: tuple[_IndexedField, ...] = Field(
        get_args(_IndexedField),
        description="Standard fields to index; flowfile_uuid has to be one of them. Times and numbers can always be "
        "searched. A field that is left out makes shards smaller and cannot be searched.",
    )
    attributes: tuple[str, ...] = Field(
        (),
        description="Names of FlowFile attributes to index besides the standard fields; Whoosh knows none with spaces.",
    )
    ranges: tuple[Literal["event_time", "lineage_start_date", "file_size", "source_ordinal"], ...] = Field(
        (),
        description="Number and time fields that get terms besides their column, so that Whoosh itself can search "
        "them, too; custody needs none. Each costs up to 90 bytes an event.",
    )
    backfill_shards_max: int = Field(
        8,
        ge=0,
        description="After a change of the settings above, each run of the step index makes this many of the older "
        "shards anew, newest first; 0 leaves that to `custody index rebuild --stale`.",
    )

    @field_validator("attributes")
    @classmethod
    def _attributes_make_names(cls, attributes: tuple[str, ...]) -> tuple[str, ...]:
        for name in attributes:
            if not name or " " in name:
                raise ValueError(f"expected a name without spaces, got {name!r}")
        return attributes

    @field_validator("fields")
    @classmethod
    def _lineage_can_be_found(cls, fields: tuple[str, ...]) -> tuple[str, ...]:
        if "flowfile_uuid" not in fields:
            raise ValueError("flowfile_uuid has to be one of them, lineage needs it")
        return fields


class CatalogSection(Section):
    """How the catalog is kept."""

    checkpoint_every: int = Field(
        10,
        ge=1,
        description="A checkpoint is due when this many transactions lie behind the newest one.",
    )
    put_if_absent: bool = Field(
        True,
        description="Whether the object store refuses to write a name that is taken. false only for a service that "
        "cannot: two processes that write at once can then fork a new catalog, which is found when it is read.",
    )
