"""A flipped bit in any file of a repository changes no answer, or is named by `verify`, or refused with its reason.

The catalog stays as it is, is made anew from the logs and what is left of the old one, or is lost and made anew from
the logs alone: nothing that was damaged before counts as whole afterwards.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from custody.catalog import rebuild, salvage, scan_logs
from custody.clock import ManualClock
from custody.config import SETTINGS_FILE
from custody.errors import CustodyError
from custody.maintenance.findings import Level
from tests.unit.maintenance.damaged_samples import NOW_MS, Sample, build

CLOCK = ManualClock(NOW_MS + 5000)
MODES = ["as it is", "made anew", "lost and made anew"]
QUERIES = ("", "event_type:CREATE", "attribute.kind:k1", "event_time:[2026-03-02 TO *]")
_NO_MEANING = (SETTINGS_FILE, "LOCK")
"""People write the one; of the other only counts whether it is held."""


@dataclass(frozen=True)
class Seen:
    """What a repository answers, what its answers say of damage, and what is found in it."""

    answers: tuple[object, ...]
    notices: frozenset[str]
    findings: frozenset[str]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("flips") / "whole"
    build(root)
    sample = Sample(root)
    sample.finish()
    sample.workspace().catalog.write_checkpoint()
    return root


def make_anew(root: Path, mode: str) -> None:
    sample = Sample(root)
    catalog = sample.workspace().catalog
    if mode == "lost and made anew":
        shutil.rmtree(root / "store/main/provenance/transactions")
    salvaged = salvage(catalog.objects)
    scanned = scan_logs(catalog.objects, salvaged, leave_out=salvaged.marked)
    containers = [str(path) for path in sample.repository().settings.repository.containers]
    rebuild(catalog, CLOCK, scanned, containers, salvaged)


def look(root: Path) -> Seen:
    """Ask everything; an error is an answer that names what is wrong."""
    sample, answers, notices = Sample(root), list[object](), set[str]()
    try:
        events = sample.repository().events(0, 10_000)
        answers.append(
            [(item.event_id, item.flowfile_uuid, item.event_type, item.updated_attributes) for item in events]
        )
        notices.update(map(str, events.notices))
        for query in QUERIES:
            found = sample.repository().search(query, limit=1000)
            answers.append((query, found.total, [item.event.event_id for item in found.events]))
            notices.update(map(str, found.notices))
    except CustodyError as error:
        notices.add(str(error))
        answers.append(None)
    findings = {f"{item.kind} {item.path} {item.message}" for item in sample.verify(Level.DEFAULT).findings}
    return Seen(tuple(answers), frozenset(notices), frozenset(findings))


def flips(root: Path, count: int, seed: int) -> Iterator[tuple[Path, int]]:
    """Yield files of a repository, each with one of its bits; small files as often as large ones."""
    chance = random.Random(seed)  # noqa: S311 - a sample
    files = [path for path in sorted(root.rglob("*")) if path.is_file() and path.name not in _NO_MEANING]
    files = [path for path in files if path.stat().st_size]
    for _ in range(count):
        path = chance.choice(files)
        yield path, chance.randrange(8 * path.stat().st_size)


def check(whole: Path, tmp_path: Path, mode: str, count: int, seed: int) -> None:
    right = Path(shutil.copytree(whole, tmp_path / "right"))
    if mode != "as it is":
        make_anew(right, mode)
    truth = look(right)
    assert truth.answers[0]
    shutil.rmtree(right)
    silent = []
    for path, bit in flips(whole, count, seed):
        # Under the name of the whole one: findings and notices name files.
        root = Path(shutil.copytree(whole, tmp_path / "right"))
        damaged = root / path.relative_to(whole)
        data = bytearray(damaged.read_bytes())
        data[bit // 8] ^= 1 << bit % 8
        damaged.chmod(0o644)
        damaged.write_bytes(data)
        try:
            if mode != "as it is":
                make_anew(root, mode)
            seen = look(root)
        except CustodyError:
            shutil.rmtree(root)
            continue  # refused, with the reason
        shutil.rmtree(root)
        # Stronger than a notice with the answer: `verify` sees whatever an answer lacks or tells.
        differs = seen.answers != truth.answers or seen.notices - truth.notices
        if differs and not seen.findings - truth.findings:
            silent.append(f"{path.relative_to(whole)} bit {bit}: {sorted(seen.notices - truth.notices)}")
    assert not silent, silent


@pytest.mark.parametrize("mode", MODES)
def test_no_flipped_bit_changes_an_answer_in_silence(whole: Path, tmp_path: Path, mode: str) -> None:
    check(whole, tmp_path, mode, 20, 45 + MODES.index(mode))


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_none_of_two_thousand_flipped_bits_changes_an_answer_in_silence(whole: Path, tmp_path: Path, mode: str) -> None:
    check(whole, tmp_path, mode, 667, 100 + MODES.index(mode))
