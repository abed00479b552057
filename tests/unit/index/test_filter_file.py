"""Files of filters: they say of each shard what the shard says itself, from the first question on, or nothing."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from whoosh import query

from custody.errors import CorruptionError, FormatVersionError
from custody.format.framing import Frame, frame, frames
from custody.format.names import filters_name
from custody.index import FilterFile, OpenShard, build_shard, filter_files, shard_filter, write_filter_file
from custody.index.dictionary import FIELD_BYTES
from custody.index.filter_bank import FilterBank, JoinedFilters, ShardFacts
from custody.index.filter_file import COUNTED_TERMS_MAX
from custody.index.paged_file import PAGE_BYTES
from custody.index.shard import Bounds
from custody.index.terms import encoded
from custody.vfs import PosixFileSystem
from tests.support import event
from tests.unit.index.test_shard import table_of

FS = PosixFileSystem()
SHARDS, EVENTS = 9, 200
NAMES = tuple(f"s{number}" for number in range(SHARDS))


def uuid_of(shard: int, number: int) -> str:
    return f"{shard:08x}-0000-4000-8000-{number:012x}"


def bounds_of(number: int) -> Bounds:
    return number * 1000, number * 1000 + 999, number, number + 5


def all_bounds(names: Sequence[str] = NAMES) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    return np.array([bounds_of(NAMES.index(name)) for name in names], np.int64)


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> list[OpenShard]:
    folder = tmp_path_factory.mktemp("shards")
    opened = []
    for number, name in enumerate(NAMES):
        events = [
            event(
                item,
                flowfile_uuid=uuid_of(number, item),
                event_type=("CREATE", "SEND", "DROP")[item * (number + 1) % 3],
                component_type=f"Type{number}",
            )
            for item in range(EVENTS * (1 + number % 4 * 9))
        ]
        # Both layouts have filters.
        build_shard(FS, folder / name, table_of(events), [], layout="whoosh" if number == 2 else "packed")
        opened.append(OpenShard(FS, folder / name))
    return opened


@pytest.fixture
def path(tmp_path: Path, shards: list[OpenShard]) -> Path:
    path = tmp_path / filters_name(7)
    write_filter_file(FS, path, [shard_filter(shard, bounds_of(n)) for n, shard in enumerate(shards)])
    return path


def told(bank: FilterBank, question: query.Query) -> list[bool]:
    """Which shards may match, by what a bank knows; those of a process that has asked nothing yet."""
    answer = JoinedFilters([bank], [NAMES]).may_match(np.arange(SHARDS), question, lambda _: True)
    return [True] * SHARDS if answer is None else answer.tolist()


def _has(shard: OpenShard, field: str, text: str) -> bool:
    assert shard.term_filter is not None
    return shard.term_filter.has(shard.description.fields[field].to_bytes(FIELD_BYTES, "big") + encoded(text))


def bank_of(*files: FilterFile) -> FilterBank:
    bank = FilterBank()
    bank.use_files(files, NAMES, all_bounds())
    return bank


def test_a_file_rules_out_what_the_filters_of_the_shards_rule_out(path: Path, shards: list[OpenShard]) -> None:
    bank = bank_of(FilterFile(FS, path))
    for number in range(SHARDS):
        for item in range(0, EVENTS, 7):
            term = query.Term("flowfile_uuid", uuid_of(number, item))
            assert told(bank, term)[number]
            expected = [_has(shard, "flowfile_uuid", term.text) for shard in shards]
            assert told(bank, term) == expected
    assert told(bank, query.Term("flowfile_uuid", "none")).count(True) <= 1
    # What the file does not know is asked.
    assert all(told(bank, query.Term("no_such_field", "x")))
    assert all(told(bank, query.Prefix("flowfile_uuid", "0")))


def test_numbers_of_events_are_those_of_the_shards(path: Path, shards: list[OpenShard]) -> None:
    facts = ShardFacts()
    facts.follow(1, NAMES, all_bounds, lambda: [FilterFile(FS, path)])
    counted = 0
    texts = ("create", "CREATE", "send", "SEND", "x")
    for term in [query.Term("component_type", "type3"), *(query.Term("event_type", text) for text in texts)]:
        expected = {name: shard.count(term) for name, shard in zip(NAMES, shards, strict=True)}
        assert facts.counts_of(term, in_files=True) == expected
        counted += sum(expected.values())
    assert counted > SHARDS * EVENTS
    # Of many terms nobody counts each one.
    assert shards[0].terms.range_of("flowfile_uuid")[1] > COUNTED_TERMS_MAX
    assert facts.counts_of(query.Term("flowfile_uuid", uuid_of(0, 1)), in_files=True) == {}
    # Only of a term that is asked by itself.
    assert facts.counts_of(query.And([query.Term("event_type", "create"), query.Every()]), in_files=True) == {}


def test_of_a_text_that_may_be_cut_the_number_is_not_told(tmp_path: Path) -> None:
    long = "a" * 60
    events = [event(number, component_type=long + str(number)) for number in range(3)]
    build_shard(FS, tmp_path / "cut", table_of(events), [])
    shard = OpenShard(FS, tmp_path / "cut")
    kind = shard_filter(shard, bounds_of(0))
    # As where nobody noted which values were cut.
    write_filter_file(FS, tmp_path / filters_name(0), [kind])
    file = FilterFile(FS, tmp_path / filters_name(0))
    assert dict(file.counts("component_type", "short", [0])) == {"cut": 0}
    least = file.kinds[0].whole_below("component_type")
    assert least is None or not dict(file.counts("component_type", "a" * least, [0]))


def test_a_file_is_written_again_from_what_it_has(path: Path, tmp_path: Path) -> None:
    file = FilterFile(FS, path)
    again = tmp_path / filters_name(8)
    write_filter_file(FS, again, list(file.filters(NAMES)))
    assert again.read_bytes() == path.read_bytes()
    part = tmp_path / filters_name(9)
    write_filter_file(FS, part, list(file.filters(["s3", "s1"])))
    found = FilterFile(FS, part)
    assert found.names == ("s1", "s3")
    assert (found.bounds == all_bounds(["s1", "s3"])).all()
    assert dict(found.counts("event_type", "send", [1]))["s3"] == dict(file.counts("event_type", "send", [3]))["s3"]


def test_a_shard_of_the_same_name_with_other_events_is_asked(path: Path) -> None:
    bank, bounds = FilterBank(), all_bounds()
    bounds[4, 1] += 1
    bank.use_files([FilterFile(FS, path)], NAMES, bounds)
    may = told(bank, query.Term("flowfile_uuid", "none"))
    assert may[4]
    assert not all(may[:4])
    assert "s4" not in bank.counts_of_term("event_type", "send")
    # And one that the file does not have at all, or that is not live.
    bank.use_files([FilterFile(FS, path)], NAMES[:5], all_bounds()[:5])
    assert all(told(bank, query.Term("flowfile_uuid", "none"))[5:])


def test_a_shard_that_was_damaged_is_asked_from_then_on(path: Path, shards: list[OpenShard]) -> None:
    facts = ShardFacts()
    facts.follow(1, NAMES, all_bounds, lambda: [FilterFile(FS, path)])
    nothing = query.Term("flowfile_uuid", "none")
    assert not told(facts.filters, nothing)[3]
    facts.forget("s3")
    assert told(facts.filters, nothing)[3]
    assert "s3" not in facts.counts_of(query.Term("event_type", "send"), in_files=True)
    # A later look at the same file does not bring it back.
    facts.follow(2, NAMES, all_bounds, lambda: [FilterFile(FS, path)])
    assert told(facts.filters, nothing)[3]
    # What is in a file is not kept in memory as well; what is not, is.
    for _ in range(2):
        facts.filters.offer("s1", shards[1])
        facts.filters.offer("s3", shards[3])
    assert len(facts.filters) == 1
    assert not told(facts.filters, nothing)[3]


def test_the_newest_file_of_two_tells(tmp_path: Path, shards: list[OpenShard]) -> None:
    filters = [shard_filter(shard, bounds_of(number)) for number, shard in enumerate(shards)]
    write_filter_file(FS, tmp_path / filters_name(1), filters[:6])
    write_filter_file(FS, tmp_path / filters_name(2), filters[4:])
    (tmp_path / "notes.txt").write_text("passed over")
    (tmp_path / filters_name(3)).write_text("damaged")
    files = list(filter_files(FS, [tmp_path, tmp_path / "absent"]))
    assert [file.path.name for file in files] == [filters_name(2), filters_name(1)]
    bank = bank_of(*files)
    assert [len(filters.names) for filters in bank.current()] == [0, 5, 4]
    for number in range(SHARDS):
        may = told(bank, query.Term("flowfile_uuid", uuid_of(number, 3)))
        assert may[number]
        assert may.count(True) <= 2


def test_many_files_are_joined_when_they_are_asked_again(tmp_path: Path, shards: list[OpenShard]) -> None:
    for number, shard in enumerate(shards):
        write_filter_file(FS, tmp_path / filters_name(number), [shard_filter(shard, bounds_of(number))])
    bank = bank_of(*filter_files(FS, [tmp_path]))
    joined = JoinedFilters([bank], [NAMES])
    for _ in range(3):
        for number in range(SHARDS):
            term = query.Term("flowfile_uuid", uuid_of(number, 3))
            may = joined.may_match(np.arange(SHARDS), term, lambda _: True)
            assert may is not None
            assert may[number]
            assert may.sum() <= 2
    [part] = joined._current()
    assert part.filters.file is None


def test_damage_is_found_and_never_rules_out_a_shard_that_matches(path: Path) -> None:
    data = path.read_bytes()
    chance = random.Random(3)  # noqa: S311 - where the damage is
    refused = 0
    places = [*range(len(data) - 40, len(data)), *(chance.randrange(len(data)) for _ in range(200))]
    length = int.from_bytes(data[-16:-8], "little")
    for place in places:
        path.write_bytes(data[:place] + bytes([data[place] ^ (1 << chance.randrange(8))]) + data[place + 1 :])
        try:
            file = FilterFile(FS, path)
        except (CorruptionError, FormatVersionError) as error:
            assert str(path) in str(error)
            refused += 1
            continue
        bank = bank_of(file)
        for number in range(SHARDS):
            assert told(bank, query.Term("flowfile_uuid", uuid_of(number, 5)))[number]
        if place < length:
            with pytest.raises(CorruptionError, match=path.name):
                file.require_all()
            refused += 1
    # Behind the filters lie marks and lengths that nothing is taken from.
    assert refused > 0.95 * len(places)


def test_a_page_that_is_damaged_lets_all_shards_of_the_file_be_asked(path: Path) -> None:
    data = bytearray(path.read_bytes())
    assert int.from_bytes(data[-16:-8], "little") > PAGE_BYTES
    for place in range(0, int.from_bytes(data[-16:-8], "little"), 64):
        data[place] ^= 0xFF
    path.write_bytes(data)
    bank = bank_of(FilterFile(FS, path))
    assert all(told(bank, query.Term("flowfile_uuid", "none")))
    assert all(told(bank, query.Term("flowfile_uuid", uuid_of(1, 1))))


def test_damage_is_met_by_who_asks_on_as_well(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[40] ^= 1
    path.write_bytes(data)
    joined = JoinedFilters([bank_of(FilterFile(FS, path))], [NAMES])
    for number in range(SHARDS):
        for _ in range(3):
            term = query.Term("flowfile_uuid", uuid_of(number, 5))
            may = joined.may_match(np.arange(SHARDS), term, lambda _: True)
            assert may is None or may[number]
    assert may is not None
    assert may.all()


@pytest.mark.parametrize("length", [0, 5, 16, 40, PAGE_BYTES, -1, -16])
def test_a_file_that_was_cut_is_refused(path: Path, length: int) -> None:
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(CorruptionError, match=path.name):
        FilterFile(FS, path)


@pytest.mark.parametrize(
    ("genuine", "forged"),
    [
        (b'"bounds":[0,999,', b'"bounds":[0,999999999999999999999,'),
        (b'"kind":0', b'"kind":9'),
        (b'"blocks":', b'"blocks":1'),
        (b'["event_type","drop"]', b'["event_type","send"]'),
        (b'"digest":"', b'"digest":"x'),
    ],
    ids=["bounds", "kind", "blocks", "terms", "digest"],
)
def test_contents_that_make_no_sense_are_refused_though_their_checksum_is_right(
    path: Path, genuine: bytes, forged: bytes
) -> None:
    data = path.read_bytes()
    length = int.from_bytes(data[-16:-8], "little")
    contents, *others = [record for record in frames(data[length:-16]) if isinstance(record, Frame)]
    text = bytes(contents.payload)
    assert genuine in text
    records = (
        frame(contents.kind, text.replace(genuine, forged, 1)),
        *(frame(each.kind, each.payload) for each in others),
    )
    path.write_bytes(data[:length] + b"".join(records) + data[-16:])
    with pytest.raises(CorruptionError, match=path.name):
        FilterFile(FS, path)


def test_a_later_version_is_refused(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1] + b"\x02")
    with pytest.raises(FormatVersionError, match="expected filters of shards of version 1, got 2"):
        FilterFile(FS, path)
