"""Room `flowfile_repository`: FlowFiles that wait in queues between steps, and the log that keeps them."""

from custody.flowfile_repository.content_archive import ArchiveOptions, ContentArchive
from custody.flowfile_repository.flowfile_repository import (
    FlowFileOptions,
    FlowFileRepository,
    Placed,
    Taking,
    Work,
)
from custody.flowfile_repository.log import claimed_contents
from custody.flowfile_repository.look import FlowFileLook, QueuedFlowFile, QueueStatus
from custody.flowfile_repository.outbox import Provenance
from custody.flowfile_repository.queue import QueueSize
from custody.flowfile_repository.queue_session import QueueSession
from custody.flowfile_repository.records import Connection, Replayed, Waiting
from custody.flowfile_repository.state import REPLAY_DAYS

__all__ = [
    "REPLAY_DAYS",
    "ArchiveOptions",
    "Connection",
    "ContentArchive",
    "FlowFileLook",
    "FlowFileOptions",
    "FlowFileRepository",
    "Placed",
    "Provenance",
    "QueueSession",
    "QueueSize",
    "QueueStatus",
    "QueuedFlowFile",
    "Replayed",
    "Taking",
    "Waiting",
    "Work",
    "claimed_contents",
]
