"""Tables at any width: nothing that is copied as a whole is ever torn apart, and nothing is left out."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from custody.cli.main import cli
from custody.cli.output import column_widths, print_table, records
from custody.repository import Repository

UUID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")
TIME = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z")
CELLS = st.lists(st.text("ab", max_size=12), max_size=4).map(" ".join)


@pytest.mark.parametrize("width", ["40", "80", "120", None])
@pytest.mark.parametrize(
    "arguments", [("search", "-n", "5"), ("events", "-n", "5"), ("event", "7"), ("catalog", "log")]
)
def test_ids_and_times_are_whole_at_any_width(
    live: Repository, arguments: tuple[str, ...], width: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found(columns: str | None) -> tuple[list[str], list[str]]:
        if columns is not None:
            monkeypatch.setenv("COLUMNS", columns)
        printed = CliRunner().invoke(cli, ["-r", str(live.settings.root), *arguments]).stdout
        return UUID.findall(printed), TIME.findall(printed)

    wide = found("400")
    monkeypatch.delenv("COLUMNS")
    assert wide[0]
    assert wide[1]
    assert found(width) == wide


@given(st.lists(st.tuples(CELLS, CELLS, CELLS), min_size=1, max_size=4), st.integers(10, 60))
def test_a_table_fits_or_becomes_records_and_tears_no_word(rows: list[tuple[str, ...]], width: int) -> None:
    columns = ["a", "b", "c"]
    words = [word for row in rows for cell in row for word in cell.split()]
    widths = column_widths(columns, rows, width)
    if widths is not None:
        assert sum(widths) + 3 * len(widths) + 1 <= width
        for number, room in enumerate(widths):
            assert all(cell_len(word) <= room for row in rows for word in row[number].split())
    else:
        lines = list(records(columns, rows, width))
        told = [word for line in lines for word in line.split() if word not in columns or word in words]
        assert sorted(word for word in told if word in words and word not in columns) == sorted(
            word for word in words if word not in columns
        )
        assert all(cell_len(line) <= width for line in lines if len(line.split()) > 2)


def test_a_pipe_gets_a_table_as_wide_as_it_has_to_be(capsys: pytest.CaptureFixture[str]) -> None:
    print_table("", ("name", "number#", "text"), [("x" * 300, 5, "two words"), ("y", 10, "z")])
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert lines[0] == ["name", "number", "text"]
    assert lines[2:] == [["x" * 300, "5", "two", "words"], ["y", "10", "z"]]


def test_fields_and_values_keep_one_line_each(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    print_table("", ("field", "value"), [("uri", "u" * 50), ("id", "7")])
    assert capsys.readouterr().out.splitlines() == ["  uri  " + "u" * 50, "  id   7", ""]


def test_no_line_of_a_table_is_wider_than_the_terminal(live: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    printed = CliRunner().invoke(cli, ["-r", str(live.settings.root), "search", "-n", "50"]).stdout
    assert max(map(cell_len, printed.splitlines())) <= 80
