"""What stands in the place of a file and is none costs its destination only, and is written once it is moved away."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from custody.cli.main import cli
from custody.errors import StorageError
from custody.ngsi_sink.batch_file import WRITER
from custody.ngsi_sink.opening import resubmit_entry
from custody.repository import Repository
from custody.vfs import PosixFileSystem
from custody.vfs.memory import MemoryFileSystem
from tests.support import run_steps
from tests.unit.ngsi_sink.sink_repository import (
    TREES,
    again,
    bench,
    persist,
    receive,
    received,
    refusing,
    send_events,
    values,
)


def socket_at(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        here = os.open(path.parent, os.O_RDONLY)
        try:  # the path is longer than a socket's may be
            listener.bind(f"/proc/self/fd/{here}/{path.name}")
        finally:
            os.close(here)


THINGS: dict[str, tuple[Callable[[Path], object], Callable[[Path], None]]] = {
    "an empty folder": (Path.mkdir, Path.rmdir),
    "a pipe": (os.mkfifo, Path.unlink),
    "a socket": (socket_at, Path.unlink),
    "a link that leads nowhere": (lambda path: path.symlink_to("nothing"), Path.unlink),
    "a link to a folder": (lambda path: path.symlink_to("."), Path.unlink),
    "a link to itself": (lambda path: path.symlink_to(path.name), Path.unlink),
}


def place_of(repository: Repository, path: str) -> Path:
    return repository.settings.root / "hdfs" / path[1:]


def resubmit_all(repository: Repository) -> None:
    for entry in list(repository.quarantine.entries()):
        resubmit_entry(repository, entry.key)
    again(repository)


@pytest.mark.in_parts(2)
@pytest.mark.parametrize("what", THINGS)
def test_what_is_no_file_costs_its_destination_only(tmp_path: Path, what: str) -> None:
    make, remove = THINGS[what]
    repository = received(tmp_path, [bench(1, "Tree"), bench(2), bench(3, "Tree")])
    place = place_of(repository, TREES)
    place.parent.mkdir(parents=True)
    make(place)
    done = persist(repository)
    assert (done.records, done.quarantined, done.deferred, done.files, done.is_stopped) == (1, 2, 0, 1, False)
    assert values(repository) == ["1002"]
    [entry] = repository.quarantine.entries()
    assert str(place) in entry.message.replace("file://", "")
    # It goes on so, run for run, and nobody else is held up.
    for number in (4, 5):
        receive(repository, [bench(number), bench(number, "Tree")], 1_772_600_767_089 + number)
        run_steps(repository.settings)
        persist(repository)
    assert values(repository) == ["1002", "1004", "1005"]
    remove(place)
    resubmit_all(repository)
    assert sorted(values(repository, TREES)) == ["1001", "1003", "1004", "1005"]
    assert list(repository.quarantine.entries()) == []
    receive(repository, [bench(6, "Tree")], 1_772_600_767_999)
    run_steps(repository.settings)
    assert persist(repository).records == 1
    rows = [event for event in send_events(repository) if event.updated_attributes["path"] == TREES.rpartition("/")[0]]
    assert sum(int(event.updated_attributes["ngsi.length"] or 0) for event in rows) == place.stat().st_size


@pytest.mark.parametrize("is_folder_first", [True, False])
def test_a_destination_below_the_file_of_another_one(tmp_path: Path, is_folder_first: bool) -> None:
    """Entity `b` of `/c` is written to `/c/b/b.txt`; an entity of `/c/b/b.txt` makes a folder of this name."""
    plain = b'{"data": [{"id": "b", "type": "", "x": {"type": "T", "value": 1}}]}'
    repository = received(tmp_path, [])
    file, below = "/user/warden/parks/c/b/b.txt", "/user/warden/parks/c/b/b.txt/Bench1_Bench/Bench1_Bench.txt"
    both = [([bench(1)], "/c/b/b.txt"), ([plain], "/c")]
    for place, (bodies, path) in enumerate(both if is_folder_first else reversed(both)):
        receive(repository, bodies, 1_772_600_767_089 + place, **{"fiware-servicepath": path})
        run_steps(repository.settings)
        persist(repository)
    there, refused = (below, file) if is_folder_first else (file, below)
    assert len(values(repository, there)) == 1
    [entry] = repository.quarantine.entries()
    receive(repository, [bench(7)])
    run_steps(repository.settings)
    assert persist(repository).records == 1
    assert values(repository) == ["1007"]
    # The way back of the page: it is moved away, and what waits is submitted again.
    top = place_of(repository, file)
    top.rename(tmp_path / "moved")
    resubmit_entry(repository, entry.key)
    assert again(repository).resubmitted == 1
    assert len(values(repository, refused)) == 1
    assert list(repository.quarantine.entries()) == []


def test_both_in_one_batch_cost_one_of_them(tmp_path: Path) -> None:
    plain = b'{"data": [{"id": "b", "type": "", "x": {"type": "T", "value": 1}}]}'
    repository = received(tmp_path, [])
    receive(repository, [bench(1)], 1_772_600_767_089, **{"fiware-servicepath": "/c/b/b.txt"})
    receive(repository, [plain], 1_772_600_767_090, **{"fiware-servicepath": "/c"})
    receive(repository, [bench(2)], 1_772_600_767_091)
    run_steps(repository.settings)
    done = persist(repository)
    assert (done.records, done.deferred, done.files) == (3, 1, 2)
    assert values(repository) == ["1002"]
    assert persist(repository).problems == []
    [entry] = repository.quarantine.entries()
    place_of(repository, "/user/warden/parks/c/b/b.txt").rename(tmp_path / "moved")
    resubmit_entry(repository, entry.key)
    assert again(repository).resubmitted == 1


def test_damage_of_one_file_holds_up_no_other_and_is_told(tmp_path: Path) -> None:
    """A file is cut while a part of it is deferred: the part cannot have its place any more."""
    repository = received(tmp_path, [bench(1, "Tree"), bench(2)])
    persist(repository)
    place, before = place_of(repository, TREES), place_of(repository, TREES).read_bytes()
    receive(repository, [bench(3, "Tree")], 1_772_600_767_090)
    run_steps(repository.settings)
    place.unlink()
    place.write_bytes(before)

    target = refusing(repository)
    target.writes = {"Tree"}
    assert persist(repository, target).deferred == 1
    place.unlink()
    place.write_bytes(before[:10])
    receive(repository, [bench(4, "Tree"), bench(5)], 1_772_600_767_091)
    run_steps(repository.settings)
    done = persist(repository)
    assert (done.records, done.quarantined, done.unusable_files, done.is_stopped) == (1, 1, 1, False)
    assert "expected at least the" in done.problems[0]
    assert values(repository) == ["1002", "1005"]
    assert place.read_bytes() == before[:10]
    place.write_bytes(before)  # it came back from a backup
    resubmit_all(repository)
    assert values(repository, TREES) == ["1001", "1003", "1004"]
    assert len({event.flowfile_uuid for event in repository.events(0, 1000, WRITER)}) == len(send_events(repository))


def test_what_has_a_name_is_told_apart(tmp_path: Path) -> None:
    fs, memory = PosixFileSystem(), MemoryFileSystem()
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "dangling").symlink_to("nothing")
    memory.make_directory(tmp_path / "folder")
    memory.write_durably(tmp_path / "file", b"x")
    for found, names in ((fs, ("file", "link")), (memory, ("file",))):
        assert [found.is_file(tmp_path / name) for name in names] == [True] * len(names)
        assert found.is_file(tmp_path / "folder") is False
        assert found.is_file(tmp_path / "nothing") is None
        assert found.is_file(tmp_path / "nothing" / "below") is None
        with pytest.raises(StorageError, match="Not a directory"):
            found.is_file(tmp_path / "file" / "below")
    assert fs.is_file(tmp_path / "dangling") is False


def found_by_verify(root: Path) -> list[tuple[str, str, int]]:
    done = CliRunner().invoke(cli, ["-r", str(root), "verify", "--json"])
    found = [defect for document in json.loads(done.stdout) for defect in document["defects"]]
    notices = [text for document in json.loads(done.stdout) for text in document["notices"]]
    assert done.exit_code == (20 if found else 0)
    return [(item["kind"], item["message"], 0) for item in found] + [("notice", text, 0) for text in notices]


def folder_instead(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "a folder": (folder_instead, "destination-damaged", "expected a file, or nothing, got"),
    "no file": (Path.unlink, "destination-damaged", "got no file"),
    "shorter": (lambda path: os.truncate(path, 10), "destination-damaged", "bytes that were committed, got 10 bytes"),
    "longer": (lambda path: path.write_bytes(b"x" * 10_000), "notice", "somebody else wrote the others"),
}


@pytest.mark.parametrize("what", DAMAGES)
def test_verify_names_a_file_that_is_not_what_was_told_of(tmp_path: Path, what: str) -> None:
    inflict, kind, says = DAMAGES[what]
    (tmp_path / "custody.toml").write_text('[repository]\ncontainers = ["disk1"]\n[ngsi]\nhdfs_username = "warden"\n')
    repository = received(tmp_path, [bench(1, "Tree"), bench(2)])
    persist(repository)
    receive(repository, [bench(3, "Tree")], 1_772_600_767_090)
    run_steps(repository.settings)
    target = refusing(repository)
    target.writes = {"Tree"}
    assert persist(repository, target).deferred == 1
    assert found_by_verify(tmp_path) == []
    inflict(place_of(repository, TREES))
    [(found, message, _)] = found_by_verify(tmp_path)
    assert found == kind
    assert says in message
    assert "Tree_Bench.txt: " in message
