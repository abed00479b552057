"""Masks: which names they mean, that events and columns are masked alike, and what a masked value says of a copy."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from custody.errors import InvalidInputError
from custody.model import MASK, AttributeMask, Event, blinded, to_batch, to_events
from custody.model.visibility import Visibility
from custody.repository import Repository
from tests.support import event, unnumbered

SECRET = "swordfish"  # noqa: S105 - what must be in no answer
PASSWORDS = AttributeMask(["*password*", "api.key"])


@pytest.mark.parametrize(
    ("pattern", "name", "hides"),
    [
        ("*password*", "db.password", True),
        ("*password*", "PASSWORD", True),
        ("*PASSWORD*", "a.Password.b", True),
        ("*password*", "pass-word", False),
        ("api.key", "apixkey", False),
        ("api?key", "api.key", True),
        ("*", "", True),
        ("*", "a\nb", True),
        ("?", "ü", True),
        ("[ab]", "a", False),
        ("[ab]", "[ab]", True),
        ("${x}", "${X}", True),
        ("straße", "STRASSE", True),
        ("a b", "a b", True),
        ('say "it"', 'say "it"', True),
        ("back\\slash*", "back\\slashes", True),
        ("*", "content.sha256", False),
        ("*", "ngsi.service", False),
        ("*sha*", "my.sha", True),
    ],
)
def test_a_pattern_means_names_whatever_their_case(pattern: str, name: str, hides: bool) -> None:
    mask = AttributeMask([pattern])
    assert mask.hides(name) is hides
    one = event(0, updated_attributes={name: SECRET}, extra=json.dumps({name: SECRET}))
    masked = mask.event(one)
    assert masked.updated_attributes[name] == (MASK if hides else SECRET)
    assert (SECRET in (masked.extra or "")) is not hides
    [column] = to_events(mask.rows(to_batch([one], 0)))
    assert unnumbered([column]) == [masked]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('{"a":1.10e2,"password":"swordfish"}', '{"a":1.10e2,"password":"***"}'),
        ('{"a":[{"password":{"deep":["swordfish"]}}]}', '{"a":[{"password":"***"}]}'),
        ('{"env":[{"name":"PASSWORD","value":"swordfish"}]}', '{"env":[{"name":"PASSWORD","value":"***"}]}'),
        ('{"tags":[{"key":"password","value":7,"other":1}]}', '{"tags":[{"key":"password","value":"***","other":1}]}'),
        ('{"p\\u0061ssword":"swordfish"}', '{"password":"***"}'),
        ('{"password":null}', '{"password":null}'),
        ('{"b":1, "password":null, "a":"password"}', '{"b":1, "password":null, "a":"password"}'),
        ('{"note":"a \\"password\\" is asked for"}', '{"note":"a \\"password\\" is asked for"}'),
        ('no json "password" swordfish', '{"extra":"***"}'),
        ("[" * 3000 + '"password"', '{"extra":"***"}'),
        ('{"öpassword":"swordfish"}', '{"öpassword":"***"}'),
    ],
)
def test_keys_of_a_source_are_masked_at_any_depth_and_nothing_else_changes(text: str, shown: str) -> None:
    [column] = to_events(PASSWORDS.rows(to_batch([event(0, extra=text)], 0)))
    assert PASSWORDS.event(event(0, extra=text)).extra == column.extra == shown


NAMES = st.sampled_from(["password", "my.PASSWORD", "filename", "", "é", "api.key"])
ATTRIBUTES = st.dictionaries(NAMES, st.none() | st.sampled_from(["", "a", SECRET]), max_size=4)
EXTRAS = st.none() | st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["password", "x"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES | st.just("name") | st.just("value"), inner),
    max_leaves=8,
).map(json.dumps)


@given(
    st.lists(
        st.builds(
            lambda before, after, extra: event(0, previous_attributes=before, updated_attributes=after, extra=extra),
            ATTRIBUTES,
            ATTRIBUTES,
            EXTRAS,
        ),
        max_size=6,
    ),
    st.integers(0, 3),
    st.integers(0, 6),
)
def test_columns_and_events_are_masked_alike_also_in_parts_of_a_batch(
    events: list[Event], start: int, length: int
) -> None:
    batch = to_batch(events, 0)
    part = batch.slice(min(start, len(events)), length)
    expected = [PASSWORDS.event(one) for one in events[min(start, len(events)) :][:length]]
    for rows in (part, pa.Table.from_batches([part]), pa.Table.from_batches([part.slice(0, 1), part.slice(1)])):
        masked = PASSWORDS.rows(rows)
        assert masked.schema == rows.schema
        assert unnumbered(to_events(masked)) == unnumbered(expected)
        assert PASSWORDS.rows(masked).equals(masked)
        masked.validate(full=True)


def test_names_are_looked_at_once_each_however_many_events_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    is_hidden = AttributeMask.hides

    def hides(self: AttributeMask, name: str) -> bool:
        asked.append(name)
        return is_hidden(self, name)

    monkeypatch.setattr(AttributeMask, "hides", hides)
    batch = to_batch([event(n, updated_attributes={"filename": "a", "password": str(n)}) for n in range(5000)], 0)
    masked = PASSWORDS.rows(batch)
    assert sorted(asked) == ["filename", "password"]
    assert {dict(one)["password"] for one in masked.column("updated_attributes").to_pylist()} == {MASK}
    untouched = batch.column("previous_attributes")
    assert masked.column("previous_attributes").equals(untouched)


def test_a_name_or_a_text_that_was_made_to_be_slow_is_not() -> None:
    mask = AttributeMask(["*db*pass*word*", "?*a?*a?*b"])
    long = "db" * 200_000 + "pass" * 100_000
    began = time.process_time()
    assert not mask.hides(long)
    one = event(0, updated_attributes={long: "a", "a" * 400_000: "b"}, extra=f'{{"{long}":"' + "a" * 400_000 + '"}')
    assert mask.event(one) == one
    assert mask.rows(to_batch([one], 0)).column("extra").to_pylist() == [one.extra]
    assert time.process_time() - began < 5


def test_a_name_that_is_no_unicode_is_refused_as_without_a_mask(tmp_path: Path) -> None:
    repository = Repository.create(tmp_path / "r")
    (tmp_path / "r" / "custody.toml").write_text('[capture]\nmask_attributes = ["*password*"]\n')
    with Repository.open(tmp_path / "r").writer() as writer, pytest.raises(InvalidInputError, match="lone surrogate"):
        writer.append([event(0, updated_attributes={"\udcff": "a"})])
    assert list(repository.events()) == []


def test_a_map_with_nulls_is_masked_as_well() -> None:
    kind = pa.map_(pa.string(), pa.string())
    rows = pa.table({"updated_attributes": pa.array([[("password", "a")], None, [("password", None)], []], kind)})
    expected = [[("password", MASK)], None, [("password", None)], []]
    assert PASSWORDS.rows(rows).column(0).to_pylist() == expected
    assert PASSWORDS.rows(rows.slice(1)).column(0).to_pylist() == expected[1:]


@pytest.mark.parametrize(
    ("one", "other", "agree"),
    [
        ({"updated_attributes": {"a": MASK}}, {"updated_attributes": {"a": "x"}}, True),
        ({"updated_attributes": {"a": MASK}}, {"updated_attributes": {"a": MASK}}, True),
        ({"updated_attributes": {"a": MASK}}, {"updated_attributes": {"a": None}}, False),
        ({"updated_attributes": {"a": MASK}}, {}, False),
        ({"updated_attributes": {"a": MASK, "b": "1"}}, {"updated_attributes": {"a": "x", "b": "2"}}, False),
        ({"previous_attributes": {"a": MASK}}, {"previous_attributes": {"a": "x"}}, True),
        ({"extra": '{"a":"***","b":[{"c":1}]}'}, {"extra": '{"b":[{"c":1}],"a":{"d":2}}'}, True),
        ({"extra": '{"a":["***",1]}'}, {"extra": '{"a":["x",1]}'}, True),
        ({"extra": '{"a":["***",1]}'}, {"extra": '{"a":["x",2]}'}, False),
        ({"extra": '{"a":"***"}'}, {"extra": '{"a":null}'}, False),
        ({"extra": '{"a":"***"}'}, {"extra": "no json"}, False),
        ({"extra": '{"a":"***"}'}, {}, False),
    ],
)
def test_a_masked_value_agrees_with_every_value_and_with_none_that_is_not_there(
    one: dict[str, object], other: dict[str, object], agree: bool
) -> None:
    first, second = event(1, **one), event(1, **other)
    for pair in (blinded(first, second), blinded(second, first)):
        assert (pair[0] == pair[1]) is agree


def test_who_sees_everything_but_values_is_another_reader() -> None:
    masked = Visibility(None, (), ("a",))
    assert not masked.hides_events
    assert not masked.is_everything
    assert (
        len({masked.key, Visibility(None, (), ("b",)).key, Visibility(None).key, Visibility((), (), ("a",)).key}) == 4
    )
    assert masked.masking(("b",)).mask.patterns == ("a", "b")
