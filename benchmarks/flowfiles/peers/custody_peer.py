"""custody: the FlowFile repository with contents and provenance, as a flow uses them."""

from __future__ import annotations

import time
import uuid
from pathlib import Path

from benchmarks.append.peers.base import About
from benchmarks.flowfiles.measures import PIECE_BYTES, SWAP_FILE_FLOWFILES, Answer, Order
from benchmarks.flowfiles.peers.threads import seconds
from custody.clock import SystemClock
from custody.config import ContentStore
from custody.flow import Component, FlowFile
from custody.flow.content import ContentOptions, ContentWriter, find_content
from custody.flowfile_repository import Connection, FlowFileOptions, FlowFileRepository, Placed, Waiting, Work
from custody.flowfile_repository.swap import read_swap_block, write_swap
from custody.model import ContentClaim
from custody.repository import Repository
from custody.repository.flow import Flow
from custody.vfs import PosixFileSystem

_COMPONENT = Component(id="benchmark", type="Benchmark")
_NO_CHECKPOINT_SECONDS = 86_400.0
"""A checkpoint is made when it is asked for: otherwise some runs would have one and others none."""


class CustodyPeer:
    """Commits through sessions; the long queue through the FlowFile repository, as events are not its matter."""

    def __init__(self) -> None:
        self.about = About(
            key="custody",
            label="custody",
            durable=True,
            description="sessions of Repository.flowfiles(): content, FlowFile log and journal synced; checksums of "
            "contents when they are written and read",
            version="this tree",
        )
        self.measures = frozenset({"commits", "contents", "swap", "fill", "open", "drain"})

    def measure(self, order: Order) -> Answer:
        """Do what the order says."""
        folder = Path(order.folder)
        work = {
            "commits": _commits,
            "contents": _contents,
            "swap": _swap,
            "fill": _fill,
            "open": _open,
            "drain": _drain,
        }
        return work[order.measure](folder, order)

    def close(self) -> None:
        """Do nothing."""


def _commits(folder: Path, order: Order) -> Answer:
    done = [0] * order.threads
    content = bytes(order.bytes)
    with Repository.create(folder).flowfiles() as flow:
        for number in range(order.threads):
            for name in "abc":
                flow.connect(f"{name}{number}", count_max=0)
        end = time.perf_counter() + order.seconds

        def work(number: int) -> None:
            while time.perf_counter() < end:
                with flow.session(_COMPONENT) as session:
                    received = session.write_bytes(session.create(order.attributes), content)
                    session.receive(received, "http://localhost/benchmark")
                    session.transfer(received, f"a{number}")
                with flow.session(_COMPONENT) as session:
                    checked = session.put_attribute(_first(session.get(f"a{number}")), "checked", "yes")
                    session.transfer(checked, f"b{number}")
                with flow.session(_COMPONENT) as session:
                    session.transfer(_first(session.get(f"b{number}")), f"c{number}", relationship="success")
                done[number] += 3

        taken = seconds(order.threads, work)
        return Answer(seconds=taken, commits=sum(done), waiting=_waiting(flow, order.threads))


def _first(flowfile: FlowFile | None) -> FlowFile:
    if flowfile is None:
        raise AssertionError("a queue is empty: a FlowFile is lost")
    return flowfile


def _waiting(flow: Flow, threads: int) -> int:
    return sum(flow.queues.size(f"c{number}").count for number in range(threads))


def _contents(folder: Path, order: Order) -> Answer:
    fs = PosixFileSystem()
    options = ContentOptions(containers=tuple(str(number + 1) for number in range(order.folders)))
    writer = ContentWriter(fs, ContentStore(folder), "main", SystemClock(), options)
    # Content that is no zeros: some disks write those for nothing.
    piece = uuid.uuid4().bytes * (PIECE_BYTES // 16)
    claims: list[list[ContentClaim]] = [[] for _ in range(order.threads)]
    lengths = [0] * order.threads

    def write(number: int) -> None:
        for _ in range(order.contents):
            stored = writer.put_stream(piece for _ in range(order.bytes // PIECE_BYTES))
            claims[number].append(stored.claim)

    def read(number: int) -> None:
        for claim in claims[number]:
            lengths[number] += sum(map(len, find_content(fs, ContentStore(folder), claim).chunks()))

    writing = seconds(order.threads, write)
    reading = seconds(order.threads, read)
    writer.close()
    return Answer(seconds=writing, bytes=sum(lengths), read_seconds=reading)


def _new(order: Order) -> FlowFile:
    now_ms, name = int(time.time() * 1000), str(uuid.uuid4())
    attributes = {**order.attributes, "uuid": name, "filename": name, "path": "./"}
    return FlowFile(uuid=name, attributes=attributes, entry_date=now_ms, lineage_start_date=now_ms)


def _swap(folder: Path, order: Order) -> Answer:
    fs = PosixFileSystem()
    fs.make_directory(folder)
    items = [Waiting(_new(order), "q", number, 0) for number in range(SWAP_FILE_FLOWFILES)]
    begun = time.perf_counter()
    swaps = [write_swap(fs, folder, "benchmark", "q", items, 0) for _ in range(order.files)]
    written = time.perf_counter()
    count = sum(len(read_swap_block(fs, folder, swap, number)) for swap in swaps for number in range(len(swap.blocks)))
    return Answer(seconds=written - begun, in_seconds=time.perf_counter() - written, flowfiles=count)


def _flowfiles(folder: Path) -> FlowFileRepository:
    options = FlowFileOptions(checkpoint_seconds=_NO_CHECKPOINT_SECONDS)
    return FlowFileRepository(PosixFileSystem(), folder, SystemClock(), None, options)


def _fill(folder: Path, order: Order) -> Answer:
    with _flowfiles(folder) as flowfiles:
        flowfiles.connect(Connection(name="q", count_max=0, bytes_max=0))
        begun = time.perf_counter()
        for _ in range(order.flowfiles // order.batch):
            placed = [Placed(_new(order), "q") for _ in range(order.batch)]
            flowfiles.commit(Work("filling", placed))
        return Answer(seconds=time.perf_counter() - begun)


def _open(folder: Path, order: Order) -> Answer:
    begun = time.perf_counter()
    with _flowfiles(folder) as flowfiles:
        waiting = flowfiles.size("q").count
        taken = time.perf_counter() - begun
        if order.checkpoint:
            flowfiles.checkpoint()
    return Answer(seconds=taken, waiting=waiting)


def _drain(folder: Path, order: Order) -> Answer:
    with _flowfiles(folder) as flowfiles:
        begun = time.perf_counter()
        done = 0
        while done < order.flowfiles:
            items = flowfiles.take("q", "draining", count=order.batch).items
            if not items:
                raise AssertionError(f"the queue is empty after {done} FlowFiles")
            flowfiles.commit(Work("draining", leaves=[item.uuid for item in items]))
            done += len(items)
        return Answer(seconds=time.perf_counter() - begun, flowfiles=done)
