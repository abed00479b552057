"""Room `model`: frozen values without I/O."""

from custody.model.columns import (
    EVENT_SCHEMA,
    READER_VERSION,
    SCHEMA_VERSION,
    check_columns,
    is_newer,
    lacking,
    newer_notice,
    require_keeping,
    schema_of,
    to_batch,
    to_events,
    to_present,
    unknown_columns,
)
from custody.model.cut_event import CutEvent, shortened
from custody.model.event import UNASSIGNED, Acknowledged, ContentClaim, Event, EventType
from custody.model.event_tables import require_valid_columns
from custody.model.validation import (
    INT64_MAX,
    EventProblem,
    Severity,
    check_event,
    require_text,
    require_types,
    require_valid,
    text_problem,
    text_problems,
)

__all__ = [
    "EVENT_SCHEMA",
    "INT64_MAX",
    "READER_VERSION",
    "SCHEMA_VERSION",
    "UNASSIGNED",
    "Acknowledged",
    "ContentClaim",
    "CutEvent",
    "Event",
    "EventProblem",
    "EventType",
    "Severity",
    "check_columns",
    "check_event",
    "is_newer",
    "lacking",
    "newer_notice",
    "require_keeping",
    "require_text",
    "require_types",
    "require_valid",
    "require_valid_columns",
    "schema_of",
    "shortened",
    "text_problem",
    "text_problems",
    "to_batch",
    "to_events",
    "to_present",
    "unknown_columns",
]
