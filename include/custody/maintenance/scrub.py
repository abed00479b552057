"""The scrub: everything on disk is verified again and again, a part of it each day.

A round goes over all check units in the order of their keys. A run takes the next ones, as many bytes as are due since
the run before it, so that a round takes the days that the settings say. The position of the scrub and the findings of
this round and the last one lie in one file that is replaced whole (docs/formats/scrub.md), so that they never diverge.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from custody.clock import Clock
from custody.config import Settings
from custody.errors import CorruptionError, FormatVersionError
from custody.format.framing import Frame, frame, frames
from custody.made_types import made_at_import
from custody.maintenance.findings import Finding, Level
from custody.maintenance.verification.check_units import CheckUnit
from custody.vfs import FileSystem
from custody.workspace import Workspace

# On disk (docs/formats/scrub.md): the mark, and in its last byte the version.
PREAMBLE = b"CUSTSCR\x01"
KIND_SCRUB = 1
SCRUB_FILE = "scrub"
_DAY_MS = 86_400_000
# The file is replaced whole at each save: a dying disk must not let it grow without bound.
FINDINGS_MAX = 10_000
SCRUB_LEVEL = Level.DEFAULT
"""Every byte against its checksum: what a disk does to bytes. Decoding as well costs twenty times the CPU."""
# A run that is killed checks at most about so much again.
_SAVE_BYTES = 256 << 20


class ScrubRound(msgspec.Struct, frozen=True, kw_only=True):
    """One walk over everything; times in ms since the epoch, sizes in bytes."""

    number: int = 0
    started_ms: int = 0
    finished_ms: int | None = None
    pieces: int = 0
    bytes: int = 0
    findings: tuple[Finding, ...] = ()
    left_out: int = 0
    """Findings beyond FINDINGS_MAX."""

    def with_found(self, units: Sequence[CheckUnit], new_findings: Sequence[Finding]) -> ScrubRound:
        """Return the round with some more units, and their findings."""
        findings = (*self.findings, *new_findings)
        return msgspec.structs.replace(
            self,
            pieces=self.pieces + len(units),
            bytes=self.bytes + sum(piece.bytes for piece in units),
            findings=findings[:FINDINGS_MAX],
            left_out=self.left_out + max(0, len(findings) - FINDINGS_MAX),
        )


class ScrubState(msgspec.Struct, frozen=True, kw_only=True):
    """The position of the scrub: the current round, the key behind which it goes on, and the last whole round."""

    current: ScrubRound = ScrubRound()
    after: str = ""
    last_run_ms: int | None = None
    former: ScrubRound | None = None

    def latest(self) -> list[Finding]:
        """Return the known findings, each once, the newest first."""
        return list({(item.kind, item.path, item.offset): item for item in reversed(self.findings)}.values())

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings of the last round and of this one."""
        return (*(self.former.findings if self.former is not None else ()), *self.current.findings)


class ScrubSlice(msgspec.Struct, frozen=True):
    """The units of one run: those that follow a key in a round; `is_last` when the round ends with them."""

    round: int
    after: str
    pieces: tuple[CheckUnit, ...]
    is_last: bool


_STATE = msgspec.json.Decoder(ScrubState)
made_at_import(ScrubSlice)


def encode_scrub(scrub: ScrubState) -> bytes:
    """Return the file's bytes."""
    return PREAMBLE + frame(KIND_SCRUB, msgspec.json.encode(scrub))


def decode_scrub(data: bytes, where: object) -> ScrubState:
    """Return the state in a file's bytes.

    Raises:
        FormatVersionError: it is of another version.
        CorruptionError: it is not what was written.
    """
    # The version before the checksum: a newer file may be framed in another way.
    if data[:7] == PREAMBLE[:7] and data[7:8] not in (b"", PREAMBLE[7:8]):
        raise FormatVersionError(f"{where} @7: expected scrub version 1, got {data[7]}. Use a newer custody.")
    records = list(frames(data, len(PREAMBLE))) if data.startswith(PREAMBLE) else []
    if len(records) != 1 or not isinstance(records[0], Frame) or records[0].is_part:
        raise CorruptionError(
            f"{where} @0: expected the scrub's progress with its checksum, got other bytes. "
            "Remove the file: the scrub then begins a new round."
        )
    return _STATE.decode(records[0].payload)


def read_scrub(settings: Settings, fs: FileSystem) -> ScrubState:
    """Return the position of the scrub; raises as `decode_scrub` does."""
    path = settings.maintenance_folder / SCRUB_FILE
    return decode_scrub(fs.read(path), path) if fs.exists(path) else ScrubState()


def next_slice(
    settings: Settings, fs: FileSystem, clock: Clock, *, bytes_max: int | None = None, whole: bool = False
) -> tuple[ScrubState, ScrubSlice]:
    """Return the position of the scrub and the units of a run now: what is due, or `bytes_max`, or the whole rest.

    A damaged scrub file begins a new round: it holds nothing that a walk does not find again.
    """
    from custody.maintenance.verification import writer_check_units
    from custody.maintenance.verification.check_units import shared_check_units

    try:
        scrub = read_scrub(settings, fs)
    except CorruptionError:
        scrub = ScrubState()
    workspaces = Workspace.all(settings, fs, clock)
    units = [*shared_check_units(settings, fs), *(unit for item in workspaces for unit in writer_check_units(item))]
    # In the order of the keys, over all writers: the position is the key of the last unit that was checked.
    units.sort(key=lambda unit: unit.key)
    unchecked = [unit for unit in units if unit.key > scrub.after]
    quota = _quota(settings, clock, scrub, sum(unit.bytes for unit in units)) if bytes_max is None else bytes_max
    chosen: list[CheckUnit] = []
    chosen_bytes = 0
    for unit in unchecked:
        # At least one unit, however large it is: else a log larger than the quota would never be checked.
        if chosen and chosen_bytes >= quota and not whole:
            break
        chosen.append(unit)
        chosen_bytes += unit.bytes
    return scrub, ScrubSlice(scrub.current.number, scrub.after, tuple(chosen), len(chosen) == len(unchecked))


def scrub_unit(settings: Settings, fs: FileSystem, clock: Clock, piece: CheckUnit) -> list[Finding]:
    """Return the findings of one unit."""
    from custody.maintenance.verification import run_check

    # A workspace a unit: what it caches must not be older than the check.
    workspace = Workspace(settings, piece.writer, fs, clock) if piece.writer else None
    return run_check(workspace, piece, settings, fs, SCRUB_LEVEL)


def save_progress(
    settings: Settings,
    fs: FileSystem,
    clock: Clock,
    slice: ScrubSlice,
    pieces: Sequence[CheckUnit],
    findings: Sequence[Finding],
    *,
    is_end: bool,
) -> ScrubState:
    """Write down that units were checked, with their findings; with `is_end` the round is over.

    Nothing is changed when another run has come further in the meantime.

    Durability: on return it survives power loss.
    """
    from custody.maintenance.verification import orphans

    try:
        scrub = read_scrub(settings, fs)
    except CorruptionError:
        scrub = ScrubState()
    # Two runs may check the same units; the first one to save moves the position, and the second changes nothing.
    if (scrub.current.number, scrub.after) != (slice.round, slice.after):
        return scrub
    now = clock.now_ms()
    current = scrub.current if scrub.current.started_ms else msgspec.structs.replace(scrub.current, started_ms=now)
    current = current.with_found(pieces, findings)
    if is_end:
        # Orphans belong to no unit: they are looked for once a round, at its end.
        left = [] if settings.is_store_remote else orphans(Workspace.all(settings, fs, clock), settings, fs)
        ended = current.with_found((), list(left))
        ended = msgspec.structs.replace(ended, finished_ms=now)
        saved = ScrubState(current=ScrubRound(number=ended.number + 1), last_run_ms=now, former=ended)
    else:
        # New units that sort before it are checked in the next round.
        after = max((piece.key for piece in pieces), default=scrub.after)
        saved = ScrubState(current=current, after=after, last_run_ms=now, former=scrub.former)
    fs.make_directory(settings.maintenance_folder)
    fs.write_durably(settings.maintenance_folder / SCRUB_FILE, encode_scrub(saved))
    return saved


def scrub_once(
    settings: Settings,
    fs: FileSystem,
    clock: Clock,
    *,
    bytes_max: int | None = None,
    whole: bool = False,
    save_bytes: int = _SAVE_BYTES,
    on_piece: Callable[[int, int], None] = lambda done, total: None,
) -> ScrubState:
    """Do one run in this process; its position is saved every `save_bytes`, so that little is done twice.

    `on_piece` is called with (bytes done, bytes in all) of the run.
    """
    scrub, slice = next_slice(settings, fs, clock, bytes_max=bytes_max, whole=whole)
    total = sum(piece.bytes for piece in slice.pieces)
    done: list[CheckUnit] = []
    findings: list[Finding] = []
    passed = 0
    for number, piece in enumerate(slice.pieces, 1):
        on_piece(passed, total)
        findings += scrub_unit(settings, fs, clock, piece)
        done.append(piece)
        passed += piece.bytes
        is_end = number == len(slice.pieces)
        if is_end or sum(item.bytes for item in done) >= save_bytes:
            scrub = save_progress(settings, fs, clock, slice, done, findings, is_end=is_end and slice.is_last)
            # The position as it was just saved: the next save notices by it whether another run came between.
            slice = ScrubSlice(scrub.current.number, scrub.after, slice.pieces, slice.is_last)
            done, findings = [], []
    # Nothing lies behind the position any more: only this ends the round.
    if not slice.pieces:
        scrub = save_progress(settings, fs, clock, slice, (), (), is_end=slice.is_last)
    return scrub


def is_scrub_behind(settings: Settings, scrub: ScrubState, now_ms: int) -> bool:
    """Whether the round takes longer than it should."""
    return 0 < scrub.current.started_ms < now_ms - settings.maintenance.scrub_days * _DAY_MS


def _quota(settings: Settings, clock: Clock, scrub: ScrubState, total: int) -> int:
    """Return how many bytes are due; without a run before, a day's part."""
    since = _DAY_MS if scrub.last_run_ms is None else max(0, clock.now_ms() - scrub.last_run_ms)
    # Rounded up: frequent runs on a small repository would otherwise never have a byte due.
    due = -int(-total * since // (settings.maintenance.scrub_days * _DAY_MS))
    # Bounded, so that a run after a long pause does not take the disk for hours.
    return min(due, settings.maintenance.scrub_bytes_per_run)
