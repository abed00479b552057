"""From what was found wrong to what would mend it. Nothing is changed here."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

from custody.errors import CustodyError
from custody.maintenance.findings import Finding
from custody.maintenance.repair.actions import Action
from custody.maintenance.repair.catalogs import chain_plan
from custody.maintenance.repair.logs import source_of
from custody.maintenance.verification.logs import damaged_blocks
from custody.workspace import Workspace

ORDER = (
    "mend-catalog",
    "set-object-aside",
    "note-history",
    "write-copies",
    "forget-again",
    "list-again",
    "write-checkpoint",
    "restore-state",
    "rename-journal",
    "redo-unit",
    "restore-log",
    "roll-over",
    "rewrite-log",
    "give-up-log",
    "rewrite-toc",
    "rebuild-shard",
    "mend-content",
    "mend-quarantine",
    "drop-record",
    "drop-entry",
    "note-ids",
)
"""The actions, in the order in which they are done: what others build on comes first."""

_ONE_BY_ONE = {
    "catalog-object": ("set-object-aside", "path"),
    "state-damaged": ("restore-state", "path"),
    "journal-foreign": ("rename-journal", "path"),
    "unit-damaged": ("redo-unit", "name"),
    "journal-damaged": ("roll-over", "name"),
    "toc-damaged": ("rewrite-toc", "name"),
    "shard-missing": ("rebuild-shard", "name"),
    "shard-damaged": ("rebuild-shard", "name"),
    "shard-different": ("rebuild-shard", "name"),
    "content-damaged": ("mend-content", "name"),
    "forgotten-damaged": ("write-copies", "kind"),
    "forgotten-missing": ("write-copies", "kind"),
    "record-damaged": ("drop-record", "name"),
    "quarantine-damaged": ("mend-quarantine", "name"),
    "quarantine-missing": ("drop-entry", "name"),
}
_JOINED = {"catalog-history": "note-history", "catalog-tail": "list-again", "forgotten-lost": "forget-again"}
_NEEDS_ACCEPTING = ("drop-entry",)


def plan(findings: Iterable[Finding], workspace_of: Callable[[str], Workspace]) -> list[Action]:
    """Return what would be done about findings, each thing once, in the order in which it would be done."""
    by_kind: dict[tuple[str, str | None], list[Finding]] = defaultdict(list)
    made: dict[tuple[str, str | None, str], Action] = {}
    for found in findings:
        by_kind[found.kind, found.writer].append(found)
        if found.kind in _ONE_BY_ONE:
            what, field = _ONE_BY_ONE[found.kind]
            action = _action(what, found, getattr(found, field))
            made.setdefault(action.key, action)
    for (kind, writer), several in by_kind.items():
        if writer is not None:
            for action in _together(kind, several, lambda writer=writer: workspace_of(writer)):  # type: ignore[misc]
                made.setdefault(action.key, action)
    return sorted(made.values(), key=lambda action: (ORDER.index(action.what), action.writer or "", action.target))


def _together(kind: str, found: list[Finding], workspace: Callable[[], Workspace]) -> Iterator[Action]:
    """Yield the actions that answer several findings of one kind, of one writer, at once."""
    first = found[0]
    if kind == "catalog-damaged":
        yield _chain(first, workspace())
    elif kind in _JOINED:
        names = sorted({item.name for item in found}, key=lambda name: (len(name), name))
        yield _action(_JOINED[kind], first, ",".join(names))
    elif kind == "catalog-notice":
        mended = [item for item in found if "the next checkpoint" in item.message]
        if mended:
            yield _action("write-checkpoint", mended[0], "catalog")
    elif kind == "ids-missing":
        yield _action("note-ids", first, "catalog", accept_loss=True)
    elif kind.startswith("log-"):
        yield from _logs(found, workspace())


def _chain(found: Finding, workspace: Workspace) -> Action:
    planned = chain_plan(workspace)
    if not planned.is_needed:
        return _action("write-checkpoint", found, "catalog")
    more = "".join(f" {text}." for text in planned.more)
    return _action("mend-catalog", found, "catalog", accept_loss=bool(planned.more), detail=more)


def _logs(found: list[Finding], workspace: Workspace) -> Iterator[Action]:
    by_path: dict[str, list[Finding]] = defaultdict(list)
    for item in found:
        by_path[item.name].append(item)
    try:
        state = workspace.catalog.load()
    except CustodyError:
        return  # the catalog comes first
    for path, items in by_path.items():
        if path not in state.files:
            continue
        file = state.files[path]
        source = source_of(workspace, state, file)
        lost = sum(item.events for item in items)
        if source is not None:
            yield _action("restore-log", items[0], path, detail=f" A copy is there: {source}.")
        elif (
            not workspace.fs.exists(workspace.paths.home / path)
            or items[0].kind == "log-foreign"
            or damaged_blocks(workspace, file)[0] is None
        ):
            yield _action("give-up-log", items[0], path, events=lost, accept_loss=True)
        else:
            yield _action("rewrite-log", items[0], path, events=lost)


def _action(
    what: str, found: Finding, target: str, *, events: int = 0, accept_loss: bool = False, detail: str = ""
) -> Action:
    return Action(
        what=what,
        writer=found.writer,
        target=target,
        reason=found.message + detail,
        events=events,
        accept_loss=accept_loss or what in _NEEDS_ACCEPTING,
    )
