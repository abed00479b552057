"""The enumeration of wrong answers: at each effect on a bucket the process gets an error, and lives on.

The effect was refused, or done and its answer lost, or timed out and is done later. The process may try again, give up
what it was doing, or never notice. What it leaves is then opened, checked and used as after a crash, with the machine
killed and after a power loss.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from custody.errors import CustodyError
from custody.vfs.memory import CrashMode
from tests.crash.enumeration import Alarm, Outcome, Scenario, counted_names, failure_on, operations_of, plain
from tests.crash.machine_with_bucket import BUCKET, Answer, Fault, MachineWithBucket
from tests.parts import WHOLE, Part

ENDS = (CrashMode.ALL_KEPT, CrashMode.SYNCED_ONLY)


def enumerate_answers(
    scenario: Scenario[Any],
    *,
    answers: Iterable[Answer] = tuple(Answer),
    ends: Sequence[CrashMode] = ENDS,
    part: Part = WHOLE,
    first_alarm_only: bool = False,
) -> Outcome:
    """Give a scenario each wrong answer at every effect of a part; what it leaves is checked after one of the ends."""
    operations = operations_of(scenario)
    effects = [at for at, operation in enumerate(operations, 1) if BUCKET in operation.path.parents]
    outcome = Outcome(operations=len(effects))
    cases = part.of(f"answers of {type(scenario).__name__}", len(effects))
    # What a mistake loses is mostly missed only later: the end shows it soonest.
    for case in reversed(cases) if first_alarm_only else cases:
        for place, answer in enumerate(answers):
            machine, record, error = run_with(scenario, Fault(effects[case], answer))
            end = ends[(case + place) % len(ends)]
            outcome.crashes += 1
            outcome.runs += 1
            failure = error or failure_on(scenario, machine.crashed(end), record, end, plain)
            if failure is not None:
                operation = f"{operations[effects[case] - 1]}, {answer.value}"
                outcome.alarms[end].append(Alarm(end, effects[case], operation, 0, failure))
                if first_alarm_only:
                    return outcome
    return outcome


def run_with(scenario: Scenario[Any], fault: Fault) -> tuple[MachineWithBucket, Any, str | None]:
    """Return the machine and the record as the process left them, and an error that no caller should get."""
    machine = scenario.start()
    assert isinstance(machine, MachineWithBucket)
    machine.fault = fault
    record = scenario.new_record()
    with counted_names(scenario.names_from):
        try:
            scenario.run(machine, record)
        except CustodyError:
            pass  # the caller was told, and tries again later
        except Exception as error:  # noqa: BLE001 - no other error may come out of custody
            return machine, record, f"without a crash: {error!r}"
    return machine, record, None
