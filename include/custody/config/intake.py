"""What comes in, and how: sections of the settings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field, field_validator

from custody.config.dates import date_parts
from custody.config.section import Section, Unset

EVENT_SUFFIXES = (".json", ".ndjson", ".jsonl", ".gz", ".avro")
"""What the name of a file of events ends in."""


class CaptureSection(Section):
    """What is accepted from outside."""

    file_bytes_max: int = Field(
        1 << 34,
        ge=1024,
        description="Largest input file, in bytes after decompression. A larger one is refused; of a gzip file, "
        "the events before the limit are stored and the rest is an error.",
    )
    event_bytes_max: int = Field(
        1 << 20,
        ge=4096,
        description="Largest event, in bytes of its JSON or Avro; a larger one goes to the quarantine. "
        "An event that is larger than a compression block gets a block of its own.",
    )
    batch_events: int = Field(
        1000,
        ge=1,
        le=1_000_000,
        description="Events appended and synced together while a file is ingested.",
    )
    source_wait_seconds: float = Field(
        60.0,
        ge=0,
        description="How long an ingest waits for another one that stores events of the same source.",
    )


class LandingSection(Section):
    """Where other programs leave files of events, for the DAG `provenance_ingest`."""

    folder: Annotated[Path | None, Unset] = Field(
        None,
        description="Folder in which files of events land; a relative one lies in the repository's folder. Parts of a "
        "date (%Y %m %d %j %H %M, UTC) make it one folder an interval: landing/%Y-%m-%d/%H. Unset: there is none.",
    )
    suffixes: tuple[str, ...] = Field(
        EVENT_SUFFIXES, min_length=1, description="What the names of files of events end in; others are left alone."
    )
    quiet_seconds: float = Field(
        5.0,
        ge=0,
        allow_inf_nan=False,
        description="A file is taken when it was not written to for this long. "
        "A producer that renames its files into the folder can do with 0.",
    )
    late_minutes: int = Field(
        60,
        ge=0,
        description="A run also looks into the folders of this many minutes before its interval, for files that came "
        "late. A file is taken once, whoever looks.",
    )
    node: Annotated[str | None, Unset] = Field(
        None, description="Name of the source of events that do not say it themselves, as --node of `custody ingest`."
    )
    writer_wait_seconds: float = Field(
        120.0, ge=0, description="How long the ingest waits for a writer slot when all are taken."
    )

    @field_validator("folder")
    @classmethod
    def _folder_has_known_parts(cls, folder: Path | None) -> Path | None:
        if folder is not None:
            date_parts(str(folder))
        return folder
