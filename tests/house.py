"""Measures the structure of the project: `python -m tests.house [--tree FOLDER] [--json]`.

The same figures can be had of an earlier checkout with `--tree`, so that a change of structure shows what it changed:

- the modules of the library (without the `__init__.py` of packages), their sizes, those with a single importer,
  and names that are used several times;
- four ways through the library: how many modules a piece of data is handed to between two doors. A marked event, query,
  log file or notification is followed by a tracer; a module is handed the data when one of its functions is called
  with something that holds the mark, or returns it, and entered when any of its functions runs on the way;
- the share of comment lines, and the longest modules.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import importlib
import importlib.util
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
import tokenize
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
MARK = "zebrafinch"
"""A word that nothing but the followed data holds."""
_DEPTH = 4
_WIDTH = 40
_LIBRARY = "custody"


@dataclasses.dataclass(frozen=True)
class Module:
    """One file of the library."""

    name: str
    path: Path
    lines: int
    comments: int
    """Lines with a comment of their own or behind code."""
    header: int
    """Lines before the first definition: docstring and imports."""
    classes: tuple[str, ...]
    imports: frozenset[tuple[str, str]]
    """Pairs of a module and the name that is imported from it."""
    bases: tuple[tuple[str, str], ...]
    """Pairs of a class and a base of it, as they are written."""


def modules(tree: Path) -> dict[str, Module]:
    """Return the modules of the library, generated ones left out."""
    include = tree / "include"
    found = {}
    for path in sorted((include / _LIBRARY).rglob("*.py")):
        if not path.name.endswith("_pb2.py"):
            parts = path.relative_to(include).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            found[name] = _module(name, path)
    return found


def _module(name: str, path: Path) -> Module:
    text = path.read_text()
    body = ast.parse(text).body
    first = next((node.lineno for node in body if not isinstance(node, ast.Expr | ast.Import | ast.ImportFrom)), 0)
    imports = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module:
            imports |= {(node.module, alias.name) for alias in node.names}
    classes = [node for node in body if isinstance(node, ast.ClassDef)]
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return Module(
        name=name,
        path=path,
        lines=text.count("\n"),
        comments=sum(token.type == tokenize.COMMENT for token in tokens),
        header=max(0, first - 1),
        classes=tuple(node.name for node in classes),
        imports=frozenset(imports),
        bases=tuple((node.name, base.id) for node in classes for base in node.bases if isinstance(base, ast.Name)),
    )


def importers(library: Mapping[str, Module]) -> dict[str, set[str]]:
    """Return who imports each module; a re-export of a package leads to the module that defines the name."""
    packages = {name for name, module in library.items() if module.path.name == "__init__.py"}
    exported = {}
    for name in packages:
        for source, symbol in library[name].imports:
            exported[name, symbol] = source
    users: dict[str, set[str]] = defaultdict(set)
    for name, module in library.items():
        if name in packages:
            continue
        for source, symbol in module.imports:
            target = f"{source}.{symbol}" if f"{source}.{symbol}" in library else exported.get((source, symbol), source)
            if target in library and target != name:
                users[target].add(name)
    return users


def split_classes(library: Mapping[str, Module]) -> list[str]:
    """Return the classes whose only heir stands in another module of the same room: halves of one class.

    Protocols and abstract bases with several heirs are none of them.
    """
    heirs: dict[str, list[tuple[str, str]]] = defaultdict(list)
    homes = {symbol: module for module in library.values() for symbol in module.classes}
    for module in library.values():
        for child, base in module.bases:
            if base in homes:
                heirs[base].append((module.name, child))
    halves = []
    for base, children in heirs.items():
        if len(children) == 1 and children[0][0] != homes[base].name and _is_half(homes[base], base):
            room = homes[base].name.split(".")[1]
            if children[0][0].split(".")[1] == room:
                halves.append(f"{children[0][1]} over {base}")
    return sorted(halves)


def _is_half(module: Module, name: str) -> bool:
    node = next(
        node for node in ast.parse(module.path.read_text()).body if isinstance(node, ast.ClassDef) and node.name == name
    )
    bases = {ast.unparse(base).split("[")[0] for base in node.bases}
    return not bases & {"Protocol", "ABC", "Enum", "Exception", "TypedDict"} and not any(
        base.endswith(("Error", "Struct", "Section", "Model")) for base in bases
    )


def structure(tree: Path) -> dict[str, object]:
    """Return the figures of the tree's text."""
    library = modules(tree)
    users = importers(library)
    files = {name: module for name, module in library.items() if module.path.name != "__init__.py"}
    sizes = [module.lines for module in files.values()]
    names = Counter(module.path.name for module in files.values())
    classes = Counter(symbol for module in files.values() for symbol in module.classes)
    lines = sum(module.lines for module in library.values())
    return {
        "modules": len(files),
        "packages": len(library) - len(files),
        "lines": lines,
        "lines_of_a_module_median": statistics.median(sizes),
        "lines_of_a_module_max": max(sizes),
        "header_lines": sum(module.header for module in library.values()),
        "modules_under_60_lines": sum(size < 60 for size in sizes),
        "modules_with_one_importer": sum(len(users[name]) == 1 for name in files),
        "one_importer_commands_left_out": sum(
            len(users[name]) == 1 and not name.startswith(f"{_LIBRARY}.cli.") for name in files
        ),
        "file_names_used_twice": sum(count == 2 for count in names.values()),
        "file_names_used_three_times": sorted(name for name, count in names.items() if count > 2),
        "class_names_used_twice": sorted(
            name for name, count in classes.items() if count > 1 and not name.startswith("_")
        ),
        "classes_split_over_files": split_classes(library),
        "comment_share_percent": round(100 * sum(module.comments for module in library.values()) / lines, 1),
    }


def holds_mark(value: object) -> bool:
    """Whether a value is text, bytes or a column that holds the mark."""
    if isinstance(value, str):
        return MARK in value
    if isinstance(value, bytes | bytearray | memoryview):
        return MARK.encode() in bytes(value)
    if type(value).__module__.startswith("pyarrow") and hasattr(value, "to_pydict"):
        return MARK in repr(value.to_pydict())
    return False


def is_added_file(value: object) -> bool:
    """Whether a value says that a log file becomes live."""
    return type(value).__name__ == "AddFile"


def _holds(value: object, is_data: Callable[[object], bool], depth: int = _DEPTH) -> bool:
    if is_data(value):
        return True
    if value is None or isinstance(value, int | float | str | bytes | type | ModuleType) or depth == 0:
        return False
    return any(_holds(part, is_data, depth - 1) for part in _parts(value))


def _parts(value: object) -> Iterator[object]:
    if isinstance(value, dict):
        yield from list(value.values())[:_WIDTH]
    elif isinstance(value, list | tuple | set | frozenset):
        yield from list(value)[:_WIDTH]
    elif type(value).__module__.startswith(_LIBRARY):
        # Data only: what an object works with (its file system, its caches) is not what is handed on.
        if dataclasses.is_dataclass(value):
            yield from (getattr(value, field.name, None) for field in dataclasses.fields(value))
        else:
            yield from (getattr(value, name, None) for name in getattr(value, "__struct_fields__", ()))


@dataclasses.dataclass(frozen=True)
class Way:
    """The modules of the library that run between two doors, in the order of their first call."""

    handed: list[str]
    """Those that the followed data are handed to."""
    entered: list[str]
    """All of them."""


def followed(*actions: Callable[[], object], is_data: Callable[[object], bool] = holds_mark) -> Way:
    """Return the way of some data through actions that run one after the other."""
    order: dict[str, None] = {}
    entered: dict[str, None] = {}

    def trace(frame: FrameType, event: str, argument: object) -> None:
        name = frame.f_globals.get("__name__", "")
        if not name.startswith(_LIBRARY) or event not in ("call", "return"):
            return
        entered[name] = None
        if name in order:
            return
        if event == "return":
            values: list[object] = [argument]
        else:
            code = frame.f_code
            count = code.co_argcount + code.co_kwonlyargcount
            values = [frame.f_locals.get(variable) for variable in code.co_varnames[:count]]
        sys.setprofile(None)
        try:
            if any(_holds(value, is_data) for value in values):
                order[name] = None
        finally:
            sys.setprofile(trace)

    sys.setprofile(trace)
    try:
        for action in actions:
            action()
    finally:
        sys.setprofile(None)
    return Way(list(order), list(entered))


def ways() -> dict[str, Way]:
    """Follow the four ways in this process, which has the folders of the measured tree on its path."""
    repository_class: Any = importlib.import_module("custody.repository").Repository
    support: Any = importlib.import_module("tests.support")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        repository = repository_class.create(root / "repository")
        sample = support.write_samples(root, 20)[0]
        document = json.loads(sample.read_text())
        document[0]["details"] = MARK
        sample.write_text(json.dumps(document))
        with repository.ingest() as ingest:
            to_journal = followed(lambda: ingest.file(sample))
        support.run_steps(repository.settings)
        repository = repository_class.open(root / "repository")
        to_event = followed(lambda: repository.search(f"details:{MARK}", limit=5))
        support.append(repository, [support.event(1), support.event(2)])
        support.run_steps(repository.settings, "recover", "rollover", "compress", "index")
        to_catalog = followed(lambda: support.run_steps(repository.settings, "commit"), is_data=is_added_file)
        return {
            "ingest to journal": to_journal,
            "query to event": to_event,
            "commit to catalog": to_catalog,
            "notification to file": _notification_to_file(root / "sink"),
        }


def _notification_to_file(root: Path) -> Way:
    sink: Any = _first_module("tests.unit.ngsi_sink.sink_repository", "tests.unit.ngsi.persisting")
    body = sink.bench(1, entity=f"Bench-{MARK}")
    root.mkdir()
    repository = importlib.import_module("custody.repository").Repository(sink.settings(root))

    received = followed(lambda: sink.receive(repository, [body]))
    # The rollover between the two is a way of its own.
    importlib.import_module("tests.support").run_steps(repository.settings)
    written = followed(lambda: sink.persist(repository))
    return Way(
        list(dict.fromkeys(received.handed + written.handed)), list(dict.fromkeys(received.entered + written.entered))
    )


def _first_module(*names: str) -> ModuleType:
    for name in names[:-1]:
        if importlib.util.find_spec(name.rpartition(".")[0]) and importlib.util.find_spec(name):
            return importlib.import_module(name)
    return importlib.import_module(names[-1])


def measured(tree: Path) -> dict[str, object]:
    """Return all figures of a tree; the ways are followed in a process of their own, in the tree's own code."""
    script = (
        "import json, runpy, sys; ways = runpy.run_path(sys.argv[1])['ways']();"
        "print(json.dumps({name: vars(way) for name, way in ways.items()}))"
    )
    answer = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, str(Path(__file__).resolve())],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(str(tree / part) for part in ("include", "plugins", ""))},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return {**structure(tree), "ways": json.loads(answer.stdout.splitlines()[-1])}


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog="python -m tests.house", description=__doc__)
    parser.add_argument("--tree", type=Path, default=ROOT, help="measure this checkout instead")
    parser.add_argument("--json", action="store_true", help="everything, with the modules of each way")
    arguments = parser.parse_args()
    figures = measured(arguments.tree.resolve())
    if arguments.json:
        sys.stdout.write(json.dumps(figures, indent=2) + "\n")
        return
    hops: Any = figures.pop("ways")
    for name, value in figures.items():
        text = f"{len(value)}: {', '.join(value)}" if isinstance(value, list) and value else value or 0
        sys.stdout.write(f"{name.replace('_', ' '):36} {text}\n")
    for name, way in hops.items():
        text = f"{len(way['handed'])} handed the data, {len(way['entered'])} entered"
        sys.stdout.write(f"{name:36} {text}\n")


if __name__ == "__main__":
    main()
