"""What the pages hold, forget and remove, in a real browser; and what somebody finds who sees them for the first time.

The pictures of docs/pages.md that show this are made here.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from custody.catalog import repair
from custody.catalog.attest import attest, new_key
from custody.clock import SystemClock
from custody.config import SETTINGS_FILE
from custody.examples.web_crawler import CrawlOptions, crawl
from custody.examples.web_site import web_site
from custody.format.names import trash_path
from custody.maintenance.repair import repair_repository
from custody.maintenance.rewriting import open_event_log
from custody.model import Event
from custody.repository import EventSelection, Repository
from custody.repository.local_pass import PASSES, run_locally
from custody.serving.access import Scope
from custody.vfs import PosixFileSystem
from custody_pages import build
from tests.pages.test_in_browser import HOSTILE, built, led, looked_at, opened, picture, settled, total
from tests.support import append, event, run_steps, sample
from tests.unit.maintenance.damaged_samples import flip
from tests.unit.serving.serve_process import Served, served, token
from tests.unit.serving.test_api_changes import quarantined

__all__ = ["built"]

pytestmark = pytest.mark.slow

ORDER = "0dd0ca5e-0000-4000-8000-000000045226"
BUNDLE = "0dd0ca5e-0000-4000-8000-0000000b4d1e"
LANDED = "hdfs://namenode:8020/landing/orders/bundle-17.json"
RUN = {"dag_id": "orders_hourly", "run_id": "scheduled__2026-03-02T05:00:00+00:00"}


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """What the demo has: a sample of nodes, the example's crawl with its contents; and an order, which a run landed."""
    folder = tmp_path_factory.mktemp("keeping")
    repository = Repository.create(folder / "repository")
    append(repository, sample(2000))
    with web_site() as port, repository.flowfiles() as flow:
        crawl(flow, CrawlOptions(folder / "crawled", port, "provenance", 3))
    with repository.writer() as writer:
        before, after = (
            writer.content.put(text).claim
            for text in (b'{"order": 45226, "amount": 10}', b'{"order": 45226, "amount": 12}')
        )
    append(repository, story(before, after))
    run_locally(PASSES["all"], repository.settings, run_id="scheduled__2026-03-02T00:00:00+00:00")
    repository.hold("case-17", EventSelection(flowfile_uuids=[ORDER]), "court order of 2026-03-02", "carol")
    forgotten = [one.event.event_id for one in repository.search("event_type:DROP", limit=3).events]
    repository.forget(EventSelection(event_ids=forgotten), "request of a customer", "main", who="alice")
    return Repository.open(repository.settings.root)


def story(before: Any, after: Any) -> list[Event]:
    names = {"filename": "order-3-45226.json"}
    order = {"flowfile_uuid": ORDER, "previous_attributes": names}
    broker = {"transit_uri": "kafka://broker1.example.com:9092/orders"}
    run = {"airflow.dag_id": RUN["dag_id"], "airflow.run_id": RUN["run_id"], "airflow.task_id": "land"}
    landed = {"filename": "bundle-17.json", **run}
    own = {"component_id": "orders_hourly.land", "component_type": "AirflowTask", "process_group_id": "orders_hourly"}
    return [
        event(10_000, **order, event_type="RECEIVE", component_name="Consume orders", content_claim=before, **broker),
        event(
            10_001,
            **order,
            event_type="CONTENT_MODIFIED",
            component_name="Normalise line",
            content_claim=after,
            previous_content_claim=before,
        ),
        event(10_002, **order, event_type="JOIN", component_name="Bundle", parent_uuids=[ORDER], child_uuids=[BUNDLE]),
        event(10_003, event_type="SEND", flowfile_uuid=BUNDLE, transit_uri=LANDED, updated_attributes=landed, **own),
    ]


@pytest.fixture(scope="module")
def server(repository: Repository) -> Iterator[Served]:
    with served(repository.settings.root, "--door", "pages") as running:
        yield running


def test_somebody_new_finds_where_an_order_ended_what_it_held_before_who_wrote_it_and_who_deleted_what(
    server: Served,
) -> None:
    with opened(server.url) as page:
        # Which file did order 45226 end in? The number is typed as it is known.
        page.goto(f"{server.url}/ui/")
        settled(page)
        page.get_by_label("Query").fill("45226")
        led(page, page.get_by_role("button", name="Search").click)
        assert total(page) == "0 events"
        led(page, page.get_by_role("link", name="Look for 45226 anywhere in names").click)
        assert total(page) == "3 events"
        led(page, page.get_by_role("link", name=f"Lineage {ORDER}").first.click)
        ends = page.get_by_role("region", name="Where it came from, and where it ended").last
        ends.get_by_role("link", name=LANDED).wait_for()
        assert re.search(r"Went to\s+hdfs://\S+/bundle-17\.json", ends.inner_text())
        assert re.search(r"Came from\s+kafka://", ends.inner_text())
        picture(page, "pages-ends")
        # Which run wrote it?
        led(page, ends.get_by_role("link", name=LANDED).click)
        led(page, page.get_by_role("link", name="The run of Airflow that it is of").click)
        assert f"{RUN['dag_id']}, run {RUN['run_id']}" in page.get_by_role("main").inner_text()
        # What did it contain before?
        page.goto(f"{server.url}/ui/search.html?q=filename:*45226*")
        settled(page)
        row = page.get_by_role("row").filter(has_text="CONTENT_MODIFIED")
        led(page, row.get_by_role("rowheader").get_by_role("link").click)
        page.get_by_role("region", name="Content before the event").get_by_text('"amount": 10').wait_for()
        # Who deleted what last week?
        led(page, page.get_by_role("navigation").get_by_role("link", name="Proof").click)
        deeds = page.get_by_role("region", name="Who forgot or held what, and what was lost").last
        row = deeds.get_by_role("row").filter(has_text="Forgotten")
        assert [word in row.inner_text() for word in ("alice", "request of a customer", "3")] == [True] * 3
        assert "carol" in deeds.get_by_role("row").filter(has_text="Held").inner_text()
        picture(page, "pages-who-deleted")


def test_a_name_in_the_field_of_a_lineage_leads_to_its_file(server: Served) -> None:
    with opened(server.url, 404) as page:
        page.goto(f"{server.url}/ui/lineage.html")
        page.get_by_label("FlowFile, event, run, dataset or identifier").fill("order-3-45226.json")
        led(page, page.get_by_role("button", name="Show", exact=True).click)
        led(page, page.get_by_role("link", name="as the name of a file").click)
        assert total(page) == "3 events"


def test_events_are_forgotten_by_a_plan_and_a_number_that_is_typed(tmp_path: Path) -> None:
    repository = Repository.create(tmp_path / "repository")
    append(repository, [event(number, updated_attributes={"customer": HOSTILE[number % 2]}) for number in range(10)])
    run_steps(repository.settings)
    with served(repository.settings.root, "--door", "pages") as running, opened(running.url) as page:
        page.goto(f"{running.url}/ui/event.html?writer=main&event=3")
        settled(page)
        led(page, page.get_by_role("link", name="Hold or forget it").click)
        page.get_by_label("Event ids, with commas").fill("")
        page.get_by_label("Attribute, as name=value").fill(f"customer={HOSTILE[1]}")
        led(page, page.get_by_role("button", name="Choose these events").click)
        forget = page.get_by_role("region", name="Forget them")
        forget.get_by_role("button", name="Count what would be forgotten").click()
        forget.get_by_text("5 events would be forgotten").wait_for()
        agree = forget.get_by_role("button", name="Forget 5 events for good")
        forget.get_by_label("Why; it stays").fill("request of a customer")
        forget.get_by_label("To agree, type").fill("4")
        assert agree.is_disabled()
        assert repository.search("").total == 10
        picture(page, "pages-forget")
        forget.get_by_label("To agree, type").fill("5")
        agree.click()
        forget.get_by_text("5 events are forgotten").wait_for()
        assert Repository.open(repository.settings.root).search("").total == 5
        # The address has plan and run: whoever opens it again sees what was done, and does nothing by that.
        page.goto(page.url)
        settled(page)
        forget.get_by_text("5 events are forgotten").wait_for()
        assert page.evaluate("window.broken ?? null") is None


def test_a_hold_is_made_counted_and_released_from_the_pages(server: Served, repository: Repository) -> None:
    name = HOSTILE[1]
    with opened(server.url) as page:
        page.goto(f"{server.url}/ui/keep.html?flowfile={BUNDLE}")
        settled(page)
        hold = page.get_by_role("region", name="Hold them")
        hold.get_by_label("Name of the hold").fill(name)
        hold.get_by_label("Why; it stays").fill(HOSTILE[0])
        hold.get_by_role("button", name="Hold these events").click()
        hold.get_by_text("holds them.").wait_for()
        assert name in [one.name for one in repository.holds()]
        led(page, page.get_by_role("link", name="Holds: what no retention lets go").click)
        holds = page.get_by_role("region", name="Holds: what no retention lets go").first
        one = holds.locator("details", has=page.locator("summary", has_text=name))
        one.locator("summary").click()
        one.get_by_role("button", name=f"Count what {name} keeps").click()
        one.get_by_text("It keeps 1 event that can be seen.").wait_for()
        one.get_by_label("Why; it stays").fill("case closed")
        one.get_by_role("button", name=f"Release {name}").click()
        holds.locator("summary").filter(has_text=name).wait_for(state="detached")
        assert name not in [one.name for one in repository.holds()]
        assert page.evaluate("window.broken ?? null") is None


def test_pieces_are_removed_and_waits_room_and_containers_are_shown(server: Served, repository: Repository) -> None:
    quarantined(repository, b"never an event")
    with opened(server.url) as page:
        page.goto(f"{server.url}/ui/status.html")
        settled(page)
        waits = page.get_by_role("region", name="How long events waited until they were live")
        waits.get_by_role("img").wait_for()
        assert re.search(r"Longest\s+[\d.,]+ s", waits.inner_text())
        assert page.get_by_role("region", name="How the room will do").is_visible()
        page.get_by_role("region", name="Containers of contents").get_by_text("ok").first.wait_for()
        before = len(list(repository.quarantine.known_keys()))
        page.get_by_role("region", name="Quarantine").get_by_role("checkbox").first.check()
        page.get_by_role("button", name="Remove 1 chosen piece for good").click()
        page.get_by_role("dialog").get_by_role("button", name="Remove").click()
        page.get_by_role("status", name="What became of the pieces").get_by_text("Removed").wait_for()
        assert len(list(repository.quarantine.known_keys())) == before - 1


def test_where_a_content_is_in_software_is_said_or_that_nobody_knows(server: Served, repository: Repository) -> None:
    [one, *_] = repository.search("filename:*45226* AND event_type:CONTENT_MODIFIED").events
    with opened(server.url) as page:
        page.goto(f"{server.url}/ui/event.html?writer={one.writer}&event={one.event.event_id}")
        settled(page)
        section = page.get_by_role("region", name="Where this content is in software")
        section.get_by_role("button", name="Look for it").click()
        section.get_by_text("There are no tables of software here").wait_for()


@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 320, 3840])
def test_everybody_can_use_what_keeps_and_forgets(
    server: Served, repository: Repository, colours: str, width: int
) -> None:
    [one, *_] = repository.search("filename:*45226* AND event_type:CONTENT_MODIFIED").events
    axe = (build.WORK / "source" / "node_modules" / "axe-core" / "axe.min.js").read_text(encoding="utf-8")
    problems: list[str] = []
    with opened(server.url, 404, color_scheme=colours, viewport={"width": width, "height": 800}) as page:
        for path in (
            f"keep.html?flowfile={ORDER}&attribute=filename%3Dorder-3-45226.json",
            "keep.html",
            "proof.html",
            "status.html",
            f"lineage.html?flowfile={ORDER}",
            "lineage.html?what=order-3-45226.json",
            "search.html?q=45226",
            f"event.html?writer={one.writer}&event={one.event.event_id}",
        ):
            page.goto(f"{server.url}/ui/{path}")
            settled(page)
            if path.startswith("keep.html?"):
                page.get_by_role("button", name="Count what would be forgotten").click()
                page.get_by_label("To agree, type").wait_for()
            if path.startswith("event"):
                page.get_by_role("button", name="Look for it").click()
                page.get_by_text("There are no tables of software").wait_for()
            problems += looked_at(page, axe, path, width)
    assert not problems, "\n".join(problems)


def test_who_may_not_manage_is_shown_the_command(repository: Repository) -> None:
    root = repository.settings.root
    reader = token(root, "reader", Scope.READ)["authorization"].removeprefix("Bearer ")
    try:
        with (
            served(root, "--door", "pages", CUSTODY__SERVE__TOKEN_FILE="tokens") as running,
            opened(running.url, 401, 403) as page,
        ):
            page.goto(f"{running.url}/ui/proof.html")
            page.get_by_label("Token").first.fill(reader)
            page.get_by_role("button", name="Use it in this tab").first.click()
            page.goto(f"{running.url}/ui/keep.html?flowfile={ORDER}")
            page.get_by_text("it needs the scope manage").wait_for()
            assert page.get_by_role("button", name="Count what would be forgotten").count() == 0
            assert f"custody forget --flowfile {ORDER}" in page.locator("pre").first.inner_text()
            page.goto(f"{running.url}/ui/proof.html")
            settled(page)
            assert page.get_by_role("button", name=re.compile("^Release")).count() == 0
    finally:
        (root / "tokens").unlink()


def test_retention_is_let_go_from_the_page_by_the_number_of_its_events(tmp_path: Path) -> None:
    repository = Repository.create(tmp_path / "repository")
    (repository.settings.root / "custody.toml").write_text('[retention]\nage_max = "30 days"\n')
    append(repository, sample(300))
    run_steps(repository.settings)
    axe = (build.WORK / "source" / "node_modules" / "axe-core" / "axe.min.js").read_text(encoding="utf-8")
    with served(repository.settings.root, "--door", "pages") as running, opened(running.url) as page:
        page.goto(f"{running.url}/ui/proof.html")
        settled(page)
        act = page.get_by_role("button", name="Let it go now")
        typed = page.get_by_label("Type the number of events that go, 300")
        typed.fill("299")
        assert act.is_disabled()
        typed.fill("300")
        assert looked_at(page, axe, "proof.html", 1280) == []
        act.click()
        page.get_by_text("300 events went.").wait_for()
        page.reload()
        settled(page)
        page.get_by_text("300 events went.").wait_for()
        page.goto(f"{running.url}/ui/search.html")
        settled(page)
        page.get_by_text("No event matches.").wait_for()
    assert Repository.open(repository.settings.root).search("").total == 0


def test_proof_says_what_attestations_prove_and_what_was_repaired(tmp_path: Path) -> None:
    root = tmp_path / "repository"
    repository = Repository.create(root)
    (root / SETTINGS_FILE).write_text('[catalog]\nattestations = "attested"\n')
    (root / "attested").mkdir()
    append(repository, sample(20))
    run_steps(repository.settings)
    signed = attest(repository.workspace().catalog, new_key(), SystemClock())
    (root / "attested" / "march.json").write_bytes(msgspec.json.encode(signed))
    (root / "attested" / f"{HOSTILE[0].replace('/', '')[:40]}.json").write_text("{}")
    append(repository, sample(20, seed=2))
    run_steps(repository.settings)
    catalog = repository.workspace().catalog
    newest = catalog.objects.at(catalog.load().revision)
    damaged = Path(catalog.objects.store.locate(newest[0].key))
    damaged.write_bytes(damaged.read_bytes()[:-40] + bytes(40))
    repair(Repository.open(root).workspace().catalog, SystemClock())
    with served(root, "--door", "pages") as running, opened(running.url) as page:
        page.goto(f"{running.url}/ui/proof.html")
        settled(page)
        kept = page.get_by_role("region", name="Attestations: what signed heads prove").first
        row = kept.get_by_role("row").filter(has_text="march.json").inner_text()
        assert [text in row for text in ("Proven", "main", "is the attested one", signed.public_key)] == [True] * 4
        assert "Not readable" in kept.get_by_role("row").filter(has_text="expected an attestation").inner_text()
        said = [one.input_value() for one in kept.locator("input").all()]
        assert "custody catalog attestations" in said[0]
        deeds = page.get_by_role("region", name="Who forgot or held what, and what was lost").last
        assert "were damaged" in deeds.get_by_role("row").filter(has_text="Catalog repaired").inner_text()
        led(page, kept.get_by_role("link", name=str(signed.revision), exact=True).click)
        assert total(page) == "20 events"


def test_proof_says_which_log_was_repaired_which_shard_rebuilt_and_why(tmp_path: Path) -> None:
    root = tmp_path / "repository"
    Repository.create(root)
    (root / SETTINGS_FILE).write_text("[eventlog]\nblock_bytes_max = 4096\n")
    repository = Repository.open(root)
    for seed in (1, 2, 3):
        append(repository, sample(200, seed=seed))
        run_steps(repository.settings)
    workspace = repository.workspace()
    state = workspace.catalog.load()
    whole, broken, _ = sorted(state.files)
    # A copy of the first log is in the trash; of the second one a block is damaged, and no copy is left.
    trash = workspace.log_path(trash_path(whole, 1))
    trash.parent.mkdir(parents=True)
    workspace.log_path(whole).rename(trash)
    block = open_event_log(workspace, state.files[broken]).toc.blocks[1]
    flip(workspace.log_path(broken), int(block["offset"]) + 10)
    [name] = [name for name, shard in state.shards.items() if {whole, broken}.isdisjoint(shard.log_paths)]
    shutil.rmtree(workspace.shard_path(state.shards[name]))
    repair_repository(repository.settings, PosixFileSystem(), SystemClock(), accept_loss=True)
    axe = (build.WORK / "source" / "node_modules" / "axe-core" / "axe.min.js").read_text(encoding="utf-8")
    with served(root, "--door", "pages") as running, opened(running.url, bypass_csp=True) as page:
        page.goto(f"{running.url}/ui/proof.html")
        settled(page)
        deeds = page.get_by_role("region", name="Who forgot or held what, and what was lost and repaired").last
        restored = deeds.get_by_role("row").filter(has_text="Event log to be restored from a copy").inner_text()
        assert all(text in restored for text in (whole, "repair", "there is no")), restored
        rewritten = deeds.get_by_role("row").filter(has_text="Event log replaced by its whole blocks")
        rewritten.get_by_text("What was found").click()
        ids = f"{block['first_event_id']} – {block['first_event_id'] + block['rows'] - 1}"
        for text in ("block 1 is damaged", ids, str(block["offset"]), state.files[broken].sha256.hex()):
            assert text in rewritten.inner_text()
        rebuilt = deeds.get_by_role("row").filter(has_text="Index shard to be rebuilt").inner_text()
        assert all(text in rebuilt for text in (name, str(workspace.shard_path(state.shards[name])))), rebuilt
        assert deeds.get_by_role("row").filter(has_text="Repair finished").count() == 2
        assert looked_at(page, axe, "proof", 1280) == []
        # The same between two revisions.
        page.goto(f"{running.url}/ui/proof.html?writer=main&former={state.revision}")
        settled(page)
        told = page.get_by_role("region", name="Repaired", exact=True)
        assert told.get_by_role("row").count() == 6
        assert name in told.get_by_role("row").filter(has_text="Index shard to be rebuilt").inner_text()
