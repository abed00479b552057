"""Who can write to the store and the containers lets two files change places: each is whole, and not what is listed."""

from __future__ import annotations

from pathlib import Path

import pytest

from custody.config import load_settings
from custody.repository import Repository
from tests.attacks.attacker import Attacker, build, findings, run

UUID = "00000000-0000-4000-8000-{:012d}"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Three logs and three shards of ten events each."""
    build(tmp_path / "repository")
    return tmp_path / "repository"


def exchange(one: Path, other: Path) -> None:
    aside = one.with_name("aside")
    one.rename(aside)
    other.rename(one)
    aside.rename(other)


def exchange_logs(root: Path) -> None:
    attacker = Attacker(root)
    one, other, *_ = (attacker.home / path for path in sorted(attacker.catalog.load().files))
    for suffix in (".parquet", ".toc"):
        exchange(one.with_suffix(suffix), other.with_suffix(suffix))


def shards(root: Path) -> list[Path]:
    return sorted(root.glob("**/main/index/*"), key=lambda folder: folder.name)


def answered(root: Path, text: str) -> tuple[int, list[int], tuple[str, ...]]:
    page = Repository(load_settings(root)).search(text, limit=100)
    return page.total, sorted(found.event.event_id for found in page.events), page.notices


def test_a_search_in_exchanged_logs_says_which_events_it_cannot_read(root: Path) -> None:
    exchange_logs(root)
    total, ids, notices = answered(root, f"flowfile_uuid:{UUID.format(3)}")
    assert (total, ids) == (1, [])
    assert any("another one" in text for text in notices)


def test_exchanged_logs_whose_tables_of_contents_are_gone_are_refused_as_well(root: Path) -> None:
    exchange_logs(root)
    for toc in Attacker(root).home.rglob("*.toc"):
        toc.unlink()
    _, ids, notices = answered(root, f"flowfile_uuid:{UUID.format(3)}")
    assert ids == []
    assert any("another one" in text for text in notices)


def test_reading_exchanged_logs_in_the_order_of_ids_names_them(root: Path) -> None:
    exchange_logs(root)
    page = Repository(load_settings(root)).events(0, 30)
    assert [found.event_id for found in page] == list(range(20, 30))
    assert any("another one" in text for text in page.notices)


def test_exchanged_shards_are_passed_over_and_named(root: Path) -> None:
    one, other, _ = shards(root)
    exchange(one, other)
    for number in (3, 13, 23):
        total, ids, notices = answered(root, f"flowfile_uuid:{UUID.format(number)}")
        assert (total, ids) == (1, [number])
        assert number == 23 or any("another shard" in text for text in notices)
    assert findings(root, "--quick") == {"shard-damaged"}


def test_exchanged_shards_hide_nothing_from_a_search_by_time(root: Path) -> None:
    one, other, _ = shards(root)
    exchange(one, other)
    total, ids, _ = answered(root, "event_time:[2026-03-01 TO 2026-03-03]")
    assert (total, ids) == (30, list(range(30)))


def test_a_shard_is_not_built_from_a_log_in_another_ones_place(root: Path) -> None:
    exchange_logs(root)
    one, *_ = shards(root)
    before = {path.name: path.read_bytes() for path in one.iterdir()}
    assert run(root, "index", "rebuild").exit_code != 0
    assert {path.name: path.read_bytes() for path in one.iterdir()} == before
