"""A full quarantine: what would have to be kept is refused until there is room, what can be read is taken as ever."""

from __future__ import annotations

import json
import time
from pathlib import Path

from click.testing import CliRunner

from custody.cli.main import cli
from custody.errors import InvalidInputError
from custody.repository import Repository
from tests.unit.ngsi_sink.sink_repository import bench, opened, received
from tests.unit.serving.receiver_process import Receiving, notification, receiving

LIMIT = 3 * (24 << 10)
"""Three of the broken bodies fit, in whole blocks."""
TWO = json.dumps({"subscriptionId": "1", "data": [{"id": "A", "type": "B"}, {"id": ""}]}).encode()


def broken(number: int) -> bytes:
    return b"{" + str(number).encode() * 20_000


def refused(at: Receiving, body: bytes) -> bool:
    answer = at.post(body)
    if answer.status_code == 503:
        assert (answer.json()["error"], answer.headers["retry-after"]) == ("backpressure", "5")
        assert "repository.quarantine_bytes_max" in answer.json()["message"]
    return answer.status_code == 503


def remove(root: Path, *arguments: str) -> str:
    done = CliRunner().invoke(cli, ["-r", str(root), "quarantine", "remove", *arguments])
    assert done.exit_code == 0, done.output
    return done.output


def test_the_receiver_refuses_what_it_cannot_keep_until_there_is_room(tmp_path: Path) -> None:
    root = tmp_path / "repository"
    Repository.create(root)
    quarantine = Repository.open(root).quarantine
    with receiving(root, "--quiet", CUSTODY__REPOSITORY__QUARANTINE_BYTES_MAX=str(LIMIT)) as at:
        assert [refused(at, broken(number)) for number in range(1, 6)] == [False, False, False, True, True]
        assert len(list(quarantine.entries())) == 3
        assert not refused(at, broken(1)), "it is kept already"
        answer = at.post(notification(1))
        assert answer.status_code == 200
        # Of a notification that is refused nothing is stored, not even what could be read.
        first = answer.json()["first_event_id"]
        assert refused(at, TWO[:-1] + b" " * 20_000 + b"}")
        assert at.post(notification(2)).json()["first_event_id"] == first + 1

        [key, *_] = quarantine.known_keys()
        assert "would go" in remove(root, key, "--dry-run")
        assert key in quarantine.known_keys()
        assert "1 pieces removed" in remove(root, key, "--yes")
        time.sleep(1.1)  # a full quarantine is looked at once a second
        assert not refused(at, broken(4))
        assert sum(path.stat().st_size for path in (root / "quarantine").iterdir()) <= LIMIT


def test_an_ingest_ends_where_it_would_lose_something_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    root = tmp_path / "repository"
    Repository.create(root)
    (root / "custody.toml").write_text(f"[repository]\nquarantine_bytes_max = {LIMIT}\n")
    bad = tmp_path / "bad.json"
    bad.write_text(json.dumps([{"eventOrdinal": number, "x": "x" * 20_000} for number in range(5)]))
    done = CliRunner().invoke(cli, ["-r", str(root), "ingest", str(bad)])
    assert done.exit_code == 18
    quarantine = Repository.open(root).quarantine
    keys = list(quarantine.known_keys())
    assert len(keys) == 0, "the bad pieces of a body are kept together, or not at all"
    (root / "custody.toml").write_text("[repository]\n")
    assert CliRunner().invoke(cli, ["-r", str(root), "ingest", str(bad)]).exit_code == 1
    assert len(list(quarantine.known_keys())) == 5


def test_what_the_sink_puts_aside_is_shown_however_full_it_is_and_cannot_be_removed(tmp_path: Path) -> None:
    repository = received(tmp_path, [bench(1)])
    quarantine = Repository(
        repository.settings.model_copy(
            update={"repository": repository.settings.repository.model_copy(update={"quarantine_bytes_max": 1})}
        )
    ).quarantine
    repository.quarantine = quarantine
    (tmp_path / "hdfs").write_text("no folder")
    (tmp_path / "custody.toml").write_text('[repository]\ncontainers = ["disk1"]\n')
    with opened(repository) as job:
        job.run(until_ms=2**53)
    [entry] = quarantine.entries()
    assert entry.code == "not-written"
    done = CliRunner().invoke(cli, ["-r", str(tmp_path), "quarantine", "remove", entry.key, "--yes"])
    assert done.exit_code == InvalidInputError.exit_code
    assert "the sink of NGSI has still to write" in done.stderr
    assert list(quarantine.known_keys()) == [entry.key]
