"""Former versions of objects in S3 buckets that keep them: listed and deleted by requests that obstore has not.

In a bucket with versions a deletion only hides an object behind a marker, and a put keeps what was there. A bucket
without them lists no former version.
"""

from __future__ import annotations

import urllib.error
from collections.abc import Iterable
from urllib.parse import quote
from xml.etree import ElementTree as ET

from custody.errors import StorageError
from custody.store.base import ObjectStore
from custody.store.s3_uploads import S3Uploads
from custody.store.traffic import note_requests


def erase_versions(store: ObjectStore, keys: Iterable[str]) -> list[str]:
    """Delete all versions of some objects but the present one; return which could not be deleted, and why.

    An object that is gone loses its markers of deletion, too. Done again, it finds nothing more.
    """
    # Imported here: `remote` imports obstore, which a store in a folder does without.
    from custody.store.placed_writers import PlacedWriters
    from custody.store.remote import RemoteStore

    problems: dict[str, int] = {}
    for key in keys:
        part = store.part_of(key) if isinstance(store, PlacedWriters) else store
        signed = part.signed_requests if isinstance(part, RemoteStore) else None
        if signed is None:
            why = (
                f"former versions in {part.locate('').rstrip('/')}, if it keeps them: custody deletes them in S3 "
                "alone, with the keys of the environment"
            )
        else:
            why = _erase(signed, key)
        if why:
            problems[why] = problems.get(why, 0) + 1
    return [f"{why} ({count} objects)" for why, count in sorted(problems.items())]


def _erase(requests: S3Uploads, key: str) -> str:
    """Delete the former versions of one object; return why some stay, empty if none does."""
    try:
        versions, markers = _listed(requests, key)
        # Versions before markers: without its marker the newest version would be the object again.
        for version_id in (*versions, *markers):
            note_requests("delete")
            requests.ask("DELETE", f"/{quote(requests.prefix + key)}", {"versionId": version_id})
    except urllib.error.HTTPError as error:
        return "" if error.code in (404, 501) else f"former versions of objects: the store refuses them ({error})"
    except (OSError, ET.ParseError, StorageError) as error:
        return f"former versions of objects: {error}"
    return ""


def _listed(requests: S3Uploads, key: str) -> tuple[list[str], list[str]]:
    """Return the ids of the former versions of an object, and of its markers of deletion."""
    versions: list[str] = []
    markers: list[str] = []
    place: dict[str, str] = {}
    while True:
        note_requests("list")
        answer = requests.ask("GET", "", {"versions": "", "prefix": requests.prefix + key, **place})
        page = ET.fromstring(answer)  # noqa: S314 - of the store that keeps everything else, too
        for item in page:
            kind = item.tag.rpartition("}")[2]
            if kind not in ("Version", "DeleteMarker") or item.findtext("{*}Key") != requests.prefix + key:
                continue
            is_present = kind == "Version" and item.findtext("{*}IsLatest") == "true"
            if not is_present:
                (versions if kind == "Version" else markers).append(item.findtext("{*}VersionId") or "null")
        following = page.findtext("{*}NextKeyMarker") or "", page.findtext("{*}NextVersionIdMarker") or ""
        if page.findtext("{*}IsTruncated") != "true" or tuple(place.values()) == following:
            return versions, markers
        place = dict(zip(("key-marker", "version-id-marker"), following, strict=True))
