"""The rule that no event from outside names a content of custody's own.

A claim is a place in one repository. Whoever may deliver an event could name any place there, and so have the content
of somebody else, hidden or forgotten, given out as that of the own event. Every event that a format brings passes here,
as an object or in columns; the claims of contents that were delivered with events are set afterwards.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from custody.model import ContentClaim, Event, EventProblem, Severity, without_bad_rows

OWN_CLAIMS = "custody:"
"""How the container of such a claim begins."""
_FIELDS = ("content_claim", "previous_content_claim")
_MESSAGE = (
    "expected no claim of custody's own contents, which are places in one repository. Deliver the content, and name it "
    "by content_sha256"
)


def own_claim_problem(event: Event) -> EventProblem | None:
    """Return what is wrong with an event that names a content of custody's own; None for any other one."""
    for name in _FIELDS:
        claim: ContentClaim | None = getattr(event, name)
        if claim is not None and (claim.container or "").startswith(OWN_CLAIMS):
            return _problem(name)
    return None


def without_refused_rows(events: pa.Table | pa.RecordBatch) -> tuple[pa.RecordBatch, dict[int, EventProblem]]:
    """Return the events of columns that may be stored, and of each other row what is wrong with it.

    Raises:
        InvalidInputError: a column is unknown or missing, or has a type that does not fit.
    """
    batch, bad = without_bad_rows(events)
    problems = {row: EventProblem(Severity.ERROR, "bad-value", message) for row, message in bad.items()}
    is_own = None
    for name in _FIELDS:
        # Of a column without any claim the containers are null as well.
        containers = pc.struct_field(batch.column(name), "container")
        if containers.null_count < len(containers):
            of_column = pc.fill_null(pc.starts_with(containers, OWN_CLAIMS), fill_value=False)
            is_own = of_column if is_own is None else pc.or_(is_own, of_column)
    if is_own is None or not pc.any(is_own).as_py():
        return batch, problems
    rows = [row for row in range(events.num_rows) if row not in bad]
    for place in pc.indices_nonzero(is_own).to_pylist():
        named = next(name for name in _FIELDS if _is_own(batch.column(name)[place].as_py()))
        problems[rows[place]] = _problem(named)
    return batch.filter(pc.invert(is_own)), dict(sorted(problems.items()))


def _problem(name: str) -> EventProblem:
    return EventProblem(Severity.ERROR, "own-claim", f"{name}: {_MESSAGE}")


def _is_own(claim: dict[str, object] | None) -> bool:
    return claim is not None and str(claim["container"] or "").startswith(OWN_CLAIMS)
