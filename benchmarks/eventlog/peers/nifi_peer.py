"""NiFi 1.28.1's WriteAheadProvenanceRepository: what its files weigh, what rollover costs it, and how it reads.

Its settings are those that it ships, but its storage may grow to what the run needs, and a run below a million events
rolls over at a smaller size, so that several files are compressed. Nothing is synced (NiFi's default). The file that is
written last stays plain, so only the events before it are weighed and read.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.append.peers.nifi_peer import JAVA_OPTIONS, VERSION, build, java_version
from benchmarks.eventlog.measuring import Task, bytes_of, disk_bytes, forget, rates, spread, tell
from benchmarks.eventlog.peers.feed import batches, recent_batches

_MAIN = "custody.benchmarks.append.LogHarness"
_SHIPPED_ROLLOVER_MB = 100
_PAGES = (1_000, 10_000)
_IN_ORDER_MAX = 200_000
_WARM_UP_READS = 2_000
"""More than others get: Java compiles what runs often."""


class Harness:
    """The Java program on one repository."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.folder = task.folder("nifi")
        self._log = task.folder("nifi.log")
        self._names = task.folder("nifi-names.json")
        self._names.write_bytes(msgspec.json.encode(next(batches(task))))
        rollover_mb = min(_SHIPPED_ROLLOVER_MB, max(task.events // 10_000, 1))
        self._settings = [str(self._names), str(self.folder), f"{rollover_mb} MB"]
        self._class_path = build()

    @contextmanager
    def process(self, mode: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run it; it ends with its input.

        Raises:
            AssertionError: it failed; the text holds the end of its log.
        """
        command = ["java", *JAVA_OPTIONS, "-cp", self._class_path, _MAIN, mode, *self._settings]
        with self._log.open("ab") as log:
            running = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
        try:
            yield running
        except (BrokenPipeError, json.JSONDecodeError) as error:
            raise AssertionError(f"NiFi's process failed:\n{self._log.read_text()[-3000:]}") from error
        finally:
            if running.stdin is not None and not running.stdin.closed:
                running.stdin.close()
            if running.stdout is not None:
                running.stdout.close()
            running.wait()

    def write(self) -> dict[str, Any]:
        """Write all events; return what the harness tells."""
        with self.process("write") as running:
            assert running.stdin is not None
            assert running.stdout is not None
            encoder = msgspec.json.Encoder()
            for batch in recent_batches(self.task):
                running.stdin.write(encoder.encode_lines(batch))
            running.stdin.close()
            document: dict[str, Any] = json.loads(running.stdout.readline())
            return document

    def compressed(self, events: int) -> int:
        """Return how many of the events lie in compressed files: a file is named by the id of its first event."""
        plain = [int(path.stem) for path in self.folder.glob("*.prov") if path.stat().st_size]
        return min([events, *plain])

    def sizes(self, events: int) -> dict[str, int]:
        """Return the bytes of so many events, of their tables of contents, and of the index of all events."""

        def before(paths: Iterable[Path]) -> int:
            return bytes_of(path for path in paths if int(path.name.partition(".")[0]) < events)

        index = (path for path in self.folder.glob("*index-*/**/*") if path.is_file())
        return {
            "log": before(self.folder.glob("*.prov.gz")),
            "toc": before((self.folder / "toc").glob("*.toc")),
            "index": bytes_of(index),
        }

    def close(self) -> None:
        """Remove what was written."""
        shutil.rmtree(self.folder)
        self._names.unlink()
        self._log.unlink()


def _ask(running: subprocess.Popen[bytes], order: dict[str, Any]) -> dict[str, Any]:
    assert running.stdin is not None
    assert running.stdout is not None
    running.stdin.write(json.dumps(order).encode() + b"\n")
    running.stdin.flush()
    document: dict[str, Any] = json.loads(running.stdout.readline())
    return document


def _points(harness: Harness, running: subprocess.Popen[bytes], events: int) -> dict[str, Any]:
    """Cold: the repository stays open and its code compiled, only the pages of its files are gone."""
    task = harness.task
    _ask(running, {"ids": task.ids(min(_WARM_UP_READS, 2 * task.warm_reads), 11, events)})
    warm = _ask(running, {"ids": task.ids(task.warm_reads, 13, events)})["nanos"]
    files = [path for path in harness.folder.rglob("*") if path.is_file()]
    cold, read = [], 0
    for event_id in task.ids(task.cold_reads, 7, events):
        forget(files, task)
        before = disk_bytes(running.pid)
        cold += _ask(running, {"ids": [event_id]})["nanos"]
        read += disk_bytes(running.pid) - before
    return {
        "cold": spread([nanos / 1e9 for nanos in cold], read),
        "warm": spread([nanos / 1e9 for nanos in warm], 0),
    }


def main(task: Task) -> None:
    """Write, count bytes, read, remove."""
    harness = Harness(task)
    told = harness.write()
    stored = told["lastEventId"] + 1
    events = harness.compressed(stored)
    assert events > 0, f"expected compressed files in {harness.folder}, found none of {stored} events"
    results: dict[str, Any] = {"version": f"NiFi {VERSION}, Java {java_version()}", "events": events, "stored": stored}
    results["note"] = told["note"]
    results["bytes"] = harness.sizes(events)
    # As if all had been compressed.
    compress = told["compressCpuSeconds"] * stored / events
    results["write"] = {
        "compress": rates(stored, told["seconds"], compress),
        "register_and_compress": rates(stored, told["seconds"], told["registerCpuSeconds"] + compress),
        "index_cpu_seconds": told["indexCpuSeconds"],
    }
    with harness.process("read") as running:
        results["points"] = _points(harness, running, events)
        results["in_order"] = {}
        for page in _PAGES:
            paged = _ask(running, {"page": page, "events": min(events, _IN_ORDER_MAX)})
            results["in_order"][f"pages of {page}"] = rates(paged["events"], paged["seconds"], paged["cpuSeconds"])
    harness.close()
    tell(results)


if __name__ == "__main__":
    main(Task.given())
