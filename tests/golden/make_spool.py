"""Makes the golden spool: one segment was delivered and is gone, one was begun, one waits."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from unittest.mock import patch

from custody.client import Spool, SpoolDelivery, spool_delivery
from custody.client.spool_delivery import Receipt
from custody.errors import StorageError
from tests.crash.enumeration import counted_names
from tests.unit.capture.sample_inputs import own_event

HERE = Path(__file__).parent


class Breaking:
    """A server that takes two batches and is gone."""

    def __init__(self) -> None:
        self.left = 2

    def send(self, lines: bytes) -> Receipt:
        self.left -= 1
        if self.left < 0:
            raise StorageError("gone")
        return Receipt(stored=lines.count(b"\n"))


def main(folder: Path) -> None:
    """Make the spool in a folder."""
    with counted_names():
        for appends in ([[0]], [[1], [2, 3]], [[4]]):
            with Spool(folder, "shop") as spool:
                for numbers in appends:
                    spool.append([own_event(number) for number in numbers])
        # A batch a frame, so that a segment is left half delivered.
        with suppress(StorageError), patch.object(spool_delivery, "BATCH_BYTES", 1):
            SpoolDelivery(folder, Breaking()).deliver()


if __name__ == "__main__":
    main(HERE / "spool")
