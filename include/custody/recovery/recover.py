"""Dealing with leftovers. Each effect can be done again, and none touches what a kept revision lists.

The step that recovers, and all steps of a pass.

| step | unit | reads | writes |
|---|---|---|---|
| recover | writer | what interrupted work left | sealed journals; removes leftovers |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import msgspec

from custody.errors import CustodyError, StorageError, SupersededError
from custody.format.names import ContainerPaths, parse_epoch
from custody.journal import lock_path, seal_abandoned
from custody.journal.sealing import SealedJournal
from custody.journal.writer_state import WriterContainers
from custody.lease import Lease, lease_status
from custody.quarantine import keep_cut
from custody.recovery.adopting import Adopted
from custody.recovery.scan import Action, Finding, find
from custody.rollover import STEPS as _ROLLOVER_STEPS
from custody.rollover import Step, Unit, sweep_unit, swept_groups
from custody.vfs import TEMPORARY_SUFFIX
from custody.workspace import (
    ROLLOVER_LEASE,
    UnitReport,
    Workspace,
    discard,
    lease_folder,
    name_before,
    put_back,
    remove,
)


class Recovered(msgspec.Struct, frozen=True, kw_only=True):
    """What was done; sizes in bytes. What is to be adopted is only told, unless that was asked for."""

    findings: tuple[Finding, ...] = ()
    sealed: int = 0
    lost_bytes: int = 0
    """Bytes that were cut, of writes that nobody was told of, as far as that can be told; the quarantine has them."""
    adopted: tuple[Adopted, ...] = ()

    def __str__(self) -> str:
        others = sum(found.action not in ("seal", "keep", "adopt") and found.error is None for found in self.findings)
        text = f"{self.sealed} journals sealed, {self.lost_bytes} unacknowledged bytes cut"
        return f"{text}, {others} other leftovers dealt with" if others else text

    @property
    def errors(self) -> list[str]:
        """What could not be done, and what a person has to look at."""
        kept = [f"{found.path}: {found.why}" for found in self.findings if found.action == "keep"]
        return list(dict.fromkeys([found.error for found in self.findings if found.error is not None] + kept))


def recover(workspace: Workspace) -> Recovered:
    """Deal with all leftovers of a writer; what could not be done stands in its finding.

    The caller holds the lease of the rollover. Done again after any interruption, it ends in the same state.

    Durability: on return what it says survives power loss.

    Raises:
        SupersededError: another attempt took over.
    """
    found = find(workspace)
    sealed: list[SealedJournal] = []
    # What is dealt with all at once, under a lock or with a look at the catalog.
    at_once: dict[Action, Callable[[], object]] = {
        "seal": lambda: sealed.extend(seal(workspace)),
        "sweep": lambda: _sweep(workspace),
    }
    problems = {
        action: _problem(work) for action, work in at_once.items() if any(item.action == action for item in found)
    }
    done = []
    for item in found:
        problem = problems[item.action] if item.action in problems else _problem(partial(_deal, workspace, item))
        done.append(msgspec.structs.replace(item, error=problem))
    return Recovered(findings=tuple(done), sealed=len(sealed), lost_bytes=sum(journal.lost_bytes for journal in sealed))


def seal(workspace: Workspace) -> list[SealedJournal]:
    """Seal the journals of a dead writer, and remove what it never gave a name.

    Raises:
        LockedError: the writer came to life; it has sealed them itself.
        StorageError: ids may be lost, and a container that knows which were reserved is missing.
    """
    fs, containers = workspace.fs, workspace.settings.containers
    with fs.lock(lock_path(containers, workspace.writer)):
        for root in containers:
            home = ContainerPaths(root, workspace.writer).home
            for name in fs.list(home):
                if name.endswith(TEMPORARY_SUFFIX):
                    fs.remove(home / name)

        keep = partial(keep_cut, fs, workspace.settings.quarantine, workspace.clock.now_ms())

        def keep_ids() -> None:
            membership = WriterContainers(fs, containers, workspace.writer)
            membership.raise_floor(membership.reserved)

        return seal_abandoned(fs, containers, workspace.writer, keep, keep_ids)


def _problem(work: Callable[[], object]) -> str | None:
    try:
        work()
    except SupersededError:
        raise
    except CustodyError as error:
        return str(error)
    return None


def _sweep(workspace: Workspace) -> None:
    for groups in list(swept_groups(workspace)):
        sweep_unit(workspace, workspace.writer, groups)


def _deal(workspace: Workspace, item: Finding) -> None:
    path = Path(item.path)
    if item.action == "remove":
        remove(workspace.fs, path)
    elif item.action == "discard":
        discard(workspace, path)
    elif item.action == "put back":
        put_back(workspace, path, path.with_name(name_before(path.name)))
        remove(workspace.fs, path)
    elif item.action == "close":
        epoch = parse_epoch(path.name)
        if epoch is not None:
            Lease(workspace.fs, path.parent, epoch).release(failed=True)


class Recover(Step):
    """Seals what a dead writer left open, and deals with what interrupted steps left."""

    name = "recover"

    def waiting(self, workspace: Workspace) -> Iterator[Unit]:
        """Writers of whom anything was left, or whose last pass did not end well."""
        folder = lease_folder(workspace.settings, workspace.writer, ROLLOVER_LEASE)
        lease = lease_status(workspace.fs, folder)
        if (lease is not None and lease.failed) or any(found.action != "adopt" for found in find(workspace)):
            yield Unit(workspace.writer)

    def run(self, workspace: Workspace, unit: Unit) -> UnitReport:
        """Deal with all of it.

        Raises:
            StorageError: some could not be dealt with; the rest was.
        """
        done = recover(workspace)
        if done.errors:
            raise StorageError(f"{done}. {'; '.join(done.errors)}")
        return UnitReport(unit=str(unit), note=str(done))


_RECOVER = Recover()
STEPS: Mapping[str, Step] = {_RECOVER.name: _RECOVER, **_ROLLOVER_STEPS}
"""All steps by name, in the order in which a pass runs them."""
