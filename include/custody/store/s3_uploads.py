"""Multipart uploads of an S3 bucket that were neither completed nor aborted: two requests that obstore has not.

Endpoint, path style, region and key are what obstore itself uses: a URL that it signs tells them. Only the secret has
to be known here, so that this works with keys in the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY), and not
with those that obstore fetches, such as a machine's role.

Parts that nobody completes cost room and nothing else. So a service that does not list uploads, or not to these
credentials, is one without any; the bucket's own rule ends them there.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.etree import ElementTree as ET

import obstore

from custody.errors import StorageError
from custody.store.base import UnfinishedUpload
from custody.store.traffic import note_requests

if TYPE_CHECKING:
    from obstore.store import S3Store

_TIMEOUT_SECONDS = 30
_PROBE = "UPLOADS"
"""Any key: obstore signs a URL for it, which is never asked for."""
_NOTHING = hashlib.sha256(b"").hexdigest()
_REFUSED = (401, 403, 405, 501)
"""The credentials lack the right, or the service has no such request."""


class S3Uploads:
    """The uploads below one prefix of a bucket.

    Args:
        bucket_url: where the bucket answers, without a `/` at its end.
        prefix: that of the store in its bucket, empty or with a `/` at its end.
        region, key, secret, token: for signatures; an empty token is none.
    """

    def __init__(self, bucket_url: str, prefix: str, *, region: str, key: str, secret: str, token: str = "") -> None:
        self._bucket_url = bucket_url
        self.prefix = prefix
        self._region = region
        self._key = key
        self._secret = secret
        self._token = token

    @classmethod
    def of(cls, client: S3Store, prefix: str, environ: Mapping[str, str] = os.environ) -> S3Uploads | None:
        """Return those of a client of obstore; None where its secret is not in the environment.

        `prefix` is the client's, without a `/` at its end.
        """
        secret = environ.get("AWS_SECRET_ACCESS_KEY")
        if not secret or "AWS_ACCESS_KEY_ID" not in environ:
            return None
        signed = urlsplit(obstore.sign(client, "GET", _PROBE, timedelta(minutes=1)))
        asked = parse_qs(signed.query)
        behind = f"{prefix}/{_PROBE}" if prefix else _PROBE
        # Of as many segments as are behind the bucket; how they are escaped is obstore's matter.
        folder, *segments = signed.path.rsplit("/", behind.count("/") + 1)
        key, _, region, *_ = asked["X-Amz-Credential"][0].split("/")
        if key != environ["AWS_ACCESS_KEY_ID"] or unquote("/".join(segments)) != behind:
            return None
        bucket_url = f"{signed.scheme}://{signed.netloc}{folder}"
        token = asked.get("X-Amz-Security-Token", [""])[0]
        inside = f"{prefix}/" if prefix else ""
        return cls(bucket_url, inside, region=region, key=key, secret=secret, token=token)

    def unfinished(self, prefix: str) -> list[UnfinishedUpload]:
        """Return the uploads of keys below a prefix, a request for a thousand; none where none are told."""
        found: list[UnfinishedUpload] = []
        place: dict[str, str] = {}
        while True:
            note_requests("list")
            try:
                answer = self.ask("GET", "", {"uploads": "", "prefix": self.prefix + prefix, **place})
                page = ET.fromstring(answer)  # noqa: S314 - of the store that keeps everything else, too
                uploads = [self._upload(item) for item in page.findall("{*}Upload")]
            except (OSError, ET.ParseError, ValueError):
                return found
            # Whatever a service makes of the prefix: what lies elsewhere in the bucket is not this repository's.
            found += [upload for upload in uploads if upload is not None and upload.key.startswith(prefix)]
            markers = _text(page, "NextKeyMarker"), _text(page, "NextUploadIdMarker")
            if _text(page, "IsTruncated") != "true" or tuple(place.values()) == markers:
                return found
            place = dict(zip(("key-marker", "upload-id-marker"), markers, strict=True))

    def abort(self, upload: UnfinishedUpload) -> None:
        """Free the parts of an upload; one that is gone is fine, as is a service that refuses.

        Raises:
            StorageError: the service gave no answer, or one of another kind.
        """
        note_requests("delete")
        key = self.prefix + upload.key
        try:
            self.ask("DELETE", f"/{quote(key)}", {"uploadId": upload.upload_id})
        except urllib.error.HTTPError as error:
            if error.code not in (404, *_REFUSED):
                raise StorageError(f"cannot abort the upload of {key}: {error}") from error
        except OSError as error:
            raise StorageError(f"cannot abort the upload of {key}: {error}") from error

    def _upload(self, item: ET.Element) -> UnfinishedUpload | None:
        if not _text(item, "Key").startswith(self.prefix):
            return None
        begun = datetime.fromisoformat(_text(item, "Initiated"))
        if begun.tzinfo is None:
            begun = begun.replace(tzinfo=UTC)
        key = _text(item, "Key").removeprefix(self.prefix)
        return UnfinishedUpload(key, _text(item, "UploadId"), int(begun.timestamp() * 1000))

    def ask(self, method: str, path: str, asked: Mapping[str, str]) -> bytes:
        """Send a signed request; raises OSError, of which HTTPError is a kind."""
        url = urlsplit(self._bucket_url + path)
        # S3's own signature, version 4: everything in it is sorted and escaped alike on both sides.
        query = "&".join(f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in sorted(asked.items()))
        moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        headers = {"host": url.netloc, "x-amz-content-sha256": _NOTHING, "x-amz-date": moment}
        if self._token:
            headers["x-amz-security-token"] = self._token
        names = ";".join(sorted(headers))
        lines = [method, url.path or "/", query, *(f"{name}:{headers[name]}" for name in sorted(headers)), "", names]
        request = "\n".join([*lines, _NOTHING])
        scope = f"{moment[:8]}/{self._region}/s3/aws4_request"
        signed = f"AWS4-HMAC-SHA256\n{moment}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
        key = f"AWS4{self._secret}".encode()
        for part in scope.split("/"):
            key = hmac.digest(key, part.encode(), "sha256")
        signature = hmac.digest(key, signed.encode(), "sha256").hex()
        headers["authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={self._key}/{scope}, SignedHeaders={names}, Signature={signature}"
        )
        address = f"{url.scheme}://{url.netloc}{url.path or '/'}?{query}"
        sent = urllib.request.Request(address, headers=headers, method=method)  # noqa: S310 - obstore's own endpoint
        with urllib.request.urlopen(sent, timeout=_TIMEOUT_SECONDS) as answer:  # noqa: S310 - as above
            data: bytes = answer.read()
        return data


def _text(element: ET.Element, name: str) -> str:
    return element.findtext(f"{{*}}{name}") or ""
