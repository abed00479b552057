"""The one error of this package."""

from __future__ import annotations

from typing import ClassVar

from custody.errors import CustodyError


class LocalAirflowError(CustodyError):
    """The local Airflow did not start, did not answer, or answered with a refusal."""

    kind: ClassVar[str] = "local-airflow"
    exit_code: ClassVar[int] = 22
