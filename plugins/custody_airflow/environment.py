"""What the deployment says: which repository, which schedule."""

from __future__ import annotations

import os
from pathlib import Path

from custody.errors import ConfigurationError

REPOSITORY_VARIABLE = "CUSTODY_REPOSITORY"
SCHEDULE_VARIABLE = "CUSTODY_ROLLOVER_SCHEDULE"
_EVERY_MINUTE = "* * * * *"


def repository_folder() -> Path:
    """Return the repository's folder, named by the deployment and by nobody else: it is no parameter of a run.

    Raises:
        ConfigurationError: CUSTODY_REPOSITORY is not set.
    """
    named = os.environ.get(REPOSITORY_VARIABLE)
    if not named:
        raise ConfigurationError(
            f"{REPOSITORY_VARIABLE}: expected the folder of the repository in Airflow's environment, found nothing. "
            "Set it and restart Airflow; `custody init FOLDER` makes a repository."
        )
    return Path(named)


def rollover_schedule() -> str | None:
    """Return the cron schedule of the rollover; an empty variable means that only people trigger it."""
    return os.environ.get(SCHEDULE_VARIABLE, _EVERY_MINUTE).strip() or None
