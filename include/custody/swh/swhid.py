"""Software Heritage identifiers of objects, `swh:1:<type>:<40 hexadecimal digits>`.

Only core identifiers are read: the qualifiers that may follow a `;` (origin, path, lines) say where somebody saw an
object, not what it is. `content_swhid` gives the identifier of a content of the content repository: the hash that git
gives its bytes.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from custody.errors import InvalidInputError
from custody.flow.content import Content

HASH_BYTES = 20
# Characters of a refused identifier in a message: it may be anything of any length.
_SHOWN = 80


class ObjectType(StrEnum):
    """The kinds of nodes of a graph; the value is the one in identifiers and tables."""

    CONTENT = "cnt"
    DIRECTORY = "dir"
    ORIGIN = "ori"
    RELEASE = "rel"
    REVISION = "rev"
    SNAPSHOT = "snp"


_FORM = re.compile(rf"swh:1:({'|'.join(ObjectType)}):([0-9a-f]{{40}})")


@dataclass(frozen=True, slots=True, order=True)
class Swhid:
    """One object: its type and the 20 bytes of its hash."""

    type: ObjectType
    sha1_git: bytes

    def __post_init__(self) -> None:
        if len(self.sha1_git) != HASH_BYTES:
            raise InvalidInputError(f"SWHID: expected a hash of {HASH_BYTES} bytes, got {len(self.sha1_git)}.")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read an identifier of version 1.

        Raises:
            InvalidInputError: it has another form, another version, a type that is not known, or qualifiers.
        """
        match = _FORM.fullmatch(text)
        if match is None:
            raise InvalidInputError(
                f"SWHID {text[:_SHOWN]!r}: expected swh:1:<cnt|dir|ori|rel|rev|snp>:<40 hexadecimal digits in lower "
                f"case>, without qualifiers."
            )
        return cls(ObjectType(match[1]), bytes.fromhex(match[2]))

    def __str__(self) -> str:
        return f"swh:1:{self.type}:{self.sha1_git.hex()}"


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
