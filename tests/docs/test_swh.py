"""The pages about questions to software: their examples run, and their tables name what there is."""

from __future__ import annotations

from pathlib import Path

import pytest

from custody.repository import Repository
from custody.swh import content_swhid
from tests.docs.pages import examples, read
from tests.support import event
from tests.swh.database import publish_reference
from tests.swh.reference import Reference, SmallGraph

HELD = b"int main(void) { return 0; }\n"
GRAPH = SmallGraph(
    {0: "cnt", 10: "dir", 20: "rev", 40: "snp", 50: "ori"},
    [(50, 40, b""), (40, 20, b"main"), (20, 10, b""), (10, 0, b"main.c")],
    {20: 1_700_000_000},
)
FOUND = f"swh:1:rev:{'14' * 20} 1700000000"


def test_the_examples_run_and_print_what_they_should(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    repository = Repository.create("demo")
    with repository.writer() as writer:
        writer.append_with_content([event()], HELD)
    swhid = content_swhid(repository.content(repository.get(0)))
    monkeypatch.setattr("tests.swh.database.sha1_git", lambda node: bytes([node]) * 20 if node else swhid.sha1_git)
    publish_reference(repository.settings, "first", Reference(GRAPH, "all"), "all")
    names = {"__name__": "example", "text": str(swhid), "other": f"swh:1:cnt:{'00' * 20}"}
    exec(compile(examples(read("content.md"))["where"], "content.md", "exec"), dict(names))  # noqa: S102
    assert capsys.readouterr().out == f"{FOUND} b'main.c' https://example.org/50\n"
    exec(compile(examples(read("swh.md"))["ask"], "swh.md", "exec"), dict(names))  # noqa: S102
    assert capsys.readouterr().out == (
        f"{FOUND} https://example.org/50\n{FOUND} b'main.c' https://example.org/50\n[True, False]\n"
    )
