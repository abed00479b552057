"""Room `repository`: custody's Python API."""

from custody.flow import Component, FlowFile, Session
from custody.maintenance import Compacted, Rewriting
from custody.model import Acknowledged
from custody.repository.forgetting import Forgotten, Meant
from custody.repository.found import Events, EventStream, Notices
from custody.repository.ingest import Ingest
from custody.repository.repository import Repository
from custody.repository.searching import SearchResult, StoredEvent
from custody.repository.slots import SlotWriter
from custody.repository.status import RepositoryStatus, WriterStatus
from custody.repository.tally import FileReport

__all__ = [
    "Acknowledged",
    "Compacted",
    "Component",
    "EventStream",
    "Events",
    "FileReport",
    "FlowFile",
    "Forgotten",
    "Ingest",
    "Meant",
    "Notices",
    "Repository",
    "RepositoryStatus",
    "Rewriting",
    "SearchResult",
    "Session",
    "SlotWriter",
    "StoredEvent",
    "WriterStatus",
]
