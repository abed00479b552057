"""Failures of tasks: what trying again cannot mend fails for good, and the end of a driver is one short sentence."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from airflow.sdk.exceptions import AirflowException, AirflowFailException

from custody.errors import ConfigurationError, CustodyError, ExitCode, FormatVersionError, InvalidInputError

_PERMANENT = (ConfigurationError, FormatVersionError, InvalidInputError)
_PERMANENT_CODES = {ExitCode.USAGE, *(error.exit_code for error in _PERMANENT)}
# The provider puts the whole command in front of the code, and the end of the log behind it.
_ENDED = re.compile(r"(?:Error code|exit code) is: (-?\d+)\.?(?P<tail>(?:(?!exit code is:).)*)\Z", re.DOTALL)


@contextmanager
def permanent_failures() -> Iterator[None]:
    """Let a task fail without further tries where one of custody's errors is mended by a person alone."""
    try:
        yield
    except _PERMANENT as error:
        raise AirflowFailException(f"{error} {error.hint}".strip()) from error


@contextmanager
def driver_failures(step: str) -> Iterator[None]:
    """Turn the provider's error about a driver into one that begins with the reason.

    :param step: name of the step whose driver runs inside.
    """
    try:
        yield
    except AirflowException as error:
        ended = _ENDED.search(str(error))
        if ended is None:
            raise
        code = int(ended[1])
        kind = AirflowFailException if code in _PERMANENT_CODES else AirflowException
        # The command is in the task's log already; behind an error it would hide the reason.
        raise kind(f"{step}: {_reason(code)}{ended['tail'].rstrip()}") from None


def _reason(code: int) -> str:
    # A shell between Airflow and the driver adds 128 to the number of a signal.
    number = -code if code < 0 else code - 128
    if number in set(signal.Signals):
        memory = ", as the system does when memory runs out" if number == signal.SIGKILL else ""
        return f"the driver was ended by {signal.Signals(number).name}{memory}."
    kinds = {error.exit_code: error for error in _errors(CustodyError)}
    if code in kinds:
        return f"the driver ended with exit code {code} ({kinds[code].kind}). {kinds[code].hint}".rstrip()
    return f"the driver ended with exit code {code}."


def _errors(kind: type[CustodyError]) -> Iterator[type[CustodyError]]:
    """Yield the documented classes below one, itself included."""
    if kind.__module__ == CustodyError.__module__:
        yield kind
    for below in kind.__subclasses__():
        yield from _errors(below)
