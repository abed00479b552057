"""Room `repository`: custody's Python API."""

from typing import TYPE_CHECKING

from custody.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from custody.flow import Component, FlowFile, Session
    from custody.flow.content import Content, StoredContent
    from custody.ingest.ingest import FilePreview, FileReport, Ingest, IngestPreview
    from custody.ingest.slots import SlotWriter
    from custody.maintenance import CompactionReport, RewritePlan
    from custody.model import Acknowledged
    from custody.read.results import Events, EventStream, Notices
    from custody.read.search import SearchResult, StoredEvent
    from custody.repository.erasing import ErasePlan
    from custody.repository.pluggable import ProvenanceRepository, open_repository
    from custody.repository.repository import Repository
    from custody.repository.retention_api import RetentionResult
    from custody.repository.soft_delete import EventSelection, ForgetPlan, ForgetResult
    from custody.repository.status import BudgetStatus, DiskStatus, RepositoryStatus, WriterStatus
    from custody.retention import Erasure, Expiring, Hold, RetentionPlan

__all__ = [
    "Acknowledged",
    "BudgetStatus",
    "CompactionReport",
    "Component",
    "Content",
    "DiskStatus",
    "ErasePlan",
    "Erasure",
    "EventSelection",
    "EventStream",
    "Events",
    "Expiring",
    "FilePreview",
    "FileReport",
    "FlowFile",
    "ForgetPlan",
    "ForgetResult",
    "Hold",
    "Ingest",
    "IngestPreview",
    "Notices",
    "ProvenanceRepository",
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
    "open_repository",
]

# Imported when they are used, so that a command loads what it needs and no more.
_MODULES = {
    "custody.flow": (
        "Component",
        "FlowFile",
        "Session",
    ),
    "custody.flow.content": (
        "Content",
        "StoredContent",
    ),
    "custody.ingest.ingest": (
        "FilePreview",
        "FileReport",
        "Ingest",
        "IngestPreview",
    ),
    "custody.ingest.slots": ("SlotWriter",),
    "custody.maintenance": (
        "CompactionReport",
        "RewritePlan",
    ),
    "custody.model": ("Acknowledged",),
    "custody.read.results": (
        "Events",
        "EventStream",
        "Notices",
    ),
    "custody.read.search": (
        "SearchResult",
        "StoredEvent",
    ),
    "custody.repository.erasing": ("ErasePlan",),
    "custody.repository.pluggable": (
        "ProvenanceRepository",
        "open_repository",
    ),
    "custody.repository.repository": ("Repository",),
    "custody.repository.retention_api": ("RetentionResult",),
    "custody.repository.soft_delete": (
        "EventSelection",
        "ForgetPlan",
        "ForgetResult",
    ),
    "custody.repository.status": (
        "BudgetStatus",
        "DiskStatus",
        "RepositoryStatus",
        "WriterStatus",
    ),
    "custody.retention": (
        "Erasure",
        "Expiring",
        "Hold",
        "RetentionPlan",
    ),
}

if not TYPE_CHECKING:  # a checker would take every name for one that is here
    __getattr__ = lazy_exports(__name__, _MODULES)
