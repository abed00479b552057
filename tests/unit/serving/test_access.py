"""Tokens of the server: digests in a file that is read when it changes, scopes, certificates, no secret anywhere."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner

from custody.cli.main import cli
from custody.errors import ConfigurationError, NotFoundError
from custody.repository import Repository
from custody.serving.access import (
    EVERYTHING,
    Scope,
    Tokens,
    add_token,
    digest_of,
    read_token_file,
    remove_token,
)
from custody.serving.reloaded_file import LOOK_SECONDS
from custody.vfs import PosixFileSystem
from tests.unit.capture.sample_inputs import run_event
from tests.unit.serving.serve_process import CREATED, Served, served, token
from tests.unit.serving.test_admittance import self_signed, trusting

ONE = "/api/v1/lineage"
PLAIN = "a-token-that-a-person-wrote"


class Seconds:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def bearer(text: str) -> dict[str, str]:
    return {"authorization": f"Bearer {text}"}


def made(path: Path, name: str, *scopes: Scope) -> str:
    return add_token(PosixFileSystem(), path, name, frozenset(scopes), CREATED)


def test_a_file_has_digests_and_no_token(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    tokens = [made(path, name, Scope.APPEND) for name in ("one", "two")]
    text = path.read_text()
    assert not any(token in text for token in tokens)
    assert [digest_of(token) in text for token in tokens] == [True, True]
    assert len(set(tokens)) == 2
    assert min(len(token) for token in tokens) > 40
    assert [(line.name, line.scopes, line.created) for line in read_token_file(path)] == [
        ("one", frozenset({Scope.APPEND}), CREATED),
        ("two", frozenset({Scope.APPEND}), CREATED),
    ]


def test_a_changed_file_counts_within_a_second_and_a_broken_one_not_at_all(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, clock = tmp_path / "tokens", Seconds()
    first = made(path, "first", Scope.APPEND, Scope.READ)
    tokens = Tokens.read(path, now=clock)
    second = made(path, "second", Scope.READ)
    assert tokens.grant(bearer(second)) is None
    clock.now += LOOK_SECONDS
    grant = tokens.grant(bearer(second))
    assert grant is not None
    assert (grant.name, grant.scopes) == ("second", frozenset({Scope.READ}))
    assert (tokens.admit(bearer(first)), tokens.admit(bearer(second))) == (True, False)
    good = path.read_text()
    path.write_text(f"{good}short-secret\n")
    clock.now += LOOK_SECONDS
    assert tokens.grant(bearer(first)) is not None
    assert "go on to count" in caplog.text
    assert "short-secret" not in caplog.text
    path.write_text(good)
    remove_token(PosixFileSystem(), path, "first")
    clock.now += LOOK_SECONDS
    assert tokens.grant(bearer(first)) is None
    path.unlink()
    clock.now += LOOK_SECONDS
    assert tokens.grant(bearer(second)) is not None, "a file that is gone for a moment locks nobody out"


def test_a_file_of_the_receiver_is_one_too(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text(f"# by hand\n{PLAIN}\nanother-token-by-hand read,content viewer\n")
    path.chmod(0o600)
    tokens = Tokens.read(path)
    one, other = tokens.grant(bearer(PLAIN)), tokens.grant({"x-auth-token": "another-token-by-hand"})
    assert one is not None
    assert other is not None
    assert (one.scopes, other.name, other.scopes) == (EVERYTHING, "viewer", frozenset({Scope.READ, Scope.CONTENT}))
    with pytest.raises(ConfigurationError, match="expected digests, got tokens as they are"):
        made(path, "added", Scope.APPEND)
    with pytest.raises(ConfigurationError, match="expected digests, got tokens as they are"):
        remove_token(PosixFileSystem(), path, "viewer")
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(NotFoundError, match="no token has the name 'nobody'"):
        remove_token(PosixFileSystem(), path, "nobody")


def test_comments_stay_when_a_token_comes_or_goes(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    made(path, "one", Scope.APPEND)
    path.write_text(f"# of the east\n{path.read_text()}")
    made(path, "two", Scope.READ)
    remove_token(PosixFileSystem(), path, "one")
    assert path.read_text().startswith("# of the east\nsha256:")
    assert [line.name for line in read_token_file(path)] == ["two"]


@pytest.mark.parametrize(
    ("text", "mode", "said"),
    [
        ("", 0o600, "expected a token"),
        ("# nothing\n", 0o600, "expected a token"),
        ("short\n", 0o600, "line 1: expected sha256"),
        (f"{PLAIN} write\n", 0o600, "with scopes out of read, content, append"),
        (f"{PLAIN} read a/b\n", 0o600, "with a name of letters"),
        (f"{PLAIN} read a now then\n", 0o600, "line 1"),
        ("sha256:1234 read a -\n", 0o600, "line 1"),
        (f"{PLAIN}\n", 0o640, "its owner alone"),
        (f"sha256:{'0' * 64} read a -\n", 0o620, "its owner alone"),
        ("tökens-are-ascii-only\n", 0o600, "a token a line"),
    ],
)
def test_an_unfit_file_is_refused_with_the_line_and_without_the_secret(
    tmp_path: Path, text: str, mode: int, said: str
) -> None:
    path = tmp_path / "tokens"
    path.write_text(text)
    path.chmod(mode)
    with pytest.raises(ConfigurationError, match=said) as caught:
        Tokens.read(path)
    assert PLAIN not in str(caught.value)


def test_names_are_words_and_each_is_there_once(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    made(path, "one", Scope.READ)
    for name in ("one", "", "a b", "../up", "x" * 64, "a\n"):
        with pytest.raises(ConfigurationError):
            made(path, name, Scope.READ)
    assert len(read_token_file(path)) == 1


def test_the_commands_make_list_and_revoke(tmp_path: Path) -> None:
    root = tmp_path / "repository"
    Repository.create(root)

    def run(*arguments: str) -> str:
        done = CliRunner().invoke(cli, ["-r", str(root), "tokens", *arguments])
        assert done.exit_code == 0, done.output
        return done.stdout

    refused = CliRunner().invoke(cli, ["-r", str(root), "tokens", "list"])
    assert refused.exit_code == 11
    assert 'token_file = "tokens" in [serve]' in refused.stderr.replace("\n", " ")
    (root / "custody.toml").write_text('[serve]\ntoken_file = "tokens"\n')
    first = run("create", "east", "--scope", "append").strip()
    second = json.loads(run("create", "west", "--scope", "read", "--scope", "content", "--json"))
    assert [(row["name"], row["scopes"]) for row in json.loads(run("list", "--json"))] == [
        ("east", ["append"]),
        ("west", ["content", "read"]),
    ]
    assert first not in run("list")
    assert "west" in run("list")
    run("revoke", "east")
    tokens = Tokens.read(root / "tokens")
    assert (tokens.grant(bearer(first)), tokens.grant(bearer(second["token"])) is None) == (None, False)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("access") / "repository"
    Repository.create(root)
    for name in ("server", "client", "stranger"):
        self_signed(root, name)
    return root


@pytest.fixture(scope="module")
def heads(root: Path) -> dict[str, dict[str, str]]:
    """Heads that bring a token, by the token's scope; and some that bring none."""
    return {
        **{scope: token(root, str(scope), scope) for scope in Scope},
        "none": {},
        "wrong": bearer("custody_" + "x" * 43),
        "digest": bearer((root / "tokens").read_text().split()[0]),
        "basic": {"authorization": "Basic eDp5"},
        "long": bearer("x" * 8000),
    }


@pytest.fixture(scope="module")
def at(root: Path, heads: dict[str, dict[str, str]]) -> Iterator[Served]:
    """A server over TLS that takes certificates and tokens."""
    assert heads
    settings = {
        "CUSTODY__SERVE__TOKEN_FILE": "tokens",
        "CUSTODY__SERVE__TLS_CERTIFICATE": "server.pem",
        "CUSTODY__SERVE__TLS_KEY": "server.key",
        "CUSTODY__SERVE__TLS_CLIENT_CA": "client.pem",
        "CUSTODY__SERVE__CLIENT_CERTIFICATES": "optional",
        "CUSTODY__SERVE__LOG_FORMAT": "json",
    }
    with served(root, **settings) as server:
        yield server


@pytest.mark.parametrize(
    ("head", "posted", "looked"),
    [
        *((name, 401, 401) for name in ("none", "wrong", "digest", "basic", "long")),
        ("append", 200, 403),
        ("read", 403, 200),
        ("manage", 403, 403),
    ],
)
def test_a_request_needs_a_token_with_the_scope(
    at: Served, root: Path, heads: dict[str, dict[str, str]], head: str, posted: int, looked: int
) -> None:
    trust = trusting(root)
    body = json.dumps([run_event("START", 1)]).encode()
    answer = at.post(f"{ONE}/batch", body, heads[head], verify=trust)
    assert (answer.status_code, "www-authenticate" in answer.headers) == (posted, posted == 401)
    assert at.get("/metrics", heads[head], verify=trust).status_code == looked
    assert at.get("/healthz", verify=trust).status_code == 200
    assert at.get("/readyz", verify=trust).status_code == 200


def test_a_certificate_is_enough_to_deliver_and_one_of_a_stranger_is_none(at: Served, root: Path) -> None:
    body = json.dumps(run_event("START", 2)).encode()
    assert at.post(ONE, body, verify=trusting(root, "client")).status_code in (200, 201)
    assert at.get("/metrics", verify=trusting(root, "client")).status_code == 403
    with pytest.raises(httpx.TransportError):
        at.post(ONE, body, verify=trusting(root, "stranger"))
    deadline = time.monotonic() + 10
    while '"as": "commonName=client"' not in at.log():
        assert time.monotonic() < deadline, at.log()
        time.sleep(0.05)


def test_a_revoked_token_is_refused_within_a_second(at: Served, root: Path) -> None:
    head = token(root, "short-lived", Scope.READ)
    deadline = time.monotonic() + 20
    for status in (200, 401):
        while at.get("/metrics", head, verify=trusting(root)).status_code != status:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        if status == 200:
            remove_token(PosixFileSystem(), root / "tokens", "short-lived")


def test_no_secret_is_in_a_log_a_metric_or_an_answer(at: Served, root: Path, heads: dict[str, dict[str, str]]) -> None:
    trust = trusting(root)
    said = ""
    secrets = {"query-secret", "cookie-secret", *(head["authorization"].split()[-1] for head in heads.values() if head)}
    for head in heads.values():
        for path in (f"{ONE}?token=query-secret", "/metrics", "/nowhere", "/%0a%1b[31m/../..//etc/passwd"):
            answer = at.post(path, b"{}", {**head, "cookie": "cookie-secret"}, verify=trust)
            said += answer.text + str(answer.headers)
    said += at.get("/metrics", heads["read"], verify=trust).text
    time.sleep(0.5)
    log = at.log()
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    assert {"client", "method", "path", "status", "door", "milliseconds", "as", "request"} <= lines[-1].keys()
    assert {line.get("as") for line in lines} >= {"read", "append"}
    for secret in secrets - {"eDp5"}:
        assert secret not in said
        assert secret not in log
    assert "\x1b" not in log
