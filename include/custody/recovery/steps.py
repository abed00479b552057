"""The step that recovers, and all steps of a pass.

| step | unit | reads | writes |
|---|---|---|---|
| recover | writer | what interrupted work left | sealed journals; removes leftovers |
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from custody.errors import StorageError
from custody.lease import lease_status
from custody.recovery.looking import find
from custody.recovery.recovering import recover
from custody.rollover import ROLLOVER_LEASE, Step, Unit, UnitReport, Workspace, lease_folder
from custody.rollover import STEPS as _ROLLOVER_STEPS


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
