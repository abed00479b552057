"""A job that writes to an HDFS with Kerberos as several users by RPC, and has Hadoop write files of delegation tokens.

Usage: spark-submit ngsi_who_writes.py PORT KEYTAB KRB5_CONF FOLDER; prints who owns what, and what is said to who may
not, as JSON.
"""

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from custody.errors import CustodyError
from custody.ngsi_sink.batch_file import FileAppend
from custody.ngsi_sink.target import FilesTarget
from custody.spark.hdfs import RpcFiles, rpc_files
from custody.spark.session import start_session
from tests.unit.ngsi.notification_records import parameters

PORT, KEYTAB, CONF, FOLDER = int(sys.argv[1]), sys.argv[2], sys.argv[3], Path(sys.argv[4])
LOGIN = {"krb5_auth": True, "krb5_user": "robot", "krb5_keytab": KEYTAB, "krb5_conf_file": CONF}


def files(session: SparkSession, **names: Any) -> RpcFiles:
    used = parameters(backend="binary", hdfs_host="127.0.0.1", hdfs_port=PORT, **names)
    opened = rpc_files(session)(used)
    assert isinstance(opened, RpcFiles)
    return opened


def main() -> None:
    session = start_session("ngsi-who-writes")
    owners, refused = {}, {}
    # A token first: once somebody has logged in, Hadoop would take that login where a token is not used.
    wrong = {"keytab": {**LOGIN, "krb5_user": "clerk"}, "nothing": {"krb5_auth": True, "krb5_conf_file": CONF}}
    for name, login in wrong.items():
        refused[name] = said(lambda login=login: files(session, **login))
    owners["keytab"] = written(files(session, **LOGIN), "/user/warden/who/keytab")
    owners["doas"] = written(files(session, **LOGIN, hdfs_doas="warden"), "/user/warden/who/doas")
    refused["doas"] = said(lambda: written(files(session, **LOGIN, hdfs_doas="stranger"), "/user/warden/who/none"))
    fetch_tokens(session, files(session, **LOGIN))
    for form in ("writable", "protobuf"):
        with_token = files(session, delegation_token_file=str(FOLDER / f"{form}.tokens"))
        owners[form] = written(with_token, f"/user/warden/who/{form}")
    cancel(session, files(session, **LOGIN), FOLDER / "cancelled.tokens")
    cancelled = {"delegation_token_file": str(FOLDER / "cancelled.tokens")}
    refused["token"] = said(lambda: written(files(session, **cancelled), "/user/warden/who/none"))
    (FOLDER / "broken.tokens").write_bytes(b"HDTS\0\1")
    refused["file"] = said(lambda: files(session, delegation_token_file=str(FOLDER / "broken.tokens")))
    sys.stdout.write(json.dumps({"owners": owners, "refused": refused}) + "\n")
    session.stop()


def written(opened: RpcFiles, path: str) -> str:
    """Create a file, append to it, and return who owns it."""
    target = FilesTarget(opened)
    for offset, data in ((0, b"one\n"), (4, b"two\n")):
        target.apply(FileAppend.of(path, offset, data), memoryview(data))
    owner = str(opened._files.getFileStatus(opened._path(path)).getOwner())
    target.close()
    return owner


def said(act: Any) -> list[str]:
    try:
        act()
    except CustodyError as error:
        return [type(error).__name__, str(error)]
    raise AssertionError("it was not refused")


def fetch_tokens(session: SparkSession, opened: RpcFiles) -> None:
    jvm: Any = session.sparkContext._jvm
    security = jvm.org.apache.hadoop.security
    forms = {"writable": "WRITABLE", "protobuf": "PROTOBUF", "cancelled": "WRITABLE"}
    for name, form in forms.items():
        credentials = security.Credentials()
        opened._files.addDelegationTokens("robot", credentials)
        path = jvm.org.apache.hadoop.fs.Path((FOLDER / f"{name}.tokens").as_uri())
        [kind] = [
            each
            for each in jvm.java.lang.Class.forName(
                "org.apache.hadoop.security.Credentials$SerializedFormat"
            ).getEnumConstants()
            if str(each) == form
        ]
        credentials.writeTokenStorageFile(path, opened._files.getConf(), kind)


def cancel(session: SparkSession, opened: RpcFiles, file: Path) -> None:
    jvm: Any = session.sparkContext._jvm
    conf = opened._files.getConf()
    credentials = jvm.org.apache.hadoop.security.Credentials.readTokenStorageFile(
        jvm.org.apache.hadoop.fs.Path(file.as_uri()), conf
    )
    tokens = credentials.getAllTokens().iterator()
    while tokens.hasNext():
        tokens.next().cancel(conf)


main()
