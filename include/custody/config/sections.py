"""The sections of the settings, but that of NGSI: one class for each table of `custody.toml`.

Every field has a description, which is the comment of the setting in a new `custody.toml`. A section checks its own
values; `settings` puts the sections together. Here are also the rules of retention (`event_type:DROP keep 7 days`), and
what custody's servers have in common.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Self, get_args
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from custody.config.parsing import date_parts, duration_ms

NAME_PATTERN = r"^[a-z0-9][a-z0-9_-]{0,62}$"
_Name = Annotated[str, Field(pattern=NAME_PATTERN)]
_NAME_CHARACTERS_MAX = 63
_SLOTS_MAX = 256
EVENT_SUFFIXES = (".json", ".ndjson", ".jsonl", ".gz", ".avro")
"""Endings of the names of files of events."""
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
_RULE = re.compile(r"(?P<terms>.+?)\s+keep\s+(?P<span>.+)")
_TYPE = re.compile(r"event_type:([A-Z_]+)")
_ATTRIBUTE = re.compile(r"attribute:([^=]+)=(.*)")
Unset = BeforeValidator(lambda value: None if value == "" else value)
"""A setting that may be unset: TOML has no word for that, so an empty text stands for it."""


class Section(BaseModel):
    """One table of `custody.toml`: frozen, unknown keys are refused."""

    # `settings` words the error itself: the input in pydantic's own message may have a secret beside what is wrong.
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, defer_build=True)


def is_secret(name: str) -> bool:
    """Whether a setting of this name is shown to nobody."""
    return "password" in name or "token" in name


class RepositorySection(Section):
    """The writer's name, and the folders of the repository."""

    implementation: str = Field(
        "custody",
        min_length=1,
        description="Who answers for this repository: `custody`, or a name in the entry point group "
        "custody.repositories.",
    )
    writer: _Name = Field(
        "main",
        description="Namespace of new events: one sequence of ids, one catalog. One live process holds it at a time.",
    )
    writer_slots: int = Field(
        1,
        ge=1,
        le=_SLOTS_MAX,
        description="Processes that may write at once: each takes the first free of the names WRITER, WRITER-2, … "
        "One slot is the plain name.",
    )
    writer_wait_seconds: float = Field(
        0.0,
        ge=0,
        description="How long a process waits for a slot when all are taken, before it fails with an error.",
    )
    database: _Name = Field("provenance", description="The database inside a writer's store that events go to.")
    containers: tuple[Path, ...] = Field(
        (Path("containers/1"),),
        min_length=1,
        description="Folders for journals and index shards, one for each disk; a relative one lies in the "
        "repository's folder.",
    )
    store: str = Field(
        "store",
        min_length=1,
        description="Where event logs and catalog lie: a folder (a relative one lies in the repository's folder), "
        "file://, or s3://, gs://, az:// with bucket and prefix.",
    )
    work_folder: Path = Field(
        Path("work"),
        description="With an object store: the folder on this machine for staged units, leases, contents, and copies "
        "of the store's files; a relative one lies in the repository's folder.",
    )
    work_copies_bytes_max: int = Field(
        16 << 30,
        ge=1 << 20,
        description="With an object store: most bytes of copies and pieces of its files on this machine.",
    )
    multipart_bytes: int = Field(
        64 << 20,
        ge=4096,
        le=5 << 30,
        description="With an object store: larger objects are put in parts of 16 MiB, so that few of "
        "their bytes are in memory.",
    )
    staging: Literal["work_folder", "store"] = Field(
        "work_folder",
        description="With an object store: where merged units wait until they are live, and the leases of steps lie. "
        'store: drivers and executors of Spark share no disk; needs journal.handoff = "store". Change it only when '
        "no unit waits and no step runs.",
    )
    stripes: tuple[str, ...] = Field(
        (),
        description="Folders on further disks that new event logs are spread over, each as NAME=FOLDER; a relative one "
        "lies in the repository's folder. None: event logs lie in the store.",
    )
    stripes_retired: tuple[str, ...] = Field(
        (), description="Names of stripes that get no new event logs; what lies on them stays and is read."
    )
    quarantine_bytes_max: int = Field(
        1 << 30,
        ge=1 << 16,
        description="Most bytes of rejected input that are kept. When the quarantine is full, more is refused and "
        "nothing is lost.",
    )

    @property
    def slots(self) -> tuple[str, ...]:
        """The writer names that processes take, in the order in which they are tried."""
        return (self.writer, *(f"{self.writer}-{number}" for number in range(2, self.writer_slots + 1)))

    @field_validator("stripes")
    @classmethod
    def _stripes_have_names_and_folders(cls, stripes: tuple[str, ...]) -> tuple[str, ...]:
        names = []
        for stripe in stripes:
            name, _, folder = stripe.partition("=")
            if re.fullmatch(NAME_PATTERN, name) is None or not folder:
                raise ValueError(
                    f"expected NAME=FOLDER, the name of 1 to 63 characters a-z, 0-9, '_', '-', got {stripe!r}"
                )
            names.append(name)
        folders = [stripe.partition("=")[2] for stripe in stripes]
        if len(set(names)) < len(names) or len(set(folders)) < len(folders):
            raise ValueError(f"expected each name and each folder once, got {list(stripes)}")
        return stripes

    @field_validator("stripes_retired")
    @classmethod
    def _retired_stripes_are_known(cls, retired: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        stripes = info.data.get("stripes", ())
        unknown = set(retired).difference(stripe.partition("=")[0] for stripe in stripes)
        if unknown:
            raise ValueError(f"repository.stripes has none of the name {sorted(unknown)[0]!r}")
        return retired

    @field_validator("database")
    @classmethod
    def _database_leaves_room_for_its_neighbours(cls, name: str) -> str:
        if name in ("content", "flowfiles", "swh"):
            raise ValueError("content, flowfiles and swh are folders beside databases; choose another name")
        return name

    @model_validator(mode="after")
    def _slot_names_fit(self) -> Self:
        # Refused here, and not only when the last slot is taken for the first time.
        longest = self.slots[-1]
        if len(longest) > _NAME_CHARACTERS_MAX:
            raise ValueError(
                f"writer_slots: the name of slot {self.writer_slots} would be {longest!r}; expected at most "
                f"{_NAME_CHARACTERS_MAX} characters, got {len(longest)}. Choose a shorter writer or fewer slots"
            )
        return self


class CaptureSection(Section):
    """Input from outside: how large it may be, and how it is stored."""

    file_bytes_max: int = Field(
        1 << 34,
        ge=1024,
        description="Largest input file, in bytes after decompression. A larger one is refused; of a gzip file, "
        "the events before the limit are stored and the rest is an error.",
    )
    event_bytes_max: int = Field(
        16 << 20,
        ge=4096,
        description="Largest event, in bytes of its JSON or Avro, however it comes; a larger one goes to the "
        "quarantine. An event that is larger than a compression block gets a block of its own.",
    )
    body_bytes_max: int = Field(
        64 << 20,
        ge=4096,
        le=1 << 30,
        description="Largest body that comes over a network: a request with events or notifications, as it comes and "
        "inflated, or a transaction of Site-to-Site. A larger one is answered with 413.",
    )
    body_events_max: int = Field(
        65_536,
        ge=1,
        le=1_000_000,
        description="Most events of one request; a request with more is answered with 413.",
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
    mask_attributes: tuple[str, ...] = Field(
        (),
        description="Patterns of names of attributes, such as *password*, whose values are not stored: *** stands for "
        "each, however an event comes in. * is any text, ? one character; case does not count.",
    )

    nifi_zone: str | None = Field(
        None,
        description="The zone of the clock in which NiFi's REST interface shows times, such as America/Chicago. It is "
        "asked where the letters of a time, such as CST, stand for several zones; unset, such an event is rejected.",
    )

    @field_validator("mask_attributes")
    @classmethod
    def _masks_name_attributes(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        return _named_patterns(patterns)

    @field_validator("nifi_zone")
    @classmethod
    def _zone_is_known(cls, name: str | None) -> str | None:
        if name:
            try:
                ZoneInfo(name)
            except (ZoneInfoNotFoundError, ValueError, OSError):
                raise ValueError(f"expected a zone of the IANA database, such as Europe/Paris, got {name!r}") from None
        return name or None


def _named_patterns(patterns: tuple[str, ...]) -> tuple[str, ...]:
    if "" in patterns:
        raise ValueError("expected patterns of names, got an empty one")
    return patterns


class LandingSection(Section):
    """Landing folders, where other programs leave files of events for the DAG `provenance_ingest`."""

    folder: Path = Field(
        Path("landing"),
        description="Folder in which files of events land; a relative one lies in the repository's folder. Parts of a "
        "date (%Y %m %d %j %H %M, UTC) make it one folder an interval: landing/%Y-%m-%d/%H.",
    )
    suffixes: tuple[str, ...] = Field(
        EVENT_SUFFIXES,
        min_length=1,
        description="Endings of the names of files of events; files with other names are left alone.",
    )
    quiet_seconds: float = Field(
        5.0,
        ge=0,
        allow_inf_nan=False,
        description="A file is taken when nothing was written to it for this long. "
        "0 is enough for a producer that renames its files into the folder.",
    )
    late_minutes: int = Field(
        60,
        ge=0,
        description="A run also looks into the folders of this many minutes before its interval, for files that came "
        "late. A file is taken once, whoever looks.",
    )
    node: Annotated[str | None, Unset] = Field(
        None, description="Name of the source of events that do not name it themselves, as --node of `custody ingest`."
    )
    writer_wait_seconds: float = Field(
        120.0, ge=0, description="How long the ingest waits for a writer slot when all are taken."
    )

    @field_validator("folder")
    @classmethod
    def _folder_has_known_parts(cls, folder: Path) -> Path:
        if folder == Path():
            raise ValueError("expected a folder, got an empty text")
        date_parts(str(folder))
        return folder


class JournalSection(Section):
    """Journals: where acknowledged events are until they are rolled over."""

    journals: int = Field(
        16, ge=1, le=256, description="Journals that one container may have open: as many threads can append at once."
    )
    sync: Literal["always", "interval", "never"] = Field(
        "always",
        description="What an acknowledgement promises. always: it survives power loss. interval: it survives the end "
        "of the process, power loss may cost the last interval. never: the operating system decides.",
    )
    sync_interval_ms: int = Field(1000, ge=10, description="Milliseconds between syncs, where sync is interval.")
    seal_seconds: float = Field(
        30.0, gt=0, allow_inf_nan=False, description="Age at which a group is sealed and can be rolled over."
    )
    seal_bytes: int = Field(100 << 20, ge=4096, description="Size at which a group is sealed, in bytes.")
    waiting_bytes_max: int = Field(
        4 << 30,
        ge=4096,
        description="Bytes of sealed journals at which writers are held back until a rollover has run. Each search "
        "reads all of them: 1.8 s of CPU for 1.1 GB of journals.",
    )
    backpressure_seconds: float = Field(
        30.0, ge=0, description="How long an append is held back before it fails with an error that says why."
    )
    handoff: Literal["off", "store"] = Field(
        "off",
        description="Where a sealed group has to be before it is rolled over. off: on its containers, which the pass "
        "reads. store: in the store, with digests, so that a pass elsewhere needs nothing but the store, and the disks "
        "of the producer may be lost. Set it back to off only when no group that was handed over waits.",
    )


class ContentSection(Section):
    """The content repository: what FlowFiles held."""

    containers: tuple[str, ...] = Field(
        ("1",),
        min_length=1,
        description="Containers that contents are spread over: each a name, whose folder lies below the writer's "
        "content in the store, or NAME=FOLDER, a folder on another disk; a relative one lies in the repository's "
        "folder.",
    )
    claim_bytes: int = Field(
        1 << 20,
        ge=4096,
        le=64 << 20,
        description="Size of a file that holds several contents; a larger content gets a file of its own. Larger "
        "files are fewer, and are deleted later: when no event names any of their contents.",
    )
    unused_minutes: float = Field(
        1440.0,
        ge=0,
        allow_inf_nan=False,
        description="How long a content that no event names is kept after its file was last written: longer than a "
        "producer takes from a content to the event about it.",
    )
    handoff: Literal["off", "store"] = Field(
        "off",
        description="Where contents lie besides their disks. off: nowhere. store: in the store, with digests, once "
        "nobody writes to their file any more; the disks may be lost then. What was handed over is read, and deleted, "
        "whatever the setting says.",
    )
    archive_age: Annotated[str | None, Unset] = Field(
        None,
        description="How long a content is kept for replay after its last FlowFile was done, such as 7 days; unset "
        "keeps it as long as an event refers to it.",
    )
    archive_share: Annotated[float | None, Unset] = Field(
        None,
        gt=0.05,
        lt=1,
        description="Share of each disk with contents, such as 0.5, from which on those whose FlowFiles are done go, "
        "the oldest first. Where none is left that may go, writing waits. Unset for no limit.",
    )

    @field_validator("archive_age")
    @classmethod
    def _is_span(cls, text: str | None) -> str | None:
        if text is not None:
            duration_ms(text)
        return text

    @field_validator("containers")
    @classmethod
    def _containers_have_names(cls, containers: tuple[str, ...]) -> tuple[str, ...]:
        names, folders = [], []
        for container in containers:
            name, sign, folder = container.partition("=")
            if not re.fullmatch(NAME_PATTERN, name) or bool(sign) != bool(folder):
                raise ValueError(f"expected NAME or NAME=FOLDER, the name of a-z, 0-9, _ and -, got {container!r}")
            names.append(name)
            folders += [folder] if folder else []
        if len(set(names)) < len(names) or len(set(folders)) < len(folders):
            raise ValueError(f"expected each name and each folder once, got {list(containers)}")
        return containers

    @property
    def container_names(self) -> tuple[str, ...]:
        """The names of the containers."""
        return tuple(container.partition("=")[0] for container in self.containers)

    @property
    def archive_age_ms(self) -> int | None:
        """How long a content stays after its last FlowFile was done; None as long as events refer to it."""
        return None if self.archive_age is None else duration_ms(self.archive_age)


class FlowFilesSection(Section):
    """The FlowFile repository: what waits in queues between steps."""

    swap_threshold: int = Field(
        20_000,
        ge=500,
        description="So many FlowFiles of a queue stay in memory. Beyond, those of the lowest priority go to swap "
        "files of 10,000.",
    )
    checkpoint_seconds: float = Field(
        120.0,
        gt=0,
        allow_inf_nan=False,
        description="How often a snapshot of all queues is written, and contents that no FlowFile refers to are "
        "released.",
    )


class EventLogSection(Section):
    """Event logs: their size and compression."""

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
    merge_bytes_max: int = Field(
        256 << 20,
        ge=4096,
        le=1 << 40,
        description="A group with larger journals is merged by ranges of event ids, of about so many bytes or those of "
        "a log, several at once. Each range becomes logs of its own.",
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
    row_copies: bool = Field(
        False,
        description="Whether new event logs hold each event once more, row by row: single events, and lineages of "
        "events that lie far apart, are read many times as fast, for about 135 bytes an event.",
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
    """The search index: what can be searched."""

    fields: tuple[_IndexedField, ...] = Field(
        get_args(_IndexedField),
        description="Standard fields to index; flowfile_uuid has to be one of them. Times and numbers can always be "
        "searched. A field that is left out makes shards smaller and cannot be searched.",
    )
    attributes: tuple[str, ...] = Field(
        (),
        description="Names of FlowFile attributes to index besides the standard fields; Whoosh takes no names with "
        "spaces.",
    )
    layout: Literal["packed", "whoosh"] = Field(
        "packed",
        description="The files of a shard: packed is small, whoosh can be opened by Whoosh itself, in five times the "
        "space. Unset it is whoosh where index.ranges names a field, else packed.",
    )
    ranges: tuple[Literal["event_time", "lineage_start_date", "file_size", "source_ordinal"], ...] = Field(
        (),
        description="Of the layout whoosh, number and time fields that get terms besides their column, so that Whoosh "
        "itself can search them, too; custody needs none. Each costs up to 90 bytes an event.",
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

    @model_validator(mode="before")
    @classmethod
    def _ranges_are_for_whoosh(cls, values: object) -> object:
        # Whoever named ranges before there was a choice wants shards that Whoosh can search.
        if isinstance(values, dict) and values.get("ranges") and "layout" not in values:
            return {**values, "layout": "whoosh"}
        return values

    @model_validator(mode="after")
    def _packed_shards_have_no_terms_of_numbers(self) -> Self:
        if self.ranges and self.layout == "packed":
            raise ValueError(
                "ranges: expected the layout whoosh, which alone has them; got packed. Leave one of both out"
            )
        return self

    @field_validator("fields")
    @classmethod
    def _lineage_can_be_found(cls, fields: tuple[str, ...]) -> tuple[str, ...]:
        if "flowfile_uuid" not in fields:
            raise ValueError("flowfile_uuid has to be one of them: lineage needs it")
        return fields


class CatalogSection(Section):
    """The catalog: checkpoints, and what the store can do."""

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
    history_age_max: Annotated[str | None, Unset] = Field(
        None,
        description="How far back the catalog can be read (time travel), such as 90 days; unset keeps all of its "
        "history. Each pass of retention forgets what is older. Holds and attestations stop it.",
    )
    history_revisions_max: Annotated[int | None, Unset] = Field(
        None,
        ge=1,
        description="How many revisions of the catalog stay readable; unset sets no limit. A few more may stay: the "
        "history begins at a checkpoint.",
    )
    history_bytes_max: Annotated[int | None, Unset] = Field(
        None,
        ge=1 << 16,
        description="Size of the transactions and checkpoints of one catalog, in bytes; unset sets no limit. Two "
        "checkpoints and what follows them stay in any case.",
    )
    attestations: Annotated[str | None, Unset] = Field(
        None,
        description="Folder with attestations (custody attest --out, *.json) that have to stay provable: the limits on "
        "the history do not forget the revision of the earliest one. A relative one lies in the repository.",
    )

    @field_validator("history_age_max")
    @classmethod
    def _is_span(cls, text: str | None) -> str | None:
        if text is not None:
            duration_ms(text)
        return text

    @property
    def history_age_max_ms(self) -> int | None:
        """How far back the history is kept, in ms; None for all of it."""
        return None if self.history_age_max is None else duration_ms(self.history_age_max)


class IcebergSection(Section):
    """The live events as an Apache Iceberg table for other engines."""

    publish: bool = Field(
        False,
        description="Publish the table with each commit; needs the extra iceberg. A table that was published once is "
        "kept free of what is forgotten or deleted in any case.",
    )
    snapshots_max: int = Field(
        100,
        ge=1,
        le=10_000,
        description="Most snapshots of the table, one a revision of the catalog: the newest ones. "
        "Earlier revisions stay readable by custody itself.",
    )


class MaintenanceSection(Section):
    """Maintenance: how fast everything is read again to find damage."""

    scrub_days: float = Field(
        7.0,
        gt=0,
        allow_inf_nan=False,
        description="Days in which the scrub reads everything once. A run does what is due since the one before it.",
    )
    scrub_bytes_per_run: int = Field(
        64 << 30,
        ge=1,
        description="Most bytes that one run of the scrub reads; it finishes the piece that it has begun. If they are "
        "too few, a round takes longer than scrub_days, and the report says so.",
    )


@dataclass(frozen=True, slots=True)
class KeepRule:
    """A rule of retention: events that meet all its conditions are kept for `keep_ms`."""

    keep_ms: int
    event_type: str | None = None
    attributes: tuple[tuple[str, str], ...] = ()


class RetentionSection(Section):
    """Retention: how long events are kept, and in how much room."""

    age_max: Annotated[str | None, Unset] = Field(
        None,
        description="How long events are kept, by their own time, such as 30 days; unset keeps them for ever. An event "
        "log expires when all its events are older.",
    )
    rules: tuple[str, ...] = Field(
        (),
        description="How long some events are kept, longer or shorter than the others: event_type:DROP keep 7 days, "
        "attribute:customer=acme keep 5 years. Where several rules fit an event, the longest counts.",
    )
    bytes_max: Annotated[int | None, Unset] = Field(
        None,
        ge=1 << 20,
        description="Room on disk for containers and store together, all files counted, in bytes; unset sets no limit. "
        "When it is used up, the oldest event logs expire.",
    )
    purge_percent: int = Field(
        90,
        ge=1,
        le=100,
        description="Share of bytes_max that stays in use when the limit was reached and room was made, in percent.",
    )
    grace: str = Field(
        "10 minutes",
        description="How long the files of expired events stay on disk, for readers that are at work on them.",
    )

    @field_validator("age_max", "grace")
    @classmethod
    def _is_span(cls, text: str | None) -> str | None:
        if text is not None:
            duration_ms(text)
        return text

    @field_validator("rules")
    @classmethod
    def _are_rules(cls, texts: tuple[str, ...]) -> tuple[str, ...]:
        for text in texts:
            keep_rule(text)
        return texts

    @property
    def age_max_ms(self) -> int | None:
        """The age up to which events without a rule are kept, in ms; None for ever."""
        return None if self.age_max is None else duration_ms(self.age_max)

    @property
    def keep_rules(self) -> tuple[KeepRule, ...]:
        """The rules, parsed."""
        return tuple(keep_rule(text) for text in self.rules)

    @property
    def grace_ms(self) -> int:
        """The time that the files of expired events stay, in ms."""
        return duration_ms(self.grace)


class LeaseSection(Section):
    """Leases: how attempts at the same work make way for each other."""

    wait_seconds: float = Field(
        30.0,
        ge=0,
        allow_inf_nan=False,
        description="How long a step waits for another attempt that lives and holds its lease, before it fails with an "
        "error. A later try of the same Airflow task takes over at once.",
    )
    dead_seconds: float = Field(
        120.0,
        gt=0,
        allow_inf_nan=False,
        description="Age of the last sign of life at which a holder on another machine counts as dead. "
        "On the same machine its process is looked for instead.",
    )


class QuerySection(Section):
    """Queries: limits and caches."""

    results_default: int = Field(1000, ge=1, description="Results of a search that names no limit.")
    lineage_events_max: int = Field(
        10_000, ge=1, description="Events of one lineage; a larger one is cut there and says so."
    )
    attribute_characters_max: int = Field(
        65_536,
        ge=64,
        description="Longest value of an attribute in answers of commands and in the index, in characters; longer ones "
        "are cut there, and marked in answers. The record has them whole, and --whole prints them.",
    )
    mask_attributes: tuple[str, ...] = Field(
        (),
        description="Patterns of names of attributes whose values are given to nobody: *** stands for each in answers "
        "of the API, the pages, the commands and exports. The record has them; serve.rights_file masks for some alone.",
    )
    open_shards_max: int = Field(
        1024, ge=1, description="Index shards that a process keeps open between searches; each maps up to ten files."
    )
    search_threads: int = Field(
        1,
        ge=1,
        le=64,
        description="Threads of a search that ask index shards, several at once; 1 asks one after another.",
    )
    cache_bytes: int = Field(
        256 << 20,
        ge=0,
        description="Bytes of decoded blocks, journals and events of lineages that a process keeps between reads.",
    )
    open_logs_max: int = Field(64, ge=1, description="Event logs that a process keeps open between reads.")
    sql_memory_bytes: int = Field(
        1 << 30,
        ge=64 << 20,
        description="Memory of one SQL query, in bytes; what does not fit goes to a temporary folder.",
    )
    sql_process_bytes_max: int = Field(
        2 << 30,
        ge=256 << 20,
        description="Memory of the process that answers one SQL query, in bytes; a query that needs more is ended.",
    )
    sql_row_bytes_max: int = Field(64 << 20, ge=1 << 10, description="Bytes of one row of the result of a SQL query.")
    sql_spill_bytes_max: int = Field(
        4 << 30, ge=0, description="Bytes that one SQL query may put into its temporary folder."
    )
    sql_seconds_max: float = Field(
        300.0, gt=0, allow_inf_nan=False, description="Seconds after which a SQL query is stopped."
    )

    @field_validator("mask_attributes")
    @classmethod
    def _masks_name_attributes(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        return _named_patterns(patterns)


class SparkSection(Section):
    """How `custody run` submits jobs, and what they do in the driver. Airflow takes its master from `spark_default`."""

    master: str = Field("local[*]", description="Spark master: local[*], spark://host:7077, yarn or k8s://…")
    driver_bytes_max: int = Field(
        128 << 20,
        ge=0,
        description="A job whose units together read at most so many bytes does them in its driver, without a Spark "
        "session; each counts 256 KiB at least, work on the catalog alone nothing. 0: always Spark.",
    )
    core_memory_bytes: int = Field(
        1 << 30,
        ge=1 << 20,
        description="Memory that the Python of an executor has for each of its cores. A unit that takes more takes "
        "several cores, so that fewer are at work beside it.",
    )
    library: Annotated[Path | None, Unset] = Field(
        None,
        description="A file with the library for executors that do not have it, made by python -m "
        "custody.spark.packaging: a .zip, or a .tar.gz with all dependencies; a relative one lies in the repository's "
        "folder.",
    )
    executor_variables: tuple[str, ...] = Field(
        ("AWS_*", "GOOGLE_*", "AZURE_*"),
        description="Names of variables of the driver's environment, * for any letters, that executors get: the "
        "credentials of the object store. They are on no command line. None: executors have their own.",
    )


DoorName = Literal["api", "pages", "openlineage", "site-to-site", "events", "ngsi", "swh"]
"""The doors of `custody serve`."""
ScopeName = Literal["read", "content", "append", "replay", "manage"]
"""What a token allows."""


class ListenerSection(Section):
    """What all servers of custody have: address, limits, tokens and TLS."""

    host: str = Field(
        "127.0.0.1",
        min_length=1,
        description="Address to listen on. Beyond this machine the server starts only with a token_file or a "
        "tls_client_ca.",
    )
    port: int = Field(0, ge=0, le=65_535, description="Port to listen on; 0 takes a free one.")
    header_bytes_max: int = Field(
        16 << 10, ge=1024, le=1 << 20, description="Most bytes of a request's first line and headers together."
    )
    head_seconds: float = Field(
        10.0,
        gt=0,
        allow_inf_nan=False,
        description="How long a request's first line and headers may take to arrive; then the connection is closed.",
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
        description="Connections at once. When there are that many, a new one takes the place of one without a request "
        "under way; when all have one, it is answered with 503. At most as many as the system allows open files.",
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
        description="File with one token on each line, of 16 characters or more, readable by its owner only. A "
        "request has to bring one as Authorization: Bearer or X-Auth-Token. Unset: none is needed.",
    )
    tls_certificate: Annotated[Path | None, Unset] = Field(
        None, description="File with the certificate chain of the server (PEM); with it, it speaks TLS only."
    )
    tls_key: Annotated[Path | None, Unset] = Field(None, description="File with the key of the certificate (PEM).")
    tls_client_ca: Annotated[Path | None, Unset] = Field(
        None,
        description="File with certificates (PEM). One of them has to have signed the certificate that a client shows. "
        "Needs tls_certificate.",
    )


class ReceiverSection(ListenerSection):
    """The receiver of NGSI notifications, `custody ngsi serve`; the section `ngsi` says what it takes."""

    port: int = Field(5050, ge=0, le=65_535, description="Port to listen on; 0 takes a free one.")
    requests_max: int = Field(
        512, ge=1, le=65_536, description="Requests that wait at once; more are answered with 503 and Retry-After."
    )


class ServeSection(ListenerSection):
    """The one server for all producers, `custody serve`: which doors it has, and what all of them share."""

    port: int = Field(5080, ge=0, le=65_535, description="Port to listen on; 0 takes a free one.")
    requests_max: int = Field(
        512,
        ge=1,
        le=65_536,
        description="Requests that a worker has under way; more are answered with 503 and Retry-After.",
    )
    doors: tuple[DoorName, ...] = Field(
        ("openlineage",),
        min_length=1,
        description="What is taken and answered: api (questions), pages (for browsers; opens api, too), openlineage, "
        "site-to-site, events, ngsi (its limits: the sections receiver and ngsi), swh (the section swh).",
    )
    workers: int = Field(
        1,
        ge=1,
        le=64,
        description="Processes that share the address. Each holds a writer slot, and each has the limits of this "
        "section for itself.",
    )
    client_certificates: Literal["required", "optional"] = Field(
        "required",
        description="With tls_client_ca: whether a client without a certificate may connect, and has to bring a token.",
    )
    certificate_scopes: tuple[ScopeName, ...] = Field(
        ("append",), description="What a client with a certificate of tls_client_ca may do without a token."
    )
    allowed_hosts: tuple[str, ...] = Field(
        (),
        description="Names of this server, without a port, that a request's Host may have besides those of this "
        "machine, such as localhost. Without tokens and certificates no other Host is answered; with them every Host "
        "is, unless names are set here.",
    )
    rights_file: Annotated[Path | None, Unset] = Field(
        None,
        description="File with rules of who may see which events; unset for everybody all. Read again when it changes.",
    )
    log_format: Literal["text", "json"] = Field(
        "text", description="Form of the lines that the server writes to stderr; json has an object a line."
    )
    waiting_bytes_max: int = Field(
        256 << 20,
        ge=1 << 20,
        description="Most bytes of bodies that a worker holds for requests under way; more are answered with 503.",
    )
    content_bytes_max: int = Field(
        1 << 30,
        ge=4096,
        description="Most bytes of one delivered content; a longer one is answered with 413.",
    )
    uploads_bytes_max: int = Field(
        8 << 30,
        ge=4096,
        description="Most bytes of delivered contents that wait for their events; more are answered with 503.",
    )
    upload_hours: float = Field(
        24.0,
        gt=0,
        le=8760,
        description="How long a delivered content waits for an event that names it, before it is removed.",
    )


class SiteToSiteSection(ListenerSection):
    """NiFi's Site-to-Site, `custody site-to-site serve`: an input port to which NiFi's reporting tasks deliver."""

    port: int = Field(5070, ge=0, le=65_535, description="Port of the HTTP transport; 0 takes a free one.")
    port_name: str = Field(
        "provenance",
        min_length=1,
        description="Name of the input port, as the reporting task has it in Input Port Name.",
    )
    raw_port: Annotated[int | None, Unset] = Field(
        None,
        ge=0,
        le=65_535,
        description="Port of the RAW transport, with the same address and TLS; 0 takes a free one. Unset: HTTP only.",
    )
    advertised_host: Annotated[str | None, Unset] = Field(
        None,
        description="Host that senders are told to deliver to. Unset: the one that they asked, which is right without "
        "a proxy.",
    )
    advertised_port: Annotated[int | None, Unset] = Field(
        None, ge=1, le=65_535, description="The same for the port of the HTTP transport."
    )
    advertised_tls: Literal["as-served", "yes", "no"] = Field(
        "as-served",
        description="Whether senders are told to use TLS. yes is for a proxy that ends it; as-served: whether this "
        "server speaks it.",
    )
    transactions_max: int = Field(
        64, ge=1, le=10_000, description="Transactions that are open at once; senders of more are told to come back."
    )
    transaction_seconds: int = Field(
        30,
        ge=2,
        le=3600,
        description="How long a transaction lives without a sign of its sender, who gives one every half of it.",
    )

    def is_secure(self, *, is_served: bool) -> bool:
        """Whether senders are told to use TLS, where this server itself speaks it or not."""
        return is_served if self.advertised_tls == "as-served" else self.advertised_tls == "yes"


class SwhSection(ListenerSection):
    """The service of the provenance tables of software, `custody swh serve`."""

    port: int = Field(5060, ge=0, le=65_535, description="Port of the REST service; 0 takes a free one.")
    grpc_port: Annotated[int | None, Unset] = Field(
        None, ge=0, le=65_535, description="Port of the gRPC service; 0 takes a free one. Unset: it is not served."
    )
    questions_max: int = Field(1000, ge=1, le=100_000, description="Most identifiers in one request; more are refused.")
    occurrences_max: int = Field(
        1000, ge=1, le=100_000, description="Most revisions and releases that one answer lists, the oldest ones."
    )
    cache_bytes: int = Field(256 << 20, ge=0, description="Bytes of decoded pages that the service keeps in memory.")
    memory_bytes: int = Field(
        3_600_000_000,
        ge=0,
        description="Memory that a build's task may take for the arrays of a graph, 120 bytes an arc; of graphs that "
        "need more they are made by ranges, or joined where numbers of nodes need more than half.",
    )
    driver_edges_max: int = Field(
        30_000_000,
        ge=0,
        description="Edges of a graph up to which the drivers of a build's jobs do its steps themselves, without a "
        "Spark session, where these edges also fit into swh.memory_bytes.",
    )


def keep_rule(text: str) -> KeepRule:
    """Return the rule in a text: terms `event_type:TYPE` or `attribute:NAME=VALUE` joined by `and`.

    Raises:
        ValueError: it is none.
    """
    match = _RULE.fullmatch(text.strip())
    if match is None:
        raise _refusal(text)
    event_type = None
    attributes: list[tuple[str, str]] = []
    for term in re.split(r"\s+and\s+", match["terms"]):
        kind, attribute = _TYPE.fullmatch(term), _ATTRIBUTE.fullmatch(term)
        if kind is not None and event_type is None:
            event_type = kind[1]
        elif attribute is not None:
            attributes.append((attribute[1], attribute[2]))
        else:
            raise _refusal(text)
    return KeepRule(duration_ms(match["span"]), event_type, tuple(attributes))


def _refusal(text: str) -> ValueError:
    return ValueError(
        "expected 'event_type:DROP keep 7 days' or 'attribute:NAME=VALUE keep 5 years', with 'and' between several "
        f"terms, got {text!r}"
    )
