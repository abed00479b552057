"""Errors: each class can be told apart by a machine, and is caught as what it also is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from custody import errors


def subclasses(kind: type[errors.CustodyError]) -> Iterator[type[errors.CustodyError]]:
    for found in kind.__subclasses__():
        yield found
        yield from subclasses(found)


def test_every_error_has_a_kind_and_an_exit_code_of_its_own() -> None:
    # Other packages may have errors of their own: those of the library are in one module.
    own = [kind for kind in subclasses(errors.CustodyError) if kind.__module__ == errors.__name__]
    found: list[type[errors.CustodyError]] = [errors.CustodyError, *own]
    assert len(found) > 8
    assert len({kind.kind for kind in found}) == len(found)
    assert len({kind.exit_code for kind in found}) == len(found)
    assert all(10 <= kind.exit_code <= 25 for kind in found)


def test_no_error_has_the_exit_code_of_a_program_that_ended_otherwise() -> None:
    codes = {errors.CustodyError.exit_code, *(kind.exit_code for kind in subclasses(errors.CustodyError))}
    assert not codes & {int(code) for code in errors.ExitCode}
    assert {code.name: int(code) for code in errors.ExitCode} == {
        "DONE": 0,
        "SOME_WORK_FAILED": 1,
        "USAGE": 2,
        "INTERRUPTED": 130,
        "OUTPUT_UNREAD": 141,
    }


@pytest.mark.parametrize(
    ("kind", "builtin"),
    [
        (errors.NotFoundError, LookupError),
        (errors.InvalidInputError, ValueError),
        (errors.ConfigurationError, ValueError),
        (errors.StorageError, OSError),
    ],
)
def test_an_error_is_also_python_s_own_kind(kind: type[Exception], builtin: type[Exception]) -> None:
    assert issubclass(kind, builtin)
