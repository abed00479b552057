"""Reads event logs with one flipped bit, in a process of its own: damage could end it.

`python -m tests.unit.eventlog.bit_flips EVENTS BLOCK_BYTES STRIDE DECODE` flips every STRIDE-th bit and prints what it
costs, as JSON; it ends with an error on the first one that costs more than it may. Every time the table of contents has
to be found as it was written, and the checksums have to fail for the damaged block and no other, so that all bytes that
are decoded are those that were written. Every DECODE-th time the events are decoded and compared as well.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa

from custody.errors import CorruptionError
from custody.eventlog import Damage, EventLog, LogOptions, log_metadata, write_log
from custody.model import to_batch, to_events
from custody.vfs.memory import MemoryFileSystem
from custody.vfs.wrapping import WrappingFileSystem
from tests.support import flipped, numbered, sample

LOG = Path("/log.parquet")
TOC = Path("/log.toc")


class Files(WrappingFileSystem):
    """Two files whose bytes the test decides; the table of contents may be lost."""

    def __init__(self, inner: MemoryFileSystem) -> None:
        super().__init__(inner)
        self.changed: dict[Path, bytes | None] = {}

    def read(self, path: Path) -> bytes:
        changed = self.changed.get(path, b"")
        if changed is None:
            return self.inner.read(Path("/nothing"))
        return changed or self.inner.read(path)

    def view(self, path: Path) -> memoryview:
        return memoryview(self.read(path))


def main(count: int, block_bytes: int, stride: int, decode_every: int) -> dict[str, int]:
    """Flip bits in the log with and without its table of contents, and in the table."""
    events = numbered(sample(count), 1000)
    table = pa.Table.from_batches([to_batch(events, 1000)])
    fs = Files(MemoryFileSystem())
    write_log(fs, LOG, table, log_metadata(table, "main", "provenance"), LogOptions(block_bytes))
    log, toc = fs.read(LOG), fs.read(TOC)
    blocks = EventLog(fs, LOG).toc.blocks
    end = int(blocks[-1]["offset"] + blocks[-1]["length"])
    costs: Counter[str] = Counter()
    tries = ((name, bit) for name in ("log", "lonely log", "toc") for bit in range(0, _bits(name, log, toc), stride))
    for number, (name, bit) in enumerate(tries):
        damaged = flipped(toc if name == "toc" else log, bit)
        fs.changed = {TOC: damaged, LOG: log} if name == "toc" else {LOG: damaged, TOC: toc if name == "log" else None}
        hit = name != "toc" and 4 <= bit // 8 < end
        block = int(blocks["offset"].searchsorted(bit // 8, side="right")) - 1 if hit else None
        whole = [at for at in range(len(blocks)) if at != block]
        damage: list[Damage] = []
        read = EventLog(fs, LOG)
        assert read.toc.encode() == toc, (name, bit)
        assert read.whole_blocks(damage.append) == whole, (name, bit)
        lost = range(0)
        if block is not None:
            first = int(blocks[block]["first_event_id"])
            lost = range(first, first + int(blocks[block]["rows"]))
            assert [(d.block, d.first_event_id, d.last_event_id) for d in damage] == [(block, lost[0], lost[-1])], bit
        if number % decode_every == 0:
            got = to_events(read.read(on_damage=damage.append))
            assert got == [event for event in events if event.event_id not in lost], (name, bit)
            costs["decoded"] += 1
        costs["one block" if lost else "nothing"] += 1
    fs.changed = {LOG: log[:-1], TOC: toc[:-1]}  # two things damaged at once: refused, or read as it was
    try:
        assert to_events(EventLog(fs, LOG).read()) == events
    except CorruptionError:
        costs["refused"] += 1
    return dict(costs)


def _bits(name: str, log: bytes, toc: bytes) -> int:
    return 8 * len(toc if name == "toc" else log)


if __name__ == "__main__":
    print(json.dumps(main(*map(int, sys.argv[1:5]))))  # noqa: T201 - the answer
