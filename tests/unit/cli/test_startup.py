"""Imports of a command: no more than it needs, so that it starts quickly. Modules are counted, not seconds."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import click
import pytest

from custody.cli.main import cli
from custody.repository import Repository

_RUN = """
import json, sys
from custody.cli.main import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
sys.stderr.write("\\n" + json.dumps(sorted(sys.modules)))
"""
_HEAVY = {
    "airflow",
    "cryptography",
    "duckdb",
    "dulwich",
    "fastapi",
    "fastavro",
    "fsspec",
    "grpc",
    "obstore",
    "pandas",
    "pyspark",
    "starlette",
    "uvicorn",
}
INCLUDE = Path(__file__).parents[3] / "include"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(INCLUDE)}


def imported(*arguments: object) -> tuple[set[str], set[str]]:
    """The packages that a command imports, and the modules of custody."""
    done = subprocess.run(
        [sys.executable, "-c", _RUN, *map(str, arguments)], check=True, capture_output=True, text=True, env=ENVIRONMENT
    )
    modules = json.loads(done.stderr.splitlines()[-1])
    return {name.partition(".")[0] for name in modules}, {name for name in modules if name.startswith("custody.")}


@pytest.mark.parametrize("arguments", [("--help",), ("--version",)], ids=" ".join)
def test_help_imports_click_and_nothing_heavy(arguments: tuple[str, ...]) -> None:
    packages, modules = imported(*arguments)
    assert not packages & (_HEAVY | {"google", "msgspec", "numpy", "pyarrow", "pydantic", "rich", "whoosh"})
    assert modules == {
        "custody.cli",
        "custody.cli.error_report",
        "custody.cli.groups",
        "custody.cli.main",
        "custody.errors",
    }


_OTHER_WORK = {"capture", "ngsi", "ngsi_sink", "sample", "serving", "spark", "sql"}


@pytest.mark.parametrize(
    ("arguments", "not_needed", "rooms_not_needed", "modules_max"),
    [
        (("status",), _HEAVY | {"lark", "whoosh"}, _OTHER_WORK | {"index", "lineage", "query", "swh"}, 141),
        (
            ("search", "event_type:SEND"),
            _HEAVY,
            _OTHER_WORK | {"flow", "ingest", "lineage", "recovery", "retention", "swh"},
            169,
        ),
    ],
    ids=["status", "search"],
)
def test_status_and_search_import_what_they_need(
    live: Repository, arguments: tuple[str, ...], not_needed: set[str], rooms_not_needed: set[str], modules_max: int
) -> None:
    packages, modules = imported("-r", live.settings.root, *arguments)
    assert not packages & not_needed
    assert not {name.split(".")[1] for name in modules} & rooms_not_needed
    assert len(modules) <= modules_max


_QUESTIONS = """
import sys
from pathlib import Path
from custody.lineage import Bounds
from custody.repository import Repository
repository = Repository.open(Path(sys.argv[1]))
first = repository.search("", limit=500, oldest_first=True).events
uuids = sorted({stored.event.flowfile_uuid for stored in first})
event = repository.get(first[0].event.event_id)
for query in (
    f"flowfile_uuid:{event.flowfile_uuid}",
    f"flowfile_uuid:({' OR '.join(uuids[:100])})",
    f"event_type:{event.event_type} AND event_time:[{event.event_time} TO {event.event_time + 86_400_000}]",
    "details:a* OR NOT event_type:SEND",
):
    for limit in (20, 400):
        repository.search(query, limit=limit)
repository.facets("event_type:SEND", ["component_id", "day"])
repository.histogram("event_type:SEND", event.event_time, event.event_time + 1000, 2)
repository.lineage(uuids[:3], Bounds(1000))
repository.plan_retention()
assert uuids
assert "pandas" not in sys.modules
"""


@pytest.mark.parametrize("kind", ["live", "half_live"])
def test_questions_of_a_program_import_no_pandas(kind: str, request: pytest.FixtureRequest) -> None:
    # The command refuses pandas; a program that uses the library keeps it, and its import takes longer than questions.
    root = request.getfixturevalue(kind).settings.root
    subprocess.run([sys.executable, "-c", _QUESTIONS, str(root)], check=True, env=ENVIRONMENT)


_PROGRAM = """
import sys
from pathlib import Path
from custody.lineage import Bounds
from custody.recovery import STEPS
from custody.repository import Repository
from custody.retention import measure_disk
from custody.vfs import PosixFileSystem
from custody.workspace import Workspace
from tests.support import sample

repository = Repository.create(Path(sys.argv[1]))
events = sample(400)
for part in (events[:200], events[200:]):
    with repository.writer() as writer:
        writer.append(part)
    for step in STEPS.values():
        for unit in step.units(repository.settings):
            step.run(Workspace(repository.settings, unit.writer), unit)
assert repository.search("event_type:DROP", limit=5).total
repository.lineage([events[0].flowfile_uuid], Bounds(1000))
assert len(list(repository.events())) == 400
repository.plan_retention()
repository.workspace().catalog.checkpoint()
settings = repository.settings
(settings.store / "padding").write_bytes(bytes(1 << 20))  # no limit is smaller
used = measure_disk(settings, PosixFileSystem()).total_bytes
limits = {"bytes_max": used - 1, "purge_percent": 100, "grace": "0 seconds"}
section = settings.retention.model_copy(update=limits)
limited = Repository(settings.model_copy(update={"retention": section}))
for _ in range(2):
    limited.apply_retention()
assert 0 < len(list(limited.events())) < 400
limited.workspace().catalog.checkpoint()
assert "pandas" not in sys.modules
"""


def test_the_work_of_a_program_imports_no_pandas(tmp_path: Path) -> None:
    environment = {**ENVIRONMENT, "PYTHONPATH": f"{INCLUDE}:{INCLUDE.parent}"}
    subprocess.run([sys.executable, "-c", _PROGRAM, str(tmp_path / "repository")], check=True, env=environment)


_SINK = """
import sys
from pathlib import Path
from custody.ngsi_sink.notifications import LiveNotifications
from custody.vfs import PosixFileSystem
from tests.unit.ngsi_sink.sink_repository import bench, opened, receive, received, values

repository = received(Path(sys.argv[1]), [bench(1), bench(2, "Tree")])
receive(repository, [bench(number, f"Car{number}") for number in range(100)])
with opened(repository, with_journals=True) as job:
    assert job.run().files == 102
with opened(repository) as job:
    assert not job.run().files
[(writer, bound), *_] = LiveNotifications(repository, PosixFileSystem()).bounds().items()
assert LiveNotifications(repository, PosixFileSystem()).get(writer, [bound - 1])
assert values(repository) == ["1001"]
assert "pandas" not in sys.modules
"""


def test_the_sink_imports_no_pandas(tmp_path: Path) -> None:
    environment = {**ENVIRONMENT, "PYTHONPATH": f"{INCLUDE}:{INCLUDE.parent}"}
    subprocess.run([sys.executable, "-c", _SINK, str(tmp_path / "repository")], check=True, env=environment)


def test_names_that_are_imported_when_they_are_used_are_those_that_checkers_see() -> None:
    lazy = [path for path in (INCLUDE / "custody").rglob("__init__.py") if "lazy_exports" in path.read_text()]
    assert {path.parent.name for path in lazy} >= {"repository", "swh"}
    for path in lazy:
        package = import_module(".".join(path.parent.relative_to(INCLUDE).parts))
        seen = {
            alias.asname or alias.name: statement.module
            for block in ast.parse(path.read_text()).body
            if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
            for statement in block.body
            if isinstance(statement, ast.ImportFrom)
            for alias in statement.names
        }
        assert seen == {name: module for module, names in package._MODULES.items() for name in names}
        assert all(getattr(package, name) is not None for name in package.__all__)
        assert not hasattr(package, "no_such_name")


def test_the_help_of_the_program_is_that_of_its_commands() -> None:
    context = click.Context(cli)
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        assert cli.short_helps()[name] == command.get_short_help_str(1000)
    assert all(len(line) < 100 for line in cli.get_help(context).splitlines())


def test_shells_complete_commands_and_options() -> None:
    def completed(words: str) -> str:
        environment = ENVIRONMENT | {
            "_CUSTODY_COMPLETE": "bash_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split()) - 1),
        }
        script = "from custody.cli.main import cli; cli.main(prog_name='custody')"
        return subprocess.run(
            [sys.executable, "-c", script], check=True, capture_output=True, text=True, env=environment
        ).stdout

    assert completed("custody se").split() == ["plain,search", "plain,serve"]
    assert "plain,rebuild" in completed("custody catalog re").split()
    assert "plain,--cursor" in completed("custody search --cu").split()
