"""`custody tokens`: the tokens of the server, which its file keeps as digests."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import get_args

import click

from custody.cli.groups import CommandGroup
from custody.cli.options import json_option
from custody.cli.output import clean, print_json, stderr, stdout
from custody.config import load_settings
from custody.config.sections import ScopeName
from custody.errors import ConfigurationError
from custody.vfs import PosixFileSystem

_file_option = click.option(
    "--file", "file", type=click.Path(path_type=Path), help="File of tokens, instead of serve.token_file."
)


@click.group(cls=CommandGroup)
def tokens() -> None:
    """Make, list and revoke the tokens that `custody serve` asks for; changes count within a second."""


@tokens.command()
@click.argument("name")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    required=True,
    type=click.Choice(get_args(ScopeName)),
    help="What it allows; may be repeated.",
)
@_file_option
@json_option
@click.pass_obj
def create(repository: Path, name: str, scopes: tuple[ScopeName, ...], file: Path | None, as_json: bool) -> None:
    """Make a token with the name NAME and print it; it is shown this once, and the file has only its digest.

    \b
    Example:
      custody -r demo tokens create nifi-east --scope append
      custody -r demo tokens create dashboard --scope read --json
    """
    from custody.serving.access import Scope, add_token

    path = _path(repository, file)
    created = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    token = add_token(PosixFileSystem(), path, name, frozenset(map(Scope, scopes)), created)
    if as_json:
        print_json({"name": name, "scopes": sorted(scopes), "created": created, "token": token})
    else:
        stdout().print(clean(token), soft_wrap=True)
        stderr().print(clean(f"custody: {path} has the digest of this token; the token itself is kept nowhere"))


@tokens.command("list")
@_file_option
@json_option
@click.pass_obj
def list_tokens(repository: Path, file: Path | None, as_json: bool) -> None:
    """Print the names of all tokens, what each allows, and when it was made.

    \b
    Example:
      custody -r demo tokens list
      custody -r demo tokens list --json
    """
    from custody.serving.access import read_token_file

    rows = [
        {"name": line.name, "scopes": sorted(line.scopes), "created": line.created or None}
        for line in read_token_file(_path(repository, file))
    ]
    if as_json:
        print_json(rows)
        return
    for row in rows:
        stdout().print(clean(f"{row['name']}  {','.join(row['scopes'] or [])}  {row['created'] or '-'}"))


@tokens.command()
@click.argument("name")
@_file_option
@json_option
@click.pass_obj
def revoke(repository: Path, name: str, file: Path | None, as_json: bool) -> None:
    """Take the token with the name NAME out of the file; a running server refuses it within a second.

    \b
    Example:
      custody -r demo tokens revoke nifi-east
    """
    from custody.serving.access import remove_token

    line = remove_token(PosixFileSystem(), _path(repository, file), name)
    if as_json:
        print_json({"name": line.name, "scopes": sorted(line.scopes), "created": line.created or None})
    else:
        stderr().print(clean(f"custody: the token {line.name} is revoked"))


def _path(repository: Path, file: Path | None) -> Path:
    if file is not None:
        return file
    settings = load_settings(repository)
    if settings.serve.token_file is None:
        raise ConfigurationError(
            'serve.token_file: expected a file, found none in the settings. Set it, such as token_file = "tokens" in '
            "[serve], or name one with --file."
        )
    return settings.root / settings.serve.token_file
