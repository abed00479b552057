"""The shipped cases come out as they say, each of them can fail, and what a file of cases has wrong is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from custody.cli.main import cli
from custody.config import NgsiSection
from custody.errors import InvalidInputError
from custody.ngsi.parameters import SEED_NAMES
from custody_conformance.case import Case, read_cases
from custody_conformance.checking import KNOWN, check_cases, differences, profiles, shipped_cases
from custody_conformance.in_memory import Faults, run

SHIPPED = shipped_cases()


def test_the_shipped_cases_come_out_as_they_say() -> None:
    failed = [(outcome.id, outcome.differences) for outcome in check_cases(SHIPPED) if not outcome.is_passed]
    assert failed == []
    assert len(SHIPPED) >= 100


def changed(value: Any) -> Any:
    """The same expectation, with something in it that is not true."""
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case str():
            return value + "!"
        case []:
            return None
        case list():
            return [changed(value[0]), *value[1:]]
        case dict():
            name, first = next(iter(value.items()))
            return {**value, name: changed(first)}
        case _:
            return "something"


def is_told_apart(key: str, value: Any, wrong: Any) -> bool:
    """Whether a changed expectation has to be noticed: that there is an error is compared, not its words."""
    return wrong is not None and key not in ("error", "no_blank_lines") and value != []


def test_each_expectation_of_each_shipped_case_can_fail() -> None:
    for case in SHIPPED:
        outcome = run(case)
        for key, value in case.expect.items():
            wrong = changed(value)
            if key == "dropped" or is_told_apart(key, value, wrong):
                assert list(differences({key: wrong}, outcome)), (case.id, key)


def test_where_nothing_is_expected_something_is_noticed() -> None:
    stored = run(next(case for case in SHIPPED if case.id == "REQ-01"))
    assert list(differences({"files": []}, stored))
    result = run(next(case for case in SHIPPED if case.id == "HIV-01"))
    assert list(differences({"hive": []}, result))


def test_every_parameter_is_in_a_shipped_case() -> None:
    named = {SEED_NAMES.get(name, name) for case in SHIPPED for name in case.config}
    # The rules are in files there and in the cases themselves here.
    files = {"grouping_rules_file", "name_mappings_file"}
    # Where the files and tables are says nothing of what they are.
    places = {"hive_location", "hive_metastore_uri"}
    places |= {name for name in NgsiSection.model_fields if name.partition("_")[0] == "backend"}
    assert set(NgsiSection.model_fields) - files - places <= named


def test_every_mode_and_every_known_expectation_is_in_a_shipped_case() -> None:
    assert {case.config.get("file_format", "json-row") for case in SHIPPED} >= {
        *("json-row", "json-column", "csv-row", "csv-column", "parquet")
    }
    assert {key for case in SHIPPED for key in case.expect} >= KNOWN - {"error", "path_only"}


def case(**values: Any) -> Case:
    body = {"data": [{"id": "a", "type": "T", "x": {"type": "Number", "value": 1}}]}
    document = {
        "id": "one",
        "expect": {},
        "config": {"hdfs_username": "u"},
        "headers": {"Content-Type": "application/json"},
        "body": body,
        **values,
    }
    [found] = read_cases(json.dumps([document]).encode(), "mine.json")
    return found


def found(**values: Any) -> list[str]:
    made = case(**values)
    return list(differences(made.expect, run(made)))


def test_what_differs_is_shown_with_its_place() -> None:
    path = "/user/u/test/path/a_T/a_T.txt"
    [said] = found(expect={"files": [{"path": path, "lines": ['{"recvTimeTs":"0","recvTime":"noon"}']}]})
    assert f"file {path} line 1: differs at character 30" in said
    assert 'expected {"recvTimeTs":"0","recvTime":"noon"}' in said
    assert '{"recvTimeTs":"0","recvTime":"1970-01-01T00:00:00.000Z"' in said
    [said] = found(expect={"files": [{"path": path, "lines": []}]})
    assert said == f"file {path}: expected 0 lines, got 1"
    said, other = found(expect={"files": [{"path": "/x", "lines": []}]})
    assert (said, other) == (f"file {path}: expected none, got 1 lines", f"file /x: expected, got {path}")


def test_json_may_have_blanks_and_escapes_of_its_own_but_no_other_digits_or_order() -> None:
    path = "/user/u/test/path/a_T/a_T.txt"
    body = '{"data":[{"id":"a","type":"T","x":{"type":"Number","value":{"k":1.0,"l":"é"}}}]}'
    line = (
        '{{"recvTimeTs":"0", "recvTime":"1970-01-01T00:00:00.000Z","fiwareServicePath":"/path","entityId":"a",'
        '"entityType":"T","attrName":"x","attrType":"Number","attrValue":{},"attrMd":[]}}'
    )

    def said(value: str) -> list[str]:
        return found(body_raw=body, expect={"files": [{"path": path, "lines": [line.format(value)]}]})

    assert said('{ "k": 1.0, "l": "\\u00e9" }') == []
    for other in ('{"k":1,"l":"é"}', '{"l":"é","k":1.0}', '{"k":1.0,"l":"é","m":0}', '{"k":"1.0","l":"é"}'):
        assert said(other)


def test_an_expectation_that_is_not_known_is_a_difference() -> None:
    [said] = found(expect={"colour": "green"})
    assert said.startswith("colour: this expectation is not known; known are attempt_offsets_ms, batches")
    [said] = found(expect={"hive": [{"colour": "green"}]})
    assert said.startswith("hive[0].colour: this expectation is not known; known are database, table")


def test_an_error_is_compared_by_being_there_and_its_words_where_asked() -> None:
    refused = {"headers": {"Content-Type": "text/plain"}}
    assert found(**refused, expect={"error": "in whatever words"}) == []
    assert found(expect={"error": "in whatever words"})
    assert found(**refused, expect={"error_contains": "CONTENT TYPE"}) == []
    assert found(**refused, expect={"error_contains": "weather"})


@pytest.mark.parametrize("faults", [{"weather": "bad"}, {"backend": "fails sometimes"}])
def test_a_fault_that_is_not_understood_fails_the_case(faults: dict[str, str]) -> None:
    [verdict] = check_cases([case(faults=faults, expect={"status": 200})])
    assert not verdict.is_passed
    assert "case one: fault" in verdict.differences[0]


def test_a_profile_compares_with_what_another_system_does() -> None:
    made = case(
        expect={"status": 200},
        alternates=[
            {"profile": "other-*", "status": 400, "note": "it wants a charset"},
            {"profile": "third/fourth", "note": "it answers nothing"},
        ],
    )
    assert profiles([made]) == ["other-*", "third/fourth"]
    [ours] = check_cases([made])
    [other] = check_cases([made], "other-2.0")
    assert (ours.is_passed, other.differences) == (True, ("status: expected 400, got 200",))
    for profile in ("fourth", "fifth"):
        [verdict] = check_cases([made], profile)
        assert (verdict.is_checked, verdict.is_passed) == (False, False)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "mine.json: expected an array of cases"),
        (b'{"cases": 5}', "mine.json: expected an array of cases"),
        (b"\xff", "mine.json: expected an array of cases"),
        (b"[5]", "mine.json: case 0: expected an object with an id (Expected `object`"),
        (b'[{"expect": {}}]', "mine.json: case 0: expected an object with an id"),
        (b'[{"id": "a", "expect": {}}, {"id": "a", "expect": {}}]', "expected each id once, got a again"),
        (b'{"defaults": {"body": {}}, "cases": []}', "defaults: expected config, clock, request, headers, got body"),
        (b'{"defaults": {"config": 5}, "cases": []}', "mine.json: expected an array of cases"),
    ],
)
def test_what_is_wrong_with_a_file_of_cases_is_named(data: bytes, says: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        read_cases(data, "mine.json")
    assert says in str(caught.value)


def test_a_case_that_cannot_be_read_fails_and_the_others_are_run() -> None:
    second = '{"id": "b", "expect": {}, "clock": {"x": 1}}'
    data = f'[{{"id": "a"}}, {second}, {{"id": "c", "expect": {{"param": "hdfs_username"}}}}]'.encode()
    first, other, third = check_cases(read_cases(data, "mine.json"))
    assert first.differences == ("the case cannot be read: Object missing required field `expect`",)
    assert other.differences == ("the case cannot be read: Object contains unknown field `x` - at `$.clock`",)
    assert third.is_passed


@pytest.mark.parametrize(
    ("what", "attempts"),
    [
        ("always fails", None),
        ("fails once", 1),
        ("fails twice", 2),
        ("fails 3 times", 3),
        ("status 503 for the first 4 attempts", 4),
        ("status 500 for 2 attempts", 2),
    ],
)
def test_how_often_a_backend_fails(what: str, attempts: int | None) -> None:
    assert Faults.read({"backend": what}).failing_attempts == attempts


def test_defaults_are_merged_key_by_key_and_null_takes_one_away() -> None:
    data = msgspec.json.encode(
        {
            "defaults": {"config": {"a": 1, "b": 2}, "headers": {"X": "1", "Y": "2"}},
            "cases": [{"id": "c", "expect": {}, "config": {"b": 3}, "headers": {"X": None}}],
        }
    )
    [made] = read_cases(data, "mine.json")
    assert (made.config, made.headers) == ({"a": 1, "b": 3}, {"Y": "2"})


def test_numbers_of_a_case_keep_their_digits() -> None:
    data = b'[{"id": "a", "expect": {}, "body": {"n": 1.10, "m": 12345678901234567890123}}]'
    [parsed] = read_cases(data, "mine.json")
    assert parsed.bytes_of(parsed.sent[0]) == b'{"n": 1.10, "m": 12345678901234567890123}'


def test_what_describes_a_case_is_passed_over_and_counted() -> None:
    told = {"source": {"page": 7}, "note": "by hand", "problem": "none", "ignored": ["x"], "tags": [1]}
    event = {"body": {"data": []}, "comment": "twice"}
    judged = case(**told, events=[event, event])
    assert judged.ignored == ("ignored", "note", "problem", "source", "tags", "comment of events")
    assert judged.problem == ""
    document = {"version": 2, "cases": [json.loads(json.dumps({"id": "one", "expect": {}, "author": "x"}))]}
    [parsed] = read_cases(json.dumps(document).encode(), "mine.json")
    assert parsed.ignored == ("version of the file", "author")


@pytest.mark.parametrize("name", ["header", "expects", "bodyraw", "configs", "grouping_rule"])
def test_what_is_mistyped_is_not_passed_over(name: str) -> None:
    assert f"{name}: this member is not known; perhaps" in case(**{name: {}}).problem
    with pytest.raises(InvalidInputError, match="perhaps defaults is meant"):
        read_cases(b'{"cases": [], "default": {}}', "mine.json")


def test_the_notice_is_on_stderr_and_in_the_document(tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    document = {
        "id": "a",
        "config": {"hdfs_username": "u"},
        "headers": {"Content-Type": "application/json"},
        "body": {"data": []},
        "expect": {"status": 400},
    }
    file.write_text(json.dumps([{**document, "note": 1}, {**document, "id": "b", "note": 2, "source": 3}]))
    done = CliRunner().invoke(cli, ["ngsi", "check", str(file)])
    assert done.exit_code == 0, done.output
    assert "notice: not known, and passed over: note (2 cases), source (1 cases)" in done.stderr
    done = CliRunner().invoke(cli, ["ngsi", "check", "--json", str(file)])
    assert json.loads(done.stdout)["ignored"] == {"note": 2, "source": 1}
