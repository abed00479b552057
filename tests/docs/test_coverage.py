"""docs/coverage.md: every row names a page and a test that are there, and rows are numbered without a gap."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, read

PROJECT = DOCS.parent
STATES = {"yes", "better", "otherwise", "no"}
HEADING = "| no. | statement | state | see | test |"
ROW = re.compile(r"\| (\d+) \| (.+?) \| (\w+) \| (.*?) \| (.*?) \|")


def rows() -> list[tuple[str, int, str, str, str, str]]:
    """Section, number, statement, state, where to see it, test; of every row of every section."""
    listed = []
    for part in read("coverage.md").split("\n## ")[1:]:
        section = part.partition("\n")[0]
        lines = part.partition(HEADING)[2].splitlines()[2:]
        for line in lines:
            if not line.startswith("|"):
                break
            match = ROW.fullmatch(line)
            assert match is not None, f"{section}: {line}"
            listed.append((section, int(match[1]), match[2], match[3], match[4], match[5]))
    return listed


@cache
def functions(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def test_the_statements_of_a_section_are_numbered_without_a_gap() -> None:
    numbers: dict[str, list[int]] = {}
    for section, number, *_ in rows():
        numbers.setdefault(section, []).append(number)
    assert numbers
    for section, listed in numbers.items():
        assert listed == list(range(1, len(listed) + 1)), section


def test_every_row_says_its_state_and_where_it_can_be_seen() -> None:
    for section, number, _, state, see, _ in rows():
        assert state in STATES, (section, number)
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", see):
            assert (DOCS / target).resolve().exists(), (section, number, target)
        assert see, (section, number)


def test_every_statement_that_holds_names_tests_that_are_there() -> None:
    for section, number, _, state, _, test in rows():
        names = re.findall(r"`([^`]+)`", test)
        assert names or state == "no", (section, number)
        for name in names:
            file, _, function = name.partition("::")
            path = PROJECT / "tests" / file
            assert path.is_file(), (section, number, name)
            assert not function or function in functions(path), (section, number, name)


def test_what_does_not_hold_says_why() -> None:
    for section, number, _, state, see, _ in rows():
        if state in ("no", "otherwise"):
            assert len(re.sub(r"\]\([^)]*\)", "", see)) > 20, (section, number)


@pytest.mark.parametrize("state", sorted(STATES))
def test_the_counts_in_the_introduction_are_those_of_the_table(state: str) -> None:
    counted = sum(row[3] == state for row in rows())
    assert re.search(rf"\| {state} \| {counted} \|", read("coverage.md")), (state, counted)
