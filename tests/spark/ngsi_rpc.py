"""A job that writes parts to HDFS by RPC as after each kind of crash; prints what has to stand there, as JSON.

Usage: spark-submit ngsi_rpc.py HOSTS PORT; HOSTS as in `ngsi.hdfs_host`.
"""

import json
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

from custody.errors import CorruptionError, StorageError
from custody.ngsi_sink.batch_file import FileAppend
from custody.ngsi_sink.opening import open_target
from custody.ngsi_sink.target import Target
from custody.spark.hdfs import RpcFiles, rpc_files
from custody.spark.session import start_session
from custody.vfs import PosixFileSystem
from tests.unit.ngsi.notification_records import parameters

HOSTS, PORT = sys.argv[1], int(sys.argv[2])
USED = parameters(backend="binary", hdfs_host=HOSTS, hdfs_port=PORT)
HOSTILE = "/user/warden/rpc/ä b%25 #?&+'\"é🌳[x]/~ü (1).txt"


def main() -> None:
    session = start_session("ngsi-rpc")
    target = open_target(USED, PosixFileSystem(), Path("/unused"), rpc=rpc_files(session))
    found = {HOSTILE: once(target), "/user/warden/rpc/damage": damage(target)}
    for torn in (b"tw", b"TWO\n", b"two\n"):
        path = f"/user/warden/rpc/torn{torn.hex()}"
        apply(target, path, 0, b"one\n")
        apply(target, path, 4, torn)
        apply(target, path, 4, b"two\n")
        found[path] = "one\ntwo\n"
    found["/user/warden/rpc/left"] = left_open(session, target)
    said = refused(target)
    uri = target.uri(HOSTILE)
    target.close()
    sys.stdout.write(json.dumps({"files": found, "said": said, "uri": uri}) + "\n")
    session.stop()


def apply(target: Target, path: str, offset: int, data: bytes) -> None:
    target.apply(FileAppend.of(path, offset, data), memoryview(data))


def once(target: Target) -> str:
    assert target.length(HOSTILE) == 0
    for offset, data in ((0, b"one\n"), (4, b"two\n"), (8, "größer 🌳\0\n".encode())):
        apply(target, HOSTILE, offset, data)
        apply(target, HOSTILE, offset, data)
        assert target.length(HOSTILE) == offset + len(data)
    apply(target, f"{HOSTILE}.empty", 0, b"")
    apply(target, f"{HOSTILE}.empty", 0, b"")
    return "one\ntwo\ngrößer 🌳\0\n"


def damage(target: Target) -> str:
    path = "/user/warden/rpc/damage"
    apply(target, path, 0, b"one\nTWO\nmine\n")
    for offset in (4, 99):
        try:
            apply(target, path, offset, b"two\n")
        except CorruptionError:
            continue
        raise AssertionError(f"part at {offset} was taken")
    return "one\nTWO\nmine\n"


def left_open(session: SparkSession, target: Target) -> str:
    """Another client appends the half of a part and never closes the file, as one that was killed."""
    path = "/user/warden/rpc/left"
    apply(target, path, 0, b"one\n")
    other = rpc_files(session)(USED)
    assert isinstance(other, RpcFiles)
    stream = other._files.append(other._path(path))
    stream.write(b"tw")
    stream.hflush()
    started = time.monotonic()
    apply(target, path, 4, b"two\nthree\n")
    # HDFS leaves a file to its writer for 60 s; the lease is taken from it instead.
    assert time.monotonic() - started < 50
    return "one\ntwo\nthree\n"


def refused(target: Target) -> list[str]:
    said = []
    for name in ("a:b", "é" * 128):
        try:
            apply(target, f"/user/warden/rpc/{name}/x", 0, b"x")
        except StorageError as error:
            said.append(str(error))
    return said


main()
