"""The disk itself: one write and one sync a commit, contents as plain files."""

from __future__ import annotations

import os
import time
import uuid
from pathlib import Path

from benchmarks.append.peers.base import About
from benchmarks.flowfiles.measures import PIECE_BYTES, Answer, Order
from benchmarks.flowfiles.peers.threads import seconds

_COMMIT_BYTES = 2048
"""About what a commit writes: attributes, an event, a third of a content."""


class PlainPeer:
    """Files without any order or checksum."""

    def __init__(self) -> None:
        self.about = About(
            key="plain",
            label="the disk",
            durable=True,
            description="commits: os.write of 2 KB and one os.fdatasync each, each thread its own file; contents: "
            "a file each, os.fsync of the file and of its folder",
            version=os.uname().release,
        )
        self.measures = frozenset({"commits", "contents"})

    def measure(self, order: Order) -> Answer:
        """Do what the order says."""
        folder = Path(order.folder)
        folder.mkdir()
        return _commits(folder, order) if order.measure == "commits" else _contents(folder, order)

    def close(self) -> None:
        """Do nothing."""


def _commits(folder: Path, order: Order) -> Answer:
    data = uuid.uuid4().bytes * (_COMMIT_BYTES // 16)
    end = time.perf_counter() + order.seconds

    def work(number: int) -> None:
        descriptor = os.open(folder / f"{number}.raw", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o640)
        try:
            while time.perf_counter() < end:
                for _ in range(3):
                    os.write(descriptor, data)
                    os.fdatasync(descriptor)
        finally:
            os.close(descriptor)

    taken = seconds(order.threads, work)
    commits = sum(path.stat().st_size for path in folder.iterdir()) // _COMMIT_BYTES
    return Answer(seconds=taken, commits=commits, waiting=commits // 3)


def _contents(folder: Path, order: Order) -> Answer:
    piece = uuid.uuid4().bytes * (PIECE_BYTES // 16)
    homes = [folder / str(number) for number in range(order.folders)]
    for home in homes:
        home.mkdir()
    lengths = [0] * order.threads

    def path(number: int, content: int) -> Path:
        return homes[(number + content) % len(homes)] / f"{number}-{content}"

    def write(number: int) -> None:
        for content in range(order.contents):
            target = path(number, content)
            with target.open("xb", buffering=0) as file:
                for _ in range(order.bytes // PIECE_BYTES):
                    file.write(piece)
                os.fsync(file.fileno())
            descriptor = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def read(number: int) -> None:
        for content in range(order.contents):
            with path(number, content).open("rb", buffering=0) as file:
                while chunk := file.read(PIECE_BYTES):
                    lengths[number] += len(chunk)

    writing = seconds(order.threads, write)
    reading = seconds(order.threads, read)
    return Answer(seconds=writing, bytes=sum(lengths), read_seconds=reading)
