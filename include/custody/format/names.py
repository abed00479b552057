"""Every file and folder name that custody makes, and the parser of each, in one place.

Numbers in names are zero-padded so that names sort as their numbers do.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from zlib_ng import zlib_ng

from custody.errors import ConfigurationError

if TYPE_CHECKING:
    # The settings take long to import, and most who need a name do not need them.
    from custody.config import ContentStore

# Digits, prefixes and suffixes are part of the formats on disk: add, never change.
EPOCH_DIGITS = 10
ID_DIGITS = 20  # as many as the greatest unsigned 64-bit number has
TIME_DIGITS = 13  # milliseconds since the epoch, until the year 2286

UNIT_MANIFEST = "unit"
PART_PREFIX = "part-"  # a range of a large unit that was merged, until all of them are
BUILDING_PREFIX = "building-"  # a staged unit of an attempt that goes on, or that died
FILTERS = "filters"  # the folder of the filters of many shards on a container
FILTERS_SUFFIX = ".filters"
INDEX = "index"  # the folder of shards in an object store
RANGES = "ranges"  # the folder of what was read of stored files by ranges
FETCHING_SUFFIX = ".fetching"  # a local copy of a stored file that a reader is fetching, or was when it died
REMOVING_PREFIX = "removing-"  # what is on its way out: out of the way first, then gone
LEASES = "leases"  # the folder of a writer's leases
INCARNATIONS = "incarnations"  # the folder of the claims of a writer's name, numbered as epochs are
WITNESS = "WITNESS"  # on a container, before the name of a database: which states of the writer's parts were seen
STRIPES = "stripes"  # the folder of the records of stripes that were taken into use
MARKED_SUFFIX = ".marked"  # beside the record of a stripe whose folder has its mark
STRIPE_MARK = "STRIPE"  # the mark, in the folder of a writer's database on a stripe
UPLOADS = "UPLOADS"  # below a writer: objects on their way to their name in the store; no database can have this name
HANDOFF = "handoff"  # the folder of sealed groups that were handed over to the store
CONTENT_HANDOFF = "content-handoff"  # the folder of resource claims that were handed over to the store
ICEBERG = "iceberg"  # the folder of the published table
RESTORING = "RESTORING"  # in the folder of a repository that is being restored
FORGOTTEN = "forgotten"  # the folder of second copies of what is not given out any more
COMPACT_LEASE = "compact"  # the lease of who writes live logs anew
RETENTION_LEASE = "retention"  # the lease of who lets old events go
RELEASED_SUFFIX = ".released"  # beside an epoch whose holder did all its work
FAILED_SUFFIX = ".failed"  # beside an epoch whose holder ended before
BEAT_SUFFIX = ".beat"  # the last sign of life of an epoch's holder

OPEN_SUFFIX = ".journal"
SEALED_SUFFIX = ".sealed"

_ESCAPED = re.compile(rb"\\x([0-9a-f]{2})")
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
# Parsers match whole names: what a person or another program puts beside custody's files is passed over.
_JOURNAL = re.compile(r"(\d{20})\.(\d+)\.(journal|sealed)")
_UNIT = re.compile(r"\d{20}")
_UNIT_PART = re.compile(rf"{PART_PREFIX}(\d{{20}})-[0-9a-f]{{32}}")
_SHARD = re.compile(r"(\d{13})-(\d{20})(?:\.[0-9a-f]{16})?")
_WRITTEN_ANEW = re.compile(r"(?:\d{13}-)?\d{20}\.[0-9a-f]{16}(?:\.\w+)*")
_FILTERS = re.compile(r"(\d{20})\.filters")
_EPOCH = re.compile(r"\d{10}")
_REVISION = re.compile(r"\d{20}")
_STRIPED = re.compile(r"stripe-([a-z0-9][a-z0-9_-]{0,62})/(.*)", re.DOTALL)
_TRASH = re.compile(r"((?:stripe-[a-z0-9][a-z0-9_-]{0,62}/)?)trash/(\d+)/(.+)", re.DOTALL)
_LOG_PATH = re.compile(
    r"(?:stripe-[a-z0-9][a-z0-9_-]{0,62}/)?data/\d{4}-\d{2}-\d{2}/events/(\d{20})(?:\.[0-9a-f]{16})?\.(?:parquet|toc)"
)
_CLAIM = re.compile(r"\d{13}-\d{1,20}")
_SECTION = re.compile(r"\d{4}")
_TRANSACTION = re.compile(r"([0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12})\.(txn|ckpt)")


def name_as_text(name: str) -> str:
    r"""Return the name or path of a file as text that can be stored and sent, also when its bytes are no UTF-8.

    Each byte that belongs to no character becomes `\xe9`, two small hexadecimal digits. So does a backslash that
    stands before `x` and two such digits: `\x5c`. All other names are what they are. `text_as_name` is the way back.
    """
    literal = _ESCAPED.sub(rb"\\x5cx\1", name.encode("utf-8", "surrogateescape"))
    return literal.decode("utf-8", "backslashreplace")


def text_as_name(text: str) -> str:
    """Return the name or path that `name_as_text` made a text of, as Python's functions for files take it."""
    name = _ESCAPED.sub(lambda match: bytes.fromhex(match[1].decode()), text.encode())
    return name.decode("utf-8", "surrogateescape")


def check_name(kind: str, name: str) -> str:
    """Return a writer's or database's name that is safe as a folder name.

    Raises:
        ConfigurationError: it is not 1 to 63 of a-z, 0-9, `_`, `-`, the first a letter or digit.
    """
    # The name becomes a folder and a segment of keys: nothing in it may lead elsewhere.
    if not _NAME.fullmatch(name):
        raise ConfigurationError(
            f"{kind} {name!r}: expected 1 to 63 characters of a-z, 0-9, '_' or '-', starting with a letter or digit."
        )
    return name


def is_name(name: str) -> bool:
    """Whether a folder's name can be a writer's; a disk may hold others, such as lost+found."""
    return _NAME.fullmatch(name) is not None


@dataclass(frozen=True, slots=True, order=True)
class JournalName:
    """A journal's place in its group: the group's first event id and the journal's number in the group."""

    first_event_id: int
    number: int
    sealed: bool

    def __str__(self) -> str:
        suffix = SEALED_SUFFIX if self.sealed else OPEN_SUFFIX
        return f"{self.first_event_id:0{ID_DIGITS}d}.{self.number}{suffix}"

    @classmethod
    def parse(cls, name: str) -> JournalName | None:
        """Return None for a file that is not a journal."""
        match = _JOURNAL.fullmatch(name)
        return cls(int(match[1]), int(match[2]), match[3] == "sealed") if match else None


@dataclass(frozen=True)
class ContainerPaths:
    """The paths of one writer's files on one container (one disk)."""

    root: Path
    writer: str

    @property
    def home(self) -> Path:
        """The writer's folder on this container."""
        return self.root / self.writer

    @property
    def lock(self) -> Path:
        """Held while a writer lives."""
        return self.home / "LOCK"

    @cached_property
    def state(self) -> Path:
        """The file that says which containers belong to the writer, and which ids it reserved."""
        return self.home / "STATE"

    def witness(self, database: str) -> Path:
        """The file that says which states of the writer's parts were seen."""
        return self.home / f"{WITNESS}.{database}"

    @cached_property
    def journals(self) -> Path:
        """The folder of open and sealed journals."""
        return self.home / "journals"

    @property
    def index(self) -> Path:
        """The folder of index shards."""
        return self.home / "index"

    @property
    def filters(self) -> Path:
        """The folder of the filters of many shards together."""
        return self.home / FILTERS


def witness_file(folder: Path, writer: str, database: str) -> Path:
    """Return the witness of a writer's database in the folder of witnesses of a repository."""
    return folder / f"{writer}.{database}"


def parse_witness(name: str, database: str) -> str | None:
    """Return the writer of a witness in a repository's folder, None for what is none of this database."""
    writer, _, of = name.partition(".")
    return writer if of == database and is_name(writer) else None


def witness_lock(folder: Path) -> Path:
    """Return the file that is held while witnesses are written."""
    return folder / "LOCK"


# A reader looks at the journals and the state of each writer in every question: to join the parts of their paths took
# longer than to ask the disk.
container_paths = lru_cache(maxsize=1 << 12)(ContainerPaths)


@dataclass(frozen=True)
class DatabasePaths:
    """The paths of one writer's files of one database on the store."""

    root: Path
    writer: str
    database: str

    @cached_property
    def home(self) -> Path:
        """The database's folder; paths in the catalog are relative to it."""
        return self.root / self.writer / self.database

    @property
    def staging(self) -> Path:
        """Merged groups that are not live yet: a folder a unit."""
        return self.home / "staging"

    @property
    def transactions(self) -> Path:
        """The catalog."""
        return self.home / "transactions"

    def lease(self, name: str) -> Path:
        """The folder of one of the writer's leases."""
        return self.home / LEASES / name

    def staged_unit(self, first_event_id: int) -> Path:
        """The unit of merged groups whose first one begins with this id."""
        return self.staging / f"{first_event_id:0{ID_DIGITS}d}"


ERASURES = "ERASURES"  # the folder, in the store, of requests of erasure; no writer can have this name
CONTENT = "content"  # the folder, in a writer's on the store, of the content repository
CONTENT_MARKS = "content-marks"  # the folder beside it: the records of its containers
CONTAINER_MARK = "CONTAINER"  # the mark, in the folder of a content container
BUILDS = "builds"  # the folder of the builds of those tables
SOFTWARE = "swh"  # the folder, in a writer's on the store, of the provenance tables of software
SINK_FOLDER = "ngsi"  # the folder, in the repository's, of what the sink of NGSI keeps
SINK, SINK_DATABASE = "sink", "ngsi"  # the writer and the database of its catalog
SECTIONS = 1024  # folders of a content container; part of no format: a reader takes the section from the claim


_CLAIM_DEPTH = 5  # writer, contents, container, section, claim


@dataclass(frozen=True, slots=True)
class ContentPaths:
    """The paths of one writer's contents; a container may be a disk of its own."""

    store: ContentStore
    writer: str

    @property
    def home(self) -> Path:
        """The folder of the containers that lie in the store."""
        return self.store.folder / self.writer / CONTENT

    @property
    def mark_prefix(self) -> str:
        """The prefix, on the store, of the keys of the containers' records."""
        return f"{self.writer}/{CONTENT_MARKS}/"

    def container(self, name: str) -> Path:
        """The folder of a container."""
        disk = self.store.elsewhere.get(name)
        # Writers, and repositories, may share a disk.
        return self.home / name if disk is None else disk / self.writer / CONTENT / name

    def section(self, container: str, section: str) -> Path:
        """The folder of resource claims whose numbers share a remainder."""
        return self.container(container) / section

    def claim(self, container: str, section: str, identifier: str) -> Path:
        """The file of a resource claim."""
        return self.section(container, section) / identifier


def claim_key(path: Path) -> str:
    """Return the key that a resource claim has, or would have, in the store, on whichever disk it lies."""
    return "/".join(path.parts[-_CLAIM_DEPTH:])


def claim_name(created_ms: int, number: int) -> str:
    """Return the identifier of a resource claim: when it was made, and its number in the process that made it."""
    return f"{created_ms:0{TIME_DIGITS}d}-{number}"


def claim_section(number: int) -> str:
    """Return the section in which a resource claim of this number lies."""
    return f"{number % SECTIONS:04d}"


def is_claim(name: str) -> bool:
    """Whether a name is that of a resource claim."""
    return _CLAIM.fullmatch(name) is not None


def is_section(name: str) -> bool:
    """Whether a folder's name is that of a section."""
    return _SECTION.fullmatch(name) is not None


def parse_staged_unit(name: str) -> int | None:
    """Return the first id of a staged unit's first group, None for any other name."""
    return int(name) if _UNIT.fullmatch(name) else None


def unit_part(first_event_id: int, key: str) -> str:
    """Return the name of a merged range of the unit whose first group begins with an id; `key` is 32 hex digits."""
    return f"{PART_PREFIX}{first_event_id:0{ID_DIGITS}d}-{key}"


def parse_unit_part(name: str) -> int | None:
    """Return the first id of the first group of the unit that a merged range belongs to, None for any other name."""
    match = _UNIT_PART.fullmatch(name)
    return int(match[1]) if match else None


def epoch_file(epoch: int) -> str:
    """Return the name of an epoch's file in its lease's folder."""
    return f"{epoch:0{EPOCH_DIGITS}d}"


def parse_epoch(name: str) -> int | None:
    """Return the epoch that a file names, None for any other name."""
    return int(name) if _EPOCH.fullmatch(name) else None


def staged_log(first_event_id: int) -> str:
    """Return the name, in its unit's folder, of the events of one future log."""
    return f"{first_event_id:0{ID_DIGITS}d}.arrow"


def attempt_suffix(attempt: UUID) -> str:
    """Return what sets the files of one compaction apart from those that they replace, and from another attempt's."""
    return f".{attempt.hex[-16:]}"


def parse_written_anew(name: str) -> bool:
    """Whether the name of a log, a table of contents, a shard or a temporary file of one has a compaction's suffix."""
    return _WRITTEN_ANEW.fullmatch(name) is not None


def event_log_folder() -> str:
    """Return the name of the folder, in that of its day, of event logs."""
    return "events"


def event_log_path(first_event_id: int, day: str, suffix: str = "", stripe: str = "") -> str:
    """Return the path of an event log, relative to its database's folder; `day` is YYYY-MM-DD, UTC."""
    return f"{stripe_prefix(stripe)}data/{day}/events/{first_event_id:0{ID_DIGITS}d}{suffix}.parquet"


TOC_SUFFIX = ".toc"


def toc_path(log_path: str) -> str:
    """Return the path of the table of contents that lies beside an event log."""
    return log_path.removesuffix(".parquet") + TOC_SUFFIX


def log_of_toc(path: str) -> str:
    """Return the path of the event log beside which a table of contents lies."""
    return path.removesuffix(TOC_SUFFIX) + ".parquet"


def shard_name(first_event_time_ms: int, first_event_id: int, suffix: str = "") -> str:
    """Return a shard's folder name: it begins with the time of the shard's first event.

    The event id behind it keeps two shards apart whose first events share a millisecond.
    """
    return f"{first_event_time_ms:0{TIME_DIGITS}d}-{first_event_id:0{ID_DIGITS}d}{suffix}"


def shard_container(first_event_id: int, containers: int) -> int:
    """Return in which of so many containers the shard of a log lies, by a digest.

    Not by the id alone: the first ids of logs of one size have a factor in common, and would share one disk.
    """
    return zlib_ng.crc32(str(first_event_id).encode()) % containers


def stripe_prefix(name: str) -> str:
    """Return what the paths of the files on a stripe begin with in the catalog; nothing for those in the store."""
    return f"stripe-{name}/" if name else ""


def split_stripe(path: str) -> tuple[str, str]:
    """Return the stripe that a path in the catalog names, empty for a file in the store, and the path below it."""
    match = _STRIPED.fullmatch(path)
    return (match[1], match[2]) if match else ("", path)


def trash_path(path: str, moved_ms: int) -> str:
    """Return the path, on the same stripe, of a file in the trash."""
    name, rest = split_stripe(path)
    return f"{stripe_prefix(name)}trash/{moved_ms:0{TIME_DIGITS}d}/{rest}"


def parse_trash(path: str) -> tuple[int, str] | None:
    """Return when a file in the trash was moved there, ms, and its path before; None for any other path."""
    match = _TRASH.fullmatch(path)
    return (int(match[2]), match[1] + match[3]) if match else None


def stored_shard(name: str) -> str:
    """Return the path of a shard in an object store."""
    return f"{INDEX}/{name}.shard"


def parse_stored_shard(path: str) -> str | None:
    """Return the name of the shard that has a path in an object store, None for any other path."""
    folder, _, file = path.partition("/")
    name = file.removesuffix(".shard")
    return name if folder == INDEX and name != file and parse_shard(name) is not None else None


def parse_shard(name: str) -> tuple[int, int] | None:
    """Return (first event time in ms, first event id) of a shard's folder, None for any other name."""
    match = _SHARD.fullmatch(name)
    return (int(match[1]), int(match[2])) if match else None


def filters_name(number: int) -> str:
    """Return the name of a file of filters; those of a folder are numbered in the order in which they were made."""
    return f"{number:0{ID_DIGITS}d}{FILTERS_SUFFIX}"


def parse_filters(name: str) -> int | None:
    """Return the number of a file of filters, None for any other name."""
    match = _FILTERS.fullmatch(name)
    return int(match[1]) if match else None


def revision_folder(revision: int) -> str:
    """Return the folder name of a catalog revision."""
    return f"{revision:0{ID_DIGITS}d}"


def parse_revision(name: str) -> int | None:
    """Return the revision of a folder of the catalog, None for any other name."""
    return int(name) if _REVISION.fullmatch(name) else None


CHECKPOINT_SUFFIX = ".ckpt"


def transaction_file(uuid: UUID | str, *, checkpoint: bool = False) -> str:
    """Return the file name of a transaction or of a checkpoint."""
    return f"{uuid}{CHECKPOINT_SUFFIX if checkpoint else '.txn'}"


def statistics_file(uuid: UUID) -> str:
    """Return the name of the table of statistics beside a checkpoint."""
    return f"{uuid}.statistics.parquet"


def parse_transaction(name: str) -> tuple[UUID, bool] | None:
    """Return (uuid, whether a checkpoint) of a file of the catalog, None for any other name."""
    match = _TRANSACTION.fullmatch(name)
    return (UUID(match[1]), match[2] == "ckpt") if match else None


def parse_event_log(path: str) -> int | None:
    """Return the first event id of an event log's or its table of contents' path, None for any other path."""
    match = _LOG_PATH.fullmatch(path)
    return int(match[1]) if match else None
