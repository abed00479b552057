"""Steps and their units: the interface of every piece of work on a repository, whichever room it belongs to.

Rollover, recovery, maintenance and retention are made of steps. A step lists its units from disk alone, and each unit
can be done again with the same result, so that a driver (the Spark job, a test, the command line) needs to know nothing
else of it: it asks for the units, takes the leases, runs each unit, and lets the step finish.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import ClassVar

import msgspec

from custody.config import Settings
from custody.made_types import made_at_import
from custody.vfs import FileSystem
from custody.workspace.run_reports import UnitReport
from custody.workspace.workspace import ROLLOVER_LEASE, Workspace

MEMORY_BYTES_MIN = 400 << 20
"""What the process of any unit takes: Python, Arrow and the buffers of a merge or of an index."""


class Unit(msgspec.Struct, frozen=True):
    """One piece of a step's work: a writer, and the log or the groups of it that the step works on.

    `first_event_id` is that of the log, or of the first of the `groups`. `ahead` is how many units wait before it,
    where a step counts them: units may be done in any order, and their place must not depend on it.
    """

    writer: str
    first_event_id: int | None = None
    groups: tuple[int, ...] = ()
    ahead: int | None = None

    def __str__(self) -> str:
        return self.writer if self.first_event_id is None else f"{self.writer}/{self.first_event_id}"


made_at_import(Unit)


class Step(ABC):
    """One step: which units wait for it, what it does with one, and what it does after all of them."""

    name: ClassVar[str]
    lease: ClassVar[str | None] = ROLLOVER_LEASE
    """The writer's lease that an attempt at the step holds; None for a step that publishes nothing."""
    unit_type: ClassVar[type[Unit]] = Unit
    """What its units are: a driver sends them to its workers as JSON."""
    report_type: ClassVar[type[UnitReport]] = UnitReport
    """What `run` returns, for the way back."""
    unit_decoder: ClassVar[msgspec.json.Decoder[Unit]]
    report_decoder: ClassVar[msgspec.json.Decoder[UnitReport]]
    needs_store_only: ClassVar[bool] = False
    """Whether units can be done where nothing of the repository is but an object store with `repository.staging`;
    `stays` names those that cannot."""
    memory_a_byte: ClassVar[float] = 0.0
    """How much memory a unit takes for each byte of `work_bytes`, beside `MEMORY_BYTES_MIN`: as measured, see
    docs/design/094-units-by-size.md."""
    is_recovery: ClassVar[bool] = False
    """Whether it deals with what earlier attempts left: its lease then ends clean, also after one that did not."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        # With the class, that is, while its module is imported.
        cls.unit_decoder = msgspec.json.Decoder(cls.unit_type)
        cls.report_decoder = msgspec.json.Decoder(cls.report_type)

    def units(self, settings: Settings, fs: FileSystem | None = None) -> list[Unit]:
        """Return the units that wait, in the order in which they must be done."""
        return [unit for workspace in Workspace.all(settings, fs) for unit in self.waiting(workspace)]

    def prepare(self, workspace: Workspace) -> None:  # noqa: B027 - most steps have nothing to prepare
        """Do what a driver has to do for a writer before units are listed; may be repeated."""

    def check_driver(self, workspace: Workspace) -> None:  # noqa: B027 - most steps rely on nothing
        """Raise unless what units rely on is on this machine; a driver asks whose workers see nothing of it."""

    @abstractmethod
    def waiting(self, workspace: Workspace) -> Iterator[Unit]:
        """Yield one writer's units that wait."""

    def work_bytes(self, workspace: Workspace, unit: Unit) -> int | None:
        """Return how many bytes of events a waiting unit reads, as sizes of files say; None where nothing says it.

        A driver decides by it where the unit is done. 0 is a unit that works on the catalog or on names alone.
        """
        return None

    def memory_bytes(self, work_bytes: int | None) -> int:
        """Return how much memory a unit takes that reads so many bytes, or nobody knows how many."""
        return MEMORY_BYTES_MIN + int(self.memory_a_byte * (work_bytes or 0))

    def stays(self, workspace: Workspace, unit: Unit) -> bool:
        """Whether a unit needs the disks of the driver's machine, of a step that has others."""
        return False

    def divide(self, workspace: Workspace, unit: Unit) -> Sequence[Unit]:
        """Return the parts of a waiting unit that is too large for one worker; none where it is done as a whole.

        A driver asks under the unit's lease. Each part is done by `run` as a unit is, in any order; `join` follows.
        """
        return ()

    def join(self, workspace: Workspace, unit: Unit, parts: Sequence[Unit]) -> UnitReport:
        """Complete a unit whose parts are all done; doing it again changes nothing."""
        raise NotImplementedError(f"units of the step {self.name} have no parts")

    @abstractmethod
    def run(self, workspace: Workspace, unit: Unit) -> UnitReport:
        """Do one unit; doing it again changes nothing."""

    def finish(
        self, settings: Settings, units: Sequence[Unit], reports: Sequence[UnitReport], fs: FileSystem | None = None
    ) -> list[UnitReport]:
        """Do what is to be done once all units were tried; return their reports for the run's history."""
        return list(reports)
