"""What a crawl of the example's site leaves, whoever ran its steps: events of each step, archives, mails."""

from __future__ import annotations

import email
import email.policy
import gzip
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from custody.examples.web_crawler import SEEN, STEPS
from custody.examples.web_site import ORIGIN, PAGES
from custody.model import Event
from custody.repository import Repository

EVENTS = {
    "GetHTTP": {"CREATE": 1, "RECEIVE": 1},
    "Funnel": {"CLONE": 5},
    "RouteText": {"FORK": 5, "ROUTE": 8, "DROP": 5},
    "PutEmail": {"ADDINFO": 3, "SEND": 3, "DROP": 3},
    # Two of the five pages have one link, which is a whole copy.
    "SplitText": {"FORK": 3, "CLONE": 2, "DROP": 5},
    "ExtractText": {"ATTRIBUTES_MODIFIED": 11, "DROP": 1},
    "DetectDuplicate": {"CONTENT_MODIFIED": 2, "ROUTE": 6, "DROP": 6},
    "InvokeHTTP": {"FORK": 6, "FETCH": 6, "DROP": 6},
    "UpdateAttribute": {"ATTRIBUTES_MODIFIED": 6},
    "RouteOnAttribute": {"CLONE": 4, "ROUTE": 9, "DROP": 1},
    "LogAttribute": {"DROP": 4},
    "MergeContent": {"JOIN": 2, "DROP": 5},
    "CompressContent": {"CONTENT_MODIFIED": 2},
    "PutFile": {"SEND": 2, "DROP": 2},
}
"""How many events of each type each step makes."""


def all_events(repository: Repository) -> list[Event]:
    result = repository.search("", limit=1000)
    assert result.total <= 1000
    return [stored.event for stored in result.events]


def events_by_step(repository: Repository, step_of: Callable[[Event], str]) -> dict[str, dict[str, int]]:
    counted: dict[str, Counter[str]] = {step.name: Counter() for step in STEPS}
    for event in all_events(repository):
        counted[step_of(event)][event.event_type] += 1
    return {name: dict(counts) for name, counts in counted.items()}


def require_final_state(repository: Repository, folder: Path) -> None:
    """Fail unless nothing waits but the URLs that were seen, and each page is archived once and mailed once."""
    queues = {status.connection.name: status.count for status in repository.queues().queues()}
    assert queues == {step.queue: int(step.queue == SEEN) for step in STEPS}
    (seen,) = repository.queues().flowfiles(SEEN, 2)
    assert seen.flowfile.content_claim is not None
    urls = repository.content(seen.flowfile.content_claim).read().decode().split()
    assert urls == sorted(f"{ORIGIN}{path}" for path in (*PAGES, "/old-guide", "/missing.html"))
    archives = [gzip.decompress(path.read_bytes()).decode() for path in sorted((folder / "archive").iterdir())]
    assert len(archives) == 2
    assert Counter(page for page in PAGES.values() for archive in archives if page in archive) == Counter(
        PAGES.values()
    )
    mails = [
        email.message_from_bytes(path.read_bytes(), policy=email.policy.default)
        for path in sorted((folder / "mail").iterdir())
    ]
    assert sorted(mail["Subject"] for mail in mails) == [
        f"provenance in {ORIGIN}/",
        f"provenance in {ORIGIN}/guide.html",
        f"provenance in {ORIGIN}/sources.html",
    ]
    sources = next(mail for mail in mails if "sources" in mail["Subject"])
    assert sources.get_content() == "<p>Its provenance begins there.</p>\n<p>No provenance, no trust.</p>\n"
