"""Room `repository`: custody's Python API."""

from custody.repository.ingest import FileReport, Ingest
from custody.repository.repository import Repository, SearchResult, StoredEvent
from custody.repository.status import RepositoryStatus, WriterStatus

__all__ = [
    "FileReport",
    "Ingest",
    "Repository",
    "RepositoryStatus",
    "SearchResult",
    "StoredEvent",
    "WriterStatus",
]
