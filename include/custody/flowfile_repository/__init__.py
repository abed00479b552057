"""Room `flowfile_repository`: FlowFiles that wait in queues between steps, and the log that keeps them."""

from custody.flowfile_repository.flow import Flow, existing_queues, open_flow
from custody.flowfile_repository.flowfile_repository import (
    FlowFileOptions,
    FlowFileRepository,
    Placed,
    Taking,
    Work,
)
from custody.flowfile_repository.outbox import JournalProvenance, Provenance
from custody.flowfile_repository.queue import QueueSize
from custody.flowfile_repository.queue_session import QueueSession
from custody.flowfile_repository.records import Connection, Replayed, Waiting
from custody.flowfile_repository.state import REPLAY_DAYS

__all__ = [
    "REPLAY_DAYS",
    "Connection",
    "Flow",
    "FlowFileOptions",
    "FlowFileRepository",
    "JournalProvenance",
    "Placed",
    "Provenance",
    "QueueSession",
    "QueueSize",
    "Replayed",
    "Taking",
    "Waiting",
    "Work",
    "existing_queues",
    "open_flow",
]
