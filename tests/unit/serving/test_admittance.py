"""Who is let in: client certificates and tokens over real connections, and receivers that would be open."""

from __future__ import annotations

import gc
import signal
import socket
import ssl
import subprocess
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from click.testing import CliRunner

from custody.cli.main import cli
from custody.errors import ConfigurationError
from custody.repository import Repository
from custody.serving import checked_tokens, is_loopback
from tests.unit.serving.receiver_process import Receiving, notification, receiving

TOKENS = "# two, so that one can be replaced\nfirst-token-of-the-file\nsecond-token-of-the-file\n"
FIRST = {"authorization": "Bearer first-token-of-the-file"}


def self_signed(folder: Path, name: str) -> tuple[Path, Path]:
    """Make a certificate for this machine, and its key."""
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-days", "2", "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"]
    command += ["-out", str(certificate), "-keyout", str(key)]
    subprocess.run(command, check=True, capture_output=True)
    return certificate, key


def trusting(folder: Path, client: str | None = None) -> ssl.SSLContext:
    """Return what trusts the receiver, and shows the certificate of a client if one is named."""
    made = ssl.create_default_context(cafile=str(folder / "server.pem"))
    if client is not None:
        made.load_cert_chain(folder / f"{client}.pem", folder / f"{client}.key")
    return made


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with tokens and certificates: of the receiver, of a known client, of a stranger."""
    root = tmp_path_factory.mktemp("admittance") / "repository"
    Repository.create(root)
    (root / "tokens").write_text(TOKENS)
    (root / "tokens").chmod(0o600)
    for name in ("server", "client", "stranger"):
        self_signed(root, name)
    return root


@pytest.fixture(scope="module")
def at(root: Path) -> Iterator[Receiving]:
    """A receiver that asks for a certificate and for a token."""
    environment = {
        "CUSTODY__RECEIVER__TLS_CERTIFICATE": "server.pem",
        "CUSTODY__RECEIVER__TLS_KEY": "server.key",
        "CUSTODY__RECEIVER__TLS_CLIENT_CA": "client.pem",
        "CUSTODY__RECEIVER__TOKEN_FILE": "tokens",
    }
    with receiving(root, **environment) as found:
        assert found.url.startswith("https://127.0.0.1:")
        yield found


@pytest.mark.parametrize("client", [None, "stranger"])
def test_who_shows_no_certificate_of_the_authority_gets_no_connection(
    at: Receiving, root: Path, client: str | None
) -> None:
    with pytest.raises(httpx.TransportError):
        at.post(notification(1), FIRST, verify=trusting(root, client))


def test_who_speaks_no_tls_gets_no_answer(at: Receiving) -> None:
    place = urlsplit(at.url)
    with pytest.raises(httpx.TransportError):
        httpx.post(f"http://{place.netloc}/notify", content=notification(1), timeout=60)


def test_a_receiver_whose_certificate_nobody_signed_is_not_believed(at: Receiving) -> None:
    with pytest.raises(httpx.ConnectError, match="certificate verify failed"):
        at.post(notification(1), FIRST)


def test_tls_before_1_2_is_refused_by_the_receiver(at: Receiving, root: Path) -> None:
    old = trusting(root, "client")
    old.set_ciphers("DEFAULT@SECLEVEL=0")  # this side would take it
    with pytest.warns(DeprecationWarning):
        old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
    place = urlsplit(at.url)
    with (
        socket.create_connection((place.hostname or "", place.port or 0), timeout=30) as connection,
        pytest.raises(ssl.SSLError, match=r"EOF|alert protocol version"),
    ):
        old.wrap_socket(connection, server_hostname="127.0.0.1")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"authorization": "Bearer some-other-token-of-nobody"}, 401),
        ({"authorization": "Basic first-token-of-the-file"}, 401),
        ({"x-auth-token": "# two, so that one can be replaced"}, 401),
        (FIRST, 200),
        ({"x-auth-token": "second-token-of-the-file"}, 200),
    ],
)
def test_a_known_client_needs_a_token_too(at: Receiving, root: Path, headers: dict[str, str], status: int) -> None:
    before = len(list(Repository.open(root).events()))
    answer = at.post(notification(1), headers, verify=trusting(root, "client"))
    assert (answer.status_code, "www-authenticate" in answer.headers) == (status, status == 401)
    assert len(list(Repository.open(root).events())) - before == (status == 200)


def test_sigterm_answers_what_has_begun_and_nothing_answered_is_lost(tmp_path: Path) -> None:
    root = tmp_path / "repository"
    Repository.create(root)
    self_signed(root, "server")
    environment = {"CUSTODY__RECEIVER__TLS_CERTIFICATE": "server.pem", "CUSTODY__RECEIVER__TLS_KEY": "server.key"}
    with receiving(root, **environment) as at, sockets_left_by_resets():
        answers = answered_until_sigterm(at, trusting(root))
    told = [answer.json()["first_event_id"] for answer in answers if answer.status_code == 200]
    assert told
    assert {event.event_id for event in Repository.open(root).get_many(told)} == set(told)
    assert {path.suffix for path in root.glob("containers/1/main/journals/*")} == {".sealed"}


def answered_until_sigterm(at: Receiving, trust: ssl.SSLContext) -> list[httpx.Response]:
    """Post from four threads, end the receiver after the first answer, and return what was answered."""
    answers = []
    with ThreadPoolExecutor(4) as pool:
        done = [pool.submit(at.post, notification(number), verify=trust) for number in range(20)]
        assert done[0].result().status_code == 200
        at.process.send_signal(signal.SIGTERM)
        for future in done:
            try:
                answers.append(future.result())
            except httpx.TransportError:
                continue  # it came after the end
        assert at.process.wait(30) == 0
    return answers


@contextmanager
def sockets_left_by_resets() -> Iterator[None]:
    """Let go of the sockets that Python itself leaves open, without its warning.

    A connection that waits to be accepted is reset when its receiver ends. Where that is before the handshake,
    `ssl.SSLSocket` raises without closing itself (seen in 3.11.7), and the garbage collector would warn of it at
    any time, in any test.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "unclosed <ssl.SSLSocket", ResourceWarning)
        try:
            yield
        finally:
            gc.collect()


def test_a_reset_before_the_handshake_leaves_no_warning_behind() -> None:
    def reset() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            waiting = socket.create_connection(listener.getsockname())
        with pytest.raises(ConnectionResetError):
            ssl.create_default_context().wrap_socket(waiting, server_hostname="127.0.0.1")

    with sockets_left_by_resets():
        reset()
    gc.collect()  # a warning here would fail the test


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"host": "0.0.0.0"}, "expected an address of this machine alone"),  # noqa: S104
        ({"host": "receiver.example"}, "expected an address of this machine alone"),
        ({"token_file": "gone"}, "expected a file with a token a line"),
        ({"token_file": "open"}, "its owner alone"),
        ({"token_file": "short"}, "16 or more characters"),
        ({"tls_client_ca": "short"}, "receiver.tls_certificate"),
        ({"tls_certificate": "gone"}, "expected a file, found none"),
    ],
)
def test_a_receiver_that_would_be_open_does_not_start(tmp_path: Path, values: dict[str, str], said: str) -> None:
    settings = Repository.create(tmp_path / "repository").settings
    for name, text, mode in (("open", "x" * 20, 0o644), ("short", "abc", 0o600)):
        (settings.root / name).write_text(text)
        (settings.root / name).chmod(mode)
    update = {name: value if name == "host" else Path(value) for name, value in values.items()}
    chosen = settings.model_copy(update={"receiver": settings.receiver.model_copy(update=update)})
    with pytest.raises(ConfigurationError, match=said):
        checked_tokens(chosen.root, "receiver", chosen.receiver)


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("127.1.2.3", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False)],  # noqa: S104
)
def test_only_this_machine_is_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


def test_the_command_does_not_listen_beyond_this_machine_without_admittance(tmp_path: Path) -> None:
    root = tmp_path / "repository"
    Repository.create(root)
    done = CliRunner().invoke(cli, ["-r", str(root), "ngsi", "serve", "--host", "0.0.0.0", "--port", "0"])  # noqa: S104
    assert (done.exit_code, done.stdout) == (11, "")
    assert "receiver.host '0.0.0.0': expected an address of this machine alone" in done.stderr
