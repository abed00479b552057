"""Room `flow`: FlowFiles, the sessions in which things happen to them, and their contents (`custody.flow.content`).

Sessions touch no disk; contents do.
"""

from custody.flow.flowfile import Component, FlowFile
from custody.flow.ledger import Appender
from custody.flow.session import Session

__all__ = ["Appender", "Component", "FlowFile", "Session"]
