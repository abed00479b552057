"""Mistakes in what custody does with a bucket; each is in place as long as its context lasts.

`python -m tests.crash.bucket_bugs` prints what finds each of them.
"""

from __future__ import annotations

import hashlib
from builtins import list as list_of
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from obstore.exceptions import AlreadyExistsError

from custody.catalog import SecondCopyStore
from custody.errors import StorageError
from custody.repository import retention_api
from custody.retention import ExpiryChoice, planning
from custody.store import ObjectStore, remote
from custody.store.base import ObjectData
from custody.store.local_copies import LocalCopies
from custody.store.remote import RemoteStore
from custody.vfs.memory import CrashMode
from custody.workspace.handoff import HandedJournal, Handoff, HandoffFolder
from custody.workspace.stored_units import StoredUnits
from tests.crash.bucket_answers import enumerate_answers
from tests.crash.bucket_scenarios import IN_A_BUCKET, InABucket
from tests.crash.code_bugs import absorbed_log_by_log, delete_before_commit, marks_forgotten_first
from tests.crash.commit_scenarios import Racing
from tests.crash.enumeration import Outcome, enumerate_crashes

Seeded = Callable[[], AbstractContextManager[object]]


@dataclass(frozen=True)
class BucketBug:
    """A mistake, the scenario that meets it, and whether a crash finds it or a wrong answer."""

    name: str
    scenario: InABucket
    seeded: Seeded
    by_answers: bool = False

    def found(self) -> Outcome:
        """Enumerate with the mistake in place, up to the first alarm."""
        with self.scenario.made() as scenario, self.seeded():
            if self.by_answers:
                return enumerate_answers(scenario, first_alarm_only=True)
            return enumerate_crashes(scenario, modes=(CrashMode.SYNCED_ONLY,), seeds=2, first_alarm_only=True)


def in_place_of(owner: Any, name: str, wrong: Callable[..., Any]) -> Seeded:
    """Put another function in a place; it gets the right one first."""

    def seeded() -> AbstractContextManager[object]:
        right = getattr(owner, name)
        return patch.object(owner, name, lambda *args, **options: wrong(right, *args, **options))

    return seeded


def _answer_is_believed(right: Any, copies: LocalCopies, key: str, digest: bytes, content: Any) -> None:
    """Puts a log once, and takes an error for an answer that was lost."""
    with suppress(StorageError):
        copies._store.put_if_absent(key, content())


def _listed_before_it_is_there(right: Any, copies: LocalCopies, key: str, digest: bytes) -> None:
    """Leaves the put of a log to somebody later."""


def nobody_reads_back() -> AbstractContextManager[object]:
    """An error of the put of a transaction is taken for an answer that was lost."""

    def wrong(store: ObjectStore, key: str, data: ObjectData) -> bool:
        try:
            return store.put_if_absent(key, data)
        except StorageError:
            return True

    return patch("custody.catalog.catalog.put_object", wrong)


def _listed_and_then_put(right: Any, store: RemoteStore, key: str, data: ObjectData) -> bool:
    """Looks whether a name is free, and then takes it without the condition."""
    if store.head(key) is not None:
        return False
    store.put(key, data)
    return True


def _completed_under_its_name(right: Any, store: RemoteStore, key: str, data: ObjectData) -> bool:
    """Completes an upload in parts under the final name, which a rival may have taken meanwhile."""
    if store.head(key) is not None:
        return False
    store._put_parts(key, data)
    return True


def _uploaded_beside_its_name(right: Any, store: RemoteStore, key: str, data: ObjectData) -> bool:
    """Leaves what a dead process uploaded where nobody looks for it."""
    store._put_parts(f"{key}.upload", data)
    try:
        remote.obstore.copy(store._client, f"{key}.upload", key, overwrite=False)  # type: ignore[attr-defined]
    except AlreadyExistsError:
        return False
    finally:
        store.delete(f"{key}.upload")
    return True


def _deleted_whatever_the_answer(right: Any, store: RemoteStore, key: str) -> None:
    """Takes an error of a deletion for an answer that was lost."""
    with suppress(StorageError):
        right(store, key)


def _conflict_is_ignored(right: Any, store: RemoteStore, key: str, data: ObjectData) -> bool:
    """Takes a name that is taken for one that it got itself."""
    right(store, key, data)
    return True


def expired_before_the_mark() -> AbstractContextManager[object]:
    """Logs that expire are deleted from the bucket before the transaction that says so."""
    right = planning.mark_expired

    def wrong(choice: ExpiryChoice) -> dict[str, int]:
        for name, gone in choice.gone.items():
            for path in gone:
                choice.writers[name].workspace.catalog.objects.files.delete(path)
        return right(choice)

    return patch.object(retention_api, "mark_expired", wrong)


def _journal_is_gone_before_the_manifest(
    right: Any, handoff: Handoff, folder: HandoffFolder, name: str, data: ObjectData
) -> HandedJournal:
    """Removes a journal from its disk as soon as its object is there."""
    journal: HandedJournal = right(handoff, folder, name, data)
    for disk in ("disk1", "disk2"):
        path = handoff._copies.parents[2] / disk / "main" / "journals" / name
        if handoff._fs.exists(path):
            handoff._fs.remove(path)
            handoff._fs.sync_directory(path.parent)
    return journal


def unit_declared_before_its_events() -> AbstractContextManager[object]:
    """The manifest of a merged unit is put before the events that it names."""
    right = StoredUnits.publish

    def wrong(units: StoredUnits, manifest: Any, path_of: Any, check: Any) -> None:
        with patch.object(StoredUnits, "_put_events", _only_digest):
            right(units, manifest, path_of, check)
        right(units, manifest, path_of, check)

    return patch.object(StoredUnits, "publish", wrong)


def _only_digest(units: StoredUnits, first: int, path: Any) -> str:
    return hashlib.sha256(units._fs.view(path)).hexdigest()


BUGS = [
    BucketBug(
        "the put's answer is believed",
        IN_A_BUCKET["a pass"],
        in_place_of(LocalCopies, "publish_bytes", _answer_is_believed),
        by_answers=True,
    ),
    BucketBug(
        "a log is listed before it is there",
        IN_A_BUCKET["a pass"],
        in_place_of(LocalCopies, "publish", _listed_before_it_is_there),
    ),
    BucketBug(
        "what was put is not read back", IN_A_BUCKET["commits and checkpoints"], nobody_reads_back, by_answers=True
    ),
    BucketBug(
        "a name is looked up and then taken",
        InABucket(lambda: Racing(1)),
        in_place_of(RemoteStore, "put_if_absent", _listed_and_then_put),
    ),
    BucketBug(
        "a conflict is ignored",
        InABucket(lambda: Racing(1)),
        in_place_of(RemoteStore, "put_if_absent", _conflict_is_ignored),
    ),
    BucketBug("journals deleted before the commit", IN_A_BUCKET["a pass"], delete_before_commit),
    BucketBug(
        "a journal deleted before the manifest of its hand-over",
        IN_A_BUCKET["hand-over of journals"],
        in_place_of(Handoff, "put_journal", _journal_is_gone_before_the_manifest),
    ),
    BucketBug(
        "no second copy of a tombstone",
        IN_A_BUCKET["forgetting"],
        lambda: patch.object(SecondCopyStore, "keep", lambda *_: None),
    ),
    BucketBug("expired logs deleted before the mark", IN_A_BUCKET["retention"], expired_before_the_mark),
    BucketBug("marks forgotten before the deletion", IN_A_BUCKET["retention"], marks_forgotten_first),
    BucketBug(
        "an error of a deletion is taken for a lost answer",
        IN_A_BUCKET["retention"],
        in_place_of(RemoteStore, "delete", _deleted_whatever_the_answer),
        by_answers=True,
    ),
    BucketBug(
        "an upload in parts beside its name",
        IN_A_BUCKET["a pass"],
        in_place_of(RemoteStore, "_put_by_copy", _uploaded_beside_its_name),
    ),
    BucketBug(
        "an upload in parts completed under its name",
        InABucket(lambda: Racing(1), multipart_bytes=100),
        in_place_of(RemoteStore, "_put_by_copy", _completed_under_its_name),
    ),
    BucketBug(
        "a unit declared before its events",
        IN_A_BUCKET["a pass, staging in the store"],
        unit_declared_before_its_events,
    ),
    BucketBug("a writer absorbed log by log", IN_A_BUCKET["retiring and absorbing"], absorbed_log_by_log),
]


def table() -> list_of[tuple[str, str]]:
    """Return for each mistake what found it."""
    rows = []
    for bug in BUGS:
        alarms = [alarm for each in bug.found().alarms.values() for alarm in each]
        rows.append((bug.name, str(alarms[0]) if alarms else "not found"))
    return rows


if __name__ == "__main__":
    for name, found in table():
        print(f"{name}: {found}")  # noqa: T201
