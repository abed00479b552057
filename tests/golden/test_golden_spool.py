"""Today's code reads a spool that version 1 of its formats wrote, and delivers what waits in it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from custody.client import Spool, SpoolDelivery, spool_state
from custody.client.spool import PREAMBLE, read_positions
from custody.client.spool_delivery import Receipt
from custody.vfs import PosixFileSystem

# Made by `python -m tests.golden.make_spool` when the format was new; never made again.
GOLDEN = Path(__file__).parent / "spool"


class Taking:
    def __init__(self) -> None:
        self.events: list[dict[str, object]] = []

    def send(self, lines: bytes) -> Receipt:
        self.events += [json.loads(line) for line in lines.splitlines()]
        return Receipt(stored=len(lines.splitlines()))


def test_a_spool_of_version_1_is_read_delivered_and_gone_on_with(tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    shutil.copytree(GOLDEN, folder)
    state = spool_state(folder)
    assert (state.source, state.waiting_events, state.segments) == ("shop/0000000000000000", 3, 2)
    assert (folder / "0000000001.events").read_bytes()[:8] == PREAMBLE == b"CUSTSPL\x01"
    positions = read_positions(PosixFileSystem(), folder)
    assert (positions.next_number, positions.frames) == (1, {1: 1})
    server = Taking()
    SpoolDelivery(folder, server).deliver()
    names = [(event["source_ordinal"], event["file_size"]) for event in server.events]
    assert names == [((1 << 20) + 1, 12), ((1 << 20) + 2, 13), (2 << 20, 14)]
    with Spool(folder, "other") as spool:
        assert spool.source == state.source
        spool.append([{"file_size": 15}])
    assert (folder / "0000000003.events").exists()
