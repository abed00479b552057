"""Rewrites the generated blocks of the documentation: `python tests/docs/update.py`.

A block stands between `<!-- generated: NAME -->` and `<!-- end -->`. What is outside of blocks is written by people.
A command that docs/cli.md lacks gets a section at its end; its description and its place are then up to you.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import annotated_types
import click
from click.testing import CliRunner
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from custody import errors
from custody.cli.main import cli
from custody.clock import SystemClock
from custody.config import ExportTarget, Settings
from custody.config.settings import ENVIRONMENT_PREFIX
from custody.index import NUMBER_FIELDS, TEXT_FIELD, TIME_FIELDS
from custody.query import field_help
from custody.repository import Repository
from custody.serving.api_door import api_application, openapi_document
from custody.serving.door import Services

DOCS = Path(__file__).resolve().parents[2] / "docs"
OPENAPI = DOCS / "openapi.json"
_BLOCK = re.compile(r"<!-- generated: ([^\n]+?) -->\n.*?<!-- end -->", re.DOTALL)
_WIDTH = 100


def commands() -> Iterator[tuple[str, click.Command]]:
    """Yield the full name of every command, groups included, and the command."""

    def walk(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
        yield name, command
        if isinstance(command, click.Group):
            context = click.Context(command)
            for child in filter(None, (command.get_command(context, item) for item in command.list_commands(context))):
                yield from walk(f"{name} {child.name}", child)

    yield from walk("custody", cli)


def error_classes() -> list[type[errors.CustodyError]]:
    """Return the classes of errors by exit code."""
    classes = [
        item for item in vars(errors).values() if inspect.isclass(item) and issubclass(item, errors.CustodyError)
    ]
    return sorted(classes, key=lambda item: item.exit_code)


def settings_fields() -> Iterator[tuple[str, FieldInfo]]:
    """Yield every setting as `section.key`."""
    for name, part in Settings.model_fields.items():
        model = part.annotation
        if isinstance(model, type) and issubclass(model, BaseModel):
            for key, field in model.model_fields.items():
                yield f"{name}.{key}", field


def help_block(name: str) -> str:
    """Return what `NAME --help` prints."""
    words = name.split()[1:]
    result = CliRunner().invoke(cli, [*words, "--help"], prog_name="custody", terminal_width=_WIDTH)
    if result.exit_code != 0:
        raise RuntimeError(f"{name} --help ended with {result.exit_code}: {result.output}")
    return f"```text\n{result.output.rstrip()}\n```"


def plan_block(line: str) -> str:
    """Return a command line of `custody plan` with settings in the environment before it, and what it prints."""
    words = line.split()
    named = dict(word.split("=", 1) for word in words if "=" in word)
    arguments = [word for word in words if "=" not in word]
    with TemporaryDirectory() as folder:
        result = CliRunner().invoke(cli, ["-r", folder, *arguments[1:]], prog_name="custody", env=named)
    if result.exit_code != 0:
        raise RuntimeError(f"{line} ended with {result.exit_code}: {result.output}")
    shown = "\n".join(text.rstrip() for text in result.output.rstrip().splitlines())
    settings = "".join(f"{name}={value} \\\n  " for name, value in named.items())
    return f"```console\n$ {settings}{' '.join(arguments)}\n{shown}\n```"


def errors_block() -> str:
    """Return the table of error classes."""
    rows = [(f"`{item.__name__}`", f"`{item.kind}`", item.exit_code, _meaning(item)) for item in error_classes()]
    return _table(("class", "kind", "exit code", "meaning"), rows)


def hints_block() -> str:
    """Return the table of what to do about errors."""
    rows = [(item.exit_code, item.hint) for item in error_classes() if item.hint]
    return _table(("exit code", "next step"), rows)


def settings_block() -> str:
    """Return the table of settings."""
    rows = [
        (f"`{name}`", _type(field), f"`{_toml(field.default)}`", _range(field), f"`{_variable(name)}`")
        for name, field in settings_fields()
    ]
    return _table(("setting", "type", "default", "range", "environment"), rows)


def exports_block() -> str:
    """Return the table of an export's settings."""
    rows = [
        (f"`{name}`", _type(field), _default(field), _range(field), field.description or "")
        for name, field in ExportTarget.model_fields.items()
    ]
    return _table(("key", "type", "default", "range", "meaning"), rows)


def _default(field: FieldInfo) -> str:
    return "none" if field.is_required() else f"`{_toml(field.get_default(call_default_factory=True))}`"


def fields_block() -> str:
    """Return the table of search fields."""
    return _table(
        ("field", "kind", "finds"),
        [(f"`{name}`", _field_kind(name), text) for name, text in field_help(()).items()],
    )


def _field_kind(name: str) -> str:
    if name in TIME_FIELDS:
        return "time"
    if name in NUMBER_FIELDS:
        return "number"
    return "words" if name == TEXT_FIELD.name else "whole value"


def _meaning(item: type[errors.CustodyError]) -> str:
    return (item.__doc__ or "").split("\n\n")[0].replace("\n", " ").strip()


def _variable(name: str) -> str:
    return ENVIRONMENT_PREFIX + name.upper().replace(".", "__")


def _toml(value: object) -> str:
    if value is None:
        return "unset"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    return f'"{value}"' if isinstance(value, str | Path) else str(value)


def _type(field: FieldInfo) -> str:
    kind = field.annotation
    if typing.get_origin(kind) is typing.Literal:
        return "text"
    if typing.get_origin(kind) is tuple and typing.get_origin(typing.get_args(kind)[0]) is typing.Literal:
        return "list of texts"
    names: Mapping[Any, str] = {
        str: "text",
        bool: "true or false",
        Path: "path",
        int: "whole number",
        int | None: "whole number or unset",
        str | None: "text or unset",
        float | None: "number or unset",
        Path | None: "path or unset",
        dict[str, str]: "table of texts",
    }
    names = {**names, float: "number", tuple[Path, ...]: "list of paths", tuple[str, ...]: "list of texts"}
    return names[kind]


def _range(field: FieldInfo) -> str:
    if field.annotation is bool:
        return "`true`, `false`"
    if typing.get_origin(field.annotation) is typing.Literal:
        return ", ".join(f"`{choice}`" for choice in typing.get_args(field.annotation))
    least = next((item.ge for item in field.metadata if isinstance(item, annotated_types.Ge)), None)
    above = next((item.gt for item in field.metadata if isinstance(item, annotated_types.Gt)), None)
    most = next((item.le for item in field.metadata if isinstance(item, annotated_types.Le)), None)
    if least is not None:
        return f"{least} or more" if most is None else f"{least} to {most}"
    if above is not None:
        return f"more than {above}"
    if any(getattr(item, "pattern", None) for item in field.metadata):
        return "1 to 63 of a-z, 0-9, `_`, `-`; the first a letter or digit"
    if any(isinstance(item, annotated_types.MinLen) for item in field.metadata):
        return "at least one"
    return "any"


def _table(heading: tuple[str, ...], rows: Sequence[tuple[object, ...]]) -> str:
    lines = [heading, tuple("---" for _ in heading), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)


BLOCKS: dict[str, Callable[[], str]] = {
    "errors": errors_block,
    "hints": hints_block,
    "settings": settings_block,
    "exports": exports_block,
    "fields": fields_block,
}


def block(name: str) -> str:
    """Return the current text of a generated block."""
    if name.startswith("help "):
        return help_block(name.removeprefix("help "))
    return plan_block(name.removeprefix("run ")) if name.startswith("run ") else BLOCKS[name]()


def updated(text: str) -> str:
    """Return a page with all its blocks made anew."""
    return _BLOCK.sub(lambda match: f"<!-- generated: {match[1]} -->\n{block(match[1])}\n<!-- end -->", text)


def with_new_commands(text: str) -> str:
    """Return docs/cli.md with a section for each command that it lacks."""
    for name, _ in commands():
        if f"<!-- generated: help {name} -->" not in text:
            text = f"{text.rstrip()}\n\n### {name}\n\n<!-- generated: help {name} -->\n<!-- end -->\n"
    return text


def openapi_text() -> str:
    """Return the description of the API."""
    # Of a repository the description has nothing, so that none has to be there.
    repository = Repository(Settings(root=Path("none")))
    app = api_application(Services(repository, repository.settings, SystemClock()))
    return json.dumps(openapi_document(app), indent=1, ensure_ascii=False) + "\n"


def main() -> int:
    """Rewrite the pages; name those that changed."""
    for path in sorted(DOCS.rglob("*.md")):
        before = path.read_text(encoding="utf-8")
        after = updated(with_new_commands(before) if path.name == "cli.md" else before)
        if after != before:
            path.write_text(after, encoding="utf-8")
            sys.stderr.write(f"rewrote {path.relative_to(DOCS.parent)}\n")
    if not OPENAPI.exists() or OPENAPI.read_text(encoding="utf-8") != openapi_text():
        OPENAPI.write_text(openapi_text(), encoding="utf-8")
        sys.stderr.write(f"rewrote {OPENAPI.relative_to(DOCS.parent)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
