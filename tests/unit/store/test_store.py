"""Stores by themselves: keys, listings, ranges, put-if-absent, moves; the same on disk and in memory."""

from __future__ import annotations

import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from obstore.store import MemoryStore

from custody.errors import ConfigurationError, InvalidInputError, NotFoundError, StorageError
from custody.store import LocalStore, ObjectStore, check_key, open_store
from custody.store.remote import RemoteStore, open_remote
from custody.vfs import PosixFileSystem
from custody.vfs.faults import Fault, FaultyFileSystem
from custody.vfs.memory import MemoryFileSystem


@pytest.fixture(params=["local", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "local":
        return LocalStore(PosixFileSystem(), tmp_path)
    return RemoteStore(MemoryStore(), "memory://test")


def test_an_object_is_what_was_put(store: ObjectStore) -> None:
    store.put("a/b", b"0123456789")
    assert store.get("a/b") == b"0123456789"
    assert store.get_range("a/b", 2, 3) == b"234"
    assert store.get_range("a/b", -4, 4) == b"6789"
    assert store.get_range("a/b", -4, 2) == b"67"
    info = store.head("a/b")
    assert info is not None
    assert (info.key, info.size_bytes) == ("a/b", 10)
    assert info.modified_ms > 1_700_000_000_000
    store.put("a/b", b"new")
    assert store.get("a/b") == b"new"


def test_an_absent_object_is_not_found(store: ObjectStore) -> None:
    store.put("a/b", b"")
    for key in ("x", "a/x", "a", "a/b/c"):
        assert store.head(key) is None
        if key != "a":  # a folder on disk
            with pytest.raises(NotFoundError, match=key):
                store.get(key)
            with pytest.raises(NotFoundError, match=key):
                store.get_range(key, 0, 1)
    store.delete("x")
    assert store.get_many(["a/b", "x", "a/b"]) == [b""]
    assert store.get_many([]) == []


def test_a_key_is_given_to_one(store: ObjectStore) -> None:
    assert store.put_if_absent("a/b/c", b"one")
    assert not store.put_if_absent("a/b/c", b"other")
    assert store.get("a/b/c") == b"one"
    store.delete("a/b/c")
    assert store.put_if_absent("a/b/c", b"other")


def test_a_move_replaces(store: ObjectStore) -> None:
    store.put("a/one", b"1")
    store.put("b/two", b"2")
    store.move("a/one", "b/two")
    assert (store.head("a/one"), store.get("b/two")) == (None, b"1")


def test_a_listing_knows_folders_not_only_beginnings(store: ObjectStore) -> None:
    for key in ("t/1/a.txn", "t/2/b.txn", "t/10/c", "t-old/1/x", "t.x", "tt"):
        store.put(key, key.encode())
    assert list(store.keys("t/")) == ["t/1/a.txn", "t/10/c", "t/2/b.txn"]
    assert list(store.keys("t/", ending=".txn")) == ["t/1/a.txn", "t/2/b.txn"]
    assert list(store.keys("t/", after="t/1/a.txn", ending=".txn")) == ["t/2/b.txn"]
    assert list(store.keys("", ending="c")) == ["t/10/c"]
    assert list(store.keys("t/", ending=".none")) == []
    assert [info.key for info in store.list("t/", after="t/1/z")] == ["t/10/c", "t/2/b.txn"]
    assert [info.size_bytes for info in store.list("t/1/")] == [9]
    assert store.folders("t/") == ["1", "10", "2"]
    assert store.folders("") == ["t", "t-old"]
    assert list(store.keys("none/")) == []
    with pytest.raises(InvalidInputError, match="expected a '/' at its end"):
        list(store.keys("t"))


@given(
    names=st.sets(st.lists(st.sampled_from(["a", "b", "a-b", "0", "00"]), min_size=1, max_size=3).map("/".join)),
    after=st.lists(st.sampled_from(["a", "b", "a-b", "0", "00", "z"]), max_size=3).map("/".join),
)
def test_a_disk_lists_as_an_object_store_does(names: set[str], after: str) -> None:
    # On a disk a name cannot be a file and a folder.
    keys = {f"p/{name}/x.f" for name in names}
    disk = LocalStore(MemoryFileSystem(), Path("/store"))
    memory = RemoteStore(MemoryStore(), "memory://test")
    for key in keys:
        disk.put(key, b"")
        memory.put(key, b"")
    start = f"p/{after}" if after else ""
    expected = sorted(key for key in keys if key > start)
    assert list(disk.keys("p/", after=start)) == expected
    assert [info.key for info in disk.list("p/", after=start)] == expected
    assert list(memory.keys("p/", after=start)) == expected


@pytest.mark.parametrize(
    "key", ["", "/a", "a/", "a//b", ".", "..", "a/../b", ".hidden", "a\\b", "a b", "a\0", "ä", "a%2f", "x" * 300]
)
def test_a_key_that_is_not_safe_is_refused_everywhere(store: ObjectStore, key: str) -> None:
    for call in (store.get, store.head, store.delete, lambda key: store.put(key, b""), check_key):
        with pytest.raises(InvalidInputError):
            call(key)
    for call in (lambda key: store.move("a", key), lambda key: store.move(key, "a")):
        with pytest.raises(InvalidInputError):
            call(key)


def test_temporary_files_and_hidden_ones_are_no_objects(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    for name in ("x.txn", "x.txn.0123.partial", ".x", "my notes (1).txt", "ä.txn"):
        (tmp_path / "a" / name).write_bytes(b"")
    assert [info.key for info in LocalStore(PosixFileSystem(), tmp_path).list("a/")] == ["a/x.txn"]


def test_a_listing_says_of_each_file_what_a_look_at_it_says(tmp_path: Path) -> None:
    store = LocalStore(PosixFileSystem(), tmp_path)
    for key in ("p/a", "p/a-b/x.f", "p/b/x.f", "p/b.f", "p/b0/y/z.f"):
        store.put(key, key.encode())
    (tmp_path / "p" / "c.d").mkdir()
    (tmp_path / "p" / "c.d" / "inner").write_bytes(b"a folder with a dot in its name holds no objects")
    (tmp_path / "p" / "link.f").symlink_to(tmp_path / "p" / "b.f")
    (tmp_path / "p" / "nowhere.f").symlink_to(tmp_path / "none")
    looked = [info for info in map(store.head, store.keys("p/")) if info is not None]
    assert list(store.list("p/")) == looked
    assert [info.key for info in looked] == ["p/a", "p/a-b/x.f", "p/b.f", "p/b/x.f", "p/b0/y/z.f", "p/link.f"]
    assert list(store.list("p/a/")) == []  # a file


def test_an_empty_folder_goes_and_another_stays(tmp_path: Path) -> None:
    store = LocalStore(PosixFileSystem(), tmp_path)
    store.put("a/1/x", b"")
    store.put("a/2/x", b"")
    store.delete("a/1/x")
    for prefix in ("a/1/", "a/2/", "a/3/"):
        store.drop_folder(prefix)
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["2"]


def test_a_disk_that_refuses_is_an_error_that_names_the_file() -> None:
    fs = FaultyFileSystem(MemoryFileSystem(), Fault(kinds=frozenset({"read", "link"}), count=None))
    store = LocalStore(fs, Path("/store"))
    store.put("a/b", b"")
    with pytest.raises(StorageError, match="/store/a/b"):
        store.get("a/b")
    with pytest.raises(StorageError, match="/store/a/c"):
        store.put_if_absent("a/c", b"")


def test_an_object_store_that_does_not_answer_is_an_error_that_names_the_object(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret-word")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    opened = open_store("s3://bucket/prefix", PosixFileSystem(), tmp_path)
    assert isinstance(opened, RemoteStore)
    with pytest.raises(StorageError, match="s3://bucket/prefix/a") as caught:
        opened.put("a", b"")
    assert "secret-word" not in str(caught.value)


def test_a_location_becomes_a_store(tmp_path: Path) -> None:
    fs = PosixFileSystem()
    assert open_store("store", fs, tmp_path).locate("a") == f"{tmp_path}/store/a"
    assert open_store("/disk", fs, tmp_path).locate("a") == "/disk/a"
    assert open_store("file:///a%20disk", fs, tmp_path).locate("a") == "/a disk/a"
    memory = open_store("memory://shared", fs, tmp_path)
    memory.put("a", b"1")
    assert open_store("memory://shared", fs, tmp_path).get("a") == b"1"
    assert open_store("memory://other", fs, tmp_path).head("a") is None


@pytest.mark.parametrize("url", ["ftp://host/x", "http://host/x", "s3://", "s3://key:secret@bucket", "file://host/x"])
def test_a_location_that_is_of_no_use_is_refused(tmp_path: Path, url: str) -> None:
    with pytest.raises(ConfigurationError, match="store") as caught:
        open_store(url, PosixFileSystem(), tmp_path)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("scheme", ["hdfs", "webhdfs", "swebhdfs", "viewfs"])
def test_hdfs_is_refused_with_the_reason_and_what_to_do(tmp_path: Path, scheme: str) -> None:
    with pytest.raises(ConfigurationError, match="HDFS is no store") as caught:
        open_store(f"{scheme}://namenode:8020/custody", PosixFileSystem(), tmp_path)
    assert "docs/object-store.md" in str(caught.value)
    page = (Path(__file__).resolve().parents[3] / "docs" / "object-store.md").read_text(encoding="utf-8")
    assert "\n## HDFS\n" in page


class _SlowBucket(BaseHTTPRequestHandler):
    """Answers a put a while after its body."""

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        time.sleep(1.5)
        self.send_response(200)
        self.send_header("ETag", '"1"')
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


def test_the_time_of_a_large_put_follows_its_size_or_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    def put_at(bytes_a_second_min: int) -> bool:
        monkeypatch.setattr("custody.store.remote._PUT_BYTES_A_SECOND_MIN", bytes_a_second_min)
        return open_remote("s3://bucket/prefix", can_put_if_absent=True).put_if_absent("large", bytes(2 << 20))

    monkeypatch.setattr("custody.store.remote._REQUEST_SECONDS", 1)
    with ThreadingHTTPServer(("127.0.0.1", 0), _SlowBucket) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
        # Options of the environment still hold.
        monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
            monkeypatch.setenv(name, "test")
        assert put_at(bytes_a_second_min=128 << 10)
        with pytest.raises(StorageError, match="cannot write s3://bucket/prefix/large"):
            put_at(bytes_a_second_min=2 << 20)
        monkeypatch.setenv("AWS_TIMEOUT", "500ms")
        with pytest.raises(StorageError, match="cannot write s3://bucket/prefix/large"):
            put_at(bytes_a_second_min=128 << 10)
        server.shutdown()


def test_paths_of_keys_are_kept_up_to_a_bound_and_bad_keys_are_refused_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("custody.store.local._PATHS_KEPT", 8)
    store = LocalStore(PosixFileSystem(), tmp_path)
    for number in range(20):
        store.put(f"a/{number}", b"%d" % number)
    for _ in range(2):
        assert [store.get(f"a/{number}") for number in range(20)] == [b"%d" % number for number in range(20)]
        with pytest.raises(InvalidInputError):
            store.get("../etc")
    assert len(store._paths) <= 8
    store.delete("a/3")
    with pytest.raises(NotFoundError):
        store.get("a/3")
