"""Any sequence of commits, takes, returns, snapshots, deaths and a second member agrees with a dictionary."""

from __future__ import annotations

from itertools import count

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from custody.flow import FlowFile
from custody.flowfile_repository import Connection, FlowFileRepository, Placed, Work
from tests.support import event
from tests.unit.flowfile_repository.queue_fixtures import NOW, Machine, flowfile

QUEUES = ("fifo", "ranked")
MEMBERS = st.sampled_from([0, 1])
THRESHOLD = 6


class Life(RuleBasedStateMachine):
    """Two members of one repository, and what should be in it."""

    @initialize()
    def begin(self) -> None:
        self.machine = Machine(threshold=THRESHOLD)
        self.members = [self.machine.open(), self.machine.open()]
        self.members[0].connect(Connection(name="fifo"))
        self.members[1].connect(Connection(name="ranked", prioritizers=("attribute:p",)))
        self.numbers, self.arrivals = count(), count()
        # By uuid: queue, order in it, the FlowFile, the end of its penalty.
        self.waiting: dict[str, tuple[str, tuple[int, int], FlowFile, int]] = {}
        self.taken: dict[str, int] = {}
        self.events = 0

    def _order(self, queue: str, one: FlowFile) -> tuple[int, int]:
        return (int(one.attributes["p"]) if queue == "ranked" else 0, next(self.arrivals))

    def _commit(self, member: int, placed: list[Placed], leaves: list[str]) -> None:
        self.events += 1
        self.members[member].commit(Work("s", placed, leaves, events=[event(self.events)]))
        for one in placed:
            self.taken.pop(one.flowfile.uuid, None)
            order = self._order(one.queue, one.flowfile)
            self.waiting[one.flowfile.uuid] = one.queue, order, one.flowfile, one.penalised_until_ms
        for uuid in leaves:
            del self.taken[uuid], self.waiting[uuid]

    def _mine(self, member: int) -> list[str]:
        return [uuid for uuid, holder in self.taken.items() if holder == member]

    @rule(member=MEMBERS, queue=st.sampled_from(QUEUES), ranks=st.lists(st.integers(0, 9), min_size=1, max_size=9))
    def put(self, member: int, queue: str, ranks: list[int]) -> None:
        made = [flowfile(f"f{next(self.numbers)}", p=str(rank), size=rank) for rank in ranks]
        self._commit(member, [Placed(one, queue) for one in made], [])

    @rule(member=MEMBERS, queue=st.sampled_from(QUEUES), most=st.integers(1, 12))
    def take(self, member: int, queue: str, most: int) -> None:
        now_ms = self.machine.clock.now_ms()
        could = sorted(
            (order, uuid)
            for uuid, (where, order, _, until) in self.waiting.items()
            if where == queue and uuid not in self.taken and until <= now_ms
        )
        got = self.members[member].take(queue, "s", count=most).items
        assert [item.uuid for item in got] == [uuid for _, uuid in could[:most]]
        assert [item.flowfile for item in got] == [self.waiting[item.uuid][2] for item in got]
        self.taken |= dict.fromkeys((item.uuid for item in got), member)

    @rule(member=MEMBERS, data=st.data(), queue=st.sampled_from(QUEUES), penalty=st.sampled_from([0, 0, 100]))
    def work(self, member: int, data: st.DataObject, queue: str, penalty: int) -> None:
        moved: list[Placed] = []
        gone: list[str] = []
        for uuid in self._mine(member):
            way = data.draw(st.sampled_from(["move", "change", "leave", "keep"]))
            one = self.waiting[uuid][2]
            if way == "change":
                one = flowfile(uuid, p=str(len(moved)), size=3, seen=queue)
            if way in ("move", "change"):
                moved.append(Placed(one, queue, self.machine.clock.now_ms() + penalty if penalty else 0))
            elif way == "leave":
                gone.append(uuid)
        self._commit(member, moved, gone)

    @rule(member=MEMBERS, penalty=st.sampled_from([0, 100]))
    def give_back(self, member: int, penalty: int) -> None:
        until = self.machine.clock.now_ms() + penalty if penalty else 0
        mine = self._mine(member)
        self.members[member].give_back("s", mine, penalised_until_ms=until)
        for uuid in mine:
            del self.taken[uuid]
            queue, order, one, _ = self.waiting[uuid]
            self.waiting[uuid] = queue, order, one, until

    @rule(member=MEMBERS)
    def checkpoint(self, member: int) -> None:
        self.members[member].checkpoint()

    @rule(milliseconds=st.sampled_from([1, 50, 100]))
    def pass_time(self, milliseconds: int) -> None:
        self.machine.clock.advance(milliseconds)

    @rule(member=MEMBERS)
    def reopen(self, member: int) -> None:
        """Close one member and open it again: what it had taken goes back."""
        self.members[member].close()
        self.members[member] = self.machine.open()
        self.taken = {uuid: holder for uuid, holder in self.taken.items() if holder != member}

    @rule()
    def die(self) -> None:
        self.machine.die()
        self.members = [self.machine.open(), self.machine.open()]
        self.taken = {}

    @invariant()
    def agrees(self) -> None:
        for one in self.members:
            self._agree(one)
        ordinals = [one.source_ordinal for one in self.machine.journal.events]
        assert sorted(ordinals, key=str) == sorted(range(self.events), key=str), "each event once"

    def _agree(self, one: FlowFileRepository) -> None:
        for queue in QUEUES:
            here = [uuid for uuid, (where, *_) in self.waiting.items() if where == queue]
            size = one.size(queue)
            assert (size.count, size.taken) == (len(here), sum(uuid in self.taken for uuid in here))
            assert size.content_bytes == sum(self.waiting[uuid][2].size for uuid in here)
            assert size.in_memory + size.swapped + size.taken == size.count
            assert {item.uuid for item in one.waiting(queue)} <= set(here) - set(self.taken)

    def teardown(self) -> None:
        if not hasattr(self, "machine"):
            return
        self.machine.die()
        self.machine.clock.advance(10**6)
        with self.machine.open() as last:
            drained = [item.uuid for queue in QUEUES for item in last.take(queue, "s", count=10**6).items]
        assert sorted(drained) == sorted(self.waiting), f"each once, from {NOW} on"


Life.TestCase.settings = settings(max_examples=40, stateful_step_count=30)
TestLife = Life.TestCase
