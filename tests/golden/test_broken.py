"""Each broken golden file is refused, with the error that says what a reader may do next."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from whoosh.query import Every

from custody.catalog.codec import decode
from custody.catalog.stripes import StripeMark
from custody.errors import CorruptionError, CustodyError, FormatVersionError
from custody.eventlog import EventLog, StagedLog, TableOfContents, read_staged
from custody.flow.content import ClaimFile
from custody.flow.content.containers import CONTAINER_FORMAT
from custody.index import OpenShard
from custody.journal import JournalFile
from custody.journal.writer_state import decode_state
from custody.lease import Holder
from custody.maintenance.scrub import decode_scrub
from custody.model import to_events
from custody.quarantine import Quarantine
from custody.query import parse_query
from custody.replay import read_plan
from custody.swh.index_file import read_index
from custody.vfs import PosixFileSystem
from custody.workspace import UnitManifest
from custody.workspace.handoff import decode_manifest
from tests.golden.make_golden import CONTENTS, HERE, STORE
from tests.golden.test_golden import EVENTS, EXPECTED

BROKEN = HERE / "broken"
FS = PosixFileSystem()


def _journal(path: Path) -> None:
    """A journal is read without what of it is damaged: the damage is what there is to report."""
    for damage in JournalFile.read(FS, path).damage:
        raise CorruptionError(str(damage))


def _claim(path: Path) -> None:
    """All contents of a resource claim; the golden one has three, and nothing behind them."""
    file = ClaimFile.read(FS, path)
    for _, error in file.damage():
        raise error
    if len(file.contents) < len(CONTENTS):
        raise CorruptionError(f"{path}: expected {len(CONTENTS)} contents, got {len(file.contents)}.")


def _staged() -> StagedLog:
    """What the broken staging files were before: the events of group 3."""
    path = HERE / "v1" / STORE / "staging/00000000000000000003/unit"
    return UnitManifest.decode(path.read_bytes(), path).logs[0]


READERS: dict[str, Callable[[Path], object]] = {
    ".journal": _journal,
    ".state": lambda path: decode_state(path.read_bytes(), path),
    ".arrow": lambda path: list(read_staged(FS, path, _staged())),
    ".scrub": lambda path: decode_scrub(path.read_bytes(), path),
    ".lease": lambda path: Holder.decode(path.read_bytes(), path),
    ".unit": lambda path: UnitManifest.decode(path.read_bytes(), path),
    ".claim": _claim,
    ".parquet": lambda path: EventLog(FS, path).read(),
    ".toc": lambda path: TableOfContents.decode(path.read_bytes(), path),
    ".txn": lambda path: decode(path.read_bytes(), path),
    ".ckpt": lambda path: decode(path.read_bytes(), path),
    ".plan": lambda path: read_plan(FS, path),
    ".ef": lambda path: read_index(FS, path).check(),
    ".handoff": lambda path: decode_manifest(path.read_bytes(), path),
    ".container": lambda path: CONTAINER_FORMAT.decode(path.read_bytes(), path),
    ".stripe": lambda path: StripeMark.decode(path.read_bytes(), path),
}
VERSION = {"future-version", "unknown-feature"}
FILES = sorted(path for path in BROKEN.iterdir() if path.is_file() and path.name != "torn.journal")


def test_every_format_with_a_preamble_has_a_broken_file_of_each_kind() -> None:
    names = {path.name for path in FILES}
    for suffix in (
        ".toc",
        ".txn",
        ".ckpt",
        ".state",
        ".unit",
        ".scrub",
        ".lease",
        ".claim",
        ".ef",
        ".plan",
        ".stripe",
        ".container",
        ".handoff",
    ):
        assert {f"{defect}{suffix}" for defect in ("bad-preamble", "future-version", "truncated", "flipped")} <= names


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_broken_file_is_refused_with_the_right_error(path: Path) -> None:
    wanted: type[CustodyError] = FormatVersionError if path.stem in VERSION else CorruptionError
    with pytest.raises(wanted, match=str(path)) as caught:
        READERS[path.suffix](path)
    assert type(caught.value) is wanted


def test_a_torn_tail_costs_an_open_journal_its_last_record_only() -> None:
    journal = JournalFile.read(FS, BROKEN / "torn.journal")
    assert to_events(journal.table()) == [EVENTS[3]]
    assert journal.torn is not None
    size = (BROKEN / "torn.journal").stat().st_size
    assert (journal.torn.offset, journal.torn.lost_bytes) == (journal.intact_bytes, size - journal.intact_bytes)


def test_a_torn_tail_in_a_sealed_journal_is_damage(tmp_path: Path) -> None:
    sealed = tmp_path / "00000000000000000003.0.sealed"
    shutil.copy(BROKEN / "torn.journal", sealed)
    journal = JournalFile.read(FS, sealed)
    assert to_events(journal.table()) == [EVENTS[3]]
    assert journal.torn is None
    assert [damage.offset + damage.length for damage in journal.damage] == [sealed.stat().st_size] * 2
    assert [damage.length > 0 for damage in journal.damage] == [True, False], "the last record, and the end record"


def test_a_flipped_bit_costs_a_journal_one_record() -> None:
    journal = JournalFile.read(FS, BROKEN / "flipped.journal")
    assert to_events(journal.table()) == [EVENTS[4]]
    assert len(journal.damage) == 1


def test_a_table_of_contents_that_is_damaged_is_taken_from_the_footer(tmp_path: Path) -> None:
    case = EXPECTED["logs"][0]
    good = HERE / "v1/store/main/provenance" / case["path"]
    log = EventLog(FS, shutil.copy(good, tmp_path / good.name))
    shutil.copy(BROKEN / "flipped.toc", (tmp_path / good.name).with_suffix(".toc"))
    assert len(log.toc.blocks) == len(case["blocks"])


@pytest.mark.parametrize("defect", ["truncated.rejected", "flipped.rejected"])
def test_a_damaged_quarantine_entry_is_refused(tmp_path: Path, defect: str) -> None:
    folder = shutil.copytree(HERE / "v1/quarantine", tmp_path / "quarantine")
    key = EXPECTED["quarantine"]["entry"]["key"]
    shutil.copy(BROKEN / "quarantine" / defect, folder / f"{key}{Path(defect).suffix}")
    with pytest.raises(CorruptionError, match=key):
        Quarantine(FS, folder).raw(key)


def test_a_shard_without_its_table_is_refused() -> None:
    with pytest.raises(CorruptionError, match="shard-without-toc"):
        OpenShard(FS, BROKEN / "shard-without-toc").search(parse_query(""))


@pytest.mark.parametrize("defect", ["truncated-shard", "flipped-shard"])
def test_a_shard_that_is_damaged_is_refused(defect: str) -> None:
    with pytest.raises(CorruptionError, match=defect):
        OpenShard(FS, BROKEN / defect).search(Every("event_type"))


def test_a_shard_of_a_later_version_is_refused() -> None:
    with pytest.raises(FormatVersionError, match=r"custody\.shard"):
        OpenShard(FS, BROKEN / "future-version-shard").search(parse_query(""))
