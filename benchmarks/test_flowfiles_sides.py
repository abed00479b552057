"""The sides of the FlowFile benchmark that are written in Python do what they are measured for, and lose nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.flowfiles.measures import Order, Peer, Plan, in_folder, queue_steps, short_steps
from benchmarks.flowfiles.peers.custody_peer import CustodyPeer
from benchmarks.flowfiles.peers.plain_peer import PlainPeer
from benchmarks.flowfiles.peers.sqlite_peer import SqlitePeer

PLAN = Plan(
    seconds=0.1,
    rounds=1,
    threads=(1, 4),
    folders=(1, 2),
    contents=1,
    large_bytes=2 << 20,
    swap_files=1,
    flowfiles=3000,
    drained=2000,
    is_settled=False,
)


@pytest.mark.parametrize("peer", [CustodyPeer(), SqlitePeer(), PlainPeer()], ids=lambda peer: peer.about.key)
def test_a_side_has_all_that_it_acknowledged(tmp_path: Path, peer: Peer) -> None:
    steps = [(step, tmp_path / str(number)) for number, step in enumerate(short_steps(PLAN))]
    steps += [(step, tmp_path / "queue") for step in queue_steps(PLAN)]
    measured = set()
    for step, folder in steps:
        if step.measure in peer.measures:
            answer = peer.measure(in_folder(step.order, folder))
            assert step.check(answer), (step.label, answer)
            assert all(figure.of(answer) > 0 for figure in step.figures)
            measured.add(step.measure)
    assert measured == peer.measures


@pytest.mark.parametrize("peer", [CustodyPeer(), SqlitePeer()], ids=lambda peer: peer.about.key)
def test_a_queue_that_is_empty_too_early_is_a_loss(tmp_path: Path, peer: Peer) -> None:
    order = Order(measure="fill", folder=str(tmp_path / "queue"), flowfiles=1000)
    peer.measure(order)
    with pytest.raises(AssertionError, match="empty after 1000 FlowFiles"):
        peer.measure(Order(measure="drain", folder=order.folder, flowfiles=2000))
