"""Every changed bit of every kind of file is named by `verify`: one file of each kind, whole or, if large, in samples.

The walk is asked for the piece that the file belongs to. What a change of need not be found is listed, with the reason,
in `every_file.WITHOUT_MEANING`.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from custody.maintenance.findings import Finding, damages
from tests.support import flipped
from tests.unit.maintenance.damaged_samples import Sample
from tests.unit.maintenance.sample_with_every_file import add_all, has_meaning, kind_of, looked_at, piece_of

SMALL_BYTES = 2048
KINDS_MIN = 30
EDGE_BYTES = 24


@pytest.fixture(scope="module")
def every(whole: Path, tmp_path_factory: pytest.TempPathFactory) -> Sample:
    root = tmp_path_factory.mktemp("every") / "repository"
    shutil.copytree(whole, root)
    add_all(root)
    return Sample(root)


def files(sample: Sample) -> dict[str, list[Path]]:
    """The files whose bytes count, by kind, the smallest of a kind first."""
    paths_by_kind: dict[str, list[Path]] = {}
    for path in sorted(sample.root.rglob("*")):
        if path.is_file() and has_meaning(path):
            paths_by_kind.setdefault(kind_of(sample.root, path), []).append(path)
    return {kind: sorted(paths, key=lambda path: path.stat().st_size) for kind, paths in sorted(paths_by_kind.items())}


def names(findings: list[Finding], path: Path) -> bool:
    """Whether a finding names a file, or the folder that it is a part of."""
    texts = [item.message + item.path for item in findings]
    return any(path.name in text or path.parent.name in text for text in texts)


def silent(sample: Sample, path: Path, bits: Iterator[int]) -> tuple[int, list[int]]:
    """Change bits one by one; return how many, and those that nothing names."""
    good, count, unseen = path.read_bytes(), 0, []
    try:
        for bit in bits:
            count += 1
            path.write_bytes(flipped(good, bit))
            if not names(looked_at(sample, path), path):
                unseen.append(bit)
    finally:
        path.write_bytes(good)
    return count, unseen


def test_the_repository_has_a_file_of_every_kind_and_nothing_is_wrong_with_it(every: Sample) -> None:
    paths_by_kind = files(every)
    assert len(paths_by_kind) >= KINDS_MIN, sorted(paths_by_kind)
    assert not [item for item in every.verify().findings if item.severity == "damage"]
    for paths in paths_by_kind.values():
        assert not damages(looked_at(every, paths[0])), paths[0]
        assert piece_of(every, paths[0]) is not None, paths[0]


def test_a_bit_of_every_file_of_every_kind_is_named(every: Sample) -> None:
    random = Random(17)  # noqa: S311 - a choice that can be repeated
    unseen = {}
    for kind, paths in files(every).items():
        for path in paths[:: max(len(paths) // 3, 1)]:
            places = chosen(path, random, 3)
            _, missed = silent(every, path, iter(places))
            if missed:
                unseen[f"{kind}: {path.relative_to(every.root)}"] = missed
    assert not unseen


def chosen(path: Path, random: Random, count: int) -> list[int]:
    """Some bits of a file, of its first and last bytes for certain."""
    size = path.stat().st_size
    first = [random.randrange(8 * min(EDGE_BYTES, size)) for _ in range(count)]
    last = [8 * size - 1 - random.randrange(8 * min(EDGE_BYTES, size)) for _ in range(count)]
    return sorted({*first, *last, *(random.randrange(8 * size) for _ in range(count))})


@pytest.mark.slow
def test_every_bit_of_a_small_file_and_many_of_a_large_one_are_named(every: Sample) -> None:
    random = Random(18)  # noqa: S311 - a choice that can be repeated
    unseen, counted = {}, {}
    for kind, paths in files(every).items():
        path = paths[0]
        size = path.stat().st_size
        bits = range(8 * size) if size <= SMALL_BYTES else chosen(path, random, 600)
        counted[kind], missed = silent(every, path, iter(bits))
        if missed:
            unseen[kind] = (path, len(missed), missed[:20])
    print(sum(counted.values()), counted)  # noqa: T201 - the counts of a long run
    assert not unseen
