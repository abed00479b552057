"""The TypeScript of the pages: its own tests, and that the same sources give the same bytes."""

from __future__ import annotations

import hashlib
import re
import subprocess
from pathlib import Path

import pytest

from custody_pages import SOURCES, build

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def node() -> build.Node:
    try:
        build.build()
        return build.Node(build.WORK)
    except build.BuildError as error:
        pytest.skip(str(error))


def test_the_tests_of_the_pages_pass(node: build.Node) -> None:
    tests = sorted(str(path) for path in (SOURCES / "src").glob("*.test.ts"))
    done = subprocess.run([node.program, "--test", *tests], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    passed = re.search(r"^. pass (\d+)$", done.stdout, re.M)
    assert passed
    assert int(passed[1]) >= 20


def test_the_same_sources_give_the_same_bytes(node: build.Node, tmp_path: Path) -> None:
    digests = []
    for name in ("one", "other"):
        target = tmp_path / name
        assert build.build(build.WORK, target)
        files = sorted(path for path in target.rglob("*") if path.is_file())
        assert {f"{page}.html" for page in ("search", "event", "lineage", "run", "status", "proof")} <= {
            path.name for path in files
        }
        digests.append([(str(path.relative_to(target)), hashlib.sha256(path.read_bytes()).digest()) for path in files])
    assert digests[0] == digests[1]


def test_what_is_built_has_no_program_made_of_text(node: build.Node, tmp_path: Path) -> None:
    build.build(build.WORK, tmp_path / "built")
    for path in (tmp_path / "built").rglob("*.js"):
        source = path.read_text(encoding="utf-8")
        if "elk" not in path.name:
            assert not re.search(r"\bnew Function\(|\beval\(", source), path.name
