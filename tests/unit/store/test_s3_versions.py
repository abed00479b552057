"""Former versions of objects in a bucket: those that were deleted or written over go, the present ones stay."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from custody.store import LocalStore
from custody.store.remote import RemoteStore
from custody.store.s3_versions import erase_versions
from custody.vfs import PosixFileSystem
from tests.unit.store.test_s3_uploads import SECRET, Server, serving

NAME = "http://s3.amazonaws.com/doc/2006-03-01/"


def version(key: str, version_id: str, *, kind: str = "Version", latest: bool = False) -> str:
    texts = {"Key": key, "VersionId": version_id, "IsLatest": str(latest).lower()}
    return f"<{kind}>{''.join(f'<{name}>{text}</{name}>' for name, text in texts.items())}</{kind}>"


def page(*items: str, following: tuple[str, str] | None = None) -> bytes:
    more = f"<IsTruncated>{str(following is not None).lower()}</IsTruncated>"
    if following:
        more += (
            f"<NextKeyMarker>{following[0]}</NextKeyMarker><NextVersionIdMarker>{following[1]}</NextVersionIdMarker>"
        )
    return f'<ListVersionsResult xmlns="{NAME}">{"".join(items)}{more}</ListVersionsResult>'.encode()


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("ACCESS_KEY_ID", "key"), ("SECRET_ACCESS_KEY", SECRET), ("REGION", "eu-west-1")):
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")


def store_at(server: Server, monkeypatch: pytest.MonkeyPatch) -> RemoteStore:
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
    from custody.store.remote import open_remote

    store = open_remote("s3://bucket/pre")
    assert isinstance(store, RemoteStore)
    return store


def test_former_versions_go_before_their_markers_and_present_ones_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    def answers(method: str, path: str) -> tuple[int, bytes]:
        if method == "DELETE":
            return 204, b""
        asked = parse_qs(urlsplit(path).query, keep_blank_values=True)
        if asked["prefix"] == ["pre/gone"]:
            marker = version("pre/gone", "m", kind="DeleteMarker", latest=True)
            if "key-marker" not in asked:
                return 200, page(marker, version("pre/gone-too", "x"), following=("pre/gone", "m"))
            return 200, page(version("pre/gone", "1"))
        return 200, page(version("pre/anew", "2", latest=True), version("pre/anew", "1"))

    with serving(answers) as server:
        assert erase_versions(store_at(server, monkeypatch), ["gone", "anew"]) == []
    deleted = [urlsplit(path) for method, path, _ in server.asked if method == "DELETE"]
    assert [(each.path, each.query) for each in deleted] == [
        ("/bucket/pre/gone", "versionId=1"),
        ("/bucket/pre/gone", "versionId=m"),
        ("/bucket/pre/anew", "versionId=1"),
    ]


def test_a_bucket_without_versions_has_nothing_to_delete(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(lambda *_: (200, page(version("pre/anew", "null", latest=True)))) as server:
        assert erase_versions(store_at(server, monkeypatch), ["anew"]) == []
    assert [method for method, _, _ in server.asked] == ["GET"]


def test_what_the_store_refuses_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(lambda *_: (403, b"")) as server:
        [problem] = erase_versions(store_at(server, monkeypatch), ["a", "b"])
    assert "refuses" in problem
    assert "(2 objects)" in problem


def test_another_kind_of_store_is_named() -> None:
    store = LocalStore(PosixFileSystem(), Path("/nowhere"))
    [problem] = erase_versions(store, ["a"])
    assert "former versions in /nowhere" in problem
