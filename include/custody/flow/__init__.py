"""Room `flow`: FlowFiles, and the sessions in which things happen to them; nothing here touches a disk."""

from custody.flow.flowfile import Component, FlowFile
from custody.flow.ledger import Appender
from custody.flow.session import Session

__all__ = ["Appender", "Component", "FlowFile", "Session"]
