"""How long a Spark job took until it could work: a step of seconds should say which of them are its own."""

from __future__ import annotations

import os
from collections.abc import Mapping

from custody.clock import SystemClock

SUBMITTED_VARIABLE = "CUSTODY_SUBMITTED_MS"
"""When the job was submitted, in ms since the epoch; part of the environment of each submit."""


def submit_moment() -> dict[str, str]:
    """Return the variable that tells a job when it was submitted: now."""
    return {SUBMITTED_VARIABLE: str(SystemClock().now_ms())}


def seconds_since_submit(environ: Mapping[str, str] = os.environ) -> float:
    """Return how long ago this job was submitted, in seconds; 0 when nobody said."""
    submitted = environ.get(SUBMITTED_VARIABLE, "")
    if not submitted.isdigit():
        return 0.0
    return max(SystemClock().now_ms() - int(submitted), 0) / 1000
