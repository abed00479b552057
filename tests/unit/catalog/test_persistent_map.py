"""Layered maps are maps, whatever is done to them, and older ones never change."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from custody.catalog import AddFile, persistent_map
from custody.catalog.persistent_map import REMOVED, FileMap, PersistentMap, Removed

CHANGES = st.lists(
    st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 9) | st.just(REMOVED), max_size=4), max_size=30
)


@given(CHANGES)
def test_a_layered_map_is_a_dict_at_every_step(steps: list[dict[str, int | Removed]]) -> None:
    small, persistent_map._LAYER_MIN = persistent_map._LAYER_MIN, 2  # so that layers are merged often
    try:
        layered: PersistentMap[int] = PersistentMap({"a": 1, "z": 2})
        model: dict[str, int] = {"a": 1, "z": 2}
        history = []
        for changes in steps:
            layered = layered.changed(changes)
            for key, value in changes.items():
                if isinstance(value, Removed):
                    model.pop(key, None)
                else:
                    model[key] = value
            history.append((layered, dict(model)))
        for then, expected in history:
            assert dict(then) == expected
            assert then == expected
            assert len(then) == len(expected)
            assert [key in then for key in "abcz"] == [key in expected for key in "abcz"]
    finally:
        persistent_map._LAYER_MIN = small


def _file(first: int, last: int) -> AddFile:
    return AddFile(path=f"f{first}-{last}", first_event_id=first, last_event_id=last)


@given(st.sets(st.tuples(st.integers(0, 60), st.integers(0, 9)), max_size=20), st.integers(0, 10))
def test_a_file_is_found_by_each_id_in_its_range_and_by_no_other(ranges: set[tuple[int, int]], fresh: int) -> None:
    files = [_file(first, first + more) for first, more in sorted(ranges)]
    old, new = files[: len(files) - fresh], files[max(0, len(files) - fresh) :]
    base = FileMap.undecoded([file.path for file in old], [file.SerializeToString() for file in old])
    changed = base.changed({file.path: file for file in new})
    for event_id in range(75):
        holding = {file.path for file in files if file.first_event_id <= event_id <= file.last_event_id}
        one = changed.file_of(event_id)
        assert (one is None) == (not holding)
        assert one is None or one.path in holding
    gone = changed.changed({file.path: REMOVED for file in files})
    assert all(gone.file_of(event_id) is None for event_id in range(75))


GROUPS = st.frozensets(st.integers(0, 5), max_size=3)


@given(
    st.dictionaries(st.sampled_from("abcdef"), GROUPS), st.dictionaries(st.sampled_from("abcdefgh"), GROUPS | st.none())
)
def test_the_files_of_a_group_are_those_that_say_so(
    first: dict[str, frozenset[int]], later: dict[str, frozenset[int] | None]
) -> None:
    base = FileMap({path: AddFile(path=path, groups=sorted(groups)) for path, groups in first.items()})
    base.groups()  # before the change as well as behind it
    changed = base.changed(
        {
            path: REMOVED if groups is None else AddFile(path=path, groups=sorted(groups))
            for path, groups in later.items()
        }
    )
    for files in (base, changed):
        assert files.groups() == {group for file in files.values() for group in file.groups}
        for group in range(7):
            expected = {path for path, file in files.items() if group in file.groups}
            assert {file.path for file in files.of_group(group)} == expected
            assert len(files.of_group(group)) == len(expected)


def test_a_commit_copies_the_change_and_not_the_catalog() -> None:
    files = FileMap.undecoded([str(n) for n in range(10_000)], [b""] * 10_000)
    later = files.changed({"new": AddFile(path="new")})
    assert later._base is files._base
    assert len(later._layer) == 1
