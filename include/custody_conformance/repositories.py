"""The promises of a repository as cases: any implementation of its API can be tried, with pytest or without.

With pytest, a class of the implementation's own tests inherits the cases::

    class TestMine(RepositoryConformance):
        factory = "my_package:MyRepository"

Without it: `python -m custody_conformance.repositories my_package:MyRepository`. Every case works in a folder of its
own, and an error of it is a `ConformanceError` that names the promise, what was expected, and what came.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pyarrow as pa

from custody.config import SETTINGS_FILE, load_settings
from custody.errors import CustodyError, InvalidInputError, NotFoundError
from custody.lineage import Bounds
from custody.model import ContentClaim, Event
from custody.repository import Component
from custody.repository.pluggable import Factory, ProvenanceRepository

_NOW_MS = 1_772_409_600_000
_COMPONENT = Component(id="conformance", type="Conformance", name="conformance cases")
_WHOLE = 10_000
_KILLED = """
import os, signal, sys
from pathlib import Path
from custody_conformance.repositories import opened_by, plain_event
opened = opened_by(sys.argv[1], Path(sys.argv[2]))
stored = opened.append([plain_event(number) for number in range(20)])
sys.stdout.write(f"{stored.writer} {stored.event_ids.start} {stored.event_ids.stop}\\n")
sys.stdout.flush()
os.kill(os.getpid(), signal.SIGKILL)
"""


class ConformanceError(AssertionError):
    """A promise that an implementation does not keep."""


def factory_of(spec: str) -> Factory:
    """Return the factory that `module:attribute` names."""
    module, _, attribute = spec.partition(":")
    factory: Factory = getattr(importlib.import_module(module), attribute)
    return factory


def opened_by(spec: str, folder: Path) -> ProvenanceRepository:
    """Open the repository in a folder with a factory, whatever its settings say."""
    return factory_of(spec)(load_settings(folder))


def plain_event(number: int, **values: object) -> Event:
    """Return an event that differs from those of other numbers; `values` replace its fields."""
    fields: dict[str, object] = {
        "event_type": "CREATE",
        "event_time": _NOW_MS + number,
        "component_id": "conformance",
        "component_type": "Conformance",
        "flowfile_uuid": f"00000000-0000-4000-8000-{number:012d}",
        "file_size": number,
        **values,
    }
    return Event(**fields)  # type: ignore[arg-type]


class RepositoryConformance:
    """The cases; a class that inherits from it names its factory."""

    factory: ClassVar[str] = "custody.repository:Repository"
    """`module:attribute` of what opens a repository by its settings: other processes import it, too."""

    def opened(self, folder: Path) -> ProvenanceRepository:
        """Open the repository in a folder; a new one is made with default settings."""
        folder.mkdir(exist_ok=True)
        if not (folder / SETTINGS_FILE).exists():
            (folder / SETTINGS_FILE).write_text("")
        return opened_by(self.factory, folder)

    def test_an_acknowledged_event_is_given_out_by_its_id(self, tmp_path: Path) -> None:
        """Ids of one append are consecutive, and each leads to its event at once."""
        opened = self.opened(tmp_path / "r")
        events = [plain_event(number) for number in range(5)]
        stored = opened.append(events)
        _equal("an id for each event", len(stored.event_ids), 5)
        for event_id, event in zip(stored.event_ids, events, strict=True):
            _equal(f"event {event_id}", _without_id(opened.get(event_id, stored.writer)), event)
            _equal("the event's own id", opened.get(event_id).event_id, event_id)
        more = opened.append([plain_event(9)])
        _true("ids go up", more.event_ids.start >= stored.event_ids.stop, f"{more.event_ids} behind {stored.event_ids}")
        _raises("an id without an event", NotFoundError, lambda: opened.get(more.event_ids.stop + 7, more.writer))

    def test_every_field_comes_back_as_it_was(self, tmp_path: Path) -> None:
        """Nothing of an event is lost, in whatever text."""
        opened = self.opened(tmp_path / "r")
        stored = opened.append([_full_event(), plain_event(1)])
        _equal("the event with all fields", _without_id(opened.get(stored.event_ids[0])), _full_event())
        self._after_a_pass(opened, tmp_path / "r", stored.event_ids[0], _full_event())

    def _after_a_pass(self, opened: ProvenanceRepository, folder: Path, event_id: int, expected: Event) -> None:
        opened.roll_over()
        _equal("the event after a pass", _without_id(self.opened(folder).get(event_id)), expected)

    def test_a_batch_with_a_bad_event_stores_nothing(self, tmp_path: Path) -> None:
        """An append is one piece: all of it or nothing."""
        opened = self.opened(tmp_path / "r")
        bad = [plain_event(0), plain_event(1, file_size=-1)]
        _raises("a negative size", InvalidInputError, lambda: opened.append(bad))
        _equal("what is stored", list(opened.events()), [])
        opened.append([plain_event(2)])
        _equal("what is stored after it", [item.file_size for item in opened.events()], [2])

    def test_columns_are_stored_as_the_same_events(self, tmp_path: Path) -> None:
        """An append of columns equals one of events."""
        opened = self.opened(tmp_path / "r")
        events = [plain_event(number) for number in range(50)]
        names = ("event_type", "event_time", "component_id", "component_type", "flowfile_uuid", "file_size")
        table = pa.table({name: [getattr(event, name) for event in events] for name in names})
        stored = opened.append_columns(table)
        _equal("events of columns", [_without_id(item) for item in opened.get_many(stored.event_ids)], events)
        wrong = table.append_column("nobody_knows", pa.array([1] * 50))
        _raises("an unknown column", InvalidInputError, lambda: opened.append_columns(wrong))

    def test_many_events_come_in_the_order_of_ids(self, tmp_path: Path) -> None:
        """`get_many` and `events` go up, without gaps and repetitions."""
        opened = self.opened(tmp_path / "r")
        ids = list(opened.append([plain_event(number) for number in range(30)]).event_ids)
        wanted = [ids[20], ids[3], ids[-1] + 1000, ids[11]]
        _equal("get_many", [item.event_id for item in opened.get_many(wanted)], [ids[3], ids[11], ids[20]])
        _equal("events from an id on", [item.event_id for item in opened.events(ids[5], 4)], ids[5:9])
        _equal("events up to the last", [item.event_id for item in opened.events(ids[25], 100)], ids[25:])

    def test_a_search_finds_all_and_only_what_matches(self, tmp_path: Path) -> None:
        """Acknowledged events are found at once; totals are exact; pages follow each other."""
        opened = self.opened(tmp_path / "r")
        events = [plain_event(number, event_type="SEND" if number % 3 else "DROP") for number in range(40)]
        events = [
            msgspec.structs.replace(item, transit_uri="x://y") if item.event_type == "SEND" else item for item in events
        ]
        ids = list(opened.append(events[:20]).event_ids)
        opened.roll_over()
        ids += list(opened.append(events[20:]).event_ids)
        sends = [event_id for event_id, item in zip(ids, events, strict=True) if item.event_type == "SEND"]
        page = opened.search("event_type:SEND", limit=_WHOLE)
        _equal("newest first", [item.event.event_id for item in page.events], sends[::-1])
        oldest = opened.search("event_type:SEND", limit=_WHOLE, oldest_first=True)
        _equal("oldest first", [item.event.event_id for item in oldest.events], sends)
        few = opened.search("event_type:SEND", limit=2, offset=3)
        _equal("the total of a short page", few.total, len(sends))
        _equal("a page behind an offset", [item.event.event_id for item in few.events], sends[::-1][3:5])
        _equal("pages by their cursors", list(self._by_pages(opened, "event_type:SEND", 7)), sends[::-1])
        _equal("nothing matches", opened.search("filename:nobody").total, 0)
        _raises("a query that cannot be read", InvalidInputError, lambda: opened.search("nobody_knows:1"))
        _raises("a cursor of nobody", InvalidInputError, lambda: opened.search("", cursor="zz"))

    def _by_pages(self, opened: ProvenanceRepository, text: str, limit: int) -> Iterator[int]:
        cursor: str | None = None
        while True:
            page = opened.search(text, limit=limit, cursor=cursor)
            yield from (item.event.event_id for item in page.events)
            cursor = page.cursor
            if cursor is None:
                return

    def test_a_lineage_has_ancestors_and_descendants(self, tmp_path: Path) -> None:
        """From any FlowFile of a family all of it is reached, and nothing else; a bound says that it cut."""
        opened = self.opened(tmp_path / "r")
        with opened.session(_COMPONENT) as session:
            parent = session.create({"filename": "orders"})
            children = [session.fork(parent) for _ in range(3)]
            both = session.join(children[:2])
            stranger = session.create()
        family = {item.uuid for item in (parent, *children, both)}
        for start in (parent, children[2], both):
            _equal(f"the lineage of {start.uuid}", set(opened.lineage([start.uuid]).nodes), family)
        joined = opened.lineage([both.uuid]).nodes[both.uuid]
        _equal("the parents of a JOIN", set(joined.parents), {item.uuid for item in children[:2]})
        _equal("a FlowFile without relatives", set(opened.lineage([stranger.uuid]).nodes), {stranger.uuid})
        cut = opened.lineage([parent.uuid], Bounds(1))
        _equal("events within a bound", (cut.events, cut.is_complete), (1, False))
        _raises("a FlowFile of nobody", NotFoundError, lambda: opened.lineage(["nobody"]))

    def test_a_session_is_stored_whole_or_not_at_all(self, tmp_path: Path) -> None:
        """A block that raises leaves no event."""
        opened = self.opened(tmp_path / "r")

        def breaks_off() -> None:
            with opened.session(_COMPONENT) as session:
                session.create()
                raise InvalidInputError("broken off")

        _raises("a session that is broken off", InvalidInputError, breaks_off)
        _equal("its events", list(opened.events()), [])
        with opened.session(_COMPONENT) as session:
            flowfile = session.create()
            session.receive(flowfile, "sftp://shop.example/1")
        _equal("the events of a session", [item.event_type for item in opened.events()], ["RECEIVE"])

    def test_no_answer_changes_by_a_pass_or_a_new_start(self, tmp_path: Path) -> None:
        """Housekeeping may move events; it neither loses, repeats nor renumbers one, however often it runs."""
        folder = tmp_path / "r"
        opened = self.opened(folder)
        before: list[Event] = []
        for number in range(3):
            opened.append([plain_event(number * 10 + item) for item in range(10)])
            before = list(opened.events())
            _equal("acknowledged events", len(before), (number + 1) * 10)
            reports = opened.roll_over()
            _equal("units of the pass that failed", [item.step for item in reports if item.failed], [])
            for again in (opened, self.opened(folder)):
                _equal("events after a pass", list(again.events()), before)
                found = again.search("", limit=_WHOLE, oldest_first=True)
                _equal("a search after a pass", [item.event for item in found.events], before)
        opened.roll_over()
        _equal("events after a pass without work", list(self.opened(folder).events()), before)

    def test_threads_of_one_writer_lose_and_repeat_nothing(self, tmp_path: Path) -> None:
        """Appends at once get ids of their own."""
        opened = self.opened(tmp_path / "r")
        with opened.writer() as writer, ThreadPoolExecutor(8) as pool:
            ranges = list(pool.map(lambda n: writer.append([plain_event(n * 2), plain_event(n * 2 + 1)]), range(40)))
        ids = [event_id for item in ranges for event_id in item]
        _equal("different ids", len(set(ids)), 80)
        _equal("events", sorted(item.file_size for item in opened.events()), list(range(80)))
        for number, item in enumerate(ranges):
            _equal("a batch", [event.file_size for event in opened.get_many(item)], [number * 2, number * 2 + 1])

    def test_what_was_acknowledged_survives_a_killed_process(self, tmp_path: Path) -> None:
        """A process is killed right after the acknowledgement; whoever opens the repository next has its events."""
        folder = tmp_path / "r"
        self.opened(folder)
        paths = os.pathsep.join(path for path in sys.path if path)
        done = subprocess.run(  # noqa: S603 - this Python
            [sys.executable, "-c", _KILLED, self.factory, str(folder)],
            env={**os.environ, "PYTHONPATH": paths},
            capture_output=True,
            text=True,
            check=False,
        )
        _true("the process acknowledges", bool(done.stdout), done.stderr)
        writer, start, stop = done.stdout.split()
        ids = list(range(int(start), int(stop)))
        opened = self.opened(folder)
        _equal("acknowledged events", [item.event_id for item in opened.get_many(ids, writer)], ids)
        opened.append([plain_event(100)])
        opened.roll_over()
        _equal("events after a pass", sorted(item.file_size for item in opened.events()), [*range(20), 100])


def run_cases(spec: str) -> dict[str, str | None]:
    """Try an implementation without pytest; return for each case None, or what is wrong."""
    suite = type("Cases", (RepositoryConformance,), {"factory": spec})()
    outcomes: dict[str, str | None] = {}
    for name in (name for name in dir(RepositoryConformance) if name.startswith("test_")):
        with tempfile.TemporaryDirectory(prefix="custody-conformance-") as folder:
            try:
                getattr(suite, name)(Path(folder))
                outcomes[name] = None
            except Exception as error:  # noqa: BLE001 - one case must not stop the others
                outcomes[name] = f"{type(error).__name__}: {error}"
    return outcomes


def _full_event() -> Event:
    claim = ContentClaim(container="default", section="1", identifier="claim-1", offset=3, size=7)
    return plain_event(
        0,
        event_type="RECEIVE",
        event_duration=12,
        component_name="näme \N{SNOWMAN}\x00",
        process_group_id="group",
        process_group_name="the group",
        flowfile_entry_date=_NOW_MS - 5,
        lineage_start_date=_NOW_MS - 9,
        previous_file_size=3,
        transit_uri="sftp://shop.example/${name}?a='b'&c=\"d\"",
        details="line\nline\ttab",
        relationship="success",
        source_queue_identifier="queue",
        alternate_identifier_uri="erp:1",
        source_system_flowfile_identifier="urn:other:1",
        parent_uuids=("a", "b"),
        child_uuids=("c",),
        updated_attributes={"filename": "ünï.csv", "gone": None, "empty": ""},
        previous_attributes={"gone": "x" * 3000},
        content_claim=claim,
        previous_content_claim=msgspec.structs.replace(claim, offset=0),
        source_node="node-1",
        source_ordinal=17,
    )


def _without_id(event: Event) -> Event:
    return msgspec.structs.replace(event, event_id=-1)


def _equal(what: str, got: object, expected: object) -> None:
    _true(what, got == expected, f"expected {expected!r}, got {got!r}")


def _true(what: str, is_kept: bool, otherwise: str) -> None:
    if not is_kept:
        raise ConformanceError(f"{what}: {otherwise}")


def _raises(what: str, kind: type[CustodyError], call: Callable[[], Any]) -> None:
    try:
        got = call()
    except kind:
        return
    except Exception as error:
        raise ConformanceError(f"{what}: expected {kind.__name__}, got {type(error).__name__}: {error}") from error
    raise ConformanceError(f"{what}: expected {kind.__name__}, got the answer {got!r}")


def main(arguments: list[str] | None = None) -> int:
    """Try the implementation that the first argument names, and print a line a case."""
    chosen = sys.argv[1:] if arguments is None else arguments
    if len(chosen) != 1 or ":" not in chosen[0]:
        sys.stderr.write("usage: python -m custody_conformance.repositories MODULE:ATTRIBUTE\n")
        return 2
    outcomes = run_cases(chosen[0])
    for name, problem in outcomes.items():
        sys.stdout.write(
            f"{'kept  ' if problem is None else 'BROKEN'} {name.removeprefix('test_').replace('_', ' ')}\n"
        )
        if problem is not None:
            sys.stdout.write(f"       {problem}\n")
    return int(any(outcomes.values()))


if __name__ == "__main__":
    sys.exit(main())
