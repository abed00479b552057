"""Repair: findings become actions, and actions are done one after the other and reported.

`plan_repairs` looks at everything and changes nothing. `repair_repository` does what was planned and keeps a report in
the folder of runs. Each action can be repeated, and each leaves what a second repair goes on from. After a round
everything is looked at again, because one repair uncovers damage that another one hid.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

import msgspec

from custody.catalog import AddFile, CatalogState, FileRepair
from custody.catalog.file_repairs import file_repair, finish_repairs, open_repairs, tell_repairs
from custody.clock import Clock
from custody.config import Settings
from custody.errors import CustodyError, StripeMissingError
from custody.maintenance.findings import Finding, Level
from custody.maintenance.repair import repair_catalog, repair_contents, repair_journals, repair_logs, repair_records
from custody.maintenance.repair.actions import RepairAction
from custody.maintenance.repair.copies import CopyFolder, restore_copy
from custody.maintenance.repair.repair_catalog import plan_chain_repair
from custody.maintenance.repair.repair_logs import source_of
from custody.maintenance.repair.taking_back import is_history_known, take_back
from custody.maintenance.verification import verify_repository
from custody.maintenance.verification.check_logs import damaged_blocks
from custody.vfs import FileSystem
from custody.workspace import StepReport, UnitReport, Workspace, report_place, write_report

_ACTIONS: dict[str, Callable[[Workspace, RepairAction], str]] = {
    # The order is that of the repair: what others build on comes first.
    "restore-copy": lambda at, action: restore_copy(at, Path(action.target), Path(action.copy)),
    "mend-catalog": lambda at, action: repair_catalog.mend_chain(at, accept_loss=action.accept_loss),
    "set-object-aside": lambda at, action: repair_catalog.set_object_aside(at, action.target),
    "note-history": lambda at, action: repair_catalog.note_history(at, [int(n) for n in action.target.split(",")]),
    "write-copies": lambda at, action: repair_catalog.write_copies(at),
    "forget-again": lambda at, action: repair_catalog.forget_again(at, action.target.split(",")),
    "list-again": lambda at, action: repair_catalog.list_again(at, action.target.split(",")),
    "write-checkpoint": lambda at, action: repair_catalog.write_new_checkpoint(at),
    "write-witness": lambda at, action: repair_catalog.write_witness(at, Path(action.target)),
    "restore-state": lambda at, action: repair_journals.restore_state(at, Path(action.target)),
    "rename-journal": lambda at, action: repair_journals.rename_journal(at, Path(action.target)),
    "redo-unit": lambda at, action: repair_journals.redo_unit(at, int(action.target)),
    "restore-log": lambda at, action: repair_logs.restore(at, action.target, action.copy),
    "roll-over": lambda at, action: repair_journals.roll_over(at, int(action.target)),
    "take-back-loss": lambda at, action: take_back(at, action.target, accept_loss=action.accept_loss),
    "rewrite-log": lambda at, action: repair_logs.rewrite(at, action.target, action.reason),
    "give-up-log": lambda at, action: repair_logs.give_up(at, action.target, action.reason),
    "rewrite-toc": lambda at, action: repair_logs.rewrite_toc(at, action.target),
    "rebuild-shard": lambda at, action: repair_logs.rebuild_index_shard(at, action.target),
    "drop-filters": lambda at, action: repair_logs.drop_filters(at, Path(action.target)),
    "mend-content": lambda at, action: repair_contents.mend_claim(at, action.target),
    "mend-quarantine": lambda at, action: repair_records.mend_quarantine(at, action.target, action.reason),
    "drop-record": lambda at, action: repair_records.drop_record(at, Path(action.target), action.reason),
    "note-ids": lambda at, action: repair_catalog.note_ids(at),
    "accept-earlier": lambda at, action: repair_catalog.accept_earlier(at),
}
ACTION_ORDER = tuple(_ACTIONS)
"""The actions, in the order in which they are done."""

# A mended catalog shows logs that nobody could check before, these show shards: a few rounds reach the end.
_ROUNDS_MAX = 5
_ONE_BY_ONE = {
    "catalog-object": ("set-object-aside", "path"),
    "state-damaged": ("restore-state", "path"),
    "witness-damaged": ("write-witness", "path"),
    "journal-foreign": ("rename-journal", "path"),
    "unit-damaged": ("redo-unit", "name"),
    "journal-damaged": ("roll-over", "name"),
    "toc-damaged": ("rewrite-toc", "name"),
    "shard-missing": ("rebuild-shard", "name"),
    "shard-damaged": ("rebuild-shard", "name"),
    "shard-different": ("rebuild-shard", "name"),
    "filters-damaged": ("drop-filters", "path"),
    "content-damaged": ("mend-content", "name"),
    "forgotten-damaged": ("write-copies", "kind"),
    "forgotten-missing": ("write-copies", "kind"),
    "record-damaged": ("drop-record", "name"),
    "quarantine-damaged": ("mend-quarantine", "name"),
}
"""By kind of finding: the action, and the field of the finding that names its target. One action a finding."""
_JOINED = {"catalog-history": "note-history", "catalog-tail": "list-again", "forgotten-lost": "forget-again"}
"""By kind of finding: one action for all findings of a writer."""
_TOLD_FIRST = {
    "restore-log": (FileRepair.LOG_RESTORED, "log-"),
    "rewrite-toc": (FileRepair.TOC_REWRITTEN, "toc-"),
    "rebuild-shard": (FileRepair.SHARD_REBUILT, "shard-"),
}
"""By action that changes no entry of the catalog: what the catalog calls it, and how its kinds of findings begin."""
_MESSAGES_MAX = 5


class RepairReport(msgspec.Struct, kw_only=True):
    """The actions planned or done, the findings before, and, when something was done, the findings that are left."""

    actions: list[RepairAction]
    before: list[Finding]
    after: list[Finding] | None = None
    report: str | None = None
    """Path of the report with the outcomes."""
    notices: list[str] = []
    """What could not be said of repairs that were done."""


def plan_repairs(
    settings: Settings, fs: FileSystem, clock: Clock, level: Level = Level.DEFAULT, *, copies: Path | None = None
) -> RepairReport:
    """Look at everything and return what would be done; changes nothing.

    `copies` is a folder with copies of damaged files, such as a restored backup.

    Raises:
        ConfigurationError: the store is an object store, where only the catalog can be repaired.
        NotFoundError: the folder with copies is not there.
    """
    settings.require_folder("repair (custody catalog repair mends the catalog)")
    folder = None if copies is None else CopyFolder(fs, copies)
    findings = _verify(settings, fs, clock, level)
    actions = plan_actions(findings, partial(_workspace, settings, fs, clock), folder)
    return RepairReport(actions=actions, before=findings)


def repair_repository(
    settings: Settings,
    fs: FileSystem,
    clock: Clock,
    level: Level = Level.DEFAULT,
    *,
    accept_loss: bool = False,
    copies: Path | None = None,
    on_done: Callable[[RepairAction], None] = lambda action: None,
) -> RepairReport:
    """Do all actions; those that give up lost events only with `accept_loss`. `copies` is as for `plan_repairs`.

    Durability: on return what the outcomes say survives power loss, and so does the report.

    Raises:
        LockedError: another repair goes on.
    """
    fs.make_directory(settings.maintenance_folder)
    # Two repairs at once would act on findings that the other one has answered already.
    with fs.lock(settings.maintenance_folder / "LOCK"):
        result = plan_repairs(settings, fs, clock, level, copies=copies)
        folder = None if copies is None else CopyFolder(fs, copies)
        run_id, started = f"repair-{clock.now_ms()}", time.monotonic()
        done: list[RepairAction] = []
        planned, findings = result.actions, result.before
        # An action that failed is not tried again in the same repair, so that this ends.
        for _ in range(_ROUNDS_MAX):
            done_keys = {action.key for action in done}
            todo = [
                action for action in planned if action.key not in done_keys and (accept_loss or not action.accept_loss)
            ]
            if not todo:
                break
            told: dict[str | None, str] = {}
            for action in todo:
                workspace = _workspace(settings, fs, clock, action.writer)
                refusal = ""
                if action.what in _TOLD_FIRST:
                    if action.writer not in told:
                        told[action.writer] = _tell(workspace, todo, findings, result.notices)
                    refusal = told[action.writer]
                done.append(msgspec.structs.replace(action, error=refusal) if refusal else _do(workspace, action))
                on_done(done[-1])
                # After each action: a repair that is killed leaves a report of what it did.
                result.report = str(_write_report(settings, fs, run_id, done, time.monotonic() - started))
            findings = result.after = _verify(settings, fs, clock, level)
            planned = plan_actions(findings, partial(_workspace, settings, fs, clock), folder)
        for workspace in Workspace.all(settings, fs, clock):
            result.notices += _finish(workspace, planned)
        not_done = [action for action in planned if action.key not in {item.key for item in done}]
        result.actions = [*done, *not_done]
        return result


def plan_actions(
    findings: Iterable[Finding], workspace_of: Callable[[str], Workspace], copies: CopyFolder | None = None
) -> list[RepairAction]:
    """Return the actions that answer findings, each once, in the order in which they are done.

    What can be restored from a copy is not repaired in another way: nothing is given up of which a copy is at hand.
    """
    by_kind: dict[tuple[str, str | None], list[Finding]] = defaultdict(list)
    actions: dict[tuple[str, str | None, str], RepairAction] = {}
    for finding in findings:
        if copies is not None and finding.writer is not None:
            found = copies.copy_for(finding, workspace_of(finding.writer))
            if found is not None:
                action = _action("restore-copy", finding, str(found[0]), copy=found[1])
                actions.setdefault(action.key, action)
                continue
        by_kind[finding.kind, finding.writer].append(finding)
        if finding.kind in _ONE_BY_ONE:
            what, field = _ONE_BY_ONE[finding.kind]
            action = _action(what, finding, getattr(finding, field))
            actions.setdefault(action.key, action)
    for (kind, writer), several in by_kind.items():
        if writer is not None:
            for action in _joined_actions(kind, several, partial(workspace_of, writer), copies):
                actions.setdefault(action.key, action)
    return sorted(
        actions.values(), key=lambda action: (ACTION_ORDER.index(action.what), action.writer or "", action.target)
    )


def _joined_actions(
    kind: str, findings: list[Finding], workspace: Callable[[], Workspace], copies: CopyFolder | None
) -> Iterator[RepairAction]:
    """Yield the actions that answer all findings of one kind, of one writer, at once."""
    first = findings[0]
    if kind == "catalog-damaged":
        yield _chain_action(first, workspace())
    elif kind in _JOINED:
        names = sorted({item.name for item in findings}, key=lambda name: (len(name), name))
        yield _action(_JOINED[kind], first, ",".join(names))
    elif kind == "catalog-notice":
        mended = [item for item in findings if "the next checkpoint" in item.message]
        if mended:
            yield _action("write-checkpoint", mended[0], "catalog")
    elif kind == "state-earlier":
        yield _action("accept-earlier", first, "catalog", accept_loss=True)
    elif kind == "ids-missing":
        yield _action("note-ids", first, "catalog", accept_loss=True)
    elif kind == "loss-recoverable":
        for item in findings:
            # What was forgotten since the loss was noted stays forgotten, as far as the history tells.
            is_known = is_history_known(workspace(), item.name)
            more = "" if is_known else " What was forgotten since may be given out: the history of that time is pruned."
            yield _action("take-back-loss", item, item.name, accept_loss=not is_known, detail=more)
    elif kind.startswith("log-"):
        yield from _log_actions(findings, workspace(), copies)


def _chain_action(finding: Finding, workspace: Workspace) -> RepairAction:
    planned = plan_chain_repair(workspace)
    if not planned.is_needed:
        return _action("write-checkpoint", finding, "catalog")
    more = "".join(f" {text}." for text in planned.more)
    return _action("mend-catalog", finding, "catalog", accept_loss=bool(planned.more), detail=more)


def _log_actions(findings: list[Finding], workspace: Workspace, copies: CopyFolder | None) -> Iterator[RepairAction]:
    by_path: dict[str, list[Finding]] = defaultdict(list)
    for item in findings:
        by_path[item.name].append(item)
    try:
        state = workspace.catalog.load()
    except CustodyError:
        return  # the catalog is mended first; the next round sees which logs are live
    for path, items in by_path.items():
        if path not in state.files:
            continue
        file = state.files[path]
        try:
            workspace.catalog.objects.files.require(path)
        except StripeMissingError:
            continue  # out of reach, whatever was found before: nothing is given up, and nothing written in its place
        copy = None if copies is None else copies.log_of(file)
        source = source_of(workspace, state, file)
        lost = sum(item.events for item in items)
        wanted = _wanted(workspace, file, lost)
        # From the best to the last resort: a whole copy, the whole blocks, and only on request giving the log up.
        if source is not None and (copy is None or source.startswith("elsewhere ")):
            yield _action("restore-log", items[0], path, detail=f" A copy is there: {source}.")
        elif copy is not None:
            yield _action("restore-log", items[0], path, copy=copy)
        elif (
            not workspace.catalog.objects.files.exists(path)
            or items[0].kind == "log-foreign"
            or damaged_blocks(workspace, file)[0] is None
        ):
            yield _action("give-up-log", items[0], path, events=lost, accept_loss=True, wanted=wanted)
        else:
            yield _action("rewrite-log", items[0], path, events=lost, accept_loss=lost > 0, wanted=wanted)


def _wanted(workspace: Workspace, file: AddFile, lost: int) -> str:
    """Return which copy would save the events that a repair of a log gives up, and where it is to be put."""
    if not lost:
        return ""
    digest = f", its SHA-256 is {file.sha256.hex()}" if file.sha256 else ""
    return (
        f"Nothing is lost yet if there is a backup: put a copy of the file at {workspace.log_place(file.path)} "
        f"({file.size_bytes} bytes{digest}), or name a folder that has one with --from. Without a copy --accept-loss "
        f"gives up {lost} events."
    )


def _action(
    what: str,
    finding: Finding,
    target: str,
    *,
    events: int = 0,
    accept_loss: bool = False,
    detail: str = "",
    wanted: str = "",
    copy: Path | None = None,
) -> RepairAction:
    return RepairAction(
        what=what,
        writer=finding.writer,
        target=target,
        reason=finding.message + detail + ("" if copy is None else f" A copy is there: {copy}."),
        events=events,
        accept_loss=accept_loss,
        copy="" if copy is None else str(copy),
        wanted=wanted,
    )


def _verify(settings: Settings, fs: FileSystem, clock: Clock, level: Level) -> list[Finding]:
    workspaces = Workspace.all(settings, fs, clock)
    return verify_repository(workspaces, settings, fs, level).findings


def _workspace(settings: Settings, fs: FileSystem, clock: Clock, writer: str | None) -> Workspace:
    """Return a workspace without caches: an action may have changed what was read."""
    # Findings without a writer are of the repository's own files: any writer's workspace will do.
    # What was lost of its catalog is mended by going on from an earlier state.
    return Workspace(settings, writer or settings.repository.writer, fs, clock, may_go_back=True)


def _do(workspace: Workspace, action: RepairAction) -> RepairAction:
    try:
        return msgspec.structs.replace(action, outcome=_ACTIONS[action.what](workspace, action))
    # One action that fails must not keep the others from being done.
    except (CustodyError, OSError) as error:
        return msgspec.structs.replace(action, error=str(error))


def _tell(workspace: Workspace, todo: Sequence[RepairAction], findings: Sequence[Finding], notices: list[str]) -> str:
    """Tell the catalog of a writer, in one transaction, which of its files are about to be mended, and why.

    Returns what kept that from being told, empty if nothing did. A repair that is not told is not done.
    """
    try:
        state = workspace.catalog.settle()
        repairs = []
        for action in todo:
            if action.writer == workspace.writer and action.what in _TOLD_FIRST:
                repair = _repair_of(workspace, state, action, findings)
                if repair is not None:
                    repairs.append(repair)
        if not tell_repairs(workspace.catalog, repairs, repair_logs.REPAIR):
            notices.append(f"writer {workspace.writer}: is retired, so its catalog tells nothing of what was mended.")
    except (CustodyError, OSError) as error:
        return f"not done, as the catalog could not be told of it: {error}"
    return ""


def _repair_of(
    workspace: Workspace, state: CatalogState, action: RepairAction, findings: Sequence[Finding]
) -> FileRepair | None:
    """Return what the catalog is told of an action; None if its file is not live any more."""
    kind, prefix = _TOLD_FIRST[action.what]
    found = [
        item
        for item in findings
        if (item.writer, item.name) == (action.writer, action.target) and item.kind.startswith(prefix)
    ]
    more = len(found) - _MESSAGES_MAX
    reason = " ".join(item.message for item in found[:_MESSAGES_MAX]) + (f" And {more} more." if more > 0 else "")
    offsets = [item.offset for item in found if item.offset is not None]
    if action.what == "rebuild-shard":
        return file_repair(kind, action.target, reason, offsets=offsets) if action.target in state.shards else None
    file = state.files.get(action.target)
    if file is None:
        return None
    is_log = action.what == "restore-log"
    expected, path = (file.sha256, file.path) if is_log else (file.toc_sha256, file.toc_path)
    found_sha256 = repair_logs.digest_found(workspace, path)
    return file_repair(kind, file.path, reason, expected_sha256=expected, found_sha256=found_sha256, offsets=offsets)


def _finish(workspace: Workspace, planned: Sequence[RepairAction]) -> list[str]:
    """Say that repairs are done of which nothing is left to do, those of an earlier attempt that crashed included."""
    try:
        left = {action.target for action in planned if action.writer == workspace.writer}
        done = [(each.kind, each.name) for each in open_repairs(workspace.catalog) if each.name not in left]
        problem = finish_repairs(workspace.catalog, done, repair_logs.REPAIR) if done else None
    except CustodyError as error:  # a catalog that cannot be read, and could not be mended
        problem = str(error)
    return [] if problem is None else [f"writer {workspace.writer}: {problem}"]


def _write_report(settings: Settings, fs: FileSystem, run_id: str, done: list[RepairAction], seconds: float) -> Path:
    units = [
        UnitReport(
            unit=f"{action.what} {action.writer or ''} {action.target}",
            events=action.events,
            note=action.outcome,
            error=action.error,
        )
        for action in done
    ]
    report = StepReport.of("repair", str(settings.root), seconds, units)
    return write_report(*report_place(settings, fs), run_id, report)
