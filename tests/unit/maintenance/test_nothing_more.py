"""No recovery and no repair makes an answer give out more than was allowed before, or takes bytes without a copy.

Each kind of damage is done to a file of each kind; then what custody offers is done, in the order in which a person
would: recover, repair, repair with every loss accepted.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Container, Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from custody.catalog import live_groups
from custody.errors import CustodyError
from custody.journal import JournalFile, decode_state
from custody.lease import Attempt
from custody.maintenance.findings import FINDING_KINDS
from custody.recovery import recover
from custody.store.witness import decode_witness
from custody.workspace import rollover_lease
from tests.support import files_below
from tests.unit.maintenance.damaged_samples import Sample
from tests.unit.maintenance.sample_with_every_file import add_all, has_meaning, kind_of

MADE_AGAIN = re.compile(
    r".*/(index/.*|staging/.*|leases/.*|[^/]*\.toc|newest-checkpoint|[^/]*\.statistics\.parquet|LOCK|WITNESS[^/]*)"
    r"|maintenance/.*|witness/main\.[^/]*"
)
"""What is made from other files, which are whole when it is, or says only who works: no copy of it is owed.

A writer's witnesses are among them: one that is damaged is written from the others.
"""
JOURNAL = re.compile(r".*/journals/.*")


@pytest.fixture(scope="module")
def every(whole: Path, tmp_path_factory: pytest.TempPathFactory) -> Sample:
    root = tmp_path_factory.mktemp("nothing-more") / "repository"
    shutil.copytree(whole, root)
    before = root.with_name("before")
    shutil.copytree(root, before)
    add_all(root)
    return Sample(root)


def flip_one(data: bytes, random: Random, before: bytes | None) -> bytes:
    at = random.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << random.randrange(8)]) + data[at + 1 :]


def truncate(data: bytes, random: Random, before: bytes | None) -> bytes:
    return data[: random.randrange(len(data))]


def overwrite(data: bytes, random: Random, before: bytes | None) -> bytes:
    return random.randbytes(len(data))


def put_back(data: bytes, random: Random, before: bytes | None) -> bytes | None:
    return data if before is None else before


DAMAGES: dict[str, Callable[[bytes, Random, bytes | None], bytes | None]] = {
    "flip": flip_one,
    "truncate": truncate,
    "overwrite": overwrite,
    "remove": lambda data, random, before: None,
    "older version": put_back,
}


def representatives(sample: Sample) -> dict[str, list[Path]]:
    """Of each kind of file the first and the last, and all transactions and second copies."""
    paths_by_kind: dict[str, list[Path]] = {}
    for path in sorted(sample.root.rglob("*")):
        if path.is_file() and has_meaning(path):
            paths_by_kind.setdefault(kind_of(sample.root, path), []).append(path)
    some: dict[str, list[Path]] = {
        kind: list(dict.fromkeys([paths[0], paths[-1]])) for kind, paths in paths_by_kind.items()
    }
    for kind in (".txn", ".ckpt", ".kept", ".journal"):
        some[kind] = paths_by_kind[kind]
    return some


def check(sample: Sample, folder: Path, path: Path, damage: str, seed: int) -> None:
    """Do one damage to a copy of the repository, and everything that custody offers; raise unless all holds."""
    inner, random = path.relative_to(sample.root), Random(f"{seed} {damage}")  # noqa: S311 - can be repeated
    shutil.copytree(sample.root, folder)
    copy = Sample(folder)
    allowed, live = copy.answered(), live_groups(copy.workspace().catalog.load())
    older = sample.root.with_name("before") / inner
    damaged_bytes = DAMAGES[damage](path.read_bytes(), random, older.read_bytes() if older.is_file() else None)
    if damaged_bytes is None:
        (folder / inner).unlink()
    else:
        (folder / inner).write_bytes(damaged_bytes)
    damaged = files_below(folder)
    with suppress(CustodyError), rollover_lease(copy.workspace(), Attempt.new("test")) as fenced:
        recover(fenced)  # refused where the catalog cannot be read
    for accept_loss in (False, True):
        copy.repair(accept_loss=accept_loss)
        given = answered(copy)
        assert given is None or given.items() <= allowed.items(), f"{damage} {inner}: more is given out"
        owed = list(gone(damaged, files_below(folder), live))
        assert not owed, f"{damage} {inner}: no copy of {owed}"
    left = {item.kind for item in copy.damage()}
    assert answered(copy) is not None, f"{damage} {inner}: nothing is given out any more"
    assert all(not FINDING_KINDS[kind].repair.startswith("it is moved aside") for kind in left), left
    missing = set(allowed) - set(answered(copy) or {})
    assert not missing or speaks_of_loss(copy) or is_traceless(inner, damage), f"{damage} {inner}: nobody tells"


def speaks_of_loss(sample: Sample) -> bool:
    return any(item.severity in ("loss", "notice", "damage") for item in sample.verify().findings)


def is_traceless(inner: Path, damage: str) -> bool:
    """Whether nothing says that there was more: the end of the newest journal, or all of it (docs/damage.md)."""
    return JOURNAL.fullmatch(str(inner)) is not None and damage in ("remove", "truncate", "older version")


def answered(sample: Sample) -> dict[int, str] | None:
    """What is given out; None where the catalog refuses to tell."""
    try:
        return sample.answered()
    except Exception:  # noqa: BLE001 - nothing is given out
        return None


def gone(before: dict[str, bytes], after: dict[str, bytes], live: Container[int]) -> Iterator[str]:
    """Yield the files of which bytes are nowhere any more, and nothing makes them again; `live`: groups that were."""
    whole = set(after.values())
    pieces = [data for name, data in after.items() if name.startswith("quarantine/")]
    for name, data in before.items():
        if data in whole or MADE_AGAIN.fullmatch(name) or is_whole_state(Path(name), data) or not data:
            continue
        if JOURNAL.fullmatch(name):
            # Its whole records became live, or were sealed; all of a group that is live was whole when it became so.
            lost = [] if int(Path(name).name[:20]) in live else cut_from(Path(name), data)
        elif name in after:
            lost = [changed(data, after[name])]
        else:
            lost = [data]
        if not all(any(part in piece for piece in pieces) for part in lost):
            yield name


def is_whole_state(path: Path, data: bytes) -> bool:
    """Whether it is a state that can be read: a start and a recovery replace it when they raise what is reserved."""
    is_witness = path.name.startswith("WITNESS") or path.parent.name == "witness"
    if not is_witness and path.name != "STATE":
        return False
    try:
        return bool(decode_witness(data, path) if is_witness else decode_state(data, path))
    except CustodyError:
        return False


def cut_from(path: Path, data: bytes) -> list[bytes]:
    journal = JournalFile(path, data)
    return [*(damage.evidence() for damage in journal.damage if damage.length), *filter(None, [journal.cut_bytes])]


def changed(before: bytes, after: bytes) -> bytes:
    """The part of a file that another version of it does not have."""
    first = next((at for at, (one, other) in enumerate(zip(before, after, strict=False)) if one != other), len(after))
    last = len(before)
    while last > first and len(before) == len(after) and before[last - 1] == after[last - 1]:
        last -= 1
    return before[first:last]


@pytest.mark.parametrize(
    ("kind", "damage"),
    [
        (".txn", "flip"),
        (".txn", "remove"),
        (".kept", "flip"),
        (".journal", "flip"),
        (".journal", "overwrite"),
        (".sealed", "truncate"),
    ],
)
def test_nothing_more_is_given_out_and_nothing_is_lost_without_a_copy(
    every: Sample, tmp_path: Path, kind: str, damage: str
) -> None:
    check(every, tmp_path / "copy", representatives(every)[kind][-1], damage, 1)


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES)
def test_nothing_more_is_given_out_whatever_is_damaged(every: Sample, tmp_path: Path, damage: str) -> None:
    failed, count = [], 0
    for kind, paths in representatives(every).items():
        for number, path in enumerate(paths):
            count += 1
            folder = tmp_path / f"{count}"
            try:
                check(every, folder, path, damage, number)
            except AssertionError as error:
                failed.append(f"{kind}: {error}")
            except Exception as error:  # noqa: BLE001 - any other end is a failure, too
                failed.append(f"{kind} {path.name}: {error!r}")
            shutil.rmtree(folder)
    print(f"{count} files, {damage}")  # noqa: T201 - the counts of a long run
    assert not failed, "\n".join(failed)
