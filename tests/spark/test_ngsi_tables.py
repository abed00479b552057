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
MODES = ("json-row", "json-column", "csv-row", "csv-column", "parquet")


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
    command = submit_command(Path(__file__).with_name("ngsi_tables.py"), [str(tmp_path)], master="local[2]")
    environment = {**os.environ, **submit_environment()}
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    texts = {
        name: value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
        for name, value in HOSTILE.items()
    }
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
