"""What msgspec knows of a class is made while its module is imported: threads that first ask for it end no process."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator

import pytest

from tests.support import INCLUDE, python

ROOT = INCLUDE.parent
# Nothing is kept with these: each call makes what it needs of them.
_PLAIN = {
    *("Annotated", "Any", "Mapping", "Meta", "None", "Raw", "Sequence", "UUID", "bool", "bytes", "date", "datetime"),
    *("dict", "float", "frozenset", "int", "list", "msgspec", "object", "set", "str", "tuple"),
}
# A class is made with these, as its module is imported.
_AT_IMPORT = {"__init_subclass__", "made_at_import"}
_ADVICE = {
    "decode": "make a Decoder of the type at module level, and call its decode",
    "Decoder": "make it at module level",
    "convert": "call made_at_import(…) below the class, in the module that defines it",
}
_Made = dict[str, set[str]]
"""The names of each module that stand for a class that is made."""

# Imports all of the library; says of each module which of its names stand for a made class, and which classes were made
# only after the import of their own module.
_IMPORTS = """
import enum, gc, json, sys
from importlib import import_module
from importlib.machinery import SourceFileLoader

def is_made(kind):
    if isinstance(kind, enum.EnumMeta):
        return False  # what is kept with it is whole
    # With a structure, and with any other class.
    kept = {type(one).__name__ for one in gc.get_referents(kind)}
    return "StructInfo" in kept or "__msgspec_cache__" in vars(kind)

def classes(module):
    return {name: kind for name, kind in vars(module).items() if isinstance(kind, type)}

not_made = []
execute = SourceFileLoader.exec_module
def watched(loader, module):
    execute(loader, module)
    own = (kind for kind in classes(module).values() if kind.__module__ == module.__name__)
    not_made.extend(kind for kind in own if not is_made(kind))
SourceFileLoader.exec_module = watched

modules = {name: import_module(name) for name in sys.argv[1:]}
made = {name: [key for key, kind in classes(module).items() if is_made(kind)] for name, module in modules.items()}
late = [f"{kind.__module__}.{kind.__qualname__}" for kind in not_made if is_made(kind)]
print(json.dumps([made, sorted(set(late))]), flush=True)
"""


def names_of(*folders: str) -> list[str]:
    """The modules of packages of the library."""
    paths = (path.relative_to(INCLUDE) for folder in folders for path in sorted((INCLUDE / folder).rglob("*.py")))
    return [".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in paths if path.stem != "__main__"]


@pytest.fixture(scope="module")
def imported() -> tuple[_Made, list[str]]:
    """What is made once everything is imported, and what of it was made too late."""
    with python(_IMPORTS, *names_of("custody", "custody_conformance")) as process:
        assert process.stdout is not None
        made, late = json.loads(process.stdout.readline())
    return {module: set(names) for module, names in made.items()}, late


def asked_in_functions(source: str, made: _Made, module: str = "") -> Iterator[str]:
    """Yield the calls by which functions of a module ask msgspec for a class, by line, and what to do instead."""
    known = {name for names in made.values() for name in names if not name.startswith("_")} | made.get(module, set())

    def look(node: ast.AST, *, in_function: bool) -> Iterator[str]:
        if in_function and isinstance(node, ast.Call) and (called := _last(node.func)) in _ADVICE:
            kind = _type_of(node, called)
            names = {_last(part) for part in ast.walk(kind) if isinstance(part, ast.Name | ast.Attribute)}
            if names - _PLAIN - (known if called == "convert" else set()):
                yield f"{node.lineno}: {ast.unparse(node)}: {_ADVICE[called]}: custody/made_types.py says why"
        for name, value in ast.iter_fields(node):
            is_body = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) and name == "body"
            is_later = in_function or (is_body and getattr(node, "name", "") not in _AT_IMPORT)
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from look(child, in_function=is_later)

    return look(ast.parse(source), in_function=False)


def _type_of(call: ast.Call, called: str) -> ast.AST:
    """The type that a call is about; an empty node where it names none."""
    given = {"decode": [], "Decoder": call.args, "convert": call.args[1:]}[called]
    return next((word.value for word in call.keywords if word.arg == "type"), given[0] if given else ast.Pass())


def _last(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def test_no_function_is_the_first_to_ask_msgspec_for_a_class(imported: tuple[_Made, list[str]]) -> None:
    made, _ = imported
    found = []
    for folder in ("include", "plugins", "dags", "spark_jobs"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            module = ".".join(path.relative_to(ROOT / folder).with_suffix("").parts)
            source = path.read_text()
            lines = asked_in_functions(source, made, module) if "msgspec" in source else ()
            found += [f"{path.relative_to(ROOT)}:{line}" for line in lines]
    assert found == []


def test_a_class_is_made_by_its_own_module_and_not_by_two_that_threads_import(
    imported: tuple[_Made, list[str]],
) -> None:
    made, late = imported
    assert {"Event", "ContentClaim"} <= made["custody.model.event"]
    assert late == [], "call made_at_import(…) below each class: custody/made_types.py says why"


@pytest.mark.parametrize(
    "call",
    [
        "msgspec.json.decode(data, type=Thing)",
        "msgspec.msgpack.decode(data, type=list[Thing])",
        "json.decode(data, type=kind)",
        "json.decode(data, type=self.type)",
        "msgspec.json.Decoder(Thing)",
        "Decoder(type=dict[str, rooms.Thing])",
        "msgspec.convert(data, Thing)",
        "convert(data, type=list[Thing])",
        "msgspec.convert(data, _Known)",
    ],
)
def test_a_call_that_asks_for_a_class_is_found_in_functions_alone(call: str) -> None:
    made = {"here": {"Known"}, "there": {"_Known"}}
    for head in ("def read(data):", "async def read(data):", "read = lambda data: \\"):
        source = f"{head}\n    {call}"
        [found] = asked_in_functions(source, made, "here")
        assert found.startswith(f"2: {ast.unparse(ast.parse(call))}: ")
    for source in (f"THING = {call}", f"class Room:\n    thing = {call}", f"def read(data={call}):\n    pass"):
        assert not [*asked_in_functions(source, made, "here")]


@pytest.mark.parametrize(
    "call",
    [
        "msgspec.json.decode(data)",
        "msgspec.json.decode(data, type=dict[str, msgspec.Raw] | None)",
        "msgspec.convert(data, Annotated[int, msgspec.Meta(ge=0)])",
        "msgspec.convert(data, list[Known])",
        "msgspec.convert(data, _Known)",
        "data.decode('utf-8', 'replace')",
        "msgspec.json.Decoder()",
    ],
)
def test_a_call_that_makes_nothing_is_left_alone(call: str) -> None:
    assert not [*asked_in_functions(f"def read(data):\n    return {call}", {"here": {"Known", "_Known"}}, "here")]


# Each try is a process that has not asked yet, whose threads are switched as often as can be.
_TRIES = """
import os, sys
from threading import Barrier, Thread

exec(sys.argv[2])
sys.setswitchinterval(1e-6)

def tried():
    ready, ended = Barrier(8), []
    def ask():
        ready.wait()
        asked()
        ended.append(True)
    threads = [Thread(target=ask) for _ in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    return len(ended) == 8

died = 0
for _ in range(int(sys.argv[1])):
    child = os.fork()
    if child == 0:
        try:
            os._exit(not tried())
        except BaseException:
            os._exit(1)
    died += os.waitpid(child, 0)[1] != 0
print(died, flush=True)
"""
_FIRST = {
    "an event that is appended": """
from custody.model import Event, EventType, require_types
event = Event(EventType.DROP, 1, "component", "type", "uuid", 0)
asked = lambda: require_types(event)
""",
    "a job of the API": """
from pathlib import Path
import msgspec
from custody.format.checked_json import with_checksum
from custody.serving.jobs import JobKind, JobState, KeptJob, decode_job
job = KeptJob(id="1", kind=JobKind.REPLAY, subject="", user="", owner="0" * 32, state=JobState.QUEUED, created_ms=0)
data = with_checksum(msgspec.json.encode(job))
asked = lambda: decode_job(data, Path("job"))
""",
    "a report of a step": """
from pathlib import Path
from custody.workspace.run_reports import StepReport, UnitReport, decode_report
data = StepReport.of("rollover", "/repository", 1.0, [UnitReport(unit="1")]).line().encode()
asked = lambda: decode_report(data, Path("report"))
""",
    "a group that was handed over": """
from custody.workspace.handoff import HandedJournal, HandoffManifest, decode_manifest, encode_manifest
journals = (HandedJournal(name="1", bytes=1, sha256=""),)
data = encode_manifest(HandoffManifest(
    writer="main", database="provenance", incarnation="", epoch=0, first_event_id=0, next_event_id=1, events=1,
    journals=journals, host="", handed_over_ms=0,
))
asked = lambda: decode_manifest(data, "there")
""",
}


@pytest.mark.in_parts(2)
@pytest.mark.parametrize("first", _FIRST)
def test_threads_that_first_ask_for_a_class_do_not_end_their_process(first: str) -> None:
    with python(_TRIES, 60, _FIRST[first]) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "0\n"
