"""A verification of a repository whose object store refuses requests: what could not be read is no damage."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import obstore
import pytest
from click.testing import CliRunner
from obstore.exceptions import PermissionDeniedError

from custody.cli.main import cli
from custody.errors import StorageError
from custody.repository import Repository
from tests.support import append, event, run_steps

READS = ("get", "get_range", "get_ranges", "head")


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("CUSTODY__REPOSITORY__STORE", f"memory://{uuid4().hex}")
    made = Repository.create(tmp_path / "r")
    append(made, [event(number) for number in range(50)])
    run_steps(made.settings)
    yield made.settings.root


def _refuse(patch: pytest.MonkeyPatch, part: str) -> None:
    """Let the client answer as S3 does to somebody who may not read the objects with `part` in their keys."""

    def refusing(read: Callable[..., Any]) -> Callable[..., Any]:
        def answered(client: object, key: str, *more: object, **options: object) -> object:
            if part in key:
                raise PermissionDeniedError(f"403 Forbidden: <Error><Code>AccessDenied</Code></Error> for {key}")
            return read(client, key, *more, **options)

        return answered

    for name in READS:
        patch.setattr(obstore, name, refusing(getattr(obstore, name)))


@pytest.mark.parametrize("part", [".txn", ".parquet", ".toc"])
def test_a_refusal_is_a_notice_with_the_reason_of_the_store_and_an_exit_code_of_its_own(
    repository: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    assert CliRunner().invoke(cli, ["-r", str(repository), "verify"]).exit_code == 0
    _refuse(monkeypatch, part)
    result = CliRunner().invoke(cli, ["-r", str(repository), "verify", "--deep", "--json"])
    assert result.exit_code == StorageError.exit_code, result.output
    [document, *_] = json.loads(result.stdout)
    assert document["defects"] == []
    assert any("AccessDenied" in notice for notice in document["notices"]), document["notices"]
    monkeypatch.undo()
