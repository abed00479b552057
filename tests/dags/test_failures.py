"""The end of a task that failed: no further try where only a person can mend it, and a reason in front."""

from __future__ import annotations

from pathlib import Path

import pytest

COMMAND = "['spark-submit', '--master', 'local[*]', " + ", ".join(["'--conf', 'a=b'"] * 60) + "]"


@pytest.fixture(autouse=True)
def _airflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))


def _failure(text: str) -> Exception:
    from airflow.sdk.exceptions import AirflowException

    from custody_airflow.failures import driver_failures

    with pytest.raises(AirflowException) as caught, driver_failures("rollover"):
        raise AirflowException(text)
    return caught.value


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        ("Error code is: -9.", "rollover: the driver was ended by SIGKILL, as the system does when memory runs out."),
        ("Error code is: 137.", "rollover: the driver was ended by SIGKILL, as the system does when memory runs out."),
        ("Error code is: 143.", "rollover: the driver was ended by SIGTERM."),
        ("Error code is: 14.", "rollover: the driver ended with exit code 14 (locked)."),
        ("Error code is: 1.", "rollover: the driver ended with exit code 1."),
        ("Error code is: 0. Kubernetes spark exit code is: 137", "rollover: the driver was ended by SIGKILL"),
        (
            "Error code is: 1. Last lines:\nno memory",
            "rollover: the driver ended with exit code 1. Last lines:\nno memory",
        ),
    ],
)
def test_the_reason_of_a_drivers_end_stands_first(end: str, reason: str) -> None:
    failure = _failure(f"Cannot execute: {COMMAND}. {end}")
    assert str(failure).startswith(reason)
    assert len(str(failure)) < 250
    assert failure.__suppress_context__


@pytest.mark.parametrize(
    ("code", "is_final"), [(2, True), (11, True), (13, True), (21, True), (14, False), (17, False)]
)
def test_a_driver_that_only_a_person_can_help_is_not_tried_again(code: int, is_final: bool) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    failure = _failure(f"Cannot execute: {COMMAND}. Error code is: {code}.")
    assert isinstance(failure, AirflowFailException) == is_final


def test_another_error_of_the_provider_stays_as_it_is() -> None:
    assert str(_failure("no connection")) == "no connection"


def test_an_error_of_the_settings_fails_a_task_for_good_and_a_locked_writer_does_not() -> None:
    from airflow.sdk.exceptions import AirflowFailException

    from custody.errors import ConfigurationError, LockedError
    from custody_airflow.failures import permanent_failures

    with pytest.raises(AirflowFailException, match=r"^a\.b: expected 1\. Mend the setting"), permanent_failures():
        raise ConfigurationError("a.b: expected 1.")
    with pytest.raises(LockedError), permanent_failures():
        raise LockedError("held")
