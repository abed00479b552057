"""Room `eventlog`: immutable, sorted, compressed files of events, and the staged events that they are made from."""

from custody.eventlog.blocks import row_bytes, rows_that_fit
from custody.eventlog.bounded_cache import BoundedCache
from custody.eventlog.event_log import Damage, EventLog, OnDamage, refuse
from custody.eventlog.log_writer import (
    LogMetadata,
    LogOptions,
    WrittenLog,
    log_metadata,
    transaction_of_groups,
    write_log,
)
from custody.eventlog.staging import (
    StagedBatch,
    StagedLog,
    StagedSource,
    StagingWriter,
    check_staged_tail,
    read_staged,
    source_bounds,
)
from custody.eventlog.toc import TableOfContents

__all__ = [
    "BoundedCache",
    "Damage",
    "EventLog",
    "LogMetadata",
    "LogOptions",
    "OnDamage",
    "StagedBatch",
    "StagedLog",
    "StagedSource",
    "StagingWriter",
    "TableOfContents",
    "WrittenLog",
    "check_staged_tail",
    "log_metadata",
    "read_staged",
    "refuse",
    "row_bytes",
    "rows_that_fit",
    "source_bounds",
    "transaction_of_groups",
    "write_log",
]
