"""Room `eventlog`: immutable, sorted, compressed files of events, and the staged events that they are made from."""

from custody.eventlog.blocks import fitting, row_bytes
from custody.eventlog.cache import BoundedCache
from custody.eventlog.damage import Damage, OnDamage, refuse
from custody.eventlog.reader import EventLog
from custody.eventlog.staging import (
    StagedBatch,
    StagedLog,
    StagedSource,
    StagingWriter,
    check_rest,
    read_staged,
    source_bounds,
)
from custody.eventlog.toc import TableOfContents
from custody.eventlog.writer import LogMetadata, LogOptions, WrittenLog, log_metadata, transaction_of_groups, write_log

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
    "check_rest",
    "fitting",
    "log_metadata",
    "read_staged",
    "refuse",
    "row_bytes",
    "source_bounds",
    "transaction_of_groups",
    "write_log",
]
