"""The way from an event's content to the revisions that hold it: Python, command line and HTTP give one answer."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner, Result

from custody.cli.main import cli
from custody.config import ContentStore
from custody.errors import CorruptionError, NotFoundError
from custody.flow.content import content_of
from custody.repository import Repository
from custody.serving.application import Access
from custody.swh import Swhid, content_swhid
from custody.vfs import PosixFileSystem
from tests.support import event
from tests.swh.database import publish_reference
from tests.swh.reference import Reference, SmallGraph
from tests.swh.serving import serving
from tests.unit.serving.test_api_changes import client_of

HELD = b"int main(void) { return 0; }\n" * 20_000
"""Larger than what is checked at once."""
GRAPH = SmallGraph(
    {0: "cnt", 1: "cnt", 10: "dir", 20: "rev", 21: "rev", 40: "snp", 50: "ori"},
    [(50, 40, b""), (40, 21, b"main"), (21, 20, b""), (20, 10, b""), (21, 10, b""), (10, 0, b"main.c"), (10, 1, b"x")],
    {20: 100, 21: 200},
)


def git_hash(data: bytes) -> str:
    done = subprocess.run(["git", "hash-object", "--stdin"], input=data, stdout=subprocess.PIPE, check=True)
    return done.stdout.decode().strip()


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Repository]:
    repository = Repository.create(tmp_path_factory.mktemp("contents") / "repository")
    held = bytes.fromhex(git_hash(HELD))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("tests.swh.database.sha1_git", lambda node: held if node == 0 else bytes([node]) * 20)
        publish_reference(repository.settings, "first", Reference(GRAPH, "all"), "all")
    with repository.writer() as writer:
        writer.append_with_content([event(1)], HELD)
        writer.append_with_content([event(2)], b"of nobody")
        writer.append([event(3)])
    yield repository


def run(repository: Repository, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["-r", str(repository.settings.root), "content", "where", *arguments])


def test_the_identifier_of_a_content_is_the_one_that_git_gives_it(repository: Repository) -> None:
    for number, data in enumerate((HELD, b"of nobody")):
        assert str(content_swhid(repository.content(repository.get(number)))) == f"swh:1:cnt:{git_hash(data)}"


def test_a_content_that_software_holds_is_found_there(repository: Repository) -> None:
    swhid = content_swhid(repository.content(repository.get(0)))
    occurrences = repository.software().occurrences(swhid)
    assert [(str(one.anchor), one.author_date, one.path, one.origin) for one in occurrences] == [
        (f"swh:1:rev:{'14' * 20}", 100, b"main.c", "https://example.org/50"),
        (f"swh:1:rev:{'15' * 20}", 200, b"main.c", "https://example.org/50"),
    ]


def test_the_command_prints_them_oldest_first_and_as_json(repository: Repository) -> None:
    shown = run(repository, "0").output
    assert shown.index("14" * 20) < shown.index("15" * 20)
    assert "main.c" in shown and "https://example.org/50" in shown
    [line] = run(repository, "0", "--json", "--limit", "1").output.splitlines()
    document = json.loads(line)
    assert (document["swhid"], document["author_date"]) == (f"swh:1:cnt:{git_hash(HELD)}", 100)


def test_a_content_that_no_software_holds_and_an_event_without_one_are_not_found(repository: Repository) -> None:
    for event_id in ("1", "2", "99"):
        assert run(repository, event_id).exit_code == NotFoundError.exit_code


def test_it_is_asked_for_over_http(repository: Repository) -> None:
    with serving(repository.settings.root) as at:
        answer = httpx.get(f"{at.rest}/events/0/occurrences?limit=1&writer=main", timeout=60)
        assert answer.status_code == 200
        told = answer.json()
        assert (told["event_id"], told["swhid"], told["is_complete"]) == (0, f"swh:1:cnt:{git_hash(HELD)}", False)
        assert [one["path"] for one in told["occurrences"]] == ["main.c"]
        assert httpx.get(f"{at.rest}/events/2/occurrences", timeout=60).status_code == 404


def test_the_api_says_where_a_content_is_or_that_nobody_knows(repository: Repository, tmp_path: Path) -> None:
    with client_of(repository, Access()) as client:
        told = client.get("events/main/0/software?limit=1").json()
        assert (told["swhid"], told["is_known"], told["is_complete"]) == (f"swh:1:cnt:{git_hash(HELD)}", True, False)
        assert [(one["path"], one["origin"]) for one in told["items"]] == [("main.c", "https://example.org/50")]
        nobodys = client.get("events/main/1/software").json()
        assert (nobodys["is_published"], nobodys["is_known"], nobodys["items"]) == (True, False, [])
        assert client.get("events/main/2/software").status_code == 404
        assert client.get("events/main/0/software?previous=true").status_code == 404
    without = Repository.create(tmp_path / "repository")
    without.append_with_content([event(1)], HELD)
    with client_of(without, Access()) as client:
        told = client.get("events/main/0/software").json()
        assert (told["swhid"], told["is_published"], told["is_complete"]) == (
            f"swh:1:cnt:{git_hash(HELD)}",
            False,
            False,
        )


def test_a_damaged_content_has_no_identifier(tmp_path: Path) -> None:
    repository = Repository.create(tmp_path / "repository")
    with repository.writer() as writer:
        writer.append_with_content([event(1)], HELD)
    stored = repository.get(0)
    content = content_of(PosixFileSystem(), ContentStore(repository.settings.store), stored)
    data = bytearray(content.path.read_bytes())
    data[len(data) // 2] ^= 1
    content.path.write_bytes(data)
    with pytest.raises(CorruptionError):
        identifier: Swhid = content_swhid(repository.content(stored))
        raise AssertionError(f"the damage was not noticed: {identifier}")
