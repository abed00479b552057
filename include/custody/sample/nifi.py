"""Sample provenance of a simulated NiFi instance, as its Site-to-Site reporter sends it.

Every node runs all flows; their FlowFiles are in flight at once, so events of different lineages interleave.
`sample_events` is the whole instance in time order, `sample_files` what the reporters of the nodes would deliver: JSON
arrays, each from one node. The stream depends on the options alone, a longer stream begins with the shorter one, and
memory is bounded by the FlowFiles in flight, not by the number of events.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from custody.sample.flows import exports, heartbeats, orders, readings, transfers, web_logs
from custody.sample.node import SimNode
from custody.sample.simulation import ROOT, SimFlowFile, SimProcess, Simulation

_ENCODER = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class SampleOptions:
    """Options of a sample: how much is generated, and of which history.

    Raises:
        ValueError: a count is below its least sensible value.
    """

    events: int = 5000
    """Events in all, over all nodes; the stream may end with FlowFiles still in flight."""
    seed: int = 7
    """Another seed is another history of the same flows on other nodes: component ids stay the same."""
    nodes: int = 2
    """Cluster nodes; one node is a standalone instance, whose content URIs name no cluster node."""
    batch_size: int = 1000
    """Most events in one file; the default is the reporter's own."""
    start_time_ms: int = 1_772_409_600_000  # 2026-03-02T00:00:00Z, a Monday
    """Nothing happens before this instant; about twenty events a second and node follow."""
    include_nulls: bool = False
    """Write absent values and removed attributes as JSON null; otherwise leave their keys out."""

    def __post_init__(self) -> None:
        for name, value, least in (
            ("events", self.events, 0),
            ("nodes", self.nodes, 1),
            ("batch_size", self.batch_size, 1),
            ("start_time_ms", self.start_time_ms, 0),
        ):
            if value < least:
                raise ValueError(f"sample {name}: expected at least {least}, got {value}")


def sample_events(options: SampleOptions) -> Iterator[dict[str, object]]:
    """Yield exactly `options.events` events in time order; ordinals are one-up within each node."""
    simulation, nodes = _instance(options)
    for node in nodes:
        for flow in _flows(node):
            simulation.spawn(flow)
    return itertools.islice(simulation.run(), options.events)


def sample_files(options: SampleOptions) -> Iterator[tuple[str, bytes]]:
    """Yield file names and JSON arrays, each of one node and at most `options.batch_size` events.

    A file is yielded when its last event happened; what remains at the end follows in order of the nodes' names.
    """
    pending: dict[str, list[dict[str, object]]] = {}
    for event in sample_events(options):
        batch = pending.setdefault(str(event["actorHostname"]), [])
        batch.append(event)
        if len(batch) == options.batch_size:
            yield _file(batch)
            batch.clear()
    for host in sorted(pending):
        if pending[host]:
            yield _file(pending[host])


def unknown_event(options: SampleOptions) -> dict[str, object]:
    """Return one UNKNOWN event: what NiFi shows a reader who may not know the event's type.

    Attributes and relatives stay hidden and the size is -1. Its ordinal is the one before the first node's first, so it
    may be put in front of `sample_events` of the same options.
    """
    simulation, nodes = _instance(options)
    node = nodes[0]
    # The ordinal before the first one, so that no event of the sample has it.
    node.next_ordinal -= 1
    hidden = SimFlowFile(node.new_uuid(), simulation.now_ms, size=-1, previous_size=None)
    node.emit("UNKNOWN", ROOT, hidden)
    return simulation.outbox[0]


def _instance(options: SampleOptions) -> tuple[Simulation, list[SimNode]]:
    simulation = Simulation(options.seed, options.start_time_ms)
    return simulation, [
        SimNode(
            simulation,
            index,
            instance=_instance_name(options),
            is_clustered=options.nodes > 1,
            include_nulls=options.include_nulls,
        )
        for index in range(options.nodes)
    ]


def _instance_name(options: SampleOptions) -> str:
    """Return what tells the nodes of one history from those of another; nothing for the usual seed and cluster.

    A node's name and an ordinal are the identity of an event: two histories on one node would contradict each other.
    """
    usual = SampleOptions()
    cluster = "" if options.nodes == usual.nodes else f"-of{options.nodes}"
    return cluster + ("" if options.seed == usual.seed else f"-seed{options.seed}")


def _flows(node: SimNode) -> tuple[SimProcess, ...]:
    return (
        orders(node),
        web_logs(node),
        readings(node),
        heartbeats(node),
        transfers(node),
        exports(node),
    )


def _file(batch: list[dict[str, object]]) -> tuple[str, bytes]:
    node = str(batch[0]["actorHostname"]).partition(".")[0]
    # Zero-padded, so that a listing sorts by age.
    name = f"provenance-{node}-{batch[0]['eventOrdinal']:010d}.json"
    return name, _ENCODER.encode(batch)
