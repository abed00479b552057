"""Room `repository`: custody's Python API."""

from custody.flow import Component, FlowFile, Session
from custody.flow.content import Content, StoredContent
from custody.maintenance import Compacted, Rewriting
from custody.model import Acknowledged
from custody.repository.forgetting import Forgotten, Meant
from custody.repository.found import Events, EventStream, Notices
from custody.repository.ingest import Ingest
from custody.repository.repository import Repository
from custody.repository.retaining import Retained
from custody.repository.searching import SearchResult, StoredEvent
from custody.repository.slots import SlotWriter
from custody.repository.status import BudgetStatus, DiskStatus, RepositoryStatus, WriterStatus
from custody.repository.tally import FileReport
from custody.retention import Expiring, Hold, Plan

__all__ = [
    "Acknowledged",
    "BudgetStatus",
    "Compacted",
    "Component",
    "Content",
    "DiskStatus",
    "EventStream",
    "Events",
    "Expiring",
    "FileReport",
    "FlowFile",
    "Forgotten",
    "Hold",
    "Ingest",
    "Meant",
    "Notices",
    "Plan",
    "Repository",
    "RepositoryStatus",
    "Retained",
    "Rewriting",
    "SearchResult",
    "Session",
    "SlotWriter",
    "StoredContent",
    "StoredEvent",
    "WriterStatus",
]
