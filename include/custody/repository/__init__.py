"""Room `repository`: custody's Python API."""

from custody.flow import Component, FlowFile, Session
from custody.flow.content import Content, StoredContent
from custody.ingest.ingest import FileReport, Ingest
from custody.ingest.slots import SlotWriter
from custody.maintenance import CompactionReport, RewritePlan
from custody.model import Acknowledged
from custody.read.results import Events, EventStream, Notices
from custody.read.search import SearchResult, StoredEvent
from custody.repository.repository import Repository
from custody.repository.retention_api import RetentionResult
from custody.repository.soft_delete import EventSelection, ForgetResult
from custody.repository.status import BudgetStatus, DiskStatus, RepositoryStatus, WriterStatus
from custody.retention import Expiring, Hold, RetentionPlan

__all__ = [
    "Acknowledged",
    "BudgetStatus",
    "CompactionReport",
    "Component",
    "Content",
    "DiskStatus",
    "EventSelection",
    "EventStream",
    "Events",
    "Expiring",
    "FileReport",
    "FlowFile",
    "ForgetResult",
    "Hold",
    "Ingest",
    "Notices",
    "Repository",
    "RepositoryStatus",
    "RetentionPlan",
    "RetentionResult",
    "RewritePlan",
    "SearchResult",
    "Session",
    "SlotWriter",
    "StoredContent",
    "StoredEvent",
    "WriterStatus",
]
