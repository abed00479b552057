"""The assets of a repository: what users' DAGs follow, and what starts a rollover where it is watched.

A DAG that follows the commits: `schedule=[commits()]`. Names and URIs are the same in every deployment, whatever the
repository's folder is called: Airflow keeps one URI a name for as long as anything refers to the two, so that a folder
with another name would get an asset that never becomes active. Which repository an event is about stands in the event.
"""

from __future__ import annotations

from airflow.sdk import (
    Asset,
    AssetAlias,
    AssetOrTimeSchedule,
    AssetWatcher,
    CronDataIntervalTimetable,
    CronTriggerTimetable,
)

from custody_airflow.environment import (
    ngsi_schedule,
    ngsi_watch,
    repository_folder,
    rollover_schedule,
    rollover_watch,
)
from custody_airflow.notifications import BatchWatch
from custody_airflow.watch import JournalWatch

COMMITS = "provenance_commits"
JOURNALS = "provenance_journals"
DUE = "provenance_ngsi_due"
_GROUP = "custody"
_AGAIN_SECONDS = 900.0


def commits() -> Asset:
    """Return the asset of the commits: it has an event for each rollover that made events live."""
    return Asset(name=COMMITS, uri="custody://provenance/commits", group=_GROUP)


def commits_of_a_run() -> AssetAlias:
    """Return what the task `commit` names as its outlet: an event of the commits where there were any, else nothing."""
    return AssetAlias(name=f"{COMMITS}_of_a_run", group=_GROUP)


def journals(poke_seconds: float) -> Asset:
    """Return the asset of the journals that wait for a rollover, watched by the triggerer.

    Raises:
        ConfigurationError: CUSTODY_REPOSITORY is not set.
    """
    watch = JournalWatch(str(repository_folder()), poke_seconds, _AGAIN_SECONDS)
    watcher = AssetWatcher(name=JOURNALS, trigger=watch)
    return Asset(name=JOURNALS, uri="custody://provenance/journals", group=_GROUP, watchers=[watcher])


def rollover_timing() -> str | list[Asset] | AssetOrTimeSchedule | None:
    """Return when the rollover runs: by its schedule, when journals wait, or both; None when only people start it."""
    cron, seconds = rollover_schedule(), rollover_watch()
    if seconds is None:
        return cron
    watched = [journals(seconds)]
    if cron is None:
        return watched
    return AssetOrTimeSchedule(timetable=CronTriggerTimetable(cron, timezone="UTC"), assets=watched)


def due_batches(poke_seconds: float) -> Asset:
    """Return the asset of the sink's batches that are due, watched by the triggerer.

    Raises:
        ConfigurationError: CUSTODY_REPOSITORY is not set.
    """
    watch = BatchWatch(str(repository_folder()), poke_seconds, _AGAIN_SECONDS)
    return Asset(
        name=DUE, uri="custody://provenance/ngsi-due", group=_GROUP, watchers=[AssetWatcher(name=DUE, trigger=watch)]
    )


def ngsi_timing() -> list[Asset] | AssetOrTimeSchedule:
    """Return when the NGSI sink runs: when a batch is due or events became live, and by intervals if scheduled.

    Where batches are watched, commits start nothing: what they make live was taken from the journals before.
    """
    cron, seconds = ngsi_schedule(), ngsi_watch()
    assets = [commits() if seconds is None else due_batches(seconds)]
    if cron is None:
        return assets
    return AssetOrTimeSchedule(timetable=CronDataIntervalTimetable(cron, timezone="UTC"), assets=assets)
