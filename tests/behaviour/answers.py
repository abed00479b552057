"""A repository of two writers with all kinds of files that answers read, the questions, and how answers are judged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from custody.config import Settings
from custody.errors import CustodyError, NotFoundError
from custody.model import Event
from custody.repository import EventSelection, Repository
from tests.support import append, run_steps, sample

MAIN, EDGE = "main", "edge"
EVENTS = {MAIN: sample(100, seed=1), EDGE: sample(60, seed=2)}
LIVE = {MAIN: (30, 60, 80), EDGE: (20, 40)}
"""Where the logs of a writer end; what follows waits in two journals."""
UUID = EVENTS[MAIN][45].flowfile_uuid
Item = tuple[str, Event]


def opened(root: Path, writer: str = MAIN) -> Repository:
    """A repository as a process that just started has it."""
    sections = {
        "repository": {"writer": writer, "containers": ["disk1", "disk2"]},
        "eventlog": {"block_bytes_max": 8192},
        "catalog": {"checkpoint_every": 4},
    }
    return Repository(Settings.model_validate({"root": root, **sections}))


def build(root: Path) -> None:
    """Logs, shards, a compacted log, a checkpoint and transactions behind it, tombstones of each kind, journals."""
    for writer, events in EVENTS.items():
        repository = opened(root, writer)
        start = 0
        for end in LIVE[writer]:
            append(repository, events[start:end])
            run_steps(repository.settings)
            if start == 0:
                repository.forget(EventSelection(event_ids=[3, 4]), "erased at once")
                repository.compact(writer)
            start = end
        half = (start + len(events)) // 2
        append(repository, events[start:half])
        append(repository, events[half:])
        [(name, value), *_] = events[start + 1].updated_attributes.items() or [("filename", "none")]
        # Of each kind that `forget` knows: what only columns tell, and what ids and times tell.
        for meant in (
            EventSelection(attributes={name: value or ""}),
            EventSelection(flowfile_uuids=[events[12].flowfile_uuid, events[-1].flowfile_uuid]),
            EventSelection(event_ids=[21, 22, len(events) - 3]),
            EventSelection(from_ms=events[16].event_time, to_ms=events[16].event_time + 1),
        ):
            repository.forget(meant, "asked for")


@dataclass(frozen=True)
class Answer:
    """What was given, what was counted, and what was said of it."""

    items: tuple[Item, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    lost: int = 0
    said: tuple[str, ...] = ()

    @property
    def same(self) -> tuple[object, ...]:
        """What has to be equal where nothing is damaged."""
        return self.items, self.counts, self.lost


Question = Callable[[Repository], Answer]


def paged(
    text: str, limit: int, *, oldest_first: bool = False, writer: str | None = None, as_of: int | None = None
) -> Question:
    """All pages of a search, joined."""

    def ask(repository: Repository) -> Answer:
        items: list[Item] = []
        said: list[str] = []
        lost, cursor, pages = 0, None, 0
        while True:
            page = repository.search(
                text, limit=limit, oldest_first=oldest_first, cursor=cursor, writer=writer, as_of=as_of
            )
            items += [(stored.writer, stored.event) for stored in page.events]
            said += page.notices
            lost += page.lost
            cursor, pages = page.cursor, pages + 1
            assert pages <= 1000
            assert (len(page.events) == limit) or cursor is None, "a page before the last one is full"
            if cursor is None:
                # Counted are those that are given out, and those that were passed over and are named.
                assert page.total == len(items) + lost, (page.total, len(items), lost)
                return Answer(tuple(items), {"total": page.total}, lost, tuple(said))

    return ask


def facets(text: str) -> Question:
    def ask(repository: Repository) -> Answer:
        counts, said = repository.facets(text, ["event_type", "day"])
        types, days = (sum(counts[name].values()) for name in ("event_type", "day"))
        assert types == days
        readable = paged(text, 1000)(repository)
        # A process may have blocks in memory, or found them whole, before they were damaged.
        most = len(readable.items) + readable.lost
        assert types <= most if said else types in (len(readable.items), most), "facets count what a search has"
        return Answer((), {f"{name} {value}": n for name in counts for value, n in counts[name].items()}, 0, said)

    return ask


def singly(writer: str) -> Question:
    """Each event by its id; what is damaged is an error each time."""

    def ask(repository: Repository) -> Answer:
        items: list[Item] = []
        said: list[str] = []
        for event_id in range(0, len(EVENTS[writer]) + 2, 7):
            try:
                items.append((writer, repository.get(event_id, writer)))
            except NotFoundError:
                continue  # forgotten, or never there
            except CustodyError as error:
                said.append(str(error))
        return Answer(tuple(items), {}, 0, tuple(said))

    return ask


def together(writer: str) -> Question:
    def ask(repository: Repository) -> Answer:
        events = repository.get_many(range(len(EVENTS[writer])), writer)
        return Answer(tuple((writer, item) for item in events), {}, 0, events.notices)

    return ask


def streamed(writer: str, *, between: bool) -> Question:
    def ask(repository: Repository) -> Answer:
        events = repository.events_between(0, 1 << 60, writer) if between else repository.events(5, 1000, writer)
        items = tuple((writer, item) for item in events)
        return Answer(items, {}, 0, events.notices)

    return ask


def lineage(repository: Repository) -> Answer:
    graph = repository.lineage([UUID])
    nodes = graph.nodes.values()
    items = {
        (writer, item.event_id): item for node in nodes for writer, item in zip(node.writers, node.events, strict=True)
    }
    return Answer(tuple((writer, items[writer, n]) for writer, n in sorted(items)), {}, 0, graph.notices)


def sql(*, skip_damaged: bool) -> Question:
    text = "select writer, event_id, event_type, flowfile_uuid from events order by writer, event_id"

    def ask(repository: Repository) -> Answer:
        with repository.sql(text, skip_damaged=skip_damaged) as result:
            rows = [tuple(row.values()) for batch in result.batches() for row in batch.to_pylist()]
            return Answer((), dict(Counter(map(repr, rows))), 0, result.notices)

    return ask


QUESTIONS: dict[str, Question] = {
    "sql": sql(skip_damaged=False),
    "search all": paged("", 30),
    "facets": facets(""),
    "search oldest": paged("", 40, oldest_first=True),
    "search some": paged("NOT event_type:DROP", 13),
    "search one writer": paged("", 11, writer=EDGE),
    "facets of some": facets("event_type:(ROUTE OR SEND)"),
    "get main": singly(MAIN),
    "get_many main": together(MAIN),
    "get_many edge": together(EDGE),
    "events main": streamed(MAIN, between=False),
    "events edge": streamed(EDGE, between=False),
    "events_between main": streamed(MAIN, between=True),
    "lineage": lineage,
    "as of the first": paged("", 9, writer=MAIN, as_of=0),
    "as of the fifth": paged("", 9, writer=MAIN, as_of=4, oldest_first=True),
    "sql without what is damaged": sql(skip_damaged=True),
}


def answer(repository: Repository, question: Question) -> Answer | str:
    """An answer, or the text of the error that was given instead."""
    try:
        return question(repository)
    except CustodyError as error:
        return f"{type(error).__name__}: {error}"


def judge(name: str, got: Answer | str, truth: Answer, names: Callable[[str], bool]) -> str | None:
    """Say what is wrong with an answer: it has to be the truth, or a part of it and a notice that `names` the rest."""
    if isinstance(got, str):
        return None if names(got) else f"{name}: an error that names nothing: {got}"
    if got.same == truth.same:
        return None
    for writer in EVENTS:
        given = [event for whose, event in got.items if whose == writer]
        ids = {event.event_id for event in given}
        allowed = [event for whose, event in truth.items if whose == writer and event.event_id in ids]
        if given != allowed:
            more = ids - {event.event_id for event in allowed}
            return f"{name}: gives out what it must not, or in another order: {writer} {sorted(more)}"
    if over := [key for key, count in got.counts.items() if count > truth.counts.get(key, 0)]:
        return f"{name}: counts too many: {over}"
    if not any(map(names, got.said)):
        return f"{name}: {len(truth.items) - len(got.items)} events less and no notice that names why: {got.said}"
    return None


@contextmanager
def damaged(path: Path, data: bytes | None) -> Iterator[None]:
    """A file that holds other bytes, or is gone; whole again afterwards.

    A log is changed in place, also for who has it mapped: each block is checked before it is decoded. Of a shard what
    was checked once is trusted as long as it is open, so it is replaced.
    """
    whole = path.read_bytes()
    in_place = path.suffix == ".parquet" and data is not None

    def put(content: bytes) -> None:
        if not in_place:
            path.unlink(missing_ok=True)
        path.write_bytes(content)

    if data is None:
        path.unlink()
    else:
        put(data)
    try:
        yield
    finally:
        put(whole)
