"""A newer custody, made of this one: its events have one column more, and readers of version 1 may read them.

`make_newer(folder)` writes a repository as that one would have left it: events 0 to 2 are in a live log, 3 to 5 in a
staged unit and their journal, 6 in a journal of rows, 7 to 46 in a journal of columns. Their column `weather` is what
this custody does not know.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

INCLUDE = Path(__file__).resolve().parents[2] / "include"
_LAST = '        pa.field("delivered_by", pa.string()),\n'
EDITS = {
    "model/columns.py": [
        ("SCHEMA_VERSION = 2\n", "SCHEMA_VERSION = 3\n"),
        (_LAST, f"{_LAST}{{added}}"),
        (
            "list(EVENT_SCHEMA)[:-1]), SCHEMA_",
            "list(EVENT_SCHEMA)[:-2]), 2: pa.schema(list(EVENT_SCHEMA)[:-1]), SCHEMA_",
        ),
    ],
    "model/event.py": [
        (
            "    delivered_by: str | None = None\n",
            "    delivered_by: str | None = None\n    weather: str | None = None\n",
        ),
    ],
}
"""What the next release would change to add a column: all of it."""
_ADDED = '        pa.field("weather", pa.string()),\n'
_BREAKING = ("READER_VERSION = 1\n", "READER_VERSION = 3\n")
_SCRIPT = """
import sys
from pathlib import Path
from custody.model import Event
from custody.recovery import STEPS
from custody.repository import Repository
from custody.workspace import Workspace

def events(first, count):
    return [
        Event(event_type="RECEIVE", event_time=1_772_359_200_000 + n, component_id="c", component_type="Load",
              flowfile_uuid=f"f-{n}", file_size=n, transit_uri="x:y", weather="rain")
        for n in range(first, first + count)
    ]

def steps(*names):
    for name in names:
        for unit in STEPS[name].units(repository.settings):
            STEPS[name].run(Workspace(repository.settings, unit.writer), unit)

def append(first, count):
    with repository.writer() as writer:
        writer.append(events(first, count))

repository = Repository.create(Path(sys.argv[1]))
append(0, 3)
steps(*STEPS)
append(3, 3)
steps("rollover")
append(6, 1)
append(7, 40)
"""


def make_newer(folder: Path, *, breaking: bool = False) -> None:
    """Write the repository into a new folder; a `breaking` one says that readers of version 1 cannot read it."""
    with tempfile.TemporaryDirectory() as place:
        package = Path(place) / "custody"
        shutil.copytree(INCLUDE / "custody", package, ignore=shutil.ignore_patterns("__pycache__"))
        edits = {**EDITS, "model/columns.py": [*EDITS["model/columns.py"], *([_BREAKING] if breaking else [])]}
        for name, changes in edits.items():
            text = (package / name).read_text()
            for before, after in changes:
                if before not in text:
                    raise ValueError(f"{name}: expected {before!r}. The schema is made elsewhere now: change EDITS.")
                text = text.replace(before, after.replace("{added}", _ADDED))
            (package / name).write_text(text)
        environment = {**os.environ, "PYTHONPATH": place, "PYTHONDONTWRITEBYTECODE": "1"}
        subprocess.run([sys.executable, "-c", _SCRIPT, str(folder)], env=environment, check=True)


if __name__ == "__main__":
    make_newer(Path(sys.argv[1]))
