"""The errors of this package."""

from __future__ import annotations

from typing import ClassVar

from custody.errors import CustodyError


class LocalAirflowError(CustodyError):
    """The local Airflow did not start, did not answer, or answered with a refusal."""

    kind: ClassVar[str] = "local-airflow"
    exit_code: ClassVar[int] = 22


class DeliveryError(CustodyError):
    """A NiFi of the demo could not deliver its events."""

    kind: ClassVar[str] = "delivery"
    exit_code: ClassVar[int] = 22
