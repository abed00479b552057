"""By which identifier a content of the content repository is known to the world: the one that git gives its bytes."""

from __future__ import annotations

import hashlib

from custody.flow.content import Content
from custody.swh.swhid import ObjectType, Swhid


def content_swhid(content: Content) -> Swhid:
    """Return the identifier of a content; all of its bytes are read, and checked, for it.

    Raises:
        CorruptionError: what is stored is not what was written.
    """
    # Git's name of a file, not a promise that nobody forged it: that is what the SHA-256 is for.
    digest = hashlib.sha1(b"blob %d\0" % content.size, usedforsecurity=False)
    for chunk in content.chunks():
        digest.update(chunk)
    return Swhid(ObjectType.CONTENT, digest.digest())
