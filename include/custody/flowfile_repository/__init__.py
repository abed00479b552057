"""Room `flowfile_repository`: FlowFiles that wait in queues between steps, and the log that keeps them."""

from custody.flowfile_repository.flow import Flow, open_flow
from custody.flowfile_repository.flowfile_repository import (
    FlowFileOptions,
    FlowFileRepository,
    Placed,
    Taking,
    Work,
)
from custody.flowfile_repository.look import FlowFileLook, QueuedFlowFile, QueueStatus
from custody.flowfile_repository.outbox import JournalProvenance, Provenance
from custody.flowfile_repository.queue import QueueSize
from custody.flowfile_repository.queue_session import QueueSession
from custody.flowfile_repository.records import Connection, Waiting

__all__ = [
    "Connection",
    "Flow",
    "FlowFileLook",
    "FlowFileOptions",
    "FlowFileRepository",
    "JournalProvenance",
    "Placed",
    "Provenance",
    "QueueSession",
    "QueueSize",
    "QueueStatus",
    "QueuedFlowFile",
    "Taking",
    "Waiting",
    "Work",
    "open_flow",
]
