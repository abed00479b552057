"""The judge of a soak: what is lost, doubled, changed, half there or too much does not pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from custody.repository import Repository
from soak.events import digest, made_event
from soak.judge import Expired, Found, Verdict, judge, judge_amount
from soak.ledger import Ledger, LedgerFile, Refused, Sent, Told
from tests.support import numbered, run_steps

NOBODY: dict[str, Expired] = {}


def told(number: int, count: int, first_id: int, writer: str = "main", *, held: bool = False) -> Told:
    events = numbered([made_event(number + item, 1000) for item in range(count)], first_id)
    return Told(number, writer, first_id, 1000, held, tuple(map(digest, events)))


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """Three batches that were told, one that was not, one that was refused."""
    file = LedgerFile(tmp_path / "0-0.jsonl")
    for batch in (told(100, 3, 0), told(200, 2, 3, held=True), told(300, 2, 0, "main-2")):
        file.write(Sent(batch.number, len(batch.digests)))
        file.write(batch)
    file.write(Sent(400, 2))
    file.write(Sent(500, 1))
    file.write(Refused(500, "too much waits"))
    written = Ledger(tmp_path)
    written.refresh()
    return written


def all_of(ledger: Ledger) -> list[Found]:
    return [
        Found((batch.writer, event_id), batch.number + item, batch.digests[item])
        for batch in ledger.told
        for item, event_id in enumerate(batch.ids)
    ]


def verdict_of(ledger: Ledger, events: list[Found], expired: dict[str, Expired] = NOBODY) -> Verdict:
    verdict = Verdict()
    judge(ledger, events, expired, (), verdict, how="reading")
    return verdict


def test_what_is_all_there_passes(ledger: Ledger) -> None:
    verdict = verdict_of(ledger, all_of(ledger))
    assert verdict.holds
    assert verdict.counts["acknowledged"] == 7
    assert verdict.counts["acknowledged and held"] == 2


SPOILED: dict[str, tuple[Callable[[list[Found]], list[Found]], str]] = {
    "an event is lost": (lambda found: found[1:], "acknowledged event lost"),
    "the last event is lost": (lambda found: found[:-1], "acknowledged event lost"),
    "an event is there twice, under one id": (lambda found: [*found, found[2]], "id twice"),
    "an event is there twice, under another id": (
        lambda found: [*found, replace(found[2], key=("main", 77))],
        "event twice",
    ),
    "an event is changed": (lambda found: [replace(found[0], digest="0"), *found[1:]], "event changed"),
    "two events changed places": (
        lambda found: [replace(found[0], key=found[1].key), replace(found[1], key=found[0].key), *found[2:]],
        "event changed",
    ),
    "an event is another writer's": (
        lambda found: [replace(found[0], key=("main-3", 0)), *found[1:]],
        "acknowledged event lost",
    ),
    "half of a batch that nobody was told of shows": (
        lambda found: [*found, Found(("main", 9), 400, "x")],
        "half a batch",
    ),
    "a batch that was refused shows": (lambda found: [*found, Found(("main", 9), 500, "x")], "refused batch found"),
    "an event was never sent": (lambda found: [*found, Found(("main", 9), 600, "x")], "event never sent"),
}


@pytest.mark.parametrize("what", SPOILED)
def test_what_is_not_as_it_was_told_does_not_pass(ledger: Ledger, what: str) -> None:
    spoil, kind = SPOILED[what]
    verdict = verdict_of(ledger, spoil(all_of(ledger)))
    assert f"reading: {kind}" in verdict.problems, verdict.lines()


def test_a_whole_batch_that_nobody_was_told_of_may_show(ledger: Ledger) -> None:
    shown = [*all_of(ledger), Found(("main", 9), 400, "x"), Found(("main", 10), 401, "x")]
    verdict = verdict_of(ledger, shown)
    assert verdict.holds
    assert verdict.counts["reading: found, never acknowledged"] == 2


def test_what_retention_took_may_be_gone_and_may_not_be_there(ledger: Ledger) -> None:
    expired = {"main": Expired((0, 3), frozenset({0}))}
    rest = [item for item in all_of(ledger) if not (item.key[0] == "main" and item.key[1] < 3)]
    verdict = verdict_of(ledger, rest, expired)
    assert verdict.holds
    assert verdict.counts["acknowledged and expired"] == 3
    assert "reading: expired event found" in verdict_of(ledger, all_of(ledger), expired).problems
    assert "reading: acknowledged event lost" in verdict_of(ledger, rest[1:], expired).problems


def test_what_is_held_may_not_expire(ledger: Ledger) -> None:
    expired = {"main": Expired((0, 3), frozenset({3}))}
    rest = [item for item in all_of(ledger) if item.key not in (("main", 3), ("main", 4))]
    assert verdict_of(ledger, rest, expired).problems == {"reading: held event expired": 2}


def test_marks_that_say_another_number_of_events_do_not_pass(ledger: Ledger) -> None:
    expired = {"main": Expired((0, 3), frozenset({0}))}
    for said, passes in ((2, False), (3, True), (6, True), (7, False)):
        verdict = Verdict()
        judge_amount(ledger, expired, {"main": said}, verdict)
        assert verdict.holds is passes, said


def test_a_line_that_a_kill_cut_off_was_told_to_nobody(tmp_path: Path) -> None:
    LedgerFile(tmp_path / "0-0.jsonl").write(Sent(1, 2))
    with (tmp_path / "0-0.jsonl").open("ab") as file:
        file.write(b'{"type":"told","number":1,"wri')
    ledger = Ledger(tmp_path)
    ledger.refresh()
    assert (ledger.sent, ledger.told) == ({1: 2}, [])
    with (tmp_path / "0-0.jsonl").open("ab") as file:
        file.write(b'ter":"main","first_id":0,"ms":5,"held":false,"digests":["a","b"]}\n')
    ledger.refresh()
    assert [batch.ids for batch in ledger.told] == [range(2)]


def test_which_ids_are_gone_is_read_from_the_marks_of_a_real_catalog(repository: Repository) -> None:
    text = '[retention]\nage_max = "1 day"\ngrace = "0 seconds"\n[eventlog]\nlog_bytes_target = 4096\n'
    (repository.settings.root / "custody.toml").write_text(text)
    opened = Repository.open(repository.settings.root)
    with opened.writer() as writer:
        writer.append([made_event(number, 1000) for number in range(3)])
        writer.seal()
        writer.append([made_event(number, 1 << 45) for number in range(3, 5)])
    run_steps(opened.settings)
    for _ in range(2):  # marked, then the mark is shortened: it still says which groups are gone
        opened.apply_retention()
        state = opened.workspace().catalog.load()
        expired = Expired.of(state, ())
        assert [event_id for event_id in range(10) if event_id in expired] == [0, 1, 2]
        assert sum(mark.events for mark in state.marks.values()) == 3
