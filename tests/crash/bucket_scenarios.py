"""The scenarios of this folder that concern an object store, each with the machine that it runs on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.crash.archive_scenarios import Archiving
from tests.crash.catalog_upkeep_scenarios import Collecting, Pruning, Repairing
from tests.crash.commit_scenarios import Committing, Racing
from tests.crash.compaction_scenarios import Compacting
from tests.crash.content_scenarios import Dropping
from tests.crash.enumeration import Scenario
from tests.crash.forget_scenarios import Forgetting
from tests.crash.handed_contents_scenarios import DroppingHandedContents, HandingContentsOver
from tests.crash.handoff_scenarios import HandingOver
from tests.crash.iceberg_scenarios import PublishingTable, RetainingPublished
from tests.crash.machine_with_bucket import MULTIPART_BYTES, in_a_bucket
from tests.crash.retention_scenarios import Retaining
from tests.crash.rollover_scenarios import (
    Appending,
    RollingOver,
    RollingOverInParts,
    RollingOverLocally,
    RollingOverMerged,
    RollingOverSplit,
)


@dataclass(frozen=True)
class InABucket:
    """A scenario, whether merged units lie in the bucket as well, and from which size on objects go in parts."""

    make: Callable[[], Scenario[Any]]
    is_staging_stored: bool = False
    multipart_bytes: int = MULTIPART_BYTES

    @contextmanager
    def made(self) -> Iterator[Scenario[Any]]:
        """Make the scenario; in the block its machines have a bucket."""
        with in_a_bucket(is_staging_stored=self.is_staging_stored, multipart_bytes=self.multipart_bytes):
            yield self.make()


IN_A_BUCKET = {
    "appending": InABucket(Appending),
    "a pass": InABucket(RollingOver),
    "a pass, staging in the store": InABucket(RollingOver, is_staging_stored=True),
    "a pass with leases and reports": InABucket(RollingOverLocally),
    "a pass with leases and reports, staging in the store": InABucket(RollingOverLocally, is_staging_stored=True),
    "groups that become one log": InABucket(RollingOverMerged),
    "a group that becomes several logs": InABucket(RollingOverSplit),
    "a group merged by ranges, staging in the store": InABucket(RollingOverInParts, is_staging_stored=True),
    "compaction": InABucket(Compacting),
    "compaction, staging in the store": InABucket(Compacting, is_staging_stored=True),
    "retention": InABucket(Retaining),
    "retention of a published table": InABucket(RetainingPublished),
    "retention of contents": InABucket(Dropping),
    "forgetting": InABucket(Forgetting),
    "retiring and absorbing": InABucket(Archiving),
    "hand-over of contents": InABucket(HandingContentsOver),
    "retention of contents that were handed over": InABucket(DroppingHandedContents),
    "hand-over of journals": InABucket(HandingOver),
    "hand-over of journals, staging in the store": InABucket(HandingOver, is_staging_stored=True),
    "publication of a table": InABucket(PublishingTable),
    "pruning of a catalog": InABucket(Pruning),
    "garbage collection": InABucket(Collecting),
    "repair of a catalog": InABucket(Repairing),
    "commits and checkpoints": InABucket(Committing),
    "two writers that race": InABucket(lambda: Racing(1)),
}
