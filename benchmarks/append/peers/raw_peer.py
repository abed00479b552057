"""The raw limit: custody's bytes without custody, one os.write and one os.fdatasync a batch."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from benchmarks.append import load
from benchmarks.append.grid import Cell, Reading
from benchmarks.append.peers.base import About
from benchmarks.append.peers.custody_peer import open_writer
from benchmarks.append.workload import Workload

_WARM_UP_APPENDS = 64  # more than the journals that a writer may have open, so that each has its header


def _lengths(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_size for path in folder.rglob("*") if path.is_file()}


def custody_bytes(workload: Workload, batch_events: int, folder: Path) -> list[bytes]:
    """Return what custody adds to its files for each batch, when a single thread appends one after the other."""
    batches = workload.batches(batch_events)
    pieces: list[tuple[Path, int, int]] = []
    with open_writer(folder) as writer:
        for number in range(_WARM_UP_APPENDS):
            writer.append(batches[number % len(batches)][:1])
        before = _lengths(folder)
        for batch in batches:
            writer.append(batch)
            after = _lengths(folder)
            grown = [path for path, length in after.items() if length != before.get(path, 0)]
            if len(grown) != 1:
                raise AssertionError(f"expected one file to grow by one append, got {grown}")
            pieces.append((grown[0], before.get(grown[0], 0), after[grown[0]]))
            before = after
        contents = {path: path.read_bytes() for path in before}
    return [contents[path][start:end] for path, start, end in pieces]


class RawPeer:
    """Writes and syncs; each thread its own file."""

    def __init__(self, workload: Workload, scratch: Path) -> None:
        self._workload = workload
        self._scratch = scratch
        self._bytes: dict[int, list[bytes]] = {}
        self.about = About(
            key="raw",
            label="raw limit",
            durable=True,
            description="os.write + os.fdatasync of the bytes that custody writes for the same batch, "
            "each thread its own file",
            version=os.uname().release,
        )

    def batches(self, batch_events: int) -> list[bytes]:
        """The batches as bytes; the first call for a size makes them."""
        if batch_events not in self._bytes:
            folder = self._scratch / f"bytes-{batch_events}"
            self._bytes[batch_events] = custody_bytes(self._workload, batch_events, folder)
        return self._bytes[batch_events]

    def bytes_per_event(self, batch_events: int) -> float:
        """How long custody's record of one event is in batches of this size."""
        batches = self.batches(batch_events)
        return sum(map(len, batches)) / len(batches) / batch_events

    def measure(self, cell: Cell, seconds: float, folder: Path, *, verify: bool) -> Reading:
        """Write from all threads."""
        folder.mkdir()
        batches = self.batches(cell.batch_events)
        written = [0] * cell.threads

        def opened(thread: int, held: ExitStack) -> Callable[[bytes], None]:
            descriptor = os.open(folder / f"{thread}.raw", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o640)
            held.callback(os.close, descriptor)

            def append(data: bytes) -> None:
                done = os.write(descriptor, data)
                while done < len(data):
                    done += os.write(descriptor, data[done:])
                os.fdatasync(descriptor)
                written[thread] += done

            return append

        with ExitStack() as held:
            appends = [opened(thread, held) for thread in range(cell.threads)]
            reading = load.run(appends, batches, cell.batch_events, seconds)
        if not verify:
            return reading
        lengths = [(folder / f"{thread}.raw").stat().st_size for thread in range(cell.threads)]
        return reading.with_stored(reading.events if lengths == written else 0)

    def close(self) -> None:
        """Do nothing."""
