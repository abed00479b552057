"""custody's catalog: durable commits on a local disk at growing log lengths; opening, refresh, memory, bytes."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

from benchmarks.catalog.peer import answer, best_ms, bytes_below, peak_rss_mib, raw_sync, timed
from custody.catalog import Action, AddFile, Catalog, SourceRange
from custody.clock import SystemClock
from custody.store import LocalStore
from custody.vfs import PosixFileSystem
from custody.vfs.posix import PosixFile


class _UnsyncedFile(PosixFile):
    def sync(self) -> None:
        """Leave it to the system: only the filling between two measurements does so."""


class _Unsynced(PosixFileSystem):
    """Fills the log between two measurements; nothing that is measured uses it."""

    def create(self, path: Path) -> PosixFile:
        file = super().create(path)
        return _UnsyncedFile(path, file._descriptor)

    def sync_directory(self, folder: Path) -> None:
        """Do nothing."""


def opened(root: Path, *, durable: bool = True) -> Catalog:
    """The catalog, opened by a process that just started."""
    return Catalog(LocalStore(PosixFileSystem() if durable else _Unsynced(), root), "main", "bench", SystemClock())


def entry(number: int) -> Action:
    """A log of a thousand events."""
    first = number * 1000
    digest = hashlib.sha256(str(number).encode()).digest()
    return Action(
        add_file=AddFile(
            path=f"data/2026-03-01/events/{first:020d}.parquet",
            size_bytes=1_000_000,
            rows=1000,
            sha256=digest,
            table="events",
            partition="2026-03-01",
            schema_version=1,
            first_event_id=first,
            last_event_id=first + 999,
            first_event_time_ms=1_772_409_600_000 + number,
            last_event_time_ms=1_772_409_600_999 + number,
            toc_path=f"data/2026-03-01/events/{first:020d}.toc",
            toc_sha256=digest,
            sources=[SourceRange(node="node-1", first_ordinal=first, last_ordinal=first + 999)],
        )
    )


def commits(root: Path, lengths: list[int], times: int) -> dict[str, object]:
    """Measure durable commits of one open catalog when its log has these lengths."""
    results: dict[str, object] = {}
    number = 0
    for length in lengths:
        filling = opened(root, durable=False)
        while number < length:
            filling.commit([entry(number)])
            number += 1
        catalog = opened(root)
        catalog.load()

        def work(catalog: Catalog = catalog) -> None:
            nonlocal number
            catalog.commit([entry(number)])
            number += 1

        results[str(length)] = timed(work, times) | {"raw_sync_p50_ms": raw_sync(root / f"raw-{length}")["p50_ms"]}
        sys.stderr.write(f"custody, log length {length}: {results[str(length)]}\n")
    return results


def opening(root: Path) -> dict[str, object]:
    """Measure opening without and with a checkpoint, a refresh, and what a process needs to open it."""
    without = best_ms(lambda: opened(root).load(), 3)
    catalog = opened(root)
    state = catalog.load()
    checkpoint = best_ms(catalog.write_checkpoint, 1)
    size = catalog.write_checkpoint().size_bytes
    reader = opened(root)
    reader.load()
    nothing = best_ms(reader.load)
    opened(root).commit([entry(10_000_000)])
    one = best_ms(reader.load, 1)
    files, total = bytes_below(root / "main" / "bench" / "transactions", without=".none")
    return {
        "transactions": state.revision + 1,
        "live_files": len(state.files),
        "open_without_checkpoint_ms": without,
        "open_with_checkpoint_ms": best_ms(lambda: opened(root).load()),
        "find_one_event_ms": best_ms(lambda: opened(root).load().file_of(5), 3),
        "refresh_nothing_ms": nothing,
        "refresh_one_ms": one,
        "write_checkpoint_ms": checkpoint,
        "checkpoint_bytes": size,
        "metadata_files": files,
        "metadata_bytes": total,
        "open_peak_rss_mib": _peak(root),
    }


def _peak(root: Path) -> float:
    """Return the peak memory of a process that only opens the catalog."""
    code = (
        "import sys; from pathlib import Path; from benchmarks.catalog.custody_peer import opened, peak_rss_mib;"
        "opened(Path(sys.argv[1])).load(); print(peak_rss_mib())"
    )
    done = subprocess.run([sys.executable, "-c", code, str(root)], capture_output=True, text=True, check=True)
    return float(done.stdout)


def main(root: Path, lengths: list[int], times: int) -> None:
    """Measure everything; opening at each length from 1,000 on in a catalog of its own."""
    result: dict[str, object] = {"commits": commits(root / "growing", lengths, times)}
    opens = {}
    for length in lengths:
        if length >= 1000:
            folder = root / f"open-{length}"
            filling = opened(folder, durable=False)
            for number in range(length):
                filling.commit([entry(number)])
            opens[str(length)] = opening(folder)
            sys.stderr.write(f"custody, opening {length}: {opens[str(length)]}\n")
    answer(result | {"opening": opens, "peak_rss_mib": peak_rss_mib()})


if __name__ == "__main__":
    main(Path(sys.argv[1]), [int(number) for number in sys.argv[2].split(",")], int(sys.argv[3]))
