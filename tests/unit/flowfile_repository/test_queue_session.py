"""The session over queues: what each method does to queues, contents and events, and what a refusal leaves behind."""

from __future__ import annotations

import hashlib
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import pytest

from custody.clock import ManualClock
from custody.config import load_settings
from custody.errors import (
    BackpressureError,
    ClosedError,
    ConfigurationError,
    InvalidInputError,
    NotFoundError,
    StorageError,
)
from custody.flowfile_repository import Placed, QueueSession, Work
from custody.model import Event
from custody.repository import Component, FlowFile, Repository
from custody.repository.flow import Flow
from custody.vfs import PosixFileSystem
from tests.unit.flowfile_repository.queue_fixtures import NOW

WORK = Component(id="dag.work", type="Work")


class Place:
    """A repository with its queues `in`, `out` and `more`, and a clock that the test moves."""

    def __init__(self, root: Path) -> None:
        Repository.create(root)
        self.clock = ManualClock(NOW)
        self.repository = Repository(load_settings(root), PosixFileSystem(), self.clock)
        self.flow: Flow

    def session(self) -> QueueSession:
        return self.flow.session(WORK)

    def put(self, *names: str, queue: str = "in", content: bytes = b"") -> list[FlowFile]:
        """Let new FlowFiles wait in a queue."""
        with self.session() as session:
            flowfiles = [session.create({"filename": name}) for name in names]
            for one in flowfiles:
                session.receive(one, f"test:{one.attributes['filename']}")
                if content:
                    session.write_bytes(one, content)
                session.transfer(one, queue)
        return flowfiles

    def names(self, queue: str) -> list[str]:
        return [item.flowfile.attributes["filename"] for item in self.flow.queues.waiting(queue)]

    def told(self, skipped: int = 0) -> list[tuple[str, str | None]]:
        """The type and the details of each event, in their order."""
        events = sorted((one.event for one in self.repository.search("", limit=100).events), key=_by_id)
        return [(one.event_type, one.details) for one in events[skipped:]]

    def kinds(self, skipped: int = 0) -> list[str]:
        return [kind for kind, _ in self.told(skipped)]


def _by_id(event: Event) -> int:
    return event.event_id


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path / "repository")
    with made.repository.flowfiles() as made.flow:
        for name in ("in", "out", "more"):
            made.flow.connect(name)
        yield made


def _got(session: QueueSession, queue: str = "in") -> FlowFile:
    flowfile = session.get(queue)
    assert flowfile is not None
    return flowfile


def test_a_commit_makes_queues_contents_and_events_agree(place: Place) -> None:
    [sent] = place.put("a", content=b"first")
    with place.session() as session:
        taken = _got(session)
        assert taken.uuid == sent.uuid
        assert session.read_bytes(taken) == b"first"
        taken = session.put_attribute(taken, "colour", "red")
        taken = session.write_bytes(taken, b"second", details="made better")
        session.transfer(taken, "out")
        assert place.flow.queues.size("in").taken == 1
    assert (place.names("in"), place.names("out")) == ([], ["a"])
    with place.session() as session:
        again = _got(session, "out")
        assert again.attributes["colour"] == "red"
        assert again.attributes["content.sha256"] == hashlib.sha256(b"second").hexdigest()
        assert session.read(again).read() == b"second"
        session.remove(again, "done")
    assert place.told() == [("RECEIVE", None), ("CONTENT_MODIFIED", "made better"), ("DROP", "Discard reason: done")]


def test_work_that_no_event_tells_of_is_committed_too(place: Place) -> None:
    place.put("a")
    with place.session() as session:
        session.transfer(_got(session), "out")
    assert place.names("out") == ["a"]
    assert place.kinds() == ["RECEIVE"]


def test_an_idle_flowfile_is_refused_and_the_session_goes_on(place: Place) -> None:
    place.put("a", "b")
    session = place.session()
    first, second = session.get_many("in", 5)
    session.transfer(first, "out")
    with pytest.raises(InvalidInputError, match=f"1 FlowFiles .* go nowhere, among them {second.uuid}"):
        session.commit()
    session.transfer(second, "more")
    session.commit()
    assert (place.names("in"), place.names("out"), place.names("more")) == ([], ["a"], ["b"])
    with pytest.raises(ClosedError):
        session.commit()


def test_an_idle_flowfile_at_the_end_of_a_block_rolls_it_back(place: Place) -> None:
    place.put("a")
    with pytest.raises(InvalidInputError, match="go nowhere"), place.session() as session:
        session.get("in")
    assert place.names("in") == ["a"]


def test_a_rollback_gives_everything_back_as_it_was(place: Place) -> None:
    place.put("a", "b", content=b"old")
    with pytest.raises(RuntimeError), place.session() as session:
        first, second = session.get_many("in", 2)
        session.write_bytes(first, b"new")
        session.put_attribute(first, "x", "y")
        session.transfer(first, "out")
        session.remove(second)
        session.transfer(session.create(), "out")
        raise RuntimeError
    assert (place.names("in"), place.names("out")) == (["a", "b"], [])
    with place.session() as session:
        for one in session.get_many("in", 2):
            assert (session.read_bytes(one), "x" in one.attributes) == (b"old", False)
            session.put_back(one)
    assert place.kinds() == ["RECEIVE"] * 2


def test_what_was_sent_by_force_stays_told_after_a_rollback(place: Place) -> None:
    place.put("a")
    session = place.session()
    session.send(_got(session), "test:far")
    session.rollback(penalty_ms=50)
    assert place.kinds() == ["RECEIVE", "SEND"]
    with place.session() as session:
        assert session.get("in") is None
    place.clock.advance(50)
    with place.session() as session:
        session.remove(_got(session))


def test_put_back_leaves_a_flowfile_where_it_was(place: Place) -> None:
    place.put("a", "b", "c")
    with place.session() as session:
        first, second = session.get_many("in", 2)
        session.put_back(first)
        session.transfer(second, "out")
    assert place.names("in") == ["a", "c"]


def test_put_back_with_a_penalty_waits(place: Place) -> None:
    place.put("a", "b", "c")
    with place.session() as session:
        first, second = session.get_many("in", 2)
        session.penalise(first, 100)
        session.put_back(first)
        session.put_back(second)
    assert place.flow.queues.size("in").penalised == 1
    with place.session() as session:
        taken = session.get_many("in", 5)
        assert [one.attributes["filename"] for one in taken] == ["b", "c"]
        session.rollback()
    place.clock.advance(100)
    with place.session() as session:
        assert _got(session).attributes["filename"] == "a"
        session.rollback()


def test_what_was_changed_or_made_here_cannot_be_put_back(place: Place) -> None:
    place.put("a")
    session = place.session()
    taken = _got(session)
    session.put_attribute(taken, "x", "y")
    for one in (taken, session.create()):
        with pytest.raises(InvalidInputError, match="expected one that was taken and not changed"):
            session.put_back(one)
    session.rollback()


def test_a_penalised_flowfile_waits_in_the_queue_that_it_enters(place: Place) -> None:
    place.put("a")
    with place.session() as session:
        taken = _got(session)
        session.penalise(taken, 100)
        session.transfer(taken, "out")
    with place.session() as session:
        assert session.get("out") is None
    place.clock.advance(100)
    with place.session() as session:
        session.remove(_got(session, "out"))


def test_a_component_that_yields_gets_nothing_for_a_while_and_others_do(place: Place) -> None:
    place.put("a")
    with place.session() as session:
        session.yield_component(100)
        assert session.get("in") is None
        other = place.flow.session(Component(id="dag.other", type="Work"))
        assert other.get("in") is not None
        other.rollback()
    place.clock.advance(100)
    with place.session() as session:
        session.put_back(_got(session))


def test_a_choice_passes_over_others_and_they_keep_their_places(place: Place) -> None:
    place.put("a", "b", "c")
    with place.session() as session:
        chosen = session.get("in", lambda one: one.attributes["filename"] == "b")
        assert chosen is not None
        session.transfer(chosen, "out")
    assert (place.names("in"), place.names("out")) == (["a", "c"], ["b"])


def test_a_choice_that_raises_takes_nothing(place: Place) -> None:
    place.put("a")
    with pytest.raises(ZeroDivisionError), place.session() as session:
        session.get("in", lambda _: bool(1 / 0))
    assert place.names("in") == ["a"]


def test_expired_flowfiles_end_with_an_expire_that_a_rollback_does_not_undo(place: Place) -> None:
    place.flow.connect("in", expiration_ms=1000)
    [old] = place.put("old")
    place.clock.advance(1000)
    place.put("new")
    with place.session() as session:
        assert [one.attributes["filename"] for one in session.get_many("in", 1)] == ["old"], "as old as is allowed"
        session.rollback()
    place.clock.advance(1)
    session = place.session()
    assert [one.attributes["filename"] for one in session.get_many("in", 5)] == ["new"]
    session.rollback()
    assert place.names("in") == ["new"]
    [expired] = place.repository.search("event_type:EXPIRE").events
    event = expired.event
    assert (event.flowfile_uuid, event.component_id) == (old.uuid, WORK.id)
    assert event.details == "Expiration Threshold = 1000 ms"
    assert event.source_queue_identifier == "in"


def test_a_get_of_a_session_that_has_ended_takes_nothing(place: Place) -> None:
    place.put("a")
    session = place.session()
    session.rollback()
    with pytest.raises(ClosedError):
        session.get("in")
    assert place.flow.queues.size("in").taken == 0
    assert place.names("in") == ["a"]


def test_several_queues_get_clones_and_a_relationship_a_route(place: Place) -> None:
    place.put("a", content=b"shared")
    with place.session() as session:
        session.transfer(_got(session), "out", "more", relationship="matched")
    assert sorted(place.kinds(1)) == ["CLONE", "ROUTE", "ROUTE"]
    contents = []
    with place.session() as session:
        for queue in ("out", "more"):
            one = _got(session, queue)
            contents.append((session.read_bytes(one), one.content_claim))
            session.terminate(one, "success")
    assert contents[0] == contents[1] == (b"shared", contents[0][1])


@pytest.mark.parametrize("change", ["transfer", "remove", "put_back"])
def test_the_last_word_on_a_flowfile_counts_and_leaves_no_clone_of_an_earlier_transfer(
    place: Place, change: str
) -> None:
    place.put("a", content=b"shared")
    with place.session() as session:
        taken = _got(session)
        session.transfer(taken, "out", "more", "in", relationship="matched")
        if change == "transfer":
            session.transfer(taken, "more", relationship="unmatched")
        else:
            getattr(session, change)(taken)
    where = {"transfer": "more", "remove": None, "put_back": "in"}[change]
    assert {queue: place.names(queue) for queue in ("in", "out", "more")} == {
        queue: ["a"] if queue == where else [] for queue in ("in", "out", "more")
    }
    assert place.kinds(1) == {"transfer": ["ROUTE"], "remove": ["DROP"], "put_back": []}[change]
    if change == "transfer":
        [route] = [one.event for one in place.repository.search("event_type:ROUTE").events]
        assert route.relationship == "unmatched"


def test_a_refused_second_transfer_leaves_the_first_one(place: Place) -> None:
    place.put("a")
    with place.session() as session:
        taken = _got(session)
        session.transfer(taken, "out", "more")
        with pytest.raises(NotFoundError):
            session.transfer(taken, "far")
    assert (place.names("out"), place.names("more")) == (["a"], ["a"])


def test_a_merge_that_fails_midway_makes_nothing(place: Place) -> None:
    place.put("a", "b", content=b"some")
    with place.session() as session:
        one, other = _got(session), _got(session)
        gone = session.create({"filename": "c"}, size=4)  # of these bytes nobody knows where they lie
        with pytest.raises(NotFoundError, match="no claim"):
            session.merge([one, other, gone])
        with pytest.raises(InvalidInputError, match="expected a part"):
            session.split(one, [(0, 2), (2, 3)])
        session.remove(gone)
        merged = session.merge([one, other], {"filename": "merged"}, delimiter=b" and ")
        assert session.read_bytes(merged) == b"some and some"
        for flowfile in (one, other, merged):
            session.transfer(flowfile, "out")
    assert sorted(place.names("out")) == ["a", "b", "merged"]
    assert place.kinds(2) == ["JOIN"]


def test_a_transfer_to_nowhere_is_refused(place: Place) -> None:
    session = place.session()
    one = session.create()
    with pytest.raises(InvalidInputError, match="expected a queue"):
        session.transfer(one)
    with pytest.raises(NotFoundError, match=r"no queue 'far'.*there are: in, out, more"):
        session.transfer(one, "far")
    session.rollback()


def test_every_way_to_report_is_told(place: Place) -> None:
    with place.session() as session:
        one = session.create()
        session.fetch(one, "test:where", details="all of it")
        session.associate(one, "order", "4711")
        session.send(one, "test:far", force=False)
        session.write_bytes(one, b"x")
        session.modify(one, "again")
        session.put_attributes(one, {"a": "1", "filename": None})
        child = session.fork(one, {"part": "1"})
        session.transfer(child, "out")
        session.terminate(one, "original")
    assert sorted(place.kinds()) == ["ADDINFO", "CONTENT_MODIFIED", "DROP", "FETCH", "FORK", "SEND"]


def test_an_append_keeps_what_was_there(place: Place) -> None:
    place.put("a", content=b"begin ")
    with place.session() as session:
        one = _got(session)
        with session.append(one) as output:
            output.write(b"end")
        assert session.read_bytes(one) == b"begin end"
        session.transfer(one, "out")


def test_a_transform_reads_the_old_content_while_it_writes_the_new_one(place: Place) -> None:
    place.put("a", content=b"line\n" * 1000)
    with place.session() as session:
        one = _got(session)
        with session.write(one) as output:
            for line in session.read(one):
                output.write(line.upper())
        assert session.read_bytes(one) == b"LINE\n" * 1000
        session.transfer(one, "out")


@pytest.mark.parametrize("write", ["write", "append"])
def test_a_write_that_raises_changes_nothing(place: Place, write: str) -> None:
    place.put("a", content=b"old")
    with place.session() as session:
        one = _got(session)
        with pytest.raises(RuntimeError), getattr(session, write)(one) as output:
            output.write(b"half")
            raise RuntimeError
        assert session.current(one) == one
        assert session.read_bytes(one) == b"old"
        session.transfer(one, "out")
    assert place.kinds(1) == []


def test_a_split_shares_the_bytes_and_a_merge_joins_them(place: Place) -> None:
    place.put("a", content=b"onetwothree")
    with place.session() as session:
        whole = _got(session)
        parts = session.split(whole, [(0, 3), (3, 3), (6, 5)])
        assert [session.read_bytes(part) for part in parts] == [b"one", b"two", b"three"]
        assert len({part.content_claim.identifier for part in parts if part.content_claim}) == 1
        merged = session.merge(parts, {"kind": "all"}, header=b"<", delimiter=b",", footer=b">")
        assert session.read_bytes(merged) == b"<one,two,three>"
        session.transfer(merged, "out")
        for one in (whole, *parts):
            session.terminate(one, "merged")
    assert {"FORK", "JOIN"} <= set(place.kinds(1))


def test_a_part_that_does_not_lie_in_its_parent_is_refused(place: Place) -> None:
    place.put("a", content=b"abc")
    with place.session() as session:
        whole = _got(session)
        with pytest.raises(InvalidInputError, match="expected a part of its 3 bytes"):
            session.split(whole, [(2, 2)])
        session.put_back(whole)


def test_a_content_that_is_gone_is_named(place: Place) -> None:
    place.put("a", content=b"abc")
    for path in place.repository.settings.root.rglob("content/*/*/*"):
        path.unlink()
    with place.session() as session:
        one = _got(session)
        with pytest.raises(NotFoundError):
            session.read_bytes(one)
        session.put_back(one)
    assert place.names("in") == ["a"]


def test_contents_stream_through_in_bounded_memory(place: Place) -> None:
    piece, count = bytes(1 << 20), 48
    with place.session() as session:
        one = session.create()
        tracemalloc.start()
        try:
            with session.write(one) as output:
                for _ in range(count):
                    output.write(piece)
            with session.append(one) as output:
                output.write(piece)
            with session.write(one) as output:
                source = session.read(one)
                while data := source.read(1 << 16):
                    output.write(data)
            [half, _] = session.split(one, [(0, 20 << 20), (20 << 20, 20 << 20)])
            merged = session.merge([half, one])
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert session.current(merged).size == (20 + count + 1) << 20
        assert peak < 12 << 20
        session.rollback()


def test_a_full_queue_refuses_and_the_session_can_be_committed_later(place: Place) -> None:
    place.flow.connect("out", count_max=1)
    place.put("a", "b")
    place.put("c", queue="out")
    session = place.session()
    for one in session.get_many("in", 2):
        session.transfer(one, "out")
    with pytest.raises(BackpressureError, match=r"full: the queue 'out' \(1 FlowFiles"):
        session.commit()
    assert place.names("out") == ["c"]
    with place.session() as other:
        other.remove(_got(other, "out"))
    session.commit()
    assert place.names("out") == ["a", "b"], "a commit may go beyond the bound, the next one may not"


def test_a_flowfile_goes_back_into_its_own_queue_though_that_is_full(place: Place) -> None:
    place.flow.connect("in", count_max=1)
    place.put("a")
    with place.session() as session:
        session.transfer(session.put_attribute(_got(session), "x", "y"), "in")
    assert place.names("in") == ["a"]


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    made = ModuleType("priorities_of_a_flow")
    made.chosen = lambda one: one.attributes["filename"]  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, made.__name__, made)
    return made


@pytest.mark.parametrize("value", ["raises", float("nan"), "\ud800"])
def test_a_priority_that_cannot_be_computed_refuses_its_commit_and_loses_nothing(
    place: Place, module: ModuleType, value: object
) -> None:
    def bad(_: FlowFile) -> object:
        if value == "raises":
            raise ZeroDivisionError
        return value

    place.flow.connect("out", prioritizers=("priorities_of_a_flow:chosen",))
    place.put("b", "a")
    session = place.session()
    for one in session.get_many("in", 2):
        session.transfer(one, "out")
    good = module.chosen
    place.flow.queues._prioritizers["priorities_of_a_flow:chosen"] = bad
    with pytest.raises(InvalidInputError, match=r"Nothing was changed|expected the prioritizer"):
        session.commit()
    assert (place.flow.queues.size("in").taken, place.names("out")) == (2, [])
    place.flow.queues._prioritizers["priorities_of_a_flow:chosen"] = good
    session.commit()
    assert place.names("out") == ["a", "b"]


def test_a_priority_function_that_is_missing_is_named_and_loses_nothing(place: Place, module: ModuleType) -> None:
    with pytest.raises(ConfigurationError, match="no_such_module"):
        place.flow.connect("out", prioritizers=("no_such_module:f",))
    place.flow.connect("out", prioritizers=("priorities_of_a_flow:chosen",))
    del module.chosen
    place.put("a")
    with pytest.raises(ConfigurationError, match="no attribute 'chosen'"), place.session() as session:
        session.transfer(_got(session), "out")
    assert place.names("in") == ["a"]


def test_two_threads_share_a_queue_and_each_flowfile_is_worked_on_once(place: Place) -> None:
    place.put(*(f"{number:03}" for number in range(60)))

    def work(_: int) -> list[str]:
        names: list[str] = []
        while True:
            with place.session() as session:
                one = session.get("in")
                if one is None:
                    return names
                names.append(session.write_bytes(one, one.uuid.encode()).attributes["filename"])
                session.transfer(one, "out")

    with ThreadPoolExecutor(2) as pool:
        done = [name for names in pool.map(work, range(2)) for name in names]
    assert sorted(done) == [f"{number:03}" for number in range(60)]
    with place.session() as session:
        for one in session.get_many("out", 100):
            assert session.read_bytes(one) == one.uuid.encode()
            session.remove(one)


@pytest.mark.parametrize(
    "use",
    [
        lambda session, one: session.current(one),
        lambda session, one: session.transfer(one, "out"),
        lambda session, one: session.put_back(one),
        lambda session, one: session.penalise(one),
        lambda session, one: session.remove(one),
        lambda session, one: session.read_bytes(one),
        lambda session, one: session.write_bytes(one, b""),
    ],
)
def test_a_flowfile_of_another_session_is_refused(
    place: Place, use: Callable[[QueueSession, FlowFile], object]
) -> None:
    [other] = place.put("a")
    session = place.session()
    with pytest.raises(NotFoundError, match="does not know it"):
        use(session, other)
    session.rollback()


def test_a_rollback_that_the_disk_refused_can_be_repeated(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.put("a")
    session = place.session()
    session.get("in")

    def refuse(*_: object, **__: object) -> None:
        raise StorageError("the disk is full")

    with monkeypatch.context() as patch, pytest.raises(StorageError):
        patch.setattr(place.flow.queues, "give_back", refuse)
        session.rollback()
    assert place.flow.queues.size("in").taken == 1
    session.rollback()
    assert place.names("in") == ["a"]


def test_expired_flowfiles_that_cannot_be_ended_go_back_with_all_others(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.flow.connect("in", expiration_ms=1000)
    place.put("old")
    place.clock.advance(1001)
    place.put("new")

    def refuse(*_: object) -> None:
        raise BackpressureError("the journal is full")

    session = place.session()
    with monkeypatch.context() as patch, pytest.raises(BackpressureError):
        patch.setattr(place.flow.queues, "commit", refuse)
        session.get_many("in", 5)
    assert place.names("in") == ["old", "new"]
    assert [one.attributes["filename"] for one in session.get_many("in", 5)] == ["new"]
    session.rollback()
    assert place.kinds()[-1] == "EXPIRE"


def test_a_flowfile_that_goes_two_ways_in_one_commit_is_refused(place: Place) -> None:
    queues = place.flow.queues
    place.put("a")
    [item] = queues.take("in", "s").items
    with pytest.raises(InvalidInputError, match="to go one way"):
        queues.commit(Work("s", [Placed(item.flowfile, "out")], [item.uuid]))
    with pytest.raises(NotFoundError, match="this session has not taken it"):
        queues.commit(Work("other", [Placed(item.flowfile, "out")]))
    queues.commit(Work("s", [Placed(item.flowfile, "out")]))
    assert place.names("out") == ["a"]


def test_a_queue_that_is_not_empty_is_not_removed(place: Place) -> None:
    place.put("a")
    with pytest.raises(InvalidInputError, match="expected an empty one, got 1 FlowFiles"):
        place.flow.queues.disconnect("in")
    with place.session() as session:
        session.transfer(_got(session), "out")
    place.flow.queues.disconnect("in")
    with pytest.raises(NotFoundError, match="no queue 'in'"):
        place.session().get("in")
    with pytest.raises(NotFoundError, match="no queue 'in'"):
        place.flow.queues.disconnect("in")
