"""The STATE files of a writer, the claims of its name, and whether all its containers are there.

Which containers are its own, which ids it reserved, under which incarnation; and journals that are not its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from custody.catalog import CatalogState
from custody.errors import CustodyError
from custody.format.framing import misplaced_parts
from custody.format.names import ContainerPaths
from custody.journal import Group, count_waiting, decode_state, encode_state
from custody.journal.incarnations import decode_claim, encode_claim
from custody.journal.membership import PREAMBLE, WriterState
from custody.maintenance.findings import Finding
from custody.rollover import Workspace, strays


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
        elif any(misplaced_parts(data, len(PREAMBLE))) or _least_bytes(state) > len(data):
            yield _finding(workspace, str(path), f"{path} @8: expected the mark of a record, got that of a part.")


def _least_bytes(state: WriterState) -> int:
    """Return how long a state is at least; that of an older custody lacks the incarnation."""
    return len(encode_state(state)) - (0 if state.incarnation else len(b',"incarnation":""'))


def check_containers(workspace: Workspace) -> Iterator[Finding]:
    """Yield the containers of the writer that are not there; nobody knows what they hold."""
    for missing in workspace.missing():
        if missing.host:
            kind, text = "container-elsewhere", f"container {missing.place} is on the machine {missing.host!r}."
        else:
            kind, text = "container-missing", f"{missing}. Acknowledged events may lie on it."
        yield Finding(
            kind=kind,
            writer=workspace.writer,
            path=str(missing.place),
            message=text,
            name=missing.container,
        )


def check_incarnations(workspace: Workspace, state: CatalogState | None) -> Iterator[Finding]:
    """Yield claims of the name that are not whole, and journals of other incarnations."""
    store = workspace.catalog.objects.store
    for key in workspace.incarnations.objects():
        data, where = store.get(key), workspace.incarnations.locate(key)
        try:
            claim = decode_claim(data, where)
        except CustodyError as error:
            yield Finding(kind="incarnation-damaged", writer=workspace.writer, path=where, offset=0, message=str(error))
            continue
        if any(misplaced_parts(data, len(PREAMBLE))) or len(encode_claim(claim)) != len(data):
            text = f"{where} @8: expected the mark of a record, got that of a part."
            yield Finding(kind="incarnation-damaged", writer=workspace.writer, path=where, offset=8, message=text)
    foreign = [path for group in workspace.foreign_groups() for path in (*group.sealed, *group.open)]
    for path in foreign:
        yield _of_others(workspace, path, "was written under another incarnation of the writer's name")
    if state is not None:
        for path in strays(workspace, state, workspace.groups()):
            yield _of_others(workspace, path, "has events of a live group that no live log has")


def _of_others(workspace: Workspace, path: Path, text: str) -> Finding:
    try:
        events = count_waiting(workspace.fs, [Group(workspace.writer, 0, (path,), ())]).events
    except (CustodyError, OSError):
        events = 0
    return Finding(
        kind="journal-of-others",
        writer=workspace.writer,
        path=str(path),
        message=f"{path}: {text}; no answer gives its events out.",
        events=events,
    )


def _finding(workspace: Workspace, path: str, text: str) -> Finding:
    return Finding(kind="state-damaged", writer=workspace.writer, path=path, offset=0, message=text)
