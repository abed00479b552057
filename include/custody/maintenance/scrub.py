"""The scrub: everything that lies on disk is read again and again, a part of it each day.

A round goes over all pieces in the order of their keys. A run takes the next ones, as many bytes as are due since the
run before it, so that a round takes the days that the settings say. How far it is, and what this round and the last one
found, lies in one file that is replaced whole (docs/formats/scrub.md): where the walk is and what it found never part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from custody.clock import Clock
from custody.config import Settings
from custody.errors import CorruptionError, FormatVersionError
from custody.format.framing import Frame, frame, frames
from custody.maintenance.findings import Finding, Level
from custody.maintenance.verification import Piece, check_piece, orphans, pieces
from custody.maintenance.verification.check_units import shared_pieces
from custody.vfs import FileSystem
from custody.workspace import Workspace

PREAMBLE = b"CUSTSCR\x01"
KIND_SCRUB = 1
NAME = "scrub"
DAY_MS = 86_400_000
FINDINGS_MAX = 10_000
LEVEL = Level.DEFAULT
"""Every byte against its checksum: what a disk does to bytes. Decoding as well costs twenty times the CPU."""
_SAVE_BYTES = 256 << 20


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """One walk over everything; times in ms since the epoch, sizes in bytes."""

    number: int = 0
    started_ms: int = 0
    finished_ms: int | None = None
    pieces: int = 0
    bytes: int = 0
    findings: tuple[Finding, ...] = ()
    left_out: int = 0
    """Findings beyond FINDINGS_MAX."""

    def with_found(self, done: Sequence[Piece], found: Sequence[Finding]) -> Round:
        """Return the round with some more pieces."""
        kept = (*self.findings, *found)
        return msgspec.structs.replace(
            self,
            pieces=self.pieces + len(done),
            bytes=self.bytes + sum(piece.bytes for piece in done),
            findings=kept[:FINDINGS_MAX],
            left_out=self.left_out + max(0, len(kept) - FINDINGS_MAX),
        )


class Scrub(msgspec.Struct, frozen=True, kw_only=True):
    """How far the scrub is: the round that goes on, the key behind which it goes on, and the last whole round."""

    current: Round = Round()
    after: str = ""
    last_run_ms: int | None = None
    former: Round | None = None

    def latest(self) -> list[Finding]:
        """Return what is known, each thing once, the newest first."""
        return list({(item.kind, item.path, item.offset): item for item in reversed(self.findings)}.values())

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What was found in the last round and in this one."""
        return (*(self.former.findings if self.former is not None else ()), *self.current.findings)


class Slice(msgspec.Struct, frozen=True):
    """What one run does: pieces that follow a key in a round; `is_last` when the round ends with them."""

    round: int
    after: str
    pieces: tuple[Piece, ...]
    is_last: bool


def encode_scrub(scrub: Scrub) -> bytes:
    """Return the file's bytes."""
    return PREAMBLE + frame(KIND_SCRUB, msgspec.json.encode(scrub))


def decode_scrub(data: bytes, where: object) -> Scrub:
    """Return what a file says.

    Raises:
        FormatVersionError: it is of another version.
        CorruptionError: it is not what was written.
    """
    if data[:7] == PREAMBLE[:7] and data[7:8] not in (b"", PREAMBLE[7:8]):
        raise FormatVersionError(f"{where} @7: expected scrub version 1, got {data[7]}. Use a newer custody.")
    found = list(frames(data, len(PREAMBLE))) if data.startswith(PREAMBLE) else []
    if len(found) != 1 or not isinstance(found[0], Frame) or found[0].is_part:
        raise CorruptionError(
            f"{where} @0: expected how far the scrub is, with its checksum, got other bytes. "
            "Remove the file: the scrub then begins a new round."
        )
    return msgspec.json.decode(found[0].payload, type=Scrub)


def read_scrub(settings: Settings, fs: FileSystem) -> Scrub:
    """Return how far the scrub is; raises as `decode_scrub` does."""
    path = settings.maintenance_folder / NAME
    return decode_scrub(fs.read(path), path) if fs.exists(path) else Scrub()


def next_slice(
    settings: Settings, fs: FileSystem, clock: Clock, *, bytes_max: int | None = None, whole: bool = False
) -> tuple[Scrub, Slice]:
    """Return how far the scrub is and what a run does now: what is due, or `bytes_max`, or all that is left.

    A file of the scrub that is damaged begins a new round: it holds nothing that a walk does not find again.
    """
    try:
        scrub = read_scrub(settings, fs)
    except CorruptionError:
        scrub = Scrub()
    workspaces = _workspaces(settings, fs, clock)
    found = [*shared_pieces(settings, fs), *(piece for item in workspaces for piece in pieces(item))]
    found.sort(key=lambda piece: piece.key)
    left = [piece for piece in found if piece.key > scrub.after]
    quota = _quota(settings, clock, scrub, sum(piece.bytes for piece in found)) if bytes_max is None else bytes_max
    chosen: list[Piece] = []
    taken = 0
    for piece in left:
        if chosen and taken >= quota and not whole:
            break
        chosen.append(piece)
        taken += piece.bytes
    return scrub, Slice(scrub.current.number, scrub.after, tuple(chosen), len(chosen) == len(left))


def check(settings: Settings, fs: FileSystem, clock: Clock, piece: Piece) -> list[Finding]:
    """Return what is wrong with one piece."""
    workspace = Workspace(settings, piece.writer, fs, clock) if piece.writer else None
    return check_piece(workspace, piece, settings, fs, LEVEL)


def advance(
    settings: Settings,
    fs: FileSystem,
    clock: Clock,
    begun: Slice,
    done: Sequence[Piece],
    found: Sequence[Finding],
    *,
    is_end: bool,
) -> Scrub:
    """Keep that the pieces were looked at, and what was found; with `is_end` the round is over.

    When another run has come further in the meantime nothing is changed.

    Durability: on return it survives power loss.
    """
    try:
        scrub = read_scrub(settings, fs)
    except CorruptionError:
        scrub = Scrub()
    if (scrub.current.number, scrub.after) != (begun.round, begun.after):
        return scrub
    now = clock.now_ms()
    current = scrub.current if scrub.current.started_ms else msgspec.structs.replace(scrub.current, started_ms=now)
    current = current.with_found(done, found)
    if is_end:
        ended = current.with_found((), list(orphans(_workspaces(settings, fs, clock), settings, fs)))
        ended = msgspec.structs.replace(ended, finished_ms=now)
        made = Scrub(current=Round(number=ended.number + 1), last_run_ms=now, former=ended)
    else:
        after = max((piece.key for piece in done), default=scrub.after)
        made = Scrub(current=current, after=after, last_run_ms=now, former=scrub.former)
    fs.make_directory(settings.maintenance_folder)
    fs.write_durably(settings.maintenance_folder / NAME, encode_scrub(made))
    return made


def scrub_once(
    settings: Settings,
    fs: FileSystem,
    clock: Clock,
    *,
    bytes_max: int | None = None,
    whole: bool = False,
    save_bytes: int = _SAVE_BYTES,
    on_piece: Callable[[int, int], None] = lambda done, total: None,
) -> Scrub:
    """Do one run in this process; how far it came is kept every `save_bytes`, so that little is done twice.

    `on_piece` is told (bytes done, bytes in all) of the run.
    """
    scrub, begun = next_slice(settings, fs, clock, bytes_max=bytes_max, whole=whole)
    total = sum(piece.bytes for piece in begun.pieces)
    done: list[Piece] = []
    found: list[Finding] = []
    passed = 0
    for number, piece in enumerate(begun.pieces, 1):
        on_piece(passed, total)
        found += check(settings, fs, clock, piece)
        done.append(piece)
        passed += piece.bytes
        is_end = number == len(begun.pieces)
        if is_end or sum(item.bytes for item in done) >= save_bytes:
            scrub = advance(settings, fs, clock, begun, done, found, is_end=is_end and begun.is_last)
            begun = Slice(scrub.current.number, scrub.after, begun.pieces, begun.is_last)
            done, found = [], []
    if not begun.pieces:
        scrub = advance(settings, fs, clock, begun, (), (), is_end=begun.is_last)
    return scrub


def is_behind(settings: Settings, scrub: Scrub, now_ms: int) -> bool:
    """Whether the round takes longer than it should."""
    return 0 < scrub.current.started_ms < now_ms - settings.maintenance.scrub_days * DAY_MS


def _quota(settings: Settings, clock: Clock, scrub: Scrub, total: int) -> int:
    """Return how many bytes are due: a day's part when there was no run before."""
    since = DAY_MS if scrub.last_run_ms is None else max(0, clock.now_ms() - scrub.last_run_ms)
    due = -int(-total * since // (settings.maintenance.scrub_days * DAY_MS))
    return min(due, settings.maintenance.scrub_bytes_per_run)


def _workspaces(settings: Settings, fs: FileSystem, clock: Clock) -> list[Workspace]:
    return [Workspace(settings, item.writer, fs, clock) for item in Workspace.all(settings, fs)]
