"""The sensor of hand-overs: it succeeds once this machine's disks may be lost, and fails where that takes too long.

It looks from the machine that it runs on, the triggerer's or a worker's: of a producer elsewhere it sees nothing, and
the producer's own `custody status` and metrics tell. The library is imported only when a task runs: a DAG file, which
is parsed every few seconds, has no use for it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowException, AirflowSkipException

from custody_airflow.environment import repository_folder
from custody_airflow.failures import permanent_failures
from custody_airflow.sensors import WorkSensor, as_dict
from custody_airflow.triggers import FAILED, WorkTrigger


class HandoffTrigger(WorkTrigger):
    """Fires once nothing waits to be handed over for longer than a bound, or when its time is over.

    :param older_seconds: what waits for no longer is passed over (templated); 0 lets nothing wait.
    """

    nothing = "journal.handoff and content.handoff are off: nothing is handed over"

    def __init__(
        self,
        repository: str,
        poke_seconds: float,
        wait_seconds: str | int | None = None,
        older_seconds: str | float = 0,
    ) -> None:
        super().__init__(repository, poke_seconds, wait_seconds)
        self.older_seconds = older_seconds

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class and the arguments that Airflow's database keeps of this trigger."""
        name, arguments = super().serialize()
        return name, {**arguments, "older_seconds": self.older_seconds}

    @staticmethod
    def look(repository: Path) -> dict[str, Any] | None:
        """Return what waits, by writer, and when that was so; None where the settings hand nothing over."""
        from custody.clock import SystemClock
        from custody.config import load_settings
        from custody.rollover import handoff_backlogs

        backlog = handoff_backlogs(load_settings(repository))
        if backlog is None:
            return None
        return {"now_ms": SystemClock().now_ms(), "writers": [as_dict(item) for item in backlog if item.is_any]}

    def is_over(self, found: dict[str, Any] | None) -> bool:
        """Whether nothing waits for too long, or nothing is handed over at all."""
        return found is None or not overdue(found, float(self.older_seconds))


class HandoffSensor(WorkSensor):
    """Succeeds once nothing waits to be handed over, fails when something still does; skipped where nothing ever is.

    :param wait_seconds: how long to wait for it (templated); 0 looks once. Waiting is deferred to the triggerer and
        holds no worker.
    :param older_seconds: what waits for no longer is passed over (templated). An open group, and contents of the last
        minute, always wait where somebody writes: only with 0 they count.
    """

    template_fields = ("wait_seconds", "older_seconds")
    trigger_class = HandoffTrigger

    def __init__(self, *, older_seconds: str | float = 0, **kwargs: Any) -> None:  # noqa: ANN401 - Airflow's signature
        # What is late must not look like nothing to do.
        super().__init__(soft_fail=False, **kwargs)
        self.older_seconds = older_seconds
        assert self.start_trigger_args is not None  # noqa: S101 - made just now
        arguments = self.start_trigger_args.trigger_kwargs or {}
        self.start_trigger_args.trigger_kwargs = {**arguments, "older_seconds": older_seconds}

    @permanent_failures()
    def execute(self, context: Context) -> dict[str, Any]:
        """Look once, then wait in the triggerer if the run asks for it; return what waits, none of it for too long.

        Raises:
            AirflowException: something waits for too long.
            AirflowSkipException: nothing is handed over.
        """
        seconds = int(self.wait_seconds)
        trigger = HandoffTrigger(str(repository_folder()), self.poke_interval, seconds, self.older_seconds)
        found = trigger.look(Path(trigger.repository))
        if not trigger.is_over(found) and seconds > 0:
            self.defer(trigger=trigger, method_name="resume")
        return self._judged(found)

    def resume(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Return or refuse what the trigger found; where its look failed, look again here, so that the task fails."""
        if FAILED not in event:
            return self._judged(event)
        self.log.warning("the triggerer could not look: %s", event[FAILED])
        return self._judged(HandoffTrigger.look(repository_folder()))

    def _judged(self, found: dict[str, Any] | None) -> dict[str, Any]:
        if found is None:
            raise AirflowSkipException(HandoffTrigger.nothing)
        late = overdue(found, float(self.older_seconds))
        if late:
            raise AirflowException(
                f"{repository_folder()}: expected nothing to wait for its hand-over for more than "
                f"{float(self.older_seconds):g} s, found {'; '.join(late)}. These are lost with this machine's disks. "
                "Hand them over: custody handoff"
            )
        return self.result(found)


def overdue(found: dict[str, Any], older_seconds: float) -> list[str]:
    """Return what waits for longer, a line a writer, of what a look found."""
    import msgspec

    from custody.rollover import HandoffBacklog

    now_ms = found["now_ms"]
    backlog = msgspec.convert(found["writers"], list[HandoffBacklog])
    return [item.line(now_ms) for item in backlog if item.is_overdue(now_ms, older_seconds)]
