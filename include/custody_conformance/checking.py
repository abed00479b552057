"""Verdicts on cases: the outcome of each one is compared with its expectations.

A verdict lists differences, in words that show where they are. An expectation that is not known counts as one.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from custody.errors import InvalidInputError
from custody.made_types import made_at_import
from custody.ngsi.hive import HiveTable
from custody_conformance.case import EXPECT, Case, read_cases
from custody_conformance.in_memory import ATTEMPTS_MAX, LOCATION, Outcome, run

_SHOWN = 160
_SHIPPED = "shipped"
_UUID_VERSION = 4


def differences(expected: Mapping[str, Any], outcome: Outcome) -> Iterator[str]:
    """Yield how an outcome differs from what was expected; an unknown expectation is a difference, too."""
    for key, value in expected.items():
        check = _CHECKS.get(key)
        if check is None:
            yield f"{key}: this expectation is not known; known are {', '.join(sorted(_CHECKS))}"
        else:
            yield from check(value, outcome)


def _status(value: int, outcome: Outcome) -> Iterator[str]:
    if not outcome.statuses or any(status != value for status in outcome.statuses):
        got = ", ".join(map(str, outcome.statuses)) or "none"
        yield f"status: expected {value}, got {got}{f' ({outcome.error})' if outcome.error else ''}"


def _error(value: str, outcome: Outcome) -> Iterator[str]:
    """Check that there is an error; its words are the case's author's and are not compared."""
    if not outcome.error:
        yield f"error: expected one ({value}), got none"


def _error_contains(value: str, outcome: Outcome) -> Iterator[str]:
    if value.lower() not in outcome.error.lower():
        yield f"error: expected {value!r} in it, got {outcome.error!r}"


def _param(value: str, outcome: Outcome) -> Iterator[str]:
    if value not in outcome.wrong_parameters:
        yield f"param: expected {value} to be refused, got {', '.join(outcome.wrong_parameters) or 'none'}"


def _events(value: int, outcome: Outcome) -> Iterator[str]:
    if outcome.events != value:
        yield f"events: expected {value}, got {outcome.events}"


def _batches(value: int, outcome: Outcome) -> Iterator[str]:
    if outcome.batches != value:
        yield f"batches: expected {value}, got {outcome.batches}"


def _event_headers(value: dict[str, str], outcome: Outcome) -> Iterator[str]:
    for name, expected in value.items():
        got = outcome.headers.get(name.lower())
        if expected.startswith("== "):  # `== transaction-id (uuid4)`: equal to another header, and of that kind
            other, _, kind = expected.removeprefix("== ").partition(" ")
            is_same = got is not None and got == outcome.headers.get(other)
            if not is_same or not (kind == "" or (kind == "(uuid4)" and _is_uuid(got or ""))):
                yield f"header {name}: expected {expected}, got {got} and {other} {outcome.headers.get(other)}"
        elif got != expected:
            yield f"header {name}: expected {expected!r}, got {got!r}"


def _response_headers(value: dict[str, str], outcome: Outcome) -> Iterator[str]:
    for name, expected in value.items():
        got = outcome.answers.get(name)
        if got != expected:
            yield f"response header {name}: expected {expected!r}, got {got!r}"


def _is_uuid(text: str) -> bool:
    try:
        return uuid.UUID(text).version == _UUID_VERSION
    except ValueError:
        return False


def _files(value: list[dict[str, Any]], outcome: Outcome) -> Iterator[str]:
    paths = [item["path"] for item in value]
    for path in outcome.files:
        if path not in paths:
            yield f"file {path}: expected none, got {len(outcome.lines(path))} lines"
    for item in value:
        yield from _file(item["path"], item.get("lines"), outcome)


def _file(path: str, lines: list[str] | None, outcome: Outcome) -> Iterator[str]:
    if path not in outcome.files:
        got = ", ".join(outcome.files) or "no file"
        yield f"file {path}: expected, got {got}"
        return
    if lines is None:
        return
    got_lines = outcome.lines(path)
    if len(got_lines) != len(lines):
        yield f"file {path}: expected {len(lines)} lines, got {len(got_lines)}"
    for number, (expected, got) in enumerate(zip(lines, got_lines, strict=False), 1):
        if not _is_same_line(expected, got):
            yield f"file {path} line {number}: {_first_difference(expected, got)}"


def _is_same_line(expected: str, got: str) -> bool:
    """Whether two lines say the same; JSON may have blanks and escapes of its own, its members are in order."""
    if expected == got:
        return True
    try:
        return expected.startswith("{") and _members(expected) == _members(got)
    except ValueError:
        return False


def _members(text: str) -> object:
    # Numbers are compared as they are written: 1 and 1.0 are not the same line.
    return json.loads(text, object_pairs_hook=lambda pairs: ("object", pairs), parse_int=_number, parse_float=_number)


def _number(text: str) -> tuple[str, str]:
    return ("number", text)


def _first_difference(expected: str, got: str) -> str:
    at = next((at for at, (one, other) in enumerate(zip(expected, got, strict=False)) if one != other), None)
    at = min(len(expected), len(got)) if at is None else at
    start = max(0, at - _SHOWN // 2)
    lead = "…" if start else ""
    return (
        f"differs at character {at}\n      expected {lead}{expected[start : start + _SHOWN]}"
        f"\n      got      {lead}{got[start : start + _SHOWN]}"
    )


def _path(value: str, outcome: Outcome) -> Iterator[str]:
    yield from _file(value, None, outcome)


def _lines(value: list[str], outcome: Outcome) -> Iterator[str]:
    """The lines of the first file, where a case names only one."""
    if not outcome.files:
        yield f"lines: expected {len(value)}, got no file"
        return
    yield from _file(next(iter(outcome.files)), value, outcome)


def _raw_suffix(value: str, outcome: Outcome) -> Iterator[str]:
    for path, data in outcome.files.items():
        if data and not data.endswith(value.encode()):
            yield f"file {path}: expected it to end in {value!r}, got {data[-20:]!r}"


def _no_blank_lines(value: bool, outcome: Outcome) -> Iterator[str]:
    for path in outcome.files:
        if value and not all(outcome.lines(path)):
            yield f"file {path}: expected no blank lines"


def _offsets(value: list[int], outcome: Outcome) -> Iterator[str]:
    got = outcome.attempt_offsets_ms
    if len(got) > ATTEMPTS_MAX:  # it would go on for ever
        got = got[: len(value)]
    if got != value:
        yield f"attempt_offsets_ms: expected {value}, got {got[:20]}"


def _dropped(value: bool, outcome: Outcome) -> Iterator[str]:
    is_endless = len(outcome.attempt_offsets_ms) > ATTEMPTS_MAX
    got = outcome.is_dropped and not is_endless
    if got != value:
        yield f"dropped: expected {value}, got {got}"


def _rest_calls(value: list[list[Any]], outcome: Outcome) -> Iterator[str]:
    got = [
        (method, target.lower() if target != LOCATION else target, status) for method, target, status in outcome.calls
    ]
    calls = [(method, target.lower() if target != LOCATION else target, status) for method, target, status in value]
    for number, (expected, actual) in enumerate(zip(calls, got, strict=False), 1):
        if expected != actual:
            yield f"call {number}: expected {expected}, got {actual}"
    if len(calls) != len(got):
        yield f"calls: expected {len(calls)}, got {len(got)}"


def _endpoints(value: list[str], outcome: Outcome) -> Iterator[str]:
    if list(outcome.endpoints) != value:
        yield f"endpoint_order_after: expected {value}, got {list(outcome.endpoints)}"


def _hive(value: list[dict[str, Any]], outcome: Outcome) -> Iterator[str]:
    if len(value) != len(outcome.tables):
        yield f"hive: expected {len(value)} tables, got {len(outcome.tables)}"
    for number, (expected, got) in enumerate(zip(value, outcome.tables, strict=False)):
        document = _document(got)
        for key, part in expected.items():
            if key not in document:
                yield f"hive[{number}].{key}: this expectation is not known; known are {', '.join(document)}"
            elif not _is_same_part(key, part, document[key]):
                yield f"hive[{number}].{key}: expected {part}, got {document[key]}"


def _document(hive_table: HiveTable) -> dict[str, Any]:
    return {
        "database": hive_table.database,
        "table": hive_table.name,
        "columns": [list(column) for column in hive_table.columns],
        "row_format": hive_table.row_format,
        "location": hive_table.location,
        "create_database": hive_table.create_database,
        "statements": list(hive_table.statements),
    }


def _is_same_part(key: str, expected: Any, got: Any) -> bool:  # noqa: ANN401 - any JSON
    """Compare a part of a table; Hive lowers the names of columns."""
    if key == "columns":
        return [[name.lower(), kind] for name, kind in expected] == [[name.lower(), kind] for name, kind in got]
    return bool(expected == got)


def _ddl(value: str, outcome: Outcome) -> Iterator[str]:
    statements = [statement for hive_table in outcome.tables for statement in hive_table.statements]
    if value.lower() not in (statement.lower() for statement in statements):
        creates = [statement for statement in statements if statement.startswith("create ")] or ["no statement"]
        yield f"ddl: {_first_difference(value, creates[-1])}"


_CHECKS: dict[str, Callable[[Any, Outcome], Iterator[str]]] = {
    "status": _status,
    "error": _error,
    "error_contains": _error_contains,
    "param": _param,
    "events": _events,
    "batches": _batches,
    "event_headers": _event_headers,
    "response_headers": _response_headers,
    "files": _files,
    "path": _path,
    "path_only": _path,
    "lines": _lines,
    "raw_suffix": _raw_suffix,
    "no_blank_lines": _no_blank_lines,
    "attempt_offsets_ms": _offsets,
    "dropped": _dropped,
    "rest_calls": _rest_calls,
    "endpoint_order_after": _endpoints,
    "hive": _hive,
    "ddl": _ddl,
}
KNOWN = frozenset(_CHECKS)
"""The names of expectations."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on a case; `is_checked` is False where the profile expects nothing of it."""

    id: str
    title: str
    differences: tuple[str, ...]
    is_checked: bool = True

    @property
    def is_passed(self) -> bool:
        """Whether everything came out as expected."""
        return self.is_checked and not self.differences


made_at_import(Verdict)


def check_cases(
    cases: Iterable[Case], profile: str = EXPECT, run_one: Callable[[Case], Outcome] = run
) -> Iterator[Verdict]:
    """Yield the verdict on each case, which `run_one` runs: by default in memory.

    The profile `expect` is what custody promises. Any other names what another system does, among the alternates of
    a case: the verdict then says where custody differs from it. Of an alternate only what can be compared counts; a
    case that has none is not checked.
    """
    for case in cases:
        if case.problem:
            yield Verdict(case.id, case.title, (case.problem,))
            continue
        expected = case.expected(profile)
        if profile != EXPECT:
            expected = {key: value for key, value in expected.items() if key in KNOWN}
        if not expected:
            yield Verdict(case.id, case.title, (), is_checked=False)
            continue
        try:
            problems = tuple(differences(expected, run_one(case)))
        # A case that cannot be run fails; the others are run.
        except InvalidInputError as error:
            problems = (str(error),)
        yield Verdict(case.id, case.title, problems)


def profiles(cases: Iterable[Case]) -> list[str]:
    """Return the profiles that cases name, besides the one that is always there."""
    return sorted({str(item["profile"]) for case in cases for item in case.alternates if "profile" in item})


def shipped_cases() -> tuple[Case, ...]:
    """Return the cases that come with custody."""
    folder = files("custody_conformance") / _SHIPPED
    shipped = sorted((item.name, item.read_bytes()) for item in folder.iterdir() if item.name.endswith(".json"))
    return tuple(case for name, data in shipped for case in read_cases(data, name))
