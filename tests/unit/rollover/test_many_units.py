"""Many units and few open files: a step reads its input once, and descriptors do not grow with the groups."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from benchmarks.eventlog.bulk import tables, write_journals
from custody.clock import ManualClock
from custody.config import Settings
from custody.format.names import UNIT_MANIFEST
from custody.recovery import STEPS
from custody.repository import Repository
from custody.vfs import FileSystem
from custody.vfs.memory import MemoryFileSystem
from custody.vfs.wrapping import WrappingFileSystem
from custody.workspace import Workspace
from tests.support import python

GROUP_EVENTS = 20


class Counting(WrappingFileSystem):
    """Counts by name how often files are read."""

    def __init__(self, inner: FileSystem) -> None:
        self.inner = inner
        self.reads: Counter[str] = Counter()

    def read(self, path: Path) -> bytes:
        """Count, and read."""
        self.reads[path.name] += 1
        return self.inner.read(path)

    def view(self, path: Path) -> memoryview:
        """Count, and read."""
        self.reads[path.name] += 1
        return self.inner.view(path)


@pytest.mark.in_parts(2)
@pytest.mark.parametrize("units", [3, 8])
def test_each_step_reads_a_manifest_twice_however_many_units_there_are(units: int) -> None:
    """Once to list what waits, once to do it: also of a sweep, which looked at all units for each."""
    fs = Counting(MemoryFileSystem())
    settings = Settings.model_validate({"root": Path("/repository"), "eventlog": {"log_bytes_target": 4096}})
    events = pa.concat_tables(tables(units * GROUP_EVENTS, base=units * GROUP_EVENTS))
    write_journals(fs, settings, [events], group_events=GROUP_EVENTS, batch_events=GROUP_EVENTS, journals=1)
    reads = {}
    for name in ("rollover", "compress", "index", "commit", "sweep"):
        fs.reads.clear()
        done = 0
        for unit in STEPS[name].units(settings, fs):
            STEPS[name].run(Workspace(settings, unit.writer, fs, ManualClock()), unit)
            done += unit.first_event_id is not None
        reads[name] = fs.reads[UNIT_MANIFEST]
    logs = len(Workspace(settings, "main", fs).catalog.load().files)
    assert logs >= units
    each = units + logs
    assert reads == {"rollover": 0, "compress": each, "index": each, "commit": 2 * units, "sweep": 2 * units}
    left = Workspace(settings, "main", fs)
    assert (left.groups(), left.staged()) == ([], [])


FEW_FILES = """
import json, resource, sys
from pathlib import Path

FILES, GROUPS, EVENTS = int(sys.argv[2]), int(sys.argv[3]), 40  # written as columns, which are mapped
resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES))
from custody.maintenance.findings import Level
from custody.maintenance.verification import verify_repository
from custody.model import Event
from custody.recovery import STEPS
from custody.repository import EventSelection, Repository
from custody.workspace import Workspace

repository = Repository.open(Path(sys.argv[1]))
at = 1_772_359_200_000
with repository.writer() as writer:
    for group in range(GROUPS):
        writer.append([
            Event(event_type="CREATE", event_time=at + n, component_id="c", component_type="T", flowfile_uuid=f"f-{n}",
                  file_size=n, source_node="node", source_ordinal=n)
            for n in range(group * EVENTS, (group + 1) * EVENTS)
        ])
        writer.seal()

def asked():
    found = [event.event_id for event in repository.events(count=10**9)]
    with repository.sql("select count(*) n from events") as result:
        counted = [row["n"] for batch in result.batches() for row in batch.to_pylist()]
    total = repository.search("", limit=5).total
    verified = verify_repository(repository.workspaces(), repository.settings, repository.workspace().fs, Level.DEFAULT)
    return [found == list(range(GROUPS * EVENTS)), total, counted, [item.kind for item in verified.findings]]

answers = [asked()]
for name in STEPS:
    for unit in STEPS[name].units(repository.settings):
        STEPS[name].run(Workspace(repository.settings, unit.writer), unit)
live = repository.workspace().catalog.load()
answers.append(asked())
repository.forget(EventSelection(event_ids=list(range(0, GROUPS * EVENTS, EVENTS))), "one of each")
compacted = [item.error for item in repository.compact()]
after = repository.search("", limit=5).total
Path(sys.argv[4]).write_text(json.dumps([answers, len(live.files), len(live.shards), compacted, after]))
"""


@pytest.mark.in_parts(2)
@pytest.mark.parametrize(
    ("files", "groups", "log_bytes"), [(32, 40, 12_000), pytest.param(64, 1001, 1 << 28, marks=pytest.mark.slow)]
)
def test_few_open_files_are_enough_for_any_number_of_groups_logs_and_shards(
    tmp_path: Path, files: int, groups: int, log_bytes: int
) -> None:
    """Waiting groups, then one log or as many logs and shards: asked, verified, rolled over and written anew."""
    Repository.create(tmp_path / "repository")
    (tmp_path / "repository/custody.toml").write_text(
        f"[eventlog]\nlog_bytes_target = {log_bytes}\n[query]\nopen_logs_max = 4096\n"
    )
    with python(FEW_FILES, tmp_path / "repository", files, groups, tmp_path / "told") as process:
        process.communicate()
        assert process.returncode == 0
    answers, logs, shards, compacted, after = json.loads((tmp_path / "told").read_text())
    assert answers == [[True, groups * 40, [groups * 40], []]] * 2
    assert logs == shards == (1 if log_bytes > 1 << 20 else groups)
    assert (set(compacted), after) == ({None}, groups * 39)
