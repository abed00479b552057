"""A PostgreSQL server in a folder of its own, on the loopback address, with a random password; for tests.

The programs are the system's (Debian: postgresql). The server refuses to run as root: then it runs as the user
`postgres`, or `nobody` where there is none.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import util
from pathlib import Path

from custody_local.settings import LOOPBACK, choose_port

_PROGRAMS = ("initdb", "postgres", "createdb")
_START_SECONDS = 60
_USER = "airflow"


def missing() -> str | None:
    """Say what is missing to run one; None when nothing is."""
    if (folder := _folder()) is None:
        return f"PostgreSQL: none of {', '.join(_PROGRAMS)} on this machine (Debian: apt install postgresql)"
    if drivers := [name for name in ("psycopg2", "asyncpg") if util.find_spec(name) is None]:
        return f"{folder}: there, but {', '.join(drivers)} not installed: make env"
    return None


@contextmanager
def postgres() -> Iterator[str]:
    """Run a server with an empty database; give its URL as Airflow wants it. It is gone afterwards."""
    programs = _folder()
    assert programs is not None, missing()
    # Not below pytest's folders, which are for one user only.
    home = Path(tempfile.mkdtemp(prefix="custody-postgres-"))
    user = _unprivileged()
    if user is not None:
        os.chown(home, user.pw_uid, user.pw_gid)
    try:
        with _running(programs, home, user) as url:
            yield url
    finally:
        shutil.rmtree(home)


@contextmanager
def _running(programs: Path, home: Path, user: pwd.struct_passwd | None) -> Iterator[str]:
    identity = {} if user is None else {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    environ = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "HOME": str(home)}
    password = secrets.token_hex(16)
    secret = home / "password"
    secret.touch(mode=0o600)
    secret.write_text(password)
    if user is not None:
        os.chown(secret, user.pw_uid, user.pw_gid)
    data = home / "data"
    initdb = [programs / "initdb", "-D", data, "-U", _USER, "--auth=scram-sha-256", f"--pwfile={secret}", "--no-sync"]
    subprocess.run([*initdb, "-E", "UTF8"], env=environ, cwd=home, capture_output=True, check=True, **identity)  # type: ignore[call-overload]
    port = choose_port(None)
    options = {"listen_addresses": LOOPBACK, "port": port, "unix_socket_directories": home, "fsync": "off"}
    command = [
        programs / "postgres",
        "-D",
        data,
        *(part for key in options for part in ("-c", f"{key}={options[key]}")),
    ]
    with (home / "log").open("wb") as log:
        server = subprocess.Popen(command, env=environ, cwd=home, stdout=log, stderr=log, **identity)  # type: ignore[call-overload]
    try:
        _create(programs, {**environ, "PGPASSWORD": password}, port, server)
        yield f"postgresql+psycopg2://{_USER}:{password}@{LOOPBACK}:{port}/{_USER}"
    finally:
        server.terminate()
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _create(programs: Path, environ: dict[str, str], port: int, server: subprocess.Popen[bytes]) -> None:
    """Make the database, as soon as the server answers."""
    command: list[str | Path] = [programs / "createdb", "-h", LOOPBACK, "-p", str(port), "-U", _USER, _USER]
    deadline = time.monotonic() + _START_SECONDS
    while (done := subprocess.run(command, env=environ, capture_output=True, text=True, check=False)).returncode:
        if server.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"PostgreSQL did not start: {done.stderr}")
        time.sleep(0.2)


def _unprivileged() -> pwd.struct_passwd | None:
    """Return who runs the server, None for whoever runs the tests."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam("postgres")
    except KeyError:
        return pwd.getpwnam("nobody")


def _folder() -> Path | None:
    """Return the folder of the newest PostgreSQL's programs."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: -int(path.parent.name))
    on_path = shutil.which("postgres")
    candidates = [*found, *([Path(on_path).parent] if on_path else [])]
    return next((folder for folder in candidates if all((folder / name).is_file() for name in _PROGRAMS)), None)
