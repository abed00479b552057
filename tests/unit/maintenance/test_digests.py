"""The digests that events state: compared with the contents, and told with event and content where they differ."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from custody.cli.main import cli
from custody.errors import CorruptionError
from custody.flow.content import DIGEST_ATTRIBUTE, StoredContent
from custody.maintenance.findings import Finding, Level
from custody.maintenance.verification import verify_repository
from custody.model import ContentClaim, Event
from custody.repository import Component, Repository
from tests.support import event, run_steps

LOAD = Component(id="load", type="Load")


def findings(repository: Repository, level: Level = Level.DEEP) -> list[Finding]:
    fs = repository.workspace().fs
    return verify_repository(repository.workspaces(), repository.settings, fs, level).findings


def told(number: int, stored: StoredContent, sha256: str | None, **values: object) -> Event:
    attributes = {} if sha256 is None else {DIGEST_ATTRIBUTE: sha256}
    return event(number, content_claim=stored.claim, file_size=stored.size, updated_attributes=attributes, **values)


def test_children_and_changed_contents_are_read_and_verify_finds_nothing(repository: Repository) -> None:
    with repository.writer() as writer, repository.session(LOAD, writer) as session:
        first, second, third = (writer.content.put(data) for data in (b"a,b\n1,2\n", b"1,2\n", b"3,4\n"))
        parent = session.create({DIGEST_ATTRIBUTE: first.sha256}, size=first.size, content_claim=first.claim)
        child = session.fork(parent, size=second.size, content_claim=second.claim)
        part = session.clone(parent, offset=4)
        copy = session.clone(parent)
        session.modify_content(parent, size=third.size, content_claim=third.claim, sha256=third.sha256)
        for flowfile in (parent, child, part, copy):
            session.route(flowfile, "x")
    for _ in range(2):
        held = {
            item.event.flowfile_uuid: repository.content(item.event)
            for item in repository.search("event_type:ROUTE", limit=9).events
        }
        read = [held[flowfile.uuid].read() for flowfile in (parent, child, part, copy)]
        assert read == [b"3,4\n", b"1,2\n", b"1,2\n", b"a,b\n1,2\n"]
        assert {content.differs for content in held.values()} == {None}
        assert findings(repository) == []
        run_steps(repository.settings)


@pytest.fixture(params=["journal", "log"])
def inherited(request: pytest.FixtureRequest, tmp_path: Path) -> Repository:
    """A repository as older releases left it: a child states its parent's digest, a part that of the whole."""
    created = Repository.create(tmp_path / "repository")
    with created.writer() as writer:
        parent, child = writer.content.put(b"parent's content"), writer.content.put(b"child's")
        part = StoredContent(msgspec.structs.replace(parent.claim, offset=(parent.claim.offset or 0) + 2, size=3), "")
        writer.append([told(0, parent, parent.sha256), told(1, child, parent.sha256), told(2, part, parent.sha256)])
        later = {"previous_content_claim": child.claim, "previous_attributes": {DIGEST_ATTRIBUTE: parent.sha256}}
        writer.append([event(3, **later), event(4, **later)])
    if request.param == "log":
        run_steps(created.settings)
    return created


def test_an_inherited_digest_is_named_with_event_and_content_and_costs_nothing(inherited: Repository) -> None:
    wrong = hashlib.sha256(b"parent's content").hexdigest()
    right = hashlib.sha256(b"child's").hexdigest()
    named = sorted(findings(inherited), key=lambda item: item.first_event_id or 0)
    assert [(item.kind, item.severity, item.first_event_id) for item in named] == [
        ("content-inherited", "notice", 1),
        ("content-inherited", "notice", 2),
    ]
    content = inherited.content(inherited.get(1))
    assert f"{content.path} @{content.claim.offset}: event 1 and 2 more of writer 'main'" in named[0].message
    assert f"SHA-256 {wrong}, the 7 bytes there have {right}. It took over its parent's digest." in named[0].message
    assert findings(inherited, Level.DEFAULT) == []
    assert content.read() == b"child's"
    assert inherited.content(inherited.get(2)).read() == b"ren"
    assert inherited.content(inherited.get(3), previous=True).read() == b"child's"
    root = str(inherited.settings.root)
    result = CliRunner().invoke(cli, ["-r", root, "content", "get", "1"])
    assert (result.exit_code, result.stdout_bytes) == (0, b"child's")
    assert f"states a content with the SHA-256 {wrong}" in result.stderr.replace("\n", "")
    assert CliRunner().invoke(cli, ["-r", root, "content", "get", "0"]).stderr == ""
    assert CliRunner().invoke(cli, ["-r", root, "verify", "--deep"]).exit_code == 0


def test_an_exchanged_content_is_damage(repository: Repository) -> None:
    """Somebody put another content with its record into the place of one, so that the file is whole."""
    with repository.writer() as writer:
        stored = writer.content.put(b"what was received")
        captured = {"source_format": "ngsi"}
        writer.append([told(0, stored, hashlib.sha256(b"other").hexdigest())])
        writer.append([told(1, stored, stored.sha256), told(2, stored, "0" * 64, **captured)])
        other = writer.content.put(b"of another event")
        writer.append([told(3, other, "0" * 64)])
    named = findings(repository)
    # Event 3 states what a captured event states of another content: it could be inherited; event 2 could not.
    assert {(item.kind, item.first_event_id) for item in named} == {
        ("content-exchanged", 0),
        ("content-exchanged", 2),
        ("content-inherited", 3),
    }
    with pytest.raises(CorruptionError, match="as its event says"):
        repository.content(repository.get(2))


def test_statements_about_contents_that_are_elsewhere_or_gone_are_left_alone(repository: Repository) -> None:
    with repository.writer() as writer:
        stored = writer.content.put(b"x")
        foreign = ContentClaim(container="default", section="1", identifier="1-1", offset=0, size=5)
        attributes = {DIGEST_ATTRIBUTE: "0" * 64}
        writer.append([event(0, content_claim=foreign, updated_attributes=attributes), told(1, stored, "0" * 64)])
    repository.content(repository.get(1)).path.unlink()
    assert {item.kind for item in findings(repository)} == {"content-missing"}
