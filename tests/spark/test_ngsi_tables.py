"""The Hive tables of the dialect `spark`, made by a real Spark over files of every mode: every value comes back."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from custody.ngsi import csv, parquet
from custody.ngsi.hive import partition, table
from custody.ngsi.rendering import file_text, render
from custody.spark.submit import submit_command, submit_environment
from tests.unit.ngsi.notified import attribute, body, parameters, recorded

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
}
PROJECT = Path(__file__).resolve().parents[2]
MODES = ("json-row", "json-column", "csv-row", "csv-column", "parquet")
URN = "urn:ngsi-ld:Bench:001"
LATE = {"late": "came\nlater", "Später": "ü"}
TEXTS = {
    name: value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
    for name, value in HOSTILE.items()
}
"""What a table has for each value."""


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
    assert done.returncode == 0, done.stderr[-6000:]
    return json.loads(done.stdout.splitlines()[-1])


def check_tables(found: dict[str, Any]) -> None:
    """Check what `ngsi_hive.py` read: every value of three batches, and which statements were needed."""
    for mode, told in found.items():
        extends = 1 if mode.endswith("column") else 0
        # For each batch: what the note of the crash before asked for, then the same again.
        assert told["said"] == [[1, 0, 0], [0, 0, 0], [0, extends, 0], [0, 0, 0], [0, 0, 0], [0, 0, 0]], mode
        assert told["table"].startswith("default.warden_parks_north_urn_ngsi_ld_bench_001_"), mode
        is_csv = mode.startswith("csv")
        rows = [{name: csv.value(value) if is_csv else value for name, value in row.items()} for row in told["rows"]]
        assert {row["entityId"] for row in rows} == {f"{URN}:{mode}"}
        if mode.endswith("column"):
            assert [{name: row.get(name) for name in HOSTILE} for row in rows] == [TEXTS] * 3
            late = [tuple(row.get(name) for name in LATE) for row in rows]
            assert sorted(late, key=str) == sorted([(None, None), (None, None), tuple(LATE.values())], key=str)
        else:
            read = sorted((row["attrName"], row["attrValue"]) for row in rows)
            assert read == sorted([*TEXTS.items()] * 3 + [*LATE.items()])


@pytest.mark.spark
def test_tables_of_every_mode_follow_their_destinations(tmp_path: Path) -> None:
    check_tables(submitted("ngsi_hive.py", tmp_path, str(tmp_path), "{}"))


def asked(folder: Path, mode: str) -> dict[str, Any]:
    """Write the files of a mode as a user's folder on this machine, and return what makes their table."""
    used = parameters(file_format=mode, hive_dialect="spark", default_service=mode.replace("-", "_"))
    data = body({name: attribute(value, note='a,"b"') for name, value in HOSTILE.items()}, id=mode)
    records = recorded(data, used)
    destination = records[0].placed.destination
    attributes: tuple[str, ...] = ()
    if mode == "parquet":
        day = parquet.day(records[0])
        files = {f"{destination.location}/dt={day}/part.parquet": parquet.file_bytes(parquet.table(records, used))}
        more = [partition(destination, day)]
    else:
        rendered = render(records, used, {})
        attributes = rendered.columns.get(destination.location, ())
        files = {path: file_text(lines).encode() for path, lines in rendered.files.items()}
        more = []
    for path, content in files.items():
        file = folder / path[1:]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    made = table(destination, used, attributes=attributes)
    statements = [text.replace("location '/user", f"location 'file:{folder}/user") for text in made.statements]
    return {"statements": [*statements, *statements, *more], "table": f"{made.database}.{made.name}"}


@pytest.mark.spark
def test_every_value_comes_back_from_the_table_of_every_mode(tmp_path: Path) -> None:
    (tmp_path / "asked.json").write_text(json.dumps({mode: asked(tmp_path, mode) for mode in MODES}))
    found = submitted("ngsi_tables.py", tmp_path, str(tmp_path))
    texts = TEXTS
    metadata = [{"name": "note", "type": "Text", "value": 'a,"b"'}]

    rows = found["json-row"]
    assert {row["attrName"]: row["attrValue"] for row in rows} == texts
    assert all(row["attrMd"] == metadata and row["recvTimeTs"] == "1772600767089" for row in rows)
    [row] = found["json-column"]
    assert {name: row[name] for name in HOSTILE} == texts
    assert all(row[f"{name}_md"] == metadata for name in HOSTILE)
    # A field of CSV is escaped, so that it is one line: `csv.value` undoes it.
    assert {row["attrName"]: csv.value(row["attrValue"]) for row in found["csv-row"]} == texts
    [row] = found["csv-column"]
    assert {name: csv.value(row[name]) for name in HOSTILE} == texts
    rows = found["parquet"]
    assert [(row["attrName"], row["attrValue"]) for row in rows] == list(texts.items())
    assert all(row["attrMd"] == metadata and row["dt"] == "2026-03-04" for row in rows)
