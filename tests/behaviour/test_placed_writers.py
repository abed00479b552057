"""A writer in a bucket of its own: all questions have the answers of a folder, and no key is in the wrong bucket."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest
from click.testing import CliRunner, Result

from custody.cli.main import cli
from custody.config import load_settings
from custody.errors import ConfigurationError, ConflictError, CorruptionError, CustodyError
from custody.format.checked_json import with_checksum
from custody.repository import Repository
from custody.repository.writers import list_writers, place_writer
from custody.store import placed_writers
from custody.store.placed_writers import PLACES, PlacedWriters
from custody.store.remote import RemoteStore, open_remote
from tests.behaviour.answers import EDGE, MAIN, QUESTIONS, answer, build, opened
from tests.behaviour.places import UnluckyStore, s3_url
from tests.behaviour.s3 import BUCKET, s3_environment

__all__ = ["s3_url"]


@dataclass(frozen=True)
class Places:
    """The URLs of a repository's store and of another one, and both."""

    home: str
    other: str

    def stores(self) -> tuple[RemoteStore, RemoteStore]:
        return tuple(open_remote(one, can_put_if_absent=True) for one in (self.home, self.other))  # type: ignore[return-value]


@pytest.fixture(params=["memory", pytest.param("s3", marks=pytest.mark.slow)])
def places(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Places:
    base = "memory://"
    if request.param == "s3":
        base = f"s3://{BUCKET}/"
        for name, value in s3_environment(request.getfixturevalue("s3_url")).items():
            monkeypatch.setenv(name, value)
    places = Places(*(f"{base}{uuid4().hex}" for _ in range(2)))
    monkeypatch.setenv("CUSTODY__REPOSITORY__STORE", places.home)
    return places


def forget_looks() -> None:
    """As a process that just started."""
    placed_writers._LOOKED.clear()


def run(root: Path, *arguments: object) -> Result:
    return CliRunner().invoke(cli, ["--repository", str(root), *map(str, arguments)])


@pytest.mark.in_parts(4)
def test_every_question_has_the_answer_of_a_folder(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local, remote, empty = (tmp_path / name for name in ("local", "remote", "empty"))
    with monkeypatch.context() as patch:
        patch.delenv("CUSTODY__REPOSITORY__STORE")
        build(local)
    remote.mkdir()
    place_writer(opened(remote).settings, EDGE, places.other)
    build(remote)
    home, other = places.stores()
    assert {key.partition("/")[0] for key in home.keys("")} >= {MAIN, PLACES}
    assert not list(home.keys(f"{EDGE}/"))
    assert {key.partition("/")[0] for key in other.keys("")} == {EDGE, "CONDITIONAL-PUTS"}
    # What waits in journals is on the producers' disks: another machine has these here, and nothing else.
    empty.mkdir()
    for disk in ("disk1", "disk2"):
        shutil.copytree(remote / disk, empty / disk)
    for root in (remote, empty):
        forget_looks()
        given = opened(root)
        for name, question in QUESTIONS.items():
            with monkeypatch.context() as patch:
                patch.delenv("CUSTODY__REPOSITORY__STORE")
                wanted = answer(opened(local), question)
            answered = answer(given, question)
            assert not isinstance(wanted, str)
            assert not isinstance(answered, str), (name, answered)
            assert answered.same == wanted.same, name
    stores = {entry.writer: entry.store for entry in list_writers(opened(remote).settings)}
    assert stores[MAIN].startswith(places.home)
    assert stores[EDGE].startswith(places.other)


def test_the_other_bucket_is_a_repository_of_that_writer_alone(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "repository"
    root.mkdir()
    place_writer(opened(root).settings, EDGE, places.other)
    build(root)
    monkeypatch.setenv("CUSTODY__REPOSITORY__STORE", places.other)
    alone = Repository.create(tmp_path / "alone")
    assert [entry.writer for entry in list_writers(alone.settings)] == [EDGE]
    assert alone.search("event_type:*", limit=1).total or alone.status()


def test_the_command_places_a_writer_and_says_where_it_lies(places: Places, tmp_path: Path) -> None:
    root = tmp_path / "repository"
    Repository.create(root)
    done = run(root, "writers", "place", EDGE, places.other)
    assert done.exit_code == 0, done.output
    assert done.stdout == f"writer {EDGE}: lies in {places.other}\n"
    again = run(root, "writers", "place", EDGE, places.other, "--json")
    assert json.loads(again.stdout) == {"writer": EDGE, "store": places.other, "is_new": False}
    refused = run(root, "writers", "place", EDGE, places.home)
    assert refused.exit_code == ConflictError.exit_code
    assert f"lies in {places.other}" in refused.stderr


@pytest.mark.parametrize("ending", ["lost", "refused", "conflict"])
def test_a_record_whose_put_has_no_answer_is_there_or_not(places: Places, ending: str) -> None:
    home, _ = places.stores()
    placed = PlacedWriters(
        UnluckyStore(home, ending), places.home, lambda url: open_remote(url, can_put_if_absent=True)
    )
    try:
        assert placed.place(EDGE, places.other)
    except CustodyError:
        assert ending == "refused"
    forget_looks()
    after = PlacedWriters(home, places.home, lambda url: open_remote(url, can_put_if_absent=True))
    assert after.placed in ({}, {EDGE: places.other})
    after.place(EDGE, places.other)
    assert after.placed == {EDGE: places.other}


def test_a_writer_that_has_something_stays_where_it_is(places: Places, tmp_path: Path) -> None:
    root = tmp_path / "repository"
    root.mkdir()
    build(root)
    with pytest.raises(ConflictError, match=f"writer {EDGE}: has objects in .* already, and stays there"):
        place_writer(opened(root).settings, EDGE, places.other)


def test_objects_of_another_repository_are_not_taken_over(places: Places, tmp_path: Path) -> None:
    _, other = places.stores()
    other.put(f"{EDGE}/provenance/transactions/x", b"")
    with pytest.raises(ConflictError, match="of another repository"):
        place_writer(Repository.create(tmp_path / "repository").settings, EDGE, places.other)


@pytest.mark.parametrize(
    ("writer", "store", "error"),
    [
        (EDGE, "store", ConfigurationError),
        (EDGE, "file:///tmp/x", ConfigurationError),
        (EDGE, "ftp://host/x", ConfigurationError),
        (EDGE, "s3://user:password@bucket/x", ConfigurationError),
        ("../other", "memory://x", ConfigurationError),
        ("PLACES", "memory://x", ConfigurationError),
        ("${HOME}", "memory://x", ConfigurationError),
    ],
)
def test_what_is_no_writer_or_no_object_store_is_refused(
    places: Places, tmp_path: Path, writer: str, store: str, error: type[Exception]
) -> None:
    settings = Repository.create(tmp_path / "repository").settings
    with pytest.raises(error):
        place_writer(settings, writer, store)
    assert not list(places.stores()[0].keys(f"{PLACES}/"))


def test_beside_a_folder_no_writer_is_placed(tmp_path: Path) -> None:
    settings = Repository.create(tmp_path / "repository").settings
    with pytest.raises(ConfigurationError, match="beside an object store alone"):
        place_writer(settings, EDGE, "memory://x")


def _flipped(data: bytes) -> bytes:
    return data.replace(b'"store": "', b'"store": "x', 1)


def _of_another(data: bytes) -> bytes:
    document = json.loads(data)
    del document["checksum"]
    return with_checksum(json.dumps(document | {"writer": "other"}).encode())


def _newer(data: bytes) -> bytes:
    document = json.loads(data)
    del document["checksum"]
    return with_checksum(json.dumps(document | {"version": 2}).encode())


@pytest.mark.parametrize(
    ("damage", "error", "text"),
    [
        (_flipped, CorruptionError, "with its checksum"),
        (_of_another, CorruptionError, "record of writer edge"),
        (lambda data: data[:20], CorruptionError, "expected the record of a placed writer"),
        (_newer, ConfigurationError, "version 1, got 2"),
    ],
)
def test_a_record_that_is_damaged_hides_nothing(
    places: Places, tmp_path: Path, damage: Callable[[bytes], bytes], error: type[Exception], text: str
) -> None:
    root = tmp_path / "repository"
    settings = Repository.create(root).settings
    place_writer(settings, EDGE, places.other)
    home, _ = places.stores()
    key = f"{PLACES}/{EDGE}.json"
    home.put(key, damage(home.get(key)))
    forget_looks()
    with pytest.raises(error, match=text):
        list_writers(load_settings(root))
