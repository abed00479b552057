"""Chunks of the NGSI sink, planned on the executors of a Spark session: they read notifications and make their lines.

A plan has no effect, so that a task may be done twice, or lose its executor. The driver alone looks at files, commits
and appends (`custody.ngsi_sink.sink`), for it has the lease, and a file system cannot refuse the second of two appends.
"""

from __future__ import annotations

import logging
import sys
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self

from custody.config import NgsiSection, Settings, is_secret
from custody.ngsi.parameters import Parameters
from custody.ngsi.rendering import ColumnsByLocation
from custody.ngsi_sink.batch_plan import BatchPlan
from custody.ngsi_sink.chunk import Chunk, plan_chunk
from custody.ngsi_sink.notifications import LiveNotifications
from custody.repository import Repository
from custody.spark.own_disk import own_disk
from custody.spark.tasks import session_cores
from custody.vfs import PosixFileSystem

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_CHUNKS_A_CORE = 2
"""Handed over together: a core that is done with one has another, while the others still work."""
_LOGGER = logging.getLogger(__name__)


class ExecutorPlanner:
    """Plans chunks on executors, as a `custody.ngsi_sink.chunk.ChunkPlanner`; a context, which ends its tasks.

    Args:
        settings: of the repository that executors read.
        parameters: of the sink. Executors get no password or token of it.
        session: returns the session; called when the first chunks are handed over.
        with_journals: whether chunks may have notifications that are not live yet.
    """

    def __init__(
        self, settings: Settings, parameters: Parameters, session: Callable[[], SparkSession], *, with_journals: bool
    ) -> None:
        self._settings = settings
        hidden = {name: None for name in NgsiSection.model_fields if is_secret(name)}
        parameters = replace(parameters, values=parameters.values.model_copy(update=hidden))
        # The section of the settings is not needed there: rules and mappings are files of this machine.
        there = settings.model_copy(update={"ngsi": NgsiSection()})
        self._work = partial(_plan, there.to_json(), parameters, with_journals)
        self._session = session
        self._group = f"custody-chunks-{uuid.uuid4()}"
        # One thread: plans come in the order in which they are asked for.
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="custody-chunks")
        self._is_refused = False
        self._context: SparkContext | None = None

    @property
    def starts_at_bytes(self) -> int:
        """What a driver does itself of any step; what follows goes to executors."""
        return self._settings.spark.driver_bytes_max

    @property
    def chunks_at_once(self) -> int:
        """Return two for each core that the session has now."""
        return _CHUNKS_A_CORE * session_cores(self._session().sparkContext).all

    def plan(self, chunks: Sequence[Chunk], columns: ColumnsByLocation) -> Future[Sequence[BatchPlan | None]]:
        """Begin to plan some chunks; the result has a plan for each of them, or None."""
        return self._pool.submit(self._collect, list(chunks), dict(columns))

    def _collect(self, chunks: list[Chunk], columns: ColumnsByLocation) -> Sequence[BatchPlan | None]:
        from py4j.protocol import Py4JError

        none: list[BatchPlan | None] = [None] * len(chunks)
        if self._is_refused:
            return none
        self._context = context = self._session().sparkContext
        context.setJobGroup(self._group, "custody: lines of notifications", interruptOnCancel=True)
        try:
            plans: list[BatchPlan | None] = (
                context.parallelize(chunks, len(chunks)).map(partial(self._work, columns)).collect()
            )
        # Executors that fail again and again keep nobody from writing: the driver does what they could not.
        except Py4JError as error:
            _LOGGER.warning("executors could not plan %d chunks, the driver does it: %s", len(chunks), error)
            plans = none
        # What none of them can read, contents on a disk of this machine above all, they would not be able to read next.
        self._is_refused = not any(plan is not None for plan in plans)
        return plans

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A run that ended early leaves chunks that nobody waits for.
        self._pool.shutdown(wait=False, cancel_futures=True)
        if self._context is not None:
            self._context.cancelJobGroup(self._group)
        self._pool.shutdown()


def _plan(
    settings_json: str, parameters: Parameters, with_journals: bool, columns: ColumnsByLocation, chunk: Chunk
) -> BatchPlan | None:
    """Plan one chunk, in a Python worker."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    with own_disk(Settings.from_json(settings_json)) as settings:
        fs = PosixFileSystem()
        source = LiveNotifications(Repository(settings), fs, with_journals=with_journals)
        return plan_chunk(source, parameters, chunk, columns)
