"""Tasks of a step in Spark: how many, how many cores each takes, and how often it is tried, by the sizes of units.

A core stands for its share of an executor's memory. So a unit that needs more memory than one share takes several
cores, and fewer units are at work beside it. Small units share a task, and large ones come first. Executors that are
lost with a task, because memory was not enough or for any other reason, cost that task alone: each of its units is done
once more with an executor to itself, and what is lost again is an error of that unit.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from custody.spark.placement import UNIT_BYTES_MIN

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext

_SHARED_BYTES = 4 << 20
"""Units that are smaller share a task, up to so much."""
_TASKS_A_CORE = 2
"""At least, before units share any: a core that is done with one task has another."""
_JOBS_AT_ONCE = 8
_EXECUTOR_SECONDS, _LOOK_SECONDS = 30.0, 0.1
_LOGGER = logging.getLogger(__name__)
Key = TypeVar("Key")


class Needs(NamedTuple):
    """What is known of a unit: the bytes that it reads, None where nobody can say, and the memory that it takes."""

    bytes: int | None
    memory_bytes: int


class Task(NamedTuple):
    """Units that are done one after the other, by their positions, with so many cores of an executor."""

    units: tuple[int, ...]
    cores: int


class Cores(NamedTuple):
    """The cores of a session: of all executors, and of the smallest one."""

    all: int
    of_executor: int


def plan_tasks(needs: Sequence[Needs], core_memory_bytes: int, cores: Cores) -> list[Task]:
    """Return the tasks of some units, those that take most cores first, and of these the largest."""

    def cores_of(position: int) -> int:
        share = math.ceil(needs[position].memory_bytes / core_memory_bytes)
        # A unit that needs more than an executor has gets all of it; it may be enough, for needs are estimates.
        return max(1, min(share, cores.of_executor))

    def weight(position: int) -> int:
        size = needs[position].bytes
        # Of unknown size is what may be large: it comes first, and shares its task with nobody.
        return 1 << 62 if size is None else max(size, UNIT_BYTES_MIN)

    ordered = sorted(range(len(needs)), key=lambda position: (-cores_of(position), -weight(position), position))
    small = sum(weight(position) for position in ordered if weight(position) < _SHARED_BYTES)
    shared = min(_SHARED_BYTES, small // (_TASKS_A_CORE * cores.all))
    tasks: list[Task] = []
    taken, open_bytes = list[int](), 0
    for position in ordered:
        if weight(position) >= _SHARED_BYTES:
            tasks.append(Task((position,), cores_of(position)))
            continue
        if taken and (open_bytes + weight(position) > shared or cores_of(position) != cores_of(taken[0])):
            tasks.append(Task(tuple(taken), cores_of(taken[0])))
            taken, open_bytes = [], 0
        taken.append(position)
        open_bytes += weight(position)
    return [*tasks, Task(tuple(taken), cores_of(taken[0]))] if taken else tasks


def session_cores(context: SparkContext) -> Cores:
    """Return the cores that a session has now; it waits for the first executor, as a job does."""
    if _is_local(context):
        every = int(context.defaultParallelism)
        return Cores(every, every)
    listed = _executors(context)
    until = time.monotonic() + _EXECUTOR_SECONDS
    while not listed and time.monotonic() < until:
        time.sleep(_LOOK_SECONDS)
        listed = _executors(context)
    named = context.getConf().get("spark.executor.cores")
    # A standalone cluster gives an executor all cores of its machine, and only Spark's own list says how many.
    of_executor = min(listed, default=1) if named is None else int(named)
    return Cores(int(context.defaultParallelism), max(of_executor, 1))


def _executors(context: SparkContext) -> list[int]:
    """Return the cores of each executor that is there."""
    listed = context._jsc.sc().statusStore().executorList(True)
    executors = (listed.apply(place) for place in range(listed.size()))
    return [int(executor.totalCores()) for executor in executors if executor.id() != "driver"]


def _is_local(context: SparkContext) -> bool:
    return str(context.master).startswith("local")


def run_tasks(
    context: SparkContext,
    tasks: Sequence[Task],
    units: Sequence[bytes],
    work: Callable[[bytes], bytes],
    lost: Callable[[int, str], bytes],
) -> list[bytes]:
    """Do units in tasks; return what `work` gives of each, or `lost` of a position where executors were lost twice."""
    cores = session_cores(context)
    reports: dict[int, bytes] = {}
    # Tasks with the same cores are a job; they go on side by side, and the first has the first choice. On this machine
    # Spark does not count the cores of a task, so that only one job at a time keeps to them.
    at_once = 1 if _is_local(context) else _JOBS_AT_ONCE
    jobs = [list(group) for _, group in groupby(tasks, key=lambda task: task.cores)]
    for done in _together(lambda job: _job(context, job, units, work, cores), jobs, at_once):
        reports |= done
    missing = [position for position in range(len(units)) if position not in reports]
    if missing:
        _LOGGER.warning("executors were lost: %d units are done again, each with an executor to itself", len(missing))

    def alone(position: int) -> dict[int, bytes]:
        problems: list[str] = []
        done = _job(context, [Task((position,), cores.of_executor)], units, work, cores, problems)
        return done or {position: lost(position, problems[0])}

    for done in _together(alone, missing, at_once):
        reports |= done
    return [reports[position] for position in range(len(units))]


def _together(act: Callable[[Key], dict[int, bytes]], keys: Sequence[Key], at_once: int) -> Iterator[dict[int, bytes]]:
    if min(len(keys), at_once) < 2:
        yield from map(act, keys)
        return
    with ThreadPoolExecutor(min(at_once, len(keys)), thread_name_prefix="custody-jobs") as threads:
        yield from threads.map(act, keys)


def _job(
    context: SparkContext,
    tasks: Sequence[Task],
    units: Sequence[bytes],
    work: Callable[[bytes], bytes],
    cores: Cores,
    problems: list[str] | None = None,
) -> dict[int, bytes]:
    """Do tasks with equal cores; return reports by position. What is not among them was lost; `problems` says how."""
    from py4j.protocol import Py4JError

    reports: dict[int, bytes] = {}
    for wave in _waves(context, tasks, cores):
        pieces = [[(position, units[position]) for position in task.units] for task in wave]
        data = _with_cores(context.parallelize(pieces, len(pieces)), wave[0].cores)
        try:
            for done in data.map(lambda piece: [(position, work(unit)) for position, unit in piece]).collect():
                reports |= dict(done)
        except Py4JError as error:
            lines = [line for line in str(error).splitlines() if "Exception: " in line or "Error: " in line]
            # The last cause is what happened; what Spark says of the whole job names it in the middle of a line.
            text = lines[0].rpartition("Exception: ")[2] if lines else ""
            _LOGGER.warning("a job of %d tasks: %s", len(wave), text or error)
            if problems is not None:
                problems.append(text.strip() or type(error).__name__)
    return reports


def _waves(context: SparkContext, tasks: Sequence[Task], cores: Cores) -> Iterator[Sequence[Task]]:
    """Yield tasks that may be at work together."""
    at_once = len(tasks)
    if _is_local(context) and tasks and tasks[0].cores > 1:
        at_once = max(cores.all // tasks[0].cores, 1)
    for first in range(0, len(tasks), max(at_once, 1)):
        yield tasks[first : first + at_once]


def _with_cores(data: RDD[list[tuple[int, bytes]]], cores: int) -> RDD[list[tuple[int, bytes]]]:
    from pyspark.resource import ResourceProfileBuilder, TaskResourceRequests

    if cores == 1 or _is_local(data.context):
        return data
    return data.withResources(ResourceProfileBuilder().require(TaskResourceRequests().cpus(cores)).build)
