"""Repairs of live files, told by the catalog before they are done.

Some repairs change no entry of the catalog: a log is restored from a copy, a table of contents or an index shard is
made anew. So that none of them is ever untold, whoever mends commits first what is about to be mended and why
(`tell_repairs`), then mends, then says what is done (`finish_repairs`). A crash in between leaves a repair that stands
open; the next one that finds the same damage goes on under it and tells nothing a second time. A repair whose own
transaction replaces or removes a log is told in that transaction (`repair_note`), and stands open never.

Notes change no state, so no reader has to know them, and they go with the revisions that are pruned.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence

from custody.catalog.catalog import Catalog
from custody.catalog.transaction_pb2 import Action, FileRepair, Note
from custody.errors import CustodyError

RepairKey = tuple["FileRepair.Kind", str]
"""Kind of a repair, and the name of what it mends."""
DONE_AT_ONCE = (FileRepair.LOG_REWRITTEN, FileRepair.LOG_GIVEN_UP)
"""Kinds that are done by the transaction that tells of them."""
# Reading the whole history of a large catalog would take longer than the repair. A repair that has stood open for
# longer is told once more.
_LOOKED_BACK = 1000


def file_repair(
    kind: FileRepair.Kind,
    name: str,
    reason: str,
    *,
    expected_sha256: bytes = b"",
    found_sha256: bytes = b"",
    offsets: Sequence[int] = (),
    lost: Sequence[tuple[int, int]] = (),
    events: int = 0,
) -> FileRepair:
    """Return the entry of a repair; `lost` are runs of ids, first and last, of the `events` that are lost."""
    return FileRepair(
        id=uuid.uuid4().bytes,
        kind=kind,
        name=name,
        reason=reason,
        expected_sha256=expected_sha256,
        found_sha256=found_sha256,
        offsets=sorted(offsets),
        firsts=[first for first, _ in sorted(lost)],
        counts=[last - first + 1 for first, last in sorted(lost)],
        events=events,
    )


def repair_note(repairs: Sequence[FileRepair], who: str) -> Action:
    """Return the action that tells of some repairs, for a transaction that mends, or that comes before it."""
    text = "; ".join(f"{FileRepair.Kind.Name(each.kind).lower().replace('_', ' ')}: {each.name}" for each in repairs)
    return Action(note=Note(kind=Note.MENDING, text=text, repairs=repairs, who=who))


def tell_repairs(catalog: Catalog, repairs: Sequence[FileRepair], who: str) -> bool:
    """Tell the catalog, in one transaction, what is about to be mended; call it before anything is changed.

    Repairs that stand open with the same findings are not told again: this goes on with them. Returns False for a
    retired writer, whose catalog takes nothing more: what it holds is mended all the same, for it would be lost else.

    Durability: on return the catalog tells of all of them after a power loss.

    Raises:
        StorageError, FencedError, CommitConflictError: as a commit. Mend nothing then.
    """
    # Settled first: what an attempt told that crashed may not be durable yet.
    if catalog.settle().seal is not None:
        return False
    known = {_found(each) for each in open_repairs(catalog)}
    new = [each for each in repairs if _found(each) not in known]
    if new:
        catalog.commit([repair_note(new, who)])
    return True


def open_repairs(catalog: Catalog) -> list[FileRepair]:
    """Return the repairs that were told and of which nothing says that they are done, in the order of their telling."""
    state = catalog.load()
    if state.revision < 0:
        return []
    first = max(state.floor, state.revision - _LOOKED_BACK, 0)
    standing: dict[bytes, FileRepair] = {}
    try:
        for transaction in catalog.timeline(first, state.revision):
            for note in (action.note for action in transaction.actions if action.HasField("note")):
                standing.update((each.id, each) for each in note.repairs if each.kind not in DONE_AT_ONCE)
                for done in note.finished:
                    standing.pop(done, None)
    # A history that cannot be read, or is pruned at this moment, must not keep a repair from being done: what stood
    # open there is told once more.
    except CustodyError:
        return []
    return list(standing.values())


def finish_repairs(catalog: Catalog, done: Collection[RepairKey], who: str) -> str | None:
    """Say of repairs that stand open that nothing of them is left to do; return what kept that from being said.

    A repair is done whether or not this can be said, so nothing is raised: it then stands open until the next run.
    """
    try:
        repairs = [each for each in open_repairs(catalog) if (each.kind, each.name) in done]
        if repairs:
            names = ", ".join(dict.fromkeys(each.name for each in repairs))
            note = Note(
                kind=Note.MENDING,
                text=f"nothing is left to mend: {names}",
                finished=[each.id for each in repairs],
                who=who,
            )
            catalog.commit([Action(note=note)])
    except CustodyError as error:
        return f"that it is done could not be noted: {error}"
    return None


def _found(repair: FileRepair) -> tuple[object, ...]:
    """Return what tells the findings of one repair from those of another."""
    return repair.kind, repair.name, repair.reason, repair.found_sha256, tuple(repair.offsets)
