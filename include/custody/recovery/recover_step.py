"""Recovery: dealing with leftovers, by hand or as the first step of a pass; and all steps of a pass.

Each effect can be done again, and none touches what a kept revision lists.

| step | unit | reads | writes |
|---|---|---|---|
| recover | writer | leftovers | sealed journals; removes leftovers |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec

from custody.errors import CustodyError, StorageError, SupersededError
from custody.format.names import ContainerPaths, parse_epoch
from custody.journal import lock_path, seal_abandoned
from custody.journal.journal_writer import note_sealed
from custody.journal.sealing import SealedJournal
from custody.journal.writer_state import WriterContainers
from custody.lease import lease_status
from custody.quarantine import keep_cut
from custody.recovery.foreign_journals import AdoptedJournal
from custody.recovery.leftovers import (
    UNFINISHED_UPLOAD,
    UPLOAD,
    UPLOAD_ID,
    Leftover,
    LeftoverAction,
    find_leftovers,
)
from custody.rollover import STEPS as _ROLLOVER_STEPS
from custody.rollover import sweep_unit, swept_groups
from custody.store import UnfinishedUpload
from custody.vfs import TEMPORARY_SUFFIX
from custody.workspace import (
    ROLLOVER_LEASE,
    UnitReport,
    Workspace,
    discard,
    lease_of_unit,
    lease_place,
    name_before_removal,
    put_back,
    remove,
)
from custody.workspace.step import Step, Unit


class RecoveryReport(msgspec.Struct, frozen=True, kw_only=True):
    """The leftovers and what became of them; sizes in bytes. What is to be adopted is only listed, unless requested."""

    findings: tuple[Leftover, ...] = ()
    sealed: int = 0
    lost_bytes: int = 0
    """Bytes that were cut, as far as can be told of writes that were never acknowledged; the quarantine has them."""
    adopted: tuple[AdoptedJournal, ...] = ()
    accepted: str | None = None
    """The earlier state that counts as the newest one from here on, where there was one."""

    def __str__(self) -> str:
        others = sum(item.action not in ("seal", "keep", "adopt") and item.error is None for item in self.findings)
        text = f"{self.sealed} journals sealed, {self.lost_bytes} unacknowledged bytes cut"
        return f"{text}, {others} other leftovers dealt with" if others else text

    @property
    def errors(self) -> list[str]:
        """The errors of leftovers that resisted, and the leftovers that are kept for a person."""
        for_a_person = [f"{item.path}: {item.why}" for item in self.findings if item.action == "keep"]
        return list(dict.fromkeys([item.error for item in self.findings if item.error is not None] + for_a_person))


def recover(workspace: Workspace) -> RecoveryReport:
    """Deal with all leftovers of a writer; the error of one that could not be dealt with is in the report.

    The caller holds the lease of the rollover. Repeated after any interruption, it ends in the same state.

    Durability: on return what the report says survives power loss.

    Raises:
        SupersededError: another attempt took over.
        EarlierStateError: the catalog is of an earlier moment than one that was seen: what it does not list is no
            leftover.
    """
    workspace.require_newest()
    leftovers = find_leftovers(workspace)
    sealed: list[SealedJournal] = []
    # These are done once for all leftovers: under one lock, or with one look at the catalog.
    at_once: dict[LeftoverAction, Callable[[], object]] = {
        "seal": lambda: sealed.extend(seal_dead_journals(workspace)),
        "sweep": lambda: _sweep(workspace),
    }
    problems = {
        action: _problem(work) for action, work in at_once.items() if any(item.action == action for item in leftovers)
    }
    outcomes = []
    for item in leftovers:
        # One leftover that resists does not keep the others from being dealt with: its error goes into the report.
        problem = problems[item.action] if item.action in problems else _problem(partial(_deal, workspace, item))
        outcomes.append(msgspec.structs.replace(item, error=problem))
    return RecoveryReport(
        findings=tuple(outcomes), sealed=len(sealed), lost_bytes=sum(journal.lost_bytes for journal in sealed)
    )


def seal_dead_journals(workspace: Workspace) -> list[SealedJournal]:
    """Seal the journals of a dead writer, and remove its temporary files.

    Raises:
        LockedError: the writer is alive again, and has sealed them itself.
        StorageError: ids may be lost, and a container that knows which were reserved is missing.
    """
    fs, containers = workspace.fs, workspace.settings.containers
    # The writer's own lock: while this process holds it, no writer of the name can start and open these journals.
    with fs.lock(lock_path(containers, workspace.writer)):
        # Under the writer's lock no temporary file can belong to live work.
        for root in containers:
            home = ContainerPaths(root, workspace.writer).home
            for name in fs.list(home):
                if name.endswith(TEMPORARY_SUFFIX):
                    fs.remove(home / name)

        keep = partial(keep_cut, fs, workspace.settings.quarantine, workspace.clock.now_ms())

        def keep_ids() -> None:
            # Ids that were reserved may have been acknowledged in the bytes that are lost: none is given out again.
            membership = WriterContainers(fs, containers, workspace.writer)
            membership.raise_floor(membership.reserved)

        sealed = seal_abandoned(fs, containers, workspace.writer, keep, keep_ids)
        # With a container away nobody starts under the name: its first start notes how far the others are sealed.
        with suppress(StorageError):
            members = WriterContainers(fs, containers, workspace.writer)
            note_sealed(fs, members, workspace.catalog.witnesses, [journal.path for journal in sealed])
        return sealed


def _problem(work: Callable[[], object]) -> str | None:
    try:
        work()
    except SupersededError:
        raise  # another attempt works on these files now: nothing more may be touched
    except CustodyError as error:
        return str(error)
    return None


def _sweep(workspace: Workspace) -> None:
    for groups in list(swept_groups(workspace)):
        sweep_unit(workspace, workspace.writer, groups)


def _deal(workspace: Workspace, item: Leftover) -> None:
    path = Path(item.path)
    if item.what == UPLOAD:
        store = workspace.catalog.objects.store
        store.delete(item.path.removeprefix(store.locate("")))
    elif item.what == UNFINISHED_UPLOAD:
        store = workspace.catalog.objects.store
        url, _, upload_id = item.path.partition(UPLOAD_ID)
        store.abort(UnfinishedUpload(url.removeprefix(store.locate("")), upload_id, 0))
    elif item.action == "remove":
        remove(workspace.fs, path)
    elif item.action == "discard":
        discard(workspace, path)
    elif item.action == "put back":
        # A file gets its listed name as a second one; the name of the removal goes once that is durable.
        put_back(workspace, path, path.with_name(name_before_removal(path.name)))
        remove(workspace.fs, path)
    elif item.action == "close":
        epoch = parse_epoch(path.name)
        if epoch is not None:
            # Failed, not released: its attempt did not end well and may have left files that only a recovery finds.
            lease_of_unit(workspace.settings, workspace.writer, path.parent.name, epoch, workspace.fs).release(
                failed=True
            )


class Recover(Step):
    """Seals what a dead writer left open, and deals with what interrupted steps left."""

    name = "recover"
    is_recovery = True

    def waiting(self, workspace: Workspace) -> Iterator[Unit]:
        """Writers with leftovers, and those whose last pass failed."""
        # The mark of a failed pass stays until a recovery has run, even if no leftover is in sight.
        lease = lease_status(*lease_place(workspace.settings, workspace.writer, ROLLOVER_LEASE, workspace.fs))
        if (lease is not None and lease.failed) or any(item.action != "adopt" for item in find_leftovers(workspace)):
            yield Unit(workspace.writer)

    def work_bytes(self, workspace: Workspace, unit: Unit) -> int | None:
        """Return the sizes of the journals that may have to be sealed: what else is left is removed or renamed."""
        return sum(workspace.fs.size(path) for group in workspace.groups() for path in group.open)

    def run(self, workspace: Workspace, unit: Unit) -> UnitReport:
        """Deal with all leftovers.

        Raises:
            StorageError: some could not be dealt with; the rest was.
        """
        report = recover(workspace)
        if report.errors:
            raise StorageError(f"{report}. {'; '.join(report.errors)}")
        return UnitReport(unit=str(unit), note=str(report))


_RECOVER = Recover()
STEPS: Mapping[str, Step] = {_RECOVER.name: _RECOVER, **_ROLLOVER_STEPS}
"""All steps by name, in the order in which a pass runs them."""
