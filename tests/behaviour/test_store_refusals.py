"""A store that refuses in the middle of the work: what was done stays, the rest is named, and the next run goes on."""

from __future__ import annotations

import json
import re
import shutil
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from click.testing import CliRunner

from custody.cli.main import cli
from custody.config import Settings
from custody.errors import ConfigurationError, ExitCode, StorageError
from custody.recovery import STEPS
from custody.repository import Repository
from custody.repository.local_pass import run_locally
from custody.store import opening
from custody.store.conditional_put import put_object
from custody.store.remote import open_remote
from tests.behaviour.places import s3_url
from tests.behaviour.s3 import BUCKET, s3_environment, s3_store
from tests.behaviour.store_proxy import Fault, StoreProxy, store_proxy
from tests.support import append, event, numbered, run_steps, sample, write_samples

__all__ = ["s3_url"]

READS = ("GET", "HEAD")
EVENTS = sample(30)


@pytest.fixture
def proxy(s3_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[StoreProxy]:
    with store_proxy(s3_url) as proxy:
        for name, value in s3_environment(proxy.url).items():
            monkeypatch.setenv(name, value)
        yield proxy


@pytest.mark.parametrize("puts", [pytest.param(0, marks=pytest.mark.slow), 2, pytest.param(4, marks=pytest.mark.slow)])
def test_credentials_that_expire_in_the_middle_of_a_pass_are_named_and_the_next_pass_goes_on(
    tmp_path: Path, proxy: StoreProxy, puts: int
) -> None:
    location = f"s3://{BUCKET}/{uuid4().hex}"
    settings = Settings.model_validate({"root": tmp_path, "repository": {"store": location}})
    append(Repository(settings), EVENTS)
    done, before = proxy.seen["PUT"], list[str]()

    def expires(number: int, method: str) -> str | None:
        if before or (method == "PUT" and proxy.seen["PUT"] > done + puts):
            before.append(method)
            return "expired"
        return None

    proxy.fault = expires  # type: ignore[assignment]
    try:
        reports = run_locally(list(STEPS), settings)
        failures = [unit.error for report in reports for unit in report.details if unit.error is not None]
    except StorageError as error:
        failures = [str(error)]
    assert before
    assert failures
    assert any(f"{location}/" in failure and "may have expired" in failure for failure in failures), failures
    with pytest.raises(StorageError, match="may have expired"):
        Repository(settings).search("")
    proxy.fault = lambda number, method: None
    run_steps(settings)
    shutil.rmtree(settings.store)
    assert list(Repository(settings).events(count=100)) == numbered(EVENTS)


def test_a_conditional_put_and_a_deletion_whose_answer_never_comes_are_done_again(
    proxy: StoreProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_TIMEOUT", "700ms")
    store = open_remote(f"s3://{BUCKET}/{uuid4().hex}")
    hung: list[str] = []

    def hang_once(method: str, path: str) -> Fault | None:
        if method != "PUT" or path in hung:
            return None
        hung.append(path)
        return "hang"

    proxy.watch_done = hang_once
    # As after a lost answer: the name is taken, and its bytes tell by whom.
    assert not store.put_if_absent("first", b"bytes")
    assert store.get("first") == b"bytes"
    assert put_object(store, "second", b"bytes")
    assert not put_object(store, "second", b"others")
    assert proxy.given_up["PUT"] == len(hung) == 2
    assert proxy.seen["PUT"] == 5
    deleted: list[str] = []

    def hang_at_deletion(method: str, path: str) -> Fault | None:
        deleted.extend([path] if method in ("DELETE", "POST") else [])
        return "hang" if deleted == [path] else None

    proxy.watch_done = hang_at_deletion
    store.delete("first")
    assert len(deleted) == 2
    assert store.head("first") is None
    # A store that never answers is an error in the end, and no wait for ever.
    proxy.watch_done = lambda method, path: "hang" if method == "PUT" else None
    with pytest.raises(StorageError, match="cannot write s3://"):
        store.put_if_absent("third", b"bytes")
    assert proxy.seen["PUT"] == 8


def uploads(url: str) -> bytes:
    """What a bucket says of uploads in parts that nobody completed."""
    with urllib.request.urlopen(f"{url}/{BUCKET}?uploads", timeout=10) as answer:  # noqa: S310 - our own server
        return bytes(answer.read())


@pytest.mark.parametrize("conditional", [True, False])
def test_a_large_put_is_one_request_so_that_one_that_dies_leaves_nothing(
    proxy: StoreProxy, s3_url: str, *, conditional: bool
) -> None:
    store, data = s3_store(proxy.url), bytes(range(256)) * (12 << 12)
    put = store.put_if_absent if conditional else store.put
    put("large", data)
    assert (proxy.seen["PUT"], proxy.seen["POST"]) == (1, 0)
    assert store.get("large") == data
    proxy.fault = lambda number, method: "expired" if method in ("PUT", "POST") else None
    with pytest.raises(StorageError, match="cannot write s3://"):
        put("dead", data)
    assert b"<Upload>" not in uploads(s3_url)
    assert store.head("dead") is None


def test_a_second_machine_with_the_name_of_the_first_is_refused_by_the_claim_in_the_store(tmp_path: Path) -> None:
    url = f"memory://{uuid4().hex}"
    one, other = (
        Repository(Settings.model_validate({"root": tmp_path / name, "repository": {"store": url}})) for name in "ab"
    )
    append(one, [event(number) for number in range(3)])
    with pytest.raises(ConfigurationError, match=r"claimed in memory://.* by another incarnation.*repository\.writer"):
        append(other, [event(10)])
    assert not list(other.settings.containers[0].glob("*/journals/*")), "nothing is left that could be taken for events"
    run_steps(one.settings)
    append(one, [event(3)])
    assert [stored.event.source_ordinal for stored in one.search("", oldest_first=True).events] == [0, 1, 2, 3]


def test_commands_that_write_refuse_a_server_without_conditional_puts_at_their_start(
    tmp_path: Path, proxy: StoreProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "landing").mkdir()
    write_samples(tmp_path / "landing", 20)

    def custody(*arguments: str) -> tuple[int, str, list[str]]:
        """The exit code, what was said, and which objects were put."""
        # As in a process that has just begun.
        monkeypatch.setattr(opening, "_CONDITIONAL", set())
        puts: list[str] = []
        proxy.watch = lambda method, path: puts.append(path.rpartition("/")[2]) if method not in READS else None
        done = CliRunner().invoke(cli, ["-r", str(tmp_path), *arguments])
        return done.exit_code, done.output, [name for name in puts if name != "CONDITIONAL-PUTS"]

    def begin() -> None:
        (tmp_path / "custody.toml").write_text(
            f'[repository]\nstore = "s3://{BUCKET}/{uuid4().hex}"\n[journal]\nhandoff = "store"\n'
        )

    refused = r"store 's3://custody/\w+': writes over a name that is taken.*conditional puts \(If-None-Match\)"
    proxy.is_careless = True
    begin()
    code, said, puts = custody("ingest", str(tmp_path / "landing"))
    assert (code, puts) == (ConfigurationError.exit_code, [])
    assert re.search(refused, said), said
    assert not list(tmp_path.rglob("*.journal")), "nothing is acknowledged"
    # A service that was as it should be, and is replaced or set up otherwise later.
    proxy.is_careless = False
    begin()
    assert custody("ingest", str(tmp_path / "landing"))[0] == 0
    proxy.is_careless = True
    code, said, puts = custody("handoff")
    assert (code, [name for name in puts if name.endswith((".sealed", "manifest"))]) == (11, [])
    assert re.search(refused, said), said
    code, said, puts = custody("run", "rollover", "--local", "--json")
    assert (code, [name for name in puts if not name.endswith(".txn")]) == (ExitCode.SOME_WORK_FAILED, [])
    [unit] = json.loads(said)["details"]
    assert (unit["error_kind"], bool(re.search(refused, unit["error"]))) == (ConfigurationError.kind, True)
    proxy.is_careless = False
    assert custody("run", "all", "--local")[0] == 0
