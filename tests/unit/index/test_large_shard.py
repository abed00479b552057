"""A shard whose terms have lists of every form: each question finds what looking at each event finds, and again."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from fnmatch import translate
from functools import reduce

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from whoosh import query

from custody.index import OpenShard, build_shard, flags, match_wildcard
from custody.index.doc_sets import DocList
from custody.index.packed_postings import DecodedBits
from custody.index.plan import plan
from custody.vfs import PosixFileSystem
from tests.support import sample
from tests.unit.index.test_shard import table_of

FS = PosixFileSystem()
EVENTS = 30_000
# Of events, newest last; from lists of most events to lists of some ten.
SHARES = (0.5, 0.2, 0.1, 0.04, 0.02, 0.01, 0.004, 0.002, 0.001)
FIELDS = ("event_type", "component_id", "relationship", "filename")
Mask = npt.NDArray[np.bool_]


class Events:
    """The values of some fields of each event, from the oldest to the newest; None for none."""

    def __init__(self, seed: int) -> None:
        chance = np.random.default_rng(seed)
        terms = [*(f"{name}{number}.log" for number in range(3) for name in "abc"), None]
        shares = np.append(np.array(SHARES), 1 - sum(SHARES))
        self.values = {name: np.array(terms, object)[chance.choice(len(terms), EVENTS, p=shares)] for name in FIELDS}
        # One that follows another field, and one of which some stretches have nothing.
        self.values["relationship"] = np.where(chance.random(EVENTS) < 0.9, self.values["event_type"], "other")
        self.values["component_id"][EVENTS // 3 : EVENTS // 2] = "c9.log"
        self.values["filename"] = np.array([f"{number % 2000}-{number % 7}.bin" for number in range(EVENTS)], object)

    def table(self) -> pa.Table:
        table = table_of(sample(40)).combine_chunks()
        table = pa.concat_tables([table] * -(-EVENTS // table.num_rows)).slice(0, EVENTS).combine_chunks()
        table = table.set_column(0, table.schema.field(0), pa.array(np.arange(EVENTS), table.schema.field(0).type))
        for name in ("event_type", "component_id", "relationship"):
            at = table.schema.get_field_index(name)
            values = [value or "none" for value in self.values[name]]
            table = table.set_column(at, table.schema.field(at), pa.array(values).cast(table.schema.field(at).type))
        at = table.schema.get_field_index("updated_attributes")
        names = [[("filename", value)] for value in self.values["filename"]]
        field = table.schema.field(at)
        return table.set_column(at, field, pa.array(names, field.type))

    def matching(self, question: query.Query) -> Mask:
        match question:
            case query.And():
                return reduce(np.logical_and, [self.matching(part) for part in question.children()])
            case query.Or():
                return reduce(np.logical_or, [self.matching(part) for part in question.children()])
            case query.Not():
                return ~self.matching(question.query)
            case query.Term():
                return self._fitting(question.fieldname, lambda value: value == question.text)
            case query.Prefix():
                return self._fitting(question.fieldname, lambda value: value.startswith(question.text))
        assert isinstance(question, query.Wildcard)
        pattern = re.compile(translate(question.text))
        return self._fitting(question.fieldname, lambda value: pattern.match(value) is not None)

    def _fitting(self, name: str, fits: Callable[[str], bool]) -> Mask:
        return np.array([fits(value or "none") for value in self.values[name]])


def a_question(chance: random.Random) -> query.Query:
    """Return a question at random."""

    def term(name: str) -> query.Query:
        return query.Term(name, f"{chance.choice('abc')}{chance.randrange(3)}.log")

    def pattern() -> query.Query:
        name = chance.choice(FIELDS)
        if name == "filename":
            of_few = f"*{chance.randrange(2000)}-{chance.randrange(7)}.bin", f"*{chance.randrange(200)}-?.bin"
            return query.Wildcard(name, chance.choice([*of_few, "*7-3.bin", "*.bin", "*.log", "1*-2*"]))
        return query.Wildcard(name, chance.choice(["*.log", "?1.log", "*1.log", "[ab]0*", "c*"]))

    def part() -> query.Query:
        kind = chance.randrange(6)
        if kind == 0:
            return pattern()
        if kind == 1:
            return query.Prefix("filename", chance.choice(["1", "19", "199", "1999-", "x"]))
        if kind == 2:
            return query.Not(term(chance.choice(FIELDS[:3])))
        if kind == 3:
            return query.Or([term(chance.choice(FIELDS[:3])), pattern()])
        return term(chance.choice(FIELDS[:3]))

    return query.And([part() for _ in range(chance.randrange(1, 5))])


@pytest.fixture(scope="module")
def events() -> Events:
    return Events(seed=5)


@pytest.fixture(scope="module")
def shard(events: Events, tmp_path_factory: pytest.TempPathFactory) -> OpenShard:
    path = tmp_path_factory.mktemp("large") / "shard"
    build_shard(FS, path, events.table(), ())
    return OpenShard(FS, path)


def test_each_question_finds_what_looking_at_each_event_finds(events: Events, shard: OpenShard) -> None:
    chance = random.Random(11)  # noqa: S311
    asked = [a_question(chance) for _ in range(150)]
    expected = {number: np.flatnonzero(events.matching(question))[::-1] for number, question in enumerate(asked)}
    # Twice and mixed: what one question left in memory is used by others.
    order = [*expected, *expected]
    chance.shuffle(order)
    for number in order:
        question, ids = asked[number], expected[number]
        assert np.array_equal(shard.search(question), ids), question
        assert shard.count(question) == len(ids)
        low, high = sorted(chance.sample(range(EVENTS), 2))
        window = ids[(ids < high) & (ids > low)]
        assert np.array_equal(shard.search(question, 30, below=high, above=low), window[:30]), question
        oldest = shard.search(question, 30, below=high, above=low, oldest_first=True)
        assert np.array_equal(oldest, window[::-1][:30]), question
    assert sum(len(ids) > 0 for ids in expected.values()) > 60


def test_what_a_pattern_found_is_kept_for_its_field_alone(events: Events, shard: OpenShard) -> None:
    for name in FIELDS:
        question = query.Wildcard(name, "*1*")
        first, again = plan(shard, question), plan(shard, question)
        assert first is again
        assert isinstance(first, (DocList, DecodedBits))
        assert first.count() == events.matching(question).sum()
    with pytest.raises(ValueError, match="read-only"):
        next(DocList(np.arange(3)).chunks(0, 3))[0] = 1
    # A pattern of any length comes from outside; of a long one nothing is kept.
    long = query.Wildcard("filename", "*1" + 300 * "*")
    assert plan(shard, long) is not plan(shard, long)


def test_truth_values_are_unpacked_wherever_their_array_begins() -> None:
    chance = random.Random(3)  # noqa: S311
    for length in (0, 1, 7, 8, 9, 70):
        values = [chance.choice([True, False, None]) for _ in range(length)]
        for array in (pa.array(values, pa.bool_()), pa.array([value or False for value in values], pa.bool_())):
            for start in range(0, length + 1, 3):
                part = array.slice(start, chance.randrange(length - start + 1))
                assert flags(part).tolist() == [value is True for value in part.to_pylist()]
    # What lies below an absent one is arbitrary.
    bits = [pa.py_buffer(b"\x05"), pa.py_buffer(b"\x0f")]
    assert flags(pa.Array.from_buffers(pa.bool_(), 4, bits)).tolist() == [True, False, True, False]
    assert flags(pa.nulls(3, pa.bool_())).tolist() == [False] * 3
    assert match_wildcard(pa.array(["ab", "b"]).slice(1), "b*").tolist() == [True]
