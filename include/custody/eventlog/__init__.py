"""Room `eventlog`: immutable, sorted, compressed files of events, and the staging files that they are made from."""

from custody.eventlog.cache import BoundedCache
from custody.eventlog.damage import Damage, OnDamage, refuse
from custody.eventlog.reader import EventLog
from custody.eventlog.staging import read_staging, write_staging
from custody.eventlog.toc import TableOfContents
from custody.eventlog.writer import LogMetadata, LogOptions, WrittenLog, log_metadata, write_log

__all__ = [
    "BoundedCache",
    "Damage",
    "EventLog",
    "LogMetadata",
    "LogOptions",
    "OnDamage",
    "TableOfContents",
    "WrittenLog",
    "log_metadata",
    "read_staging",
    "refuse",
    "write_log",
    "write_staging",
]
