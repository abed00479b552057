"""A changed byte is found wherever it is, and a repair costs no event outside of the damaged block.

Not looked at: `custody.toml`, which people write; locks and `turns`, which hold nothing that is needed; reports in
`runs`; tables of statistics but the newest, which nobody reads, and of the newest what its checksums do not cover; head
and end of a staged Arrow stream, which custody does not read; for repairs, records and signs of content containers,
claims of a writer's name and bytes of contents, which people repair (docs/damage.md).
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from custody.eventlog import StagedLog
from custody.format.names import CONTAINER_MARK, CONTENT_MARKS, INCARNATIONS
from custody.maintenance.findings import damages
from tests.unit.maintenance.damaged_samples import CONTENT, Sample, flip

WITHOUT_MEANING = ("custody.toml", "LOCK", ".statistics.parquet")
BLOCK_EVENTS_MAX = 21
"""No block, record or staged unit of the sample has more."""


def places(sample: Sample) -> list[tuple[Path, int, int]]:
    """Return the files whose bytes count, and the first and last place in them that does."""
    heads = dict(_staged(sample))
    offsets = []
    for path in sorted(sample.root.rglob("*")):
        if not path.is_file() or path.name.endswith(WITHOUT_MEANING):
            continue
        first, last = 0, path.stat().st_size - 1
        if path in heads:
            batches = heads[path].batches
            first, last = batches[0].offset, batches[-1].offset + batches[-1].length - 1
        offsets.append((path, first, last))
    return offsets


def _staged(sample: Sample) -> list[tuple[Path, StagedLog]]:
    workspace = sample.workspace()
    return [
        (workspace.paths.staged_unit(unit.first_group) / f"{log.first_event_id:020d}.arrow", log)
        for unit in workspace.manifests()
        for log in unit.logs
    ]


@pytest.fixture(scope="module")
def place(whole: Path, tmp_path_factory: pytest.TempPathFactory) -> Sample:
    root = tmp_path_factory.mktemp("flips") / "copy"
    shutil.copytree(whole, root)
    return Sample(root)


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_changed_byte_is_found_and_its_file_is_named(place: Sample, data: st.DataObject) -> None:
    path, offset, mask = _chosen(place, data)
    good = path.read_bytes()
    flip(path, offset, mask)
    try:
        findings = place.verify().findings
    finally:
        path.write_bytes(good)
    shown = [item.message + item.path for item in findings]
    assert any(path.name in text or path.parent.name in text for text in shown), (path, offset, mask, shown)


@settings(max_examples=8, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_after_a_repair_all_that_was_not_in_the_damaged_block_answers(place: Sample, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(place.root, Path(folder) / "copy")
        sample = Sample(Path(folder) / "copy")
        before = sample.answered()
        path, offset, mask = _chosen(sample, data, is_repaired=True)
        flip(path, offset, mask)
        sample.repair(accept_loss=True)  # no copy of the block is there
        assert not damages(sample.verify().findings), (path, offset, mask)
        sample.finish()
        assert not damages(sample.verify().findings), (path, offset, mask)
        after = sample.answered()
        assert after.items() <= before.items()
        assert len(before) - len(after) <= BLOCK_EVENTS_MAX, (path, offset, mask)


def _chosen(sample: Sample, data: st.DataObject, *, is_repaired: bool = False) -> tuple[Path, int, int]:
    chosen = [place for found in places(sample) for place in (_repaired(sample, found) if is_repaired else [found])]
    path, first, last = data.draw(st.sampled_from(chosen))
    return path, data.draw(st.integers(first, last)), data.draw(st.integers(1, 255))


def _repaired(sample: Sample, found: tuple[Path, int, int]) -> list[tuple[Path, int, int]]:
    """Return the parts of a file that a repair mends: of contents only what is around them, as there is one copy."""
    path, first, last = found
    if path.name == CONTAINER_MARK or CONTENT_MARKS in path.parts or INCARNATIONS in path.parts:
        return []
    if path != sample.claim():
        return [found]
    start = path.read_bytes().index(CONTENT)
    return [(path, first, start - 1), (path, start + len(CONTENT), last)]
