"""A run of a DAG whose task read one asset and wrote another one, and the contents that others moved in and out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import msgspec

from custody.airflow_runs import RunFacts, end_events, start_events
from custody.model import Event
from custody.repository import Repository
from tests.support import append, event

START = datetime(2026, 3, 2, tzinfo=UTC)
READ = b'{"order": 45226, "amount": 10}'
READ_LATER = b"what the run cannot have read"
WROTE = b"what the run wrote\n" * 6000
BEFORE = b"what lay there before"
WROTE_AGAIN = b"what somebody else wrote there"
GROUP = "moving"
"""The process group of all events that have contents."""


@dataclass(frozen=True, kw_only=True)
class RunStory:
    """Names of a story; the task ran in the second minute after `START`."""

    dag_id: str = "orders"
    run_id: str = "nightly"
    task_id: str = "sort"
    read: str = "hdfs://landing/orders"
    wrote: str = "hdfs://lake/orders.bin"
    component: str = "Put orders"

    def told(self) -> list[Event]:
        """What the listener of runs would have told, of an earlier run that wrote what this one read, too."""
        start = START + timedelta(minutes=2)
        run = RunFacts(
            deployment="airflow",
            dag_id=self.dag_id,
            run_id=self.run_id,
            run_after=START,
            state="success",
            start=start,
            end=start + timedelta(minutes=1),
        )
        task = replace(run, task_id=self.task_id, inlets=[self.read], outlets=[self.wrote])
        moment = START - timedelta(days=1)
        earlier = replace(
            run, run_id="earlier", task_id="land", outlets=[self.read], run_after=moment, start=moment, end=moment
        )
        documents = [one for each in (earlier, run, task) for one in (*start_events(each), *end_events(each))]
        return [msgspec.convert(document, Event) for document in documents]

    def moved(self, repository: Repository) -> list[Event]:
        """Store the contents, and return the events of those who moved them."""
        with repository.writer() as writer:
            contents = (READ, READ_LATER, WROTE, BEFORE, WROTE_AGAIN)
            read, later, wrote, before, again = (writer.content.put(content).claim for content in contents)
        return [
            self._moved(10, 1, "SEND", f"{self.read}/a.json", content_claim=read),
            self._moved(11, 4, "SEND", f"{self.read}/a.json", content_claim=later),
            # A name that begins the same is another one, and so is one that differs by case.
            self._moved(12, 1, "SEND", f"{self.read}-of-others", content_claim=later),
            self._moved(13, 1, "SEND", f"{self.read}/a.json".swapcase(), content_claim=later),
            self._moved(14, 5, "FETCH", self.wrote, content_claim=wrote, previous_content_claim=before),
            self._moved(15, 6, "SEND", self.wrote, content_claim=again),
            self._moved(16, 7, "FETCH", self.wrote, content_claim=again),
        ]

    def store(self, repository: Repository) -> None:
        """Store all of it."""
        append(repository, [*self.told(), *self.moved(repository)])

    def _moved(self, number: int, minute: int, kind: str, uri: str, **claims: object) -> Event:
        return event(
            900_000 + number,
            event_type=kind,
            event_time=int((START + timedelta(minutes=minute)).timestamp() * 1000),
            transit_uri=uri,
            component_name=self.component,
            process_group_id=GROUP,
            process_group_name=GROUP,
            **claims,
        )
