"""Room `repository`: custody's Python API."""

from custody.flow import Component, FlowFile, Session
from custody.model import Acknowledged
from custody.repository.ingest import Ingest
from custody.repository.repository import Repository
from custody.repository.searching import SearchResult, StoredEvent
from custody.repository.slots import SlotWriter
from custody.repository.status import RepositoryStatus, WriterStatus
from custody.repository.tally import FileReport

__all__ = [
    "Acknowledged",
    "Component",
    "FileReport",
    "FlowFile",
    "Ingest",
    "Repository",
    "RepositoryStatus",
    "SearchResult",
    "Session",
    "SlotWriter",
    "StoredEvent",
    "WriterStatus",
]
