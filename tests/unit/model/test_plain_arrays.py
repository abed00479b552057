"""Arrays made of buffers are those that Arrow makes of the same values, and what it refuses is refused."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from custody.model import plain_arrays
from custody.model.plain_arrays import array_of, exact_texts, offsets_of


@pytest.fixture(params=["buffers", "arrow"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has no pandas yet but could import it, and as in any other."""
    monkeypatch.setattr(plain_arrays, "_may_import_pandas", lambda: request.param == "buffers")
    monkeypatch.setattr(plain_arrays, "sys", SimpleNamespace(modules={}))


KINDS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "text": (pa.string(), st.text(max_size=6) | st.sampled_from(["", "ä", "🜂", "abc"])),
    "binary": (pa.binary(), st.binary(max_size=6)),
    "flag": (pa.bool_(), st.booleans()),
    "number": (pa.float64(), st.floats(allow_nan=False)),
    "integer": (pa.int64(), st.integers(-(1 << 63), (1 << 63) - 1)),
    "time": (pa.timestamp("ms", tz="UTC"), st.integers(-(1 << 63), (1 << 63) - 1)),
    "small": (pa.int32(), st.integers(-(1 << 31), (1 << 31) - 1)),
}


@pytest.mark.parametrize("kind", KINDS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_an_array_is_the_one_that_arrow_makes(kind: str, data: st.DataObject) -> None:
    arrow, values = KINDS[kind]
    said = data.draw(st.lists(values | st.none(), max_size=20))
    for given_values in (said, tuple(said)):
        made = array_of(given_values, arrow)
        made.validate(full=True)
        assert made.type == arrow
        assert made.equals(pa.array(said, arrow))
        assert made.null_count == said.count(None)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["a", 1], pa.string()),
        ([1, "a"], pa.int64()),
        ([True, 1], pa.int64()),
        ([1 << 63], pa.int64()),
        ([1, True], pa.bool_()),
        (["a"], pa.binary(2)),
        ([1 << 40], pa.int32()),
    ],
)
def test_what_arrow_refuses_is_refused(values: list[object], kind: pa.DataType) -> None:
    with pytest.raises((pa.ArrowException, TypeError, OverflowError)) as by_arrow:
        pa.array(values, kind)
    with pytest.raises((pa.ArrowException, TypeError, OverflowError)) as by_us:
        array_of(values, kind)
    assert (type(by_us.value), str(by_us.value)) == (type(by_arrow.value), str(by_arrow.value))


def test_values_of_other_types_that_arrow_knows_are_left_to_it() -> None:
    for values, kind in (([b"ab", "c"], pa.string()), ([np.int64(3), 4], pa.int64()), ([1, 2.5], pa.float64())):
        assert array_of(values, kind).equals(pa.array(values, kind))


def test_a_column_of_texts_is_none_where_a_value_is_something_else() -> None:
    for values in (["a", b"b"], [b"b"], [None, 2]):
        assert exact_texts(values) is None
    for texts in (["a", None], [None], []):
        assert pa.array(texts, pa.string()).equals(exact_texts(texts))
    with pytest.raises(UnicodeEncodeError):
        exact_texts(["a", "\ud800"])


def test_more_than_an_array_holds_is_refused() -> None:
    assert offsets_of(np.array([1, 2])).tolist() == [0, 1, 3]
    with pytest.raises(OverflowError, match="at most 2147483647"):
        offsets_of(np.array([1 << 31]))


def test_a_program_that_makes_many_values_lets_arrow_do_it(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []
    monkeypatch.setattr(plain_arrays, "_may_import_pandas", lambda: True)
    monkeypatch.setattr(plain_arrays, "VALUES_MAX", 100)
    monkeypatch.setattr(plain_arrays._Made, "values", 0)
    monkeypatch.setattr(plain_arrays, "_of_texts", lambda values: made.append(values))
    for _ in range(10):
        plain_arrays.exact_texts(["a"] * 25)
    assert len(made) == 4
