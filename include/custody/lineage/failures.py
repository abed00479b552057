"""Which events tell of a failure: what a source says in a field made for it, never a word in a text for people.

An event has failed when it is

- the end of a run of OpenLineage with the state FAIL or ABORT,
- the end of a run of Airflow with the state `failed` or `upstream_failed`,
- a ROUTE, or any other event, with a relationship for failures, by the last word of its name: `failure`,
  `comms.failure`, `Parse Failed`,
- a DROP that ended a FlowFile on such a relationship, which its details name in NiFi's own form,
- an EXPIRE: the FlowFile was thrown away because nobody came to it in time.

What was masked tells nothing.
"""

from __future__ import annotations

import re

from custody.capture.openlineage import FAILED_STATES, kind_said
from custody.lineage.identities import AIRFLOW
from custody.model import Event, EventType

_AIRFLOW_FAILED = ("failed", "upstream_failed")
_FAILURE = re.compile(r"(?:^|[\s._-])(?:failures?|failed|errors?)$", re.IGNORECASE)
_NO_FAILURE = re.compile(r"^(?:no|not|without|non|0|zero)[\s._-]", re.IGNORECASE)
_ENDED_BY = re.compile(r"Auto-Terminated by (.+) Relationship", re.DOTALL)
"""What NiFi, and custody's own sessions, write of a FlowFile that ended on a relationship that leads nowhere."""


def has_failed(event: Event) -> bool:
    """Whether an event tells of a failure."""
    if event.event_type == EventType.EXPIRE or _leads_to_failure(event.relationship):
        return True
    if event.source_format == AIRFLOW:
        return event.updated_attributes.get("airflow.state") in _AIRFLOW_FAILED
    if event.event_type != EventType.DROP:
        return False
    if kind_said(event) in FAILED_STATES:
        return True
    ended = _ENDED_BY.fullmatch(event.details or "")
    return ended is not None and _leads_to_failure(ended[1])


def _leads_to_failure(relationship: str | None) -> bool:
    if not relationship:
        return False
    return bool(_FAILURE.search(relationship)) and not _NO_FAILURE.match(relationship)
