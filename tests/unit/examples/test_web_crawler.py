"""The web crawler: events of each step, copies and shared bytes, what is dropped and why, and a crawl that stops."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from pathlib import Path

import pytest

from custody.errors import NotFoundError
from custody.examples import web_crawler
from custody.examples.web_crawler import STEPS, CrawlOptions, crawl, crawl_lineage, crawl_picture, is_idle
from custody.examples.web_site import ORIGIN, web_site
from custody.flowfile_repository import QueueSession
from custody.lineage import ExportFormat, export
from custody.model import EventType
from custody.repository import Repository
from tests.unit.examples.crawls import EVENTS, all_events, events_by_step, require_final_state


@pytest.fixture(scope="module")
def crawled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Repository, Path]:
    folder = tmp_path_factory.mktemp("crawl")
    repository = Repository.create(folder / "repository")
    with web_site() as port, repository.flowfiles() as flow:
        crawl(flow, CrawlOptions(folder / "crawled", port))
    return repository, folder / "crawled"


def test_each_step_makes_its_events_and_nothing_is_left_waiting(crawled: tuple[Repository, Path]) -> None:
    repository, folder = crawled
    assert events_by_step(repository, lambda event: event.component_type) == EVENTS
    require_final_state(repository, folder)


def test_events_say_from_where_to_where_and_why(crawled: tuple[Repository, Path]) -> None:
    repository, folder = crawled
    events = all_events(repository)
    by_type = {str(kind): [event for event in events if event.event_type == kind] for kind in EventType}
    assert [event.transit_uri for event in by_type["RECEIVE"]] == [f"{ORIGIN}/"]
    assert sorted(event.transit_uri or "" for event in by_type["FETCH"]) == [
        f"{ORIGIN}/{name}"
        for name in ("archive.html", "guide.html", "missing.html", "old-guide", "sources.html", "steps.html")
    ]
    sent = {event.transit_uri for event in by_type["SEND"]}
    assert sent == {path.as_uri() for path in folder.rglob("*.*") if path.is_file()}
    assert all((event.alternate_identifier_uri or "").startswith("message-id:") for event in by_type["ADDINFO"])
    assert Counter(event.relationship for event in by_type["ROUTE"]) == {
        "keyword": 3,
        "link": 5,
        "non-duplicate": 6,
        "success": 8,
        "redirect": 1,
    }
    assert Counter(event.details for event in by_type["DROP"]) == {
        "Auto-Terminated by original Relationship": 15,
        "Auto-Terminated by Original Relationship": 6,
        "Auto-Terminated by success Relationship": 9,
        "Auto-Terminated by unmatched Relationship": 2,
        "Discard reason: duplicate URL": 6,
    }
    statuses = Counter(event.attributes["http.status_code"] for event in by_type["FETCH"])
    assert statuses == {"200": 4, "301": 1, "404": 1}


def test_a_split_shares_bytes_a_route_of_lines_copies_them_and_a_compression_leaves_the_old_content(
    crawled: tuple[Repository, Path],
) -> None:
    repository, _ = crawled
    events = all_events(repository)
    born = {child: event for event in events for child in event.child_uuids}
    claims = {event.flowfile_uuid: event.content_claim for event in events if event.content_claim is not None}
    for child, event in born.items():
        parent, own = claims.get(event.parent_uuids[0]), claims.get(child)
        if event.component_type == "SplitText":
            assert parent is not None
            assert own is not None
            assert (own.container, own.section, own.identifier) == (parent.container, parent.section, parent.identifier)
    packed = [event for event in events if event.component_type == "CompressContent"]
    for event in packed:
        before = repository.content(event, previous=True).read()
        after = repository.content(event).read()
        assert before.startswith(b"<h1>")
        assert after.startswith(b"\x1f\x8b")


def test_the_lineage_of_an_archive_leads_back_to_the_first_page(crawled: tuple[Repository, Path]) -> None:
    repository, _ = crawled
    lineage = crawl_lineage(repository)
    assert lineage.is_complete
    assert len(lineage.roots()) == 1
    archived = [event.flowfile_uuid for event in all_events(repository) if event.event_type == "JOIN"]
    for uuid in archived:
        assert lineage.roots()[0].uuid in lineage.ancestors(uuid)
    diagram = repository.diagram(lineage)
    picture = crawl_picture(repository)
    assert picture.count("<g ") == len(diagram.nodes) == len(lineage.nodes) + lineage.events
    assert picture.count("<path") == len(diagram.edges) + 1, "each edge, and the head of the arrows"
    assert not re.search(r"[0-9a-f]{8}-[0-9a-f]{4}-", picture), "another crawl has the same picture"
    # But for names, it is what `custody lineage --export svg` draws.
    label = re.compile(r'text-anchor="middle">([A-Z_]+ [0-9]+)<')
    drawn = label.findall(export(diagram, ExportFormat.SVG))
    assert len(drawn) == lineage.events
    assert sorted(label.findall(picture)) == sorted(drawn)


def test_a_second_crawl_begins_anew(tmp_path: Path) -> None:
    repository = Repository.create(tmp_path / "repository")
    with web_site() as port, repository.flowfiles() as flow:
        first = crawl(flow, CrawlOptions(tmp_path / "one", port))
        assert crawl(flow, CrawlOptions(tmp_path / "two", port)) == first
    require_final_state(repository, tmp_path / "two")


class StoppedError(Exception):
    """A crawl was stopped in the middle."""


@pytest.mark.parametrize("stop_at", [1, 2, 5, 9, 14, 22])
def test_a_crawl_that_stops_in_a_session_goes_on_and_does_each_thing_once(
    stop_at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = Repository.create(tmp_path / "repository")
    commits = itertools.count(1)
    commit = QueueSession.commit

    def stopping(session: QueueSession) -> object:
        if session.report.component.type != "GetHTTP" and session._living and next(commits) == stop_at:
            raise StoppedError
        return commit(session)

    with web_site() as port:
        options = CrawlOptions(tmp_path / "crawled", port)
        with monkeypatch.context() as patch, pytest.raises(StoppedError), repository.flowfiles() as flow:
            patch.setattr(QueueSession, "commit", stopping)
            crawl(flow, options)
        with repository.flowfiles() as flow:
            assert not is_idle(flow)
            assert crawl(flow, options)["GetHTTP"] == 0
    counted = events_by_step(repository, lambda event: event.component_type)
    assert {name: counted[name] for name in ("GetHTTP", "InvokeHTTP", "PutFile")} == {
        name: EVENTS[name] for name in ("GetHTTP", "InvokeHTTP", "PutFile")
    }
    require_final_state(repository, tmp_path / "crawled")


def test_a_site_that_does_not_answer_costs_nothing_but_time(tmp_path: Path) -> None:
    repository = Repository.create(tmp_path / "repository")
    with web_site() as port, repository.flowfiles() as flow:
        options = CrawlOptions(tmp_path / "crawled", port)
        web_crawler.connect(flow)
        for name in ("GetHTTP", "Funnel", "RouteText", "SplitText", "ExtractText", "DetectDuplicate"):
            step = next(step for step in STEPS if step.name == name)
            web_crawler.run_step(name, options, lambda of=step.component: flow.session(of))  # type: ignore[misc]
    with repository.flowfiles() as flow:
        crawl(flow, options)  # nobody listens any more
        waiting = repository.queues().flowfiles("crawl_requests", 10)
        assert {item.state for item in waiting} == {"penalised"}
        assert len(waiting) == 4


def test_without_a_crawl_there_is_no_lineage(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="custody example crawl"):
        crawl_lineage(Repository.create(tmp_path / "repository"))
