"""Hive tables by a real Spark over files of every mode: they follow their destinations, every value comes back."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from custody.ngsi import rendering
from custody.spark.environment import submit_environment
from custody.spark.submit import submit_command
from tests.unit.ngsi.notification_records import attribute, body

HOSTILE: dict[str, Any] = {
    "plain": "oak",
    "comma": "a,b",
    "quotes": 'say "hi"',
    "quoted": '"',
    "lines": "a\nb\r\nc",
    "path": "C:\\temp\\new",
    "slashes": "\\\\host",
    "last": "ends in \\",
    "tab": "a\tb",
    "blanks": "  x  ",
    "unicode": "größer 🌳 \u2028",
    "json": {"a": [1.5, "x,y"], "b": '"'},
    "number": 12345678901234567890,
    "single": "it's",
    "empty": "",
    **dict.fromkeys(
        (
            *("${env:HOME}", "${spark.master}", "${system:user.home}", "${hivevar:x}", "${env.HOME}", "$HOME"),
            *(
                "tick`s",
                "it's",
                "back\\slash",
                "\\u0041",
                'say "so"',
                "line\nfeed",
                "%41",
                "x -- y",
                "/* y",
                "Größe 🌳",
            ),
        ),
        "called so",
    ),
}
"""Values, and names, that a reader of JSON, CSV or SQL may take for something else."""
PROJECT = Path(__file__).resolve().parents[2]
PLACES = ("%41 it's `so` #1", "$HOME; -- ü", "${spark.master}", "${env.HOME}", "{a,b}", "a*", "a?", "[ab]", "a\\b")
"""Names of entities that are folders of tables by the new encoding; from the third on readers take them for more."""
MODES = ("json-row", "json-column", "csv-row", "csv-column", "parquet")
URN = "urn:ngsi-ld:Bench:001"
LATE = {"late": "came\nlater", "Später": "ü"}
TEXTS = {
    name: value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
    for name, value in HOSTILE.items()
}
"""What a table has for each value."""


METADATA = [{"name": "note", "type": "Text", "value": 'a,"b"'}]


def batches(mode: str) -> list[bytes]:
    """The notifications of three batches: the hostile values; two more attributes; the first ones alone."""
    hostile = {name: attribute(value, note='a,"b"') for name, value in HOSTILE.items()}
    late = {name: attribute(value) for name, value in LATE.items()}
    return [body(found, id=f"{URN}:{mode}") for found in (hostile, {**hostile, **late}, hostile)]


def submitted(script: str, folder: Path, *arguments: str, master: str = "local[2]") -> Any:
    """Submit a job of this folder and return what its last line says."""
    command = submit_command(Path(__file__).with_name(script), list(arguments), master=master)
    path = os.pathsep.join([str(PROJECT / "include"), str(PROJECT)])
    environment = {**os.environ, **submit_environment(), "PYTHONPATH": path}
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-6000:] + done.stdout[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def check_tables(found: dict[str, Any]) -> None:
    """Check what `ngsi_hive.py` read: every value of three batches, and which statements were needed."""
    for mode in ("json-row", "csv-row"):
        for name, told in zip(PLACES, found.pop(f"places {mode}"), strict=True):
            check_place(name, told)
    for mode, told in found.items():
        extends = 1 if mode.endswith("column") else 0
        # For each batch: what the note of the crash before asked for, then the same again.
        assert told["said"] == [[1, 0, 0], [0, 0, 0], [0, extends, 0], [0, 0, 0], [0, 0, 0], [0, 0, 0]], mode
        assert told["table"].startswith("default.warden_parks_north_urn_ngsi_ld_bench_001_"), mode
        rows = [_plain(row) for row in told["rows"]] if mode.startswith("csv") else told["rows"]
        assert {row["entityId"] for row in rows} == {f"{URN}:{mode}"}
        if mode.endswith("column"):
            _check_columns(rows, has_metadata=mode == "json-column")
        else:
            read = sorted((row["attrName"], row["attrValue"]) for row in rows)
            assert read == sorted([*TEXTS.items()] * 3 + [*LATE.items()])
            if mode != "csv-row":
                assert all(row["attrMd"] == ([] if row["attrName"] in LATE else METADATA) for row in rows)
            if mode != "parquet":
                assert {row["recvTimeTs"] for row in rows} == {"1772600767089"}
            else:
                assert {row["dt"] for row in rows} == {"2026-03-04"}


def check_place(name: str, told: dict[str, Any]) -> None:
    """Check the table of one of `PLACES`: it has this entity's rows, or it is not made and the report says why."""
    if name in PLACES[:2]:
        assert (told["said"], told["ids"]) == ([1, 0, 0], [name])
        assert told["location"].endswith(f"/{told['folder']}")
    else:
        [made, extended, waiting, problem] = told["said"]
        assert (made, extended, waiting) == (0, 0, 0)
        assert "expected a path without any of * ? [ ] { }" in problem
        assert told["ids"] is None


def _plain(row: dict[str, str]) -> dict[str, str | None]:
    # A field of CSV is escaped, so that it is one line: `rendering.value` undoes it. OpenCSVSerde reads NULL as a text.
    return {name: None if value == "NULL" else rendering.value(value) for name, value in row.items()}


def _check_columns(rows: list[dict[str, Any]], *, has_metadata: bool) -> None:
    assert [{name: row.get(name) for name in HOSTILE} for row in rows] == [TEXTS] * 3
    late = [tuple(row.get(name) for name in LATE) for row in rows]
    assert sorted(late, key=str) == sorted([(None, None), (None, None), tuple(LATE.values())], key=str)
    if has_metadata:
        assert all(row[f"{name}_md"] == METADATA for row in rows for name in HOSTILE)


@pytest.mark.in_parts(3)
@pytest.mark.spark
def test_tables_of_every_mode_follow_their_destinations(tmp_path: Path) -> None:
    check_tables(submitted("ngsi_hive.py", tmp_path, str(tmp_path), "{}"))
    assert (tmp_path / "hive" / "metastore").is_dir()
    assert (tmp_path / "hive" / "derby.log").is_file()
    assert not list((tmp_path / "hive" / "tables").iterdir())
