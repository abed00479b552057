"""A content repository after a crash: temporary files go after an hour, everything else stays."""

from __future__ import annotations

import os
from pathlib import Path

from custody.recovery import find_leftovers
from custody.repository import Repository
from tests.support import event, files_below


def test_a_temporary_file_goes_when_it_is_an_hour_old_and_contents_stay(tmp_path: Path) -> None:
    repository = Repository.create(tmp_path / "repository")
    with repository.writer() as writer:
        writer.append_with_content([event(0)], b"kept")
        writer.content.put(b"of no event")
    path = repository.content(repository.get(0)).path
    young, old = path.with_name("1-1.aa.partial"), path.with_name("1-2.bb.partial")
    for partial in (young, old):
        partial.write_bytes(b"half a head")
    os.utime(old, (1, 1))
    before = files_below(path.parent)
    leftovers = [item for item in find_leftovers(repository.workspace()) if "content" in item.path]
    assert [(item.path, item.action) for item in leftovers] == [(str(old), "remove")]
    del before[str(old.relative_to(path.parent))]
    repository.recover()
    assert files_below(path.parent) == before
    assert repository.content(repository.get(0)).read() == b"kept"
