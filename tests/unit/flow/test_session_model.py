"""Any session leaves the events that a plain reading of its history gives: a model reads a log of it at the end."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from custody.flow import FlowFile
from tests.unit.flow.session_fixtures import Work, existing

NAMES = ("a", "b")
ACTS = st.one_of(
    st.tuples(st.sampled_from(["take", "create"]), st.just(0), st.just(0)),
    st.tuples(st.sampled_from(["set", "unset"]), st.integers(0, 9), st.integers(0, 3)),
    st.tuples(
        st.sampled_from(
            ["content", "receive", "send", "force", "route", "clone", "fork", "join", "drop", "terminate", "expire"]
        ),
        st.integers(0, 9),
        st.integers(0, 9),
    ),
)
Told = tuple[
    str, str, tuple[str, ...], tuple[str, ...], tuple[tuple[str, str], ...], tuple[tuple[str, str | None], ...]
]


@dataclass
class Piece:
    """A FlowFile of the model."""

    before: dict[str, str] | None
    now: dict[str, str]
    gone: str = ""
    new_content: bool = False
    touched: bool = False

    def shown(self) -> tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str | None], ...]]:
        before = self.before or {}
        names = sorted({*before, *self.now})
        changes = tuple((name, self.now.get(name)) for name in names if before.get(name) != self.now.get(name))
        return tuple(sorted(before.items())), changes


@dataclass
class Model:
    """Writes down what is done; which events that makes is asked at the end."""

    pieces: dict[str, Piece] = field(default_factory=dict)
    log: list[tuple[str, str, tuple[str, ...]]] = field(default_factory=list)
    frozen: list[Told] = field(default_factory=list)
    stored: list[Told] = field(default_factory=list)

    def note(self, what: str, who: str, *others: str) -> None:
        self.log.append((what, who, others))

    def told(self, kind: str, who: str, parents: tuple[str, ...] = (), children: tuple[str, ...] = ()) -> Told:
        return (kind, who, parents, children, *self.pieces[who].shown())

    def forgotten(self, who: str) -> bool:
        return self.pieces[who].before is None and self.pieces[who].gone == "drop"

    def expected(self) -> list[Told]:
        """Forks, joins, reports, what nobody reported, ends."""
        forks: list[Told] = []
        for parent in dict.fromkeys(who for what, who, _ in self.log if what == "fork"):
            children = [child for what, who, (*_, child) in self._with_others() if (what, who) == ("fork", parent)]
            staying = tuple(child for child in children if not self.forgotten(child))
            forks += [self.told("FORK", parent, (parent,), staying)] if staying else []
        joins = [
            self.told("JOIN", child, tuple(parents), (child,))
            for what, child, parents in self.log
            if what == "join" and not self.forgotten(child)
        ]
        reports, known = self._reports(), {*self._mentioned(forks), *self._mentioned(joins)}
        known |= set(self._mentioned(self.stored)) | set(self._mentioned([r for r in reports if r[0] != "DROP"]))
        reports = [r for r in reports if r[0] != "DROP" or not self.forgotten(r[1]) or r[1] in known]
        so_far = [*forks, *joins, *reports]
        return [*so_far, *self._unreported(so_far), *(self.told("DROP", w) for k, w, _ in self.log if k == "terminate")]

    def _with_others(self) -> list[tuple[str, str, tuple[str, ...]]]:
        return [entry for entry in self.log if entry[2]]

    def _reports(self) -> list[Told]:
        found: list[Told] = []
        frozen = iter(self.frozen)
        for what, who, _ in self.log:
            if what in ("send", "clone", "expire"):
                found.append(next(frozen))
            elif what in ("receive", "route", "drop"):
                event = self.told(what.upper(), who)
                found += [] if event in found else [event]
        return found

    def _unreported(self, so_far: list[Told]) -> list[Told]:
        found = []
        for who, piece in self.pieces.items():
            about = [event for event in so_far if who == event[1] or who in event[3]]
            births = [e for e in about if e[0] == "RECEIVE" or (e[0] in ("FORK", "CLONE", "JOIN") and who in e[3])]
            if piece.gone in ("drop", "expire"):
                continue
            if piece.before is None:
                found += [] if births else [self.told("CREATE", who)]
            elif piece.new_content:
                found.append(self.told("CONTENT_MODIFIED", who))
            elif piece.shown()[1] and not about:
                found.append(self.told("ATTRIBUTES_MODIFIED", who))
        return found

    @staticmethod
    def _mentioned(events: list[Told]) -> list[str]:
        return [uuid for _, who, parents, children, *_ in events for uuid in (who, *parents, *children)]


class Pair:
    """A session and its model, to which the same is done."""

    def __init__(self) -> None:
        self.work, self.model = Work(), Model()
        self.flowfiles: list[FlowFile] = []
        for act in ("take", "take", "create"):
            self.do(act, 0, 0)

    def do(self, act: str, first: int, second: int) -> None:
        living = [item for item in self.flowfiles if not self.model.pieces[item.uuid].gone]
        if act == "take":
            self._enter(self.work.take(existing(f"old-{len(self.flowfiles)}", a="0")), is_new=False)
        elif act == "create":
            self._enter(self.work.create())
        elif living:
            getattr(self, act)(living[first % len(living)], second, living)

    def _enter(self, flowfile: FlowFile, *, is_new: bool = True) -> None:
        self.flowfiles.append(flowfile)
        before = None if is_new else dict(flowfile.attributes)
        self.model.pieces[flowfile.uuid] = Piece(before, dict(flowfile.attributes))

    def _touch(self, flowfile: FlowFile) -> Piece:
        piece = self.model.pieces[flowfile.uuid]
        piece.touched = True
        return piece

    def set(self, flowfile: FlowFile, number: int, living: list[FlowFile]) -> None:
        name, value = NAMES[number % 2], str(number // 2)
        self.work.modify_attributes(flowfile, {name: value})
        self._touch(flowfile).now[name] = value

    def unset(self, flowfile: FlowFile, number: int, living: list[FlowFile]) -> None:
        self.work.modify_attributes(flowfile, {NAMES[number % 2]: None})
        self._touch(flowfile).now.pop(NAMES[number % 2], None)

    def content(self, flowfile: FlowFile, number: int, living: list[FlowFile]) -> None:
        self.work.modify_content(flowfile, size=number)
        self._touch(flowfile).new_content = True

    def receive(self, flowfile: FlowFile, number: int, living: list[FlowFile]) -> None:
        self.work.receive(flowfile, "x:y")
        self._touch(flowfile)
        self.model.note("receive", flowfile.uuid)

    def send(self, flowfile: FlowFile, number: int, living: list[FlowFile]) -> None:
        self.work.send(flowfile, "x:y", force=False)
        self._touch(flowfile)
        self.model.note("send", flowfile.uuid)
        self.model.frozen.append(self.model.told("SEND", flowfile.uuid))

    def force(self, flowfile: FlowFile, number: int, living: list[FlowFile]) -> None:
        self.work.send(flowfile, "x:y")
        self._touch(flowfile)
        self.model.stored.append(self.model.told("SEND", flowfile.uuid))

    def route(self, flowfile: FlowFile, number: int, living: list[FlowFile]) -> None:
        self.work.route(flowfile, "success")
        self._touch(flowfile)
        self.model.note("route", flowfile.uuid)

    def clone(self, flowfile: FlowFile, number: int, living: list[FlowFile]) -> None:
        copy = self.work.clone(flowfile)
        self._touch(flowfile)
        self._enter(copy)
        self.model.note("clone", flowfile.uuid, copy.uuid)
        self.model.frozen.append(self.model.told("CLONE", flowfile.uuid, (flowfile.uuid,), (copy.uuid,)))

    def fork(self, flowfile: FlowFile, number: int, living: list[FlowFile]) -> None:
        child = self.work.fork(flowfile)
        self._touch(flowfile)
        self._enter(child)
        self.model.note("fork", flowfile.uuid, child.uuid)

    def join(self, flowfile: FlowFile, number: int, living: list[FlowFile]) -> None:
        parents = list({item.uuid: item for item in (flowfile, living[number % len(living)])}.values())
        child = self.work.join(parents)
        for parent in parents:
            self._touch(parent)
        self._enter(child)
        self.model.note("join", child.uuid, *(parent.uuid for parent in parents))

    def drop(self, flowfile: FlowFile, number: int, living: list[FlowFile]) -> None:
        self.work.drop(flowfile)
        self.model.note("drop", flowfile.uuid)
        self.model.pieces[flowfile.uuid].gone = "drop"

    def terminate(self, flowfile: FlowFile, number: int, living: list[FlowFile]) -> None:
        self.work.terminate(flowfile, "done")
        self.model.note("terminate", flowfile.uuid)
        self.model.pieces[flowfile.uuid].gone = "terminate"

    def expire(self, flowfile: FlowFile, number: int, living: list[FlowFile]) -> None:
        piece = self.model.pieces[flowfile.uuid]
        if piece.touched or piece.before is None:
            return
        self.work.expire(flowfile, "1 sec")
        self.model.note("expire", flowfile.uuid)
        self.model.frozen.append(("EXPIRE", flowfile.uuid, (), (), tuple(sorted(piece.now.items())), ()))
        piece.gone = "expire"


@settings(max_examples=400)
@given(st.lists(ACTS, max_size=12))
def test_a_session_stores_what_the_model_expects(acts: list[tuple[str, int, int]]) -> None:
    pair = Pair()
    for act in acts:
        pair.do(*act)
    assert pair.work.kept.events == [] or len(pair.work.kept.appends) == len(pair.model.stored)
    pair.work.commit()
    assert len(pair.work.kept.appends) == len(pair.model.stored) + 1
    found = [
        (
            event.event_type,
            event.flowfile_uuid,
            event.parent_uuids,
            event.child_uuids,
            tuple(sorted(event.previous_attributes.items())),
            tuple(sorted(event.updated_attributes.items())),
        )
        for event in pair.work.kept.events
    ]
    assert found == [*pair.model.stored, *pair.model.expected()]


@given(st.lists(ACTS, max_size=12))
def test_a_rollback_leaves_what_was_sent_by_force(acts: list[tuple[str, int, int]]) -> None:
    pair = Pair()
    for act in acts:
        pair.do(*act)
    pair.work.rollback()
    assert [event.event_type for event in pair.work.kept.events] == ["SEND"] * len(pair.model.stored)
