"""A repository with a file of every kind that docs/formats describes, and which piece of a walk looks at each."""

from __future__ import annotations

import hashlib
import shutil
import uuid
from pathlib import Path

from custody.catalog import EXPIRED, Action, AddFile, AddMark, RemoveFile, RemoveShard
from custody.clock import ManualClock
from custody.config import load_settings
from custody.format.names import CONTAINER_MARK, CONTENT_HANDOFF, CONTENT_MARKS, is_name
from custody.landing import LandingLedger, LedgerEntry
from custody.lease import Attempt
from custody.maintenance.findings import Finding, Level
from custody.maintenance.scrub import scrub_once
from custody.maintenance.verification import CheckUnit, run_check
from custody.maintenance.verification.check_orphans import orphans
from custody.repository import EventSelection
from custody.rollover import GroupWatch, WaitingGroups
from custody.rollover.handing_over_contents import hand_over_contents
from custody.swh.build import Build, BuildDescription
from custody.swh.publishing import database_catalog
from custody.vfs import PosixFileSystem
from custody.workspace import StepReport, UnitReport, Workspace, rollover_lease, write_report
from tests.unit.maintenance.damaged_samples import NOW_MS, STORE, Sample

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "v1"
TABLES = "swh_contents_in_revisions/tables/contents_in_revisions_without_frontiers"
FORGOTTEN = (31, 32)


def add_all(root: Path) -> None:
    """Add what the sample of damage does not have: what was forgotten, expired and held, and what is remembered."""
    sample = Sample(root)
    fs, clock, settings = PosixFileSystem(), ManualClock(NOW_MS), load_settings(root)
    repository = sample.repository()
    repository.hold("case", EventSelection(event_ids=(40,)), "kept", "legal")
    repository.release("case", "over", "legal")
    expire(sample, EXPIRED_LOG)
    sample.workspace().catalog.write_checkpoint()
    repository.forget(EventSelection(event_ids=FORGOTTEN), "asked for")
    with rollover_lease(sample.workspace(), Attempt.new("test")):
        pass
    taken = LedgerEntry(
        file="a.json", bytes=1, modified_ms=1, writer="main", read=1, stored=1, repeated=0, rejected=0, taken_ms=2
    )
    LandingLedger(fs, settings.landed).add(Path("/landing/a.json"), taken)
    report = StepReport.of("index", "everything", 1.5, [UnitReport(unit="main", events=5, note="done")])
    write_report(fs, settings.runs, "scheduled__2026", report)
    GroupWatch(fs, settings, clock, 1).confirm(WaitingGroups(groups={"main": 115}, again=False))
    shutil.copytree(GOLDEN / "ngsi", root / "ngsi")
    assert hand_over_contents(sample.workspace()).claims
    _add_tables(root)
    scrub_once(settings, fs, clock, whole=True)


def expire(sample: Sample, event_id: int) -> str:
    """Let the log that has an event expire, as retention does; return its path."""
    catalog = sample.workspace().catalog
    files = catalog.load().files
    [path] = [path for path in files if files[path].first_event_id <= event_id <= files[path].last_event_id]
    mark = AddMark(id=uuid.uuid4().bytes, paths=[path, path.replace(".parquet", ".toc")], created_ms=1)
    shards = [shard.name for shard in catalog.load().shards.values() if list(shard.log_paths) == [path]]
    gone = [Action(remove_file=RemoveFile(path=path, reason=EXPIRED))]
    gone += [Action(remove_shard=RemoveShard(name=name, reason=EXPIRED)) for name in shards]
    catalog.commit([*gone, Action(add_mark=mark)])
    return path


def _add_tables(root: Path) -> None:
    """Provenance tables of software: a build, of which one file is live in their catalog."""
    fs, settings = PosixFileSystem(), load_settings(root)
    home = settings.store / "main/swh"
    build = Build.begin(fs, home, "2026-03", BuildDescription(graph="g", fingerprint="f", node_filter="heads"))
    target = build.folder / TABLES
    shutil.copytree(GOLDEN / "store/main" / "swh/builds/2026-03" / TABLES, target)
    [table], [index] = list(target.glob("*.parquet")), list(target.glob("*.ef"))
    file = AddFile(
        path=str(table.relative_to(home)),
        size_bytes=table.stat().st_size,
        sha256=hashlib.sha256(table.read_bytes()).digest(),
        toc_path=str(index.relative_to(home)),
        toc_sha256=hashlib.sha256(index.read_bytes()).digest(),
    )
    catalog = database_catalog(settings, fs, ManualClock(NOW_MS))
    catalog.commit([Action(add_file=file)])
    catalog.checkpoint()


WITHOUT_MEANING = {
    "custody.toml": "people write it; what it means is checked when it is read",
    "LOCK": "only whether it is held counts",
    ".last": "only whether it is the same as before counts; another one costs a look",
    ".beat": "the last sign of life of a holder, replaced all the time; another time costs a wait",
}
"""By the end of a file's name: why a change of it need not be found."""
EXPIRED_LOG = 60
"""The first event of the log that expired: its files wait for their end, and nothing gives out what is in them."""


def has_meaning(path: Path) -> bool:
    is_expired = any(f"{EXPIRED_LOG:020d}" in name for name in path.parts[-2:])
    return not is_expired and not path.name.endswith(tuple(WITHOUT_MEANING)) and path.stat().st_size > 0


def kind_of(root: Path, path: Path) -> str:
    """What sort of file it is: one of each is looked at bit by bit."""
    inner = path.relative_to(root)
    area = next((part for part in ("swh", "ngsi", "leases", "index", "runs", "landed") if part in inner.parts), "")
    suffix = path.suffix if path.suffix not in ("", ".0") else path.name
    if area == "index":
        suffix = path.suffix or path.name
    if area == "leases":
        suffix = "epoch"
    if path.name == CONTAINER_MARK or CONTENT_MARKS in inner.parts:
        return f"{area} content mark{path.suffix}".strip()
    if CONTENT_HANDOFF in inner.parts:
        return "manifest of a claim" if path.name == "manifest" else "piece of a claim"
    if path.parent.parent.name in ("forgotten", "content") or "content" in inner.parts:
        suffix = "claim"
    return f"{area} {suffix}".strip()


def looked_at(sample: Sample, path: Path) -> list[Finding]:
    """Look at the piece that a file belongs to, as a walk does; of what belongs to none, at what lies about."""
    piece = piece_of(sample, path)
    settings, fs = load_settings(sample.root), sample.fs
    if piece is None:
        return list(orphans([sample.workspace()], settings, fs))
    workspace = None if not piece.writer else Workspace(settings, piece.writer, fs, ManualClock(NOW_MS))
    findings = run_check(workspace, piece, settings, fs, Level.DEFAULT)
    if piece.kind == "content" and not findings:
        # What lies behind the last content is damage only where an event speaks of it.
        findings = run_check(workspace, CheckUnit("claims", piece.writer), settings, fs, Level.DEFAULT)
    return findings


_UNITS = {"swh": "software", "content": "content", CONTENT_HANDOFF: "handed-contents"}
"""The units of folders of a writer that are no database."""


def piece_of(sample: Sample, path: Path) -> CheckUnit | None:
    """Return the piece that has a file."""
    inner = path.relative_to(sample.root)
    parts = inner.parts
    if parts[0] == "quarantine":
        return CheckUnit("quarantine", "")
    if parts[0] in ("landed", "runs", "watch", "maintenance"):
        return CheckUnit("records", "")
    if parts[0] == "ngsi":
        return CheckUnit("sink", "")
    if parts[0] == "witness" or path.name == "STATE" or path.name.startswith("WITNESS"):
        return CheckUnit("sink", "") if path.name.startswith("ngsi.") else CheckUnit("states", "main")
    if parts[0].startswith("disk"):
        return (
            CheckUnit("journals", "main", path.name[:20])
            if "journals" in parts
            else CheckUnit("shard", "main", parts[3])
        )
    writer, database = parts[1], parts[2]
    assert is_name(writer)
    if database == CONTENT_MARKS or path.name == CONTAINER_MARK:
        return CheckUnit("states", "main")
    if database in _UNITS:
        section = "" if database == "swh" else f"{parts[3]}/{parts[4]}"
        return CheckUnit(_UNITS[database], "main", section)
    relative = str(path.relative_to(sample.root / STORE))
    pieces = {"transactions": "catalog", "forgotten": "catalog", "incarnations": "states", "leases": "leases"}
    if parts[3] in pieces:
        return CheckUnit(pieces[parts[3]], "main")
    if parts[3] == "staging":
        return CheckUnit("unit", "main", parts[4])
    return CheckUnit("log", "main", relative.removesuffix(".toc").removesuffix(".parquet") + ".parquet")
