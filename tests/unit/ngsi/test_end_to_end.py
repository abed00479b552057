"""Cases that go the whole way: HTTP, journal, rollover, sink, files; some of them here, all in the slow suite."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from custody.cli.main import cli
from custody.ngsi.cases.case import Case
from custody.ngsi.cases.checking import check_cases, shipped_cases
from custody.spark.ngsi_cases import EndToEnd

CASES = {case.id: case for case in shipped_cases()}
FEW = ("MOD-01", "MOD-17", "MOD-27", "MOD-33", "BAT-01", "REQ-01", "HIV-01")
"""A mode with metadata files, one with columns, one of Parquet; a timestamp, batches, a refusal, tables."""


def failed(cases: list[Case]) -> list[str]:
    return [
        f"{verdict.id}: {'; '.join(verdict.differences)}"
        for verdict in check_cases(cases, run_one=EndToEnd().run)
        if not verdict.is_passed
    ]


def test_some_cases_come_out_end_to_end_as_in_memory() -> None:
    assert failed([CASES[name] for name in FEW]) == []


@pytest.mark.slow
def test_every_shipped_case_comes_out_end_to_end() -> None:
    assert failed(list(CASES.values())) == []


def test_a_case_that_does_not_come_out_says_what_came() -> None:
    case = CASES["MOD-01"]
    wrong = Case(**{**{name: getattr(case, name) for name in case.__struct_fields__}, "expect": {"status": 400}})
    [verdict] = check_cases([wrong], run_one=EndToEnd().run)
    assert verdict.differences == ("status: expected 400, got 200",)


def test_the_command_runs_cases_end_to_end() -> None:
    done = CliRunner().invoke(cli, ["ngsi", "check", "--end-to-end", "--case", "MOD-02"])
    assert (done.exit_code, done.output) == (0, "1 cases, 1 checked against expect: 1 as expected, 0 not\n")
