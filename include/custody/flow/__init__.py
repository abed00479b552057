"""Room `flow`: FlowFiles, the sessions in which things happen to them, and their contents (`custody.flow.content`).

Sessions touch no disk; contents do.
"""

from custody.flow.flowfile import Component, FlowFile
from custody.flow.session import Appender, Session

__all__ = ["Appender", "Component", "FlowFile", "Session"]
