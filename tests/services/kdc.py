"""A real Kerberos realm on the loopback: MIT's KDC as an ordinary process, in a folder of its own, on a free port.

It is MIT's and not a KDC in Java, for it is what clusters run, its refusals are those that people meet, and who
compiles pyspnego's packages takes it along from the same place: `INSTALL` says how. Nothing of the system's Kerberos is
read or changed.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.services.hdfs import free_ports, service, until_connected

INSTALL = "apt-get install krb5-kdc krb5-admin-server"
REALM = "CUSTODY.TEST"
_PROGRAMS = ("krb5kdc", "kdb5_util", "kadmin.local")
_FOLDERS = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin", "/sbin"])
_START_SECONDS_MAX = 30
_CLIENT = """\
[libdefaults]
default_realm = {realm}
dns_lookup_kdc = false
dns_lookup_realm = false
# A service is called as its host was asked for: the loopback's names say different things on different machines.
dns_canonicalize_hostname = false
rdns = false
udp_preference_limit = 1
[realms]
{realm} = {{
  kdc = 127.0.0.1:{port}
}}
"""
_SERVER = """\
[kdcdefaults]
kdc_listen = ""
kdc_tcp_listen = 127.0.0.1:{port}
[realms]
{realm} = {{
  database_name = {folder}/principal
  key_stash_file = {folder}/stash
  acl_file = {folder}/acl
  supported_enctypes = aes256-cts-hmac-sha1-96:normal aes128-cts-hmac-sha1-96:normal
  # As realms are set up today: without it a password could be guessed from what the KDC answers to anybody.
  default_principal_flags = +preauth
}}
[logging]
kdc = STDERR
"""


@dataclass(frozen=True)
class Kdc:
    """A realm with nobody in it but its own principals."""

    folder: Path
    conf: Path
    """What clients are configured by (KRB5_CONFIG, java.security.krb5.conf)."""

    def add(self, name: str, password: str) -> None:
        """Make a principal that logs in with a password."""
        self._run("kadmin.local", "addprinc", "-pw", password, name)

    def keytab(self, *names: str) -> Path:
        """Make principals with random keys, in a file by which they log in."""
        made = self.folder / f"{names[0].replace('/', '-')}.keytab"
        for name in names:
            self._run("kadmin.local", "addprinc", "-randkey", name)
        self._run("kadmin.local", "ktadd", "-k", str(made), *names)
        return made

    @property
    def environment(self) -> dict[str, str]:
        """What tells MIT's programs of this realm, and of no other."""
        return {"KRB5_CONFIG": str(self.conf), "KRB5_KDC_PROFILE": str(self.folder / "kdc.conf")}

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [_found(program), "-r", REALM, *arguments],
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            timeout=_START_SECONDS_MAX,
            check=False,
        )
        # kadmin.local ends with 0 whatever happened.
        assert done.returncode == 0 and "kadmin.local:" not in done.stderr, done.stderr


@contextmanager
def kdc(folder: Path) -> Iterator[Kdc]:
    """Start a KDC in an empty folder and stop it in the end."""
    [port] = free_ports(1)
    made = Kdc(folder, folder / "krb5.conf")
    made.conf.write_text(_CLIENT.format(realm=REALM, port=port))
    (folder / "kdc.conf").write_text(_SERVER.format(realm=REALM, port=port, folder=folder))
    made._run("kdb5_util", "create", "-s", "-P", secrets.token_hex())
    with service([_found("krb5kdc"), "-n", "-r", REALM], folder / "kdc.log", made.environment) as process:
        until_connected(process, port, folder / "kdc.log", _START_SECONDS_MAX)
        yield made


def missing() -> list[str]:
    """Return the programs that are not here."""
    return [program for program in _PROGRAMS if _where(program) is None]


def _found(program: str) -> str:
    found = _where(program)
    assert found is not None, f"{program}: not installed. Run: {INSTALL}"
    return found


def _where(program: str) -> str | None:
    return shutil.which(program, path=_FOLDERS)
