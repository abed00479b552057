"""The STATE files of a writer: which containers are its own, and which ids it reserved."""

from __future__ import annotations

from collections.abc import Iterator

from custody.errors import CustodyError
from custody.format.framing import misplaced_parts
from custody.format.names import ContainerPaths
from custody.journal import decode_state, encode_state
from custody.journal.membership import PREAMBLE
from custody.maintenance.findings import Finding
from custody.rollover import Workspace


def check_states(workspace: Workspace) -> Iterator[Finding]:
    """Yield the STATE files that are not whole; an absent one is that of a container that was never written to."""
    for root in workspace.settings.containers:
        path = ContainerPaths(root, workspace.writer).state
        if not workspace.fs.exists(path):
            continue
        data = workspace.fs.read(path)
        try:
            state = decode_state(data, path)
        except CustodyError as error:
            yield _finding(workspace, str(path), str(error))
            continue
        if state.writer != workspace.writer:
            text = f"{path}: expected the state of writer {workspace.writer!r}, got that of {state.writer!r}."
            yield _finding(workspace, str(path), text)
        elif any(misplaced_parts(data, len(PREAMBLE))) or len(encode_state(state)) > len(data):
            yield _finding(workspace, str(path), f"{path} @8: expected the mark of a record, got that of a part.")


def _finding(workspace: Workspace, path: str, text: str) -> Finding:
    return Finding(kind="state-damaged", writer=workspace.writer, path=path, offset=0, message=text)
