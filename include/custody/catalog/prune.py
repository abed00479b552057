"""Pruning: the oldest revisions of a catalog are deleted, from the front, behind a checkpoint that stays.

The floor is committed before anything is deleted, so that a reader is told "pruned" and never finds a hole; the
transaction that says so carries the digest of the checkpoint at the floor. Deletion goes from the oldest revision on,
and what a crash leaves is deleted by the next run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from custody.catalog.catalog import Catalog
from custody.catalog.checkpoints import checkpoint_digest
from custody.catalog.keys import CatalogObject
from custody.catalog.state import CommitConflictError
from custody.catalog.transaction_pb2 import Action, Prune
from custody.errors import CustodyError, NotFoundError
from custody.format.names import parse_revision

CHECKPOINTS_KEPT = 2
"""Readable checkpoints that stay besides the one at the floor."""


@dataclass(frozen=True, slots=True)
class PrunePlan:
    """The plan of a pruning: the floor after it, and the keys to delete, oldest first."""

    floor: int
    keys: tuple[str, ...]
    reason: str = ""
    """Why the floor is lower than what was asked for, empty when it is not."""


def plan_prune(catalog: Catalog, before: int, checkpoints_kept: int = CHECKPOINTS_KEPT) -> PrunePlan:
    """Return how far the front can be cut so that every revision from `before` on stays readable.

    `checkpoints_kept` readable checkpoints stay besides the one at the floor.

    Raises:
        PrunedError, NotFoundError: there is no such revision (any more).
    """
    state = catalog.load()
    catalog.at(before)
    # Newer checkpoints stay as well, so that damage to one of them does not cost the history that is kept. The first
    # that is early enough decides, and no more are read: each is the whole state.
    floor, count, is_found = state.floor, 0, False
    for count, revision in enumerate(readable_checkpoints(catalog), 1):
        is_found = count > checkpoints_kept and revision <= before
        if is_found:
            # The floor never goes down: what lies below may be deleted already.
            floor = max(floor, revision)
            break
    reason = ""
    if floor < before:
        reason = (
            f"the earliest revision stays {floor}: one readable checkpoint at it and {checkpoints_kept} later ones are "
            f"kept{'' if is_found else f', there are {count}'}"
        )
    return PrunePlan(floor, _keys_below(catalog, floor), reason)


def left_below_floor(catalog: Catalog) -> PrunePlan:
    """Return what still has to be deleted below the floor that is committed."""
    floor = catalog.load().floor
    return PrunePlan(floor, _keys_below(catalog, floor) if floor else ())


def prune(catalog: Catalog, before: int) -> PrunePlan:
    """Forget revisions before `before` as far as that is safe; return what was done.

    Durability: on return the floor survives power loss, and so do the deletions.
    """
    plan = plan_prune(catalog, before)
    # The floor before the deletions: a crash in between leaves old revisions that the next run deletes.
    raise_floor(catalog, plan)
    drop_revisions(catalog, plan)
    return plan


def raise_floor(catalog: Catalog, plan: PrunePlan, more: Sequence[Action] = ()) -> None:
    """Say in the catalog that the revisions before a plan's floor may be gone; `more` goes into the same transaction.

    Durability: on return the floor survives power loss.

    Raises:
        CommitConflictError: `more` does not apply; the floor is as it was.
    """
    try:
        if plan.floor > catalog.load().floor:
            # The transactions that would prove the checkpoint go; its digest in the chain takes their place.
            checkpoint = checkpoint_digest(catalog.objects, catalog.at(plan.floor))
            catalog.commit([Action(prune=Prune(floor=plan.floor, checkpoint_digest=checkpoint)), *more])
    except (NotFoundError, CommitConflictError):
        if catalog.load().floor < plan.floor:
            raise
        # Another process has raised the floor further meanwhile: there is nothing left to say.


def drop_revisions(catalog: Catalog, plan: PrunePlan) -> None:
    """Delete the objects that a plan names; its floor was raised before, perhaps by a process that died."""
    catalog.settle()  # the floor has to be durable before the first revision below it goes
    store = catalog.objects.store
    folder = ""
    # Oldest first: `Catalog._was_overtaken` concludes from a predecessor that is there that nothing behind it was
    # pruned.
    for key in plan.keys:
        if store.head(key) is None:
            continue  # it is gone already, or it is a folder that somebody put there
        if folder and not key.startswith(folder):
            store.drop_folder(folder)
        folder = key.rpartition("/")[0] + "/"
        store.delete(key)
    # A pruning that crashed may have left empty folders behind.
    for name in store.folders(catalog.objects.prefix):
        revision = parse_revision(name)
        if revision is not None and revision < plan.floor:
            store.drop_folder(f"{catalog.objects.prefix}{name}/")


def readable_checkpoints(catalog: Catalog) -> Iterator[int]:
    """Yield the revisions of the checkpoints that can be read, the newest first; each is read when it is asked for."""
    last = None
    for item in catalog.objects.checkpoints():
        # Those of one revision follow each other.
        if item.revision != last and _is_readable(catalog, item):
            last = item.revision
            yield last


def _keys_below(catalog: Catalog, floor: int) -> tuple[str, ...]:
    keys = []
    for key in catalog.objects.store.keys(catalog.objects.prefix):
        revision = parse_revision(key.removeprefix(catalog.objects.prefix).partition("/")[0])
        if revision is not None and revision < floor:
            keys.append(key)
    return tuple(keys)


def _is_readable(catalog: Catalog, item: CatalogObject) -> bool:
    """Whether a reader can begin at a checkpoint: it is whole, of this catalog, and of the transaction beside it."""
    try:
        checkpoint = catalog.chain.checkpoint(item, [])
    except CustodyError:
        return False
    return checkpoint is not None and checkpoint.state.catalog_id == catalog.load().catalog_id
