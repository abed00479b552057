"""The record of a placed writer as version 1 has it: it is read, and written as it is."""

from __future__ import annotations

import pytest

from custody.store import LocalStore, placed_writers
from custody.store.placed_writers import PlacedWriters
from custody.vfs import PosixFileSystem
from tests.golden.make_golden import HERE

GOLDEN = HERE / "placed-writer"
LOCATION = "memory://golden"


@pytest.fixture(autouse=True)
def _new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placed_writers, "_LOOKED", {})


def test_the_golden_record_says_where_its_writer_lies() -> None:
    store = LocalStore(PosixFileSystem(), GOLDEN)
    other = LocalStore(PosixFileSystem(), GOLDEN / "none")
    placed = PlacedWriters(store, LOCATION, lambda location: other)
    assert placed.placed == {"edge": "s3://edge-7/provenance"}
    assert placed.folders("") == ["edge"]
    assert placed.locate("edge/provenance") == other.locate("edge/provenance")
    assert placed.locate("main/provenance") == store.locate("main/provenance")


def test_a_record_is_written_as_it_is(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("store")
    placed = PlacedWriters(LocalStore(PosixFileSystem(), folder), LOCATION, lambda location: placed)
    assert placed.place("edge", "s3://edge-7/provenance")
    name = "PLACES/edge.json"
    assert (folder / name).read_bytes() == (GOLDEN / name).read_bytes()
