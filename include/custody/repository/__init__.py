"""Room `repository`: custody's Python API."""

from custody.repository.found import Events, EventStream, Notices
from custody.repository.ingest import FileReport, Ingest
from custody.repository.repository import Repository, SearchResult, StoredEvent
from custody.repository.status import RepositoryStatus, WriterStatus

__all__ = [
    "EventStream",
    "Events",
    "FileReport",
    "Ingest",
    "Notices",
    "Repository",
    "RepositoryStatus",
    "SearchResult",
    "StoredEvent",
    "WriterStatus",
]
