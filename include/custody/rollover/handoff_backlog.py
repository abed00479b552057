"""What waits to be handed over, with its age: whoever is warned by it needs to know how long it has been so.

Groups, also open ones, wait since their first journal was begun; contents since their file got its last bytes.
"""

from __future__ import annotations

import msgspec

from custody.config import Settings
from custody.made_types import made_at_import
from custody.rollover.handing_over import waiting_for_hand_over
from custody.rollover.handing_over_contents import contents_waiting
from custody.vfs import FileSystem
from custody.workspace.workspace import Workspace


class HandoffBacklog(msgspec.Struct, frozen=True, kw_only=True):
    """What of one writer this machine's disks alone hold; bytes are those of files of contents."""

    writer: str
    groups: int = 0
    events: int = 0
    content_files: int = 0
    content_bytes: int = 0
    oldest_ms: int | None = None
    """Since when the oldest of it waits; None where nothing waits, or no journal says when it was begun."""

    @property
    def is_any(self) -> bool:
        """Whether something waits."""
        return bool(self.groups or self.content_files)

    def is_overdue(self, now_ms: int, older_seconds: float) -> bool:
        """Whether something waits for longer than that; what is of unknown age does."""
        if not self.is_any:
            return False
        return self.oldest_ms is None or now_ms - self.oldest_ms > older_seconds * 1000

    def line(self, now_ms: int) -> str:
        """Return it as one line for a log."""
        groups = f"{self.groups} groups with {self.events} events"
        files = f"{self.content_files} files of contents ({self.content_bytes} bytes)"
        what = " and ".join(text for text, count in ((groups, self.groups), (files, self.content_files)) if count)
        age = "" if self.oldest_ms is None else f", the oldest for {max(0, now_ms - self.oldest_ms) // 1000} s"
        return f"{self.writer}: {what or 'nothing'}{age}"


made_at_import(HandoffBacklog)


def handoff_backlogs(settings: Settings, fs: FileSystem | None = None) -> list[HandoffBacklog] | None:
    """Return what waits on this machine, by writer; None where the settings hand nothing over.

    Raises:
        StorageError: the store, or a disk of a writer, cannot be listed.
    """
    if settings.journal.handoff == settings.content.handoff == "off":
        return None
    return [_backlog(workspace) for workspace in Workspace.all(settings, fs)]


def _backlog(workspace: Workspace) -> HandoffBacklog:
    backlog, since = HandoffBacklog(writer=workspace.writer), list[int | None]()
    if workspace.hands_over:
        journals = waiting_for_hand_over(workspace)
        backlog = msgspec.structs.replace(backlog, groups=journals.groups, events=journals.events)
        since.append(journals.oldest_ms)
    if workspace.hands_contents_over:
        contents = contents_waiting(workspace)
        backlog = msgspec.structs.replace(backlog, content_files=contents.claims, content_bytes=contents.bytes)
        since.append(contents.oldest_ms)
    return msgspec.structs.replace(backlog, oldest_ms=min((ms for ms in since if ms is not None), default=None))
