"""NiFi 1.28.1's Lucene index: made by its provenance repository, asked by the kinds of query that NiFi makes.

One Java process does both. NiFi indexes in threads of its own while it stores events; their CPU time is what indexing
costs. Questions go to the index itself, without the fetching of events that is part of a search in NiFi, and their
time is taken inside the process, so that the way there and back does not count.
"""

from __future__ import annotations

import subprocess
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.append.peers.nifi_peer import JAVA_OPTIONS, VERSION, build, java_version
from benchmarks.index.peers.base import TIMED, Answer, Cost
from benchmarks.index.workload import ATTRIBUTES, LIMIT, Question, Rows
from custody.model import to_events

_MAIN = "custody.benchmarks.append.IndexHarness"
_WARM = 20
"""More than others get: Java compiles what runs often."""
_NAMES_EVENTS = 20_000


class Nifi:
    """The Java process on one repository."""

    name = "NiFi"

    def __init__(self, folder: Path) -> None:
        self.about = (
            f"NiFi {VERSION}, Java {java_version()}: Lucene by its provenance repository, 2 index threads, 12 fields"
        )
        self.size_bytes: int | None = None
        self.process_cpu_seconds = 0.0
        """Of the whole process while it registered and indexed: storing, making documents, merging segments too."""
        self._folder = folder
        self._class_path = build()
        self._process: subprocess.Popen[bytes] | None = None
        folder.parent.mkdir(parents=True, exist_ok=True)
        self._log = (folder.parent / "nifi.log").open("wb")
        self._encoder = msgspec.json.Encoder()

    def prepare(self, rows: Rows) -> Any:
        events = to_events(rows.table)
        if self._process is None:
            names = self._folder.parent / "nifi-names.json"
            names.write_bytes(self._encoder.encode(events[:_NAMES_EVENTS]))
            command = ["java", *JAVA_OPTIONS, "-cp", self._class_path, _MAIN]
            command += [str(names), str(self._folder), ",".join(ATTRIBUTES)]
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log)
        starts = range(0, len(events), 1000)
        return [self._encoder.encode_lines(events[start : start + 1000]) for start in starts], len(events)

    def add(self, prepared: Any) -> Cost:
        pieces, events = prepared
        told = self._order({"index": events}, pieces)
        self.process_cpu_seconds += told["processCpuSeconds"]
        return Cost(told["seconds"], told["indexCpuSeconds"])

    def finish(self) -> None:
        self.size_bytes = self._order({"open": True})["bytes"]

    def measure(self, question: Question) -> tuple[Answer | None, list[float]]:
        if question.wanted == "facet":
            return None, []  # NiFi has none
        asked = {**asdict(question), "limit": LIMIT}
        told = self._order({"ask": asked, "warm": _WARM, "timed": TIMED})
        return told.get("ids", told.get("count")), [nanos / 1e6 for nanos in told["nanos"]]

    def agrees(self, answer: Answer, expected: Answer) -> bool:
        """Whether it found the same; which of many are the newest it knows only nearly, as two threads index."""
        if isinstance(answer, list) and isinstance(expected, list):
            return len(answer) == len(expected) and (len(answer) == LIMIT or set(answer) == set(expected))
        return answer == expected

    def close(self) -> None:
        """End the process."""
        if self._process is not None and self._process.stdin is not None and self._process.stdout is not None:
            self._process.stdin.close()
            self._process.stdout.close()
            self._process.wait()
        self._log.close()

    def _order(self, order: dict[str, Any], then: list[bytes] | None = None) -> dict[str, Any]:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(self._encoder.encode(order) + b"\n")
            for piece in then or []:
                process.stdin.write(piece)
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = b""
        if not line:
            log = (self._folder.parent / "nifi.log").read_text()[-3000:]
            raise AssertionError(f"NiFi's process failed:\n{log}")
        told: dict[str, Any] = msgspec.json.decode(line)
        return told
