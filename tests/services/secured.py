"""A real HDFS with Kerberos on the loopback: its KDC, users of it, and its services with keytabs of their own.

Tests start it by `secured_hdfs`; `python -m tests.services.secured` runs one until it is interrupted, and says
how to log in.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from custody.ngsi_sink.kerberos import INSTALL, absent_packages
from tests.services import kdc as kerberos
from tests.services.hdfs import Hdfs, Realm, folder_until_interrupted, hdfs
from tests.services.kdc import REALM, Kdc

USER, PASSWORD = "clerk", "größer, 'as' \"it\" $eems #1"
COOKIE_SECONDS = 4
"""How long a cookie of WebHDFS and HttpFS serves: not ten hours, so that tests see one expire."""
_SERVICE, _WEB = "hdfs/localhost", ("HTTP/127.0.0.1", "HTTP/localhost")


@dataclass(frozen=True)
class Secured:
    """A cluster, its realm, and a user of it: `USER` with `PASSWORD`."""

    hdfs: Hdfs
    kdc: Kdc
    keytab: Path
    """Of another user, `robot`, who has no password that anybody knows."""


@contextmanager
def secured_hdfs(folder: Path, *, http_fs: bool = False) -> Iterator[Secured]:
    """Start an empty HDFS with Kerberos in a folder and stop it in the end."""
    for name in ("kdc", "hdfs"):
        (folder / name).mkdir()
    with kerberos.kdc(folder / "kdc") as realm:
        realm.add(USER, PASSWORD)
        with hdfs(folder / "hdfs", http_fs=http_fs, realm=_realm(realm, folder)) as up:
            yield Secured(up, realm, realm.keytab("robot"))


def missing() -> str:
    """Return what has to be installed first, and how; empty if it is all here."""
    if programs := kerberos.missing():
        return f"{', '.join(programs)}: not installed. Run: {kerberos.INSTALL}"
    if packages := absent_packages():
        return f"{', '.join(packages)}: not installed. Run: {INSTALL}"
    return ""


def proof(up: Secured) -> str:
    """Return what lets a query of WebHDFS in as the user, by a token that was got without any code of the project."""
    import gssapi  # only here where it is installed

    os.environ["KRB5_CONFIG"] = str(up.kdc.conf)
    user = gssapi.Name(USER, gssapi.NameType.user)
    acquired = gssapi.raw.acquire_cred_with_password(user, PASSWORD.encode(), usage="initiate")
    server = gssapi.Name("HTTP@127.0.0.1", gssapi.NameType.hostbased_service)
    context = gssapi.SecurityContext(name=server, creds=gssapi.Credentials(acquired.creds), usage="initiate")
    asked = urllib.request.Request(
        f"http://127.0.0.1:{up.hdfs.web}/webhdfs/v1/?op=GETDELEGATIONTOKEN",
        headers={"Authorization": f"Negotiate {b64encode(context.step()).decode()}"},
    )
    with urllib.request.urlopen(asked, timeout=60) as answer:  # noqa: S310 - the loopback
        return f"delegation={json.loads(answer.read())['Token']['urlString']}"


def _realm(realm: Kdc, folder: Path) -> Realm:
    secret = folder / "secret"
    secret.write_text("signs cookies, until the test is over")
    keytab = str(realm.keytab(_SERVICE, *_WEB))
    principal = f"{_SERVICE}@{REALM}"
    services = {
        f"dfs.{service}.{name}": value
        for service in ("namenode", "datanode")
        for name, value in {"kerberos.principal": principal, "keytab.file": keytab}.items()
    }
    web = {
        # Every principal HTTP/… of the keytab: hosts are asked for by name and by number.
        "kerberos.principal": "*",
        "kerberos.keytab": keytab,
    }
    cookies = {"type": "kerberos", "token.validity": str(COOKIE_SECONDS), "signature.secret.file": str(secret)}
    doors = {f"hadoop.http.authentication.{name}": value for name, value in {**web, **cookies}.items()}
    return Realm(
        realm.conf,
        core={
            "hadoop.security.authentication": "kerberos",
            **doors,
            "hadoop.proxyuser.hdfs.hosts": "*",  # HttpFS asks for others
            "hadoop.proxyuser.hdfs.groups": "*",
            # Both users may act for one other, and for nobody else.
            **{f"hadoop.proxyuser.{name}.hosts": "*" for name in (USER, "robot")},
            **{f"hadoop.proxyuser.{name}.users": "warden" for name in (USER, "robot")},
        },
        hdfs={
            **services,
            **{f"dfs.web.authentication.{name}": value for name, value in web.items()},
            "dfs.block.access.token.enable": "true",
            "dfs.data.transfer.protection": "authentication",
            # A DataNode on ports that anybody may open wants TLS for its REST; its own way out for tests.
            "ignore.secure.ports.for.testing": "true",
        },
        http_fs={
            **doors,  # its defaults of them count for more than core-site.xml
            "httpfs.hadoop.authentication.type": "kerberos",
            "httpfs.hadoop.authentication.kerberos.principal": principal,
            "httpfs.hadoop.authentication.kerberos.keytab": keytab,
            f"httpfs.proxyuser.{USER}.hosts": "*",
            f"httpfs.proxyuser.{USER}.users": "warden",
        },
    )


def main() -> None:
    """Run an HDFS with Kerberos until SIGINT or SIGTERM."""
    with folder_until_interrupted() as folder, secured_hdfs(folder, http_fs=True) as up:
        said = [
            f"hdfs://127.0.0.1:{up.hdfs.rpc}/",
            f"webhdfs://127.0.0.1:{up.hdfs.web}/",
            f"httpfs, webhdfs://127.0.0.1:{up.hdfs.http_fs}/",
            f"HADOOP_CONF_DIR={up.hdfs.conf}",
            f"KRB5_CONFIG={up.kdc.conf}",
            f"user {USER}, password {PASSWORD}",
            f"user robot, keytab {up.keytab}",
        ]
        sys.stdout.write("\n".join([*said, ""]))
        sys.stdout.flush()
        signal.pause()


if __name__ == "__main__":
    main()
