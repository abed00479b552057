"""A producer process: several threads append batches and write down what they sent and what they were told.

    python -m soak.producer REPOSITORY LEDGER PRODUCER LIFE THREADS EVENTS_A_SECOND

It goes on until SIGTERM, which seals its journal, or until it is killed.
"""

from __future__ import annotations

import random
import signal
import sys
import threading
import time
from pathlib import Path

from custody.errors import BackpressureError
from custody.ingest.slots import SlotWriter
from custody.repository import Repository
from soak.events import digest, first_number, made_event
from soak.ledger import LedgerFile, Refused, Sent, Told
from tests.support import numbered

SIZES = (1, 1, 1, 2, 5, 10, 40)
SLOT_SECONDS = 60.0
HELD_EVERY_MS, HELD_FOR_MS = 600_000, 3_000
"""For so long in each such time the events of the first producer are of the case that is held."""


def now_ms() -> int:
    """Return the time of day."""
    return time.time_ns() // 1_000_000


def produce(
    writer: SlotWriter, ledger: LedgerFile, number: int, rate: float, started_ms: int | None, ended: threading.Event
) -> None:
    """Append batches at a rate, in events a second, until the end; no event is held without `started_ms`."""
    chance = random.Random(number)  # noqa: S311 - sizes of batches
    due = time.monotonic()
    while not ended.is_set():
        size = chance.choice(SIZES)
        time_ms = now_ms()
        is_held = started_ms is not None and (time_ms - started_ms) % HELD_EVERY_MS < HELD_FOR_MS
        events = [made_event(number + item, time_ms, held=is_held) for item in range(size)]
        ledger.write(Sent(number, size))
        try:
            ids = writer.append(events)
        except BackpressureError as error:
            ledger.write(Refused(number, str(error)))
        else:
            digests = tuple(digest(event) for event in numbered(events, ids.start))
            ledger.write(Told(number, writer.name, ids.start, now_ms(), is_held, digests))
        number += size
        due = max(due + size / rate, time.monotonic() - 1)  # what was missed in more than a second is not made up
        ended.wait(max(due - time.monotonic(), 0))


def main(root: str, ledger_path: str, producer: str, life: str, threads: str, rate: str) -> int:
    """Take a slot and append until told to end; the exit code is 1 when a thread failed."""
    ended, failed = threading.Event(), threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    ledger = LedgerFile(Path(ledger_path))

    def work(thread: int) -> None:
        try:
            number = first_number(int(producer), int(life), thread)
            produce(writer, ledger, number, float(rate) / int(threads), started_ms, ended)
        except BaseException:
            failed.set()
            ended.set()
            raise

    with Repository.open(root).writer(wait_seconds=SLOT_SECONDS) as writer:
        started_ms = now_ms() if int(producer) == 0 else None
        workers = [threading.Thread(target=work, args=(number,)) for number in range(int(threads))]
        for worker in workers:
            worker.start()
        while not ended.wait(0.5):
            pass  # a signal's handler runs between two waits
        for worker in workers:
            worker.join()
    return 1 if failed.is_set() else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
