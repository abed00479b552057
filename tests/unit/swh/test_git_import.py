"""A git repository as a graph, beside what git itself says of it."""

from __future__ import annotations

import hashlib
import os
import subprocess
import zlib
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from custody.cli.main import cli
from custody.errors import ConflictError, InvalidInputError
from custody.swh import import_git, open_graph
from custody.vfs import PosixFileSystem

pytest.importorskip("dulwich")

IDENTITY = {"NAME": "A", "EMAIL": "a@example.org"}


def git(folder: Path, *arguments: str, date: int = 1_700_000_000) -> str:
    people = {f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER") for what, value in IDENTITY.items()}
    dates = {"GIT_AUTHOR_DATE": f"{date} +0200", "GIT_COMMITTER_DATE": f"{date + 60} +0000"}
    command = ["git", "-c", "protocol.file.allow=always", *arguments]
    environ = {**os.environ, **people, **dates, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    return subprocess.run(command, cwd=folder, env=environ, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Two commits, a merge, an annotated tag, a file in two folders, a link and a name that is no UTF-8."""
    folder = tmp_path / "project"
    (folder / "src" / "deep").mkdir(parents=True)
    git(tmp_path, "init", "-q", "-b", "main", "project")
    (folder / "README").write_text("read me\n")
    (folder / "src" / "deep" / "copy").write_text("read me\n")
    os.symlink("README", folder / "link")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "one", date=1_600_000_000)
    git(folder, "checkout", "-qb", "side")
    Path(os.fsdecode(bytes(folder) + b"/\xe9t\xe9")).write_bytes(b"latin\n")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "two", date=1_600_000_100)
    git(folder, "checkout", "-q", "main")
    (folder / "src" / "more").write_text("more\n")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "three", date=1_600_000_200)
    git(folder, "merge", "-q", "--no-ff", "-m", "both", "side", date=1_600_000_300)
    git(folder, "tag", "-a", "v1", "-m", "first", date=1_600_000_400)
    return folder


def rows(graph: Path, table: str) -> list[dict[str, object]]:
    records: list[dict[str, object]] = pq.read_table(graph / f"{table}.parquet").to_pylist()
    return records


def test_every_object_that_a_reference_leads_to_is_a_node_once(
    project: Path, tmp_path: Path, fs: PosixFileSystem
) -> None:
    imported = import_git(fs, project, tmp_path / "graph", origin="https://example.org/project")
    graph = open_graph(fs, tmp_path / "graph").folder
    kinds = {"blob": "cnt", "tree": "dir", "commit": "rev", "tag": "rel"}
    listed = git(project, "cat-file", "--batch-all-objects", "--batch-check").splitlines()
    expected = {(kinds[kind], digest) for digest, kind, _ in map(str.split, listed)}
    nodes = rows(graph, "nodes")
    objects = {(node["type"], bytes.hex(node["sha1_git"])) for node in nodes}  # type: ignore[arg-type]
    extra = dict(objects - expected)
    assert objects >= expected
    assert set(extra) == {"ori", "snp"}
    assert extra["ori"] == hashlib.sha1(b"https://example.org/project").hexdigest()  # noqa: S324
    assert [node["id"] for node in nodes] == list(range(imported.nodes))
    assert imported.absent == imported.submodules == 0


def test_edges_are_those_of_trees_commits_tags_and_branches(project: Path, tmp_path: Path, fs: PosixFileSystem) -> None:
    import_git(fs, project, tmp_path / "graph")
    names = {node["id"]: bytes.hex(node["sha1_git"]) for node in rows(tmp_path / "graph", "nodes")}  # type: ignore[arg-type]
    edges = {
        (names[edge["src"]], names[edge["dst"]], edge["src_type"], edge["dst_type"], edge["name"])
        for edge in rows(tmp_path / "graph", "edges")
    }
    readme, tree = git(project, "rev-parse", "HEAD:README"), git(project, "rev-parse", "HEAD^{tree}")
    head, side, tag = (git(project, "rev-parse", name) for name in ("main", "side", "v1"))
    latin = git(project, "rev-parse", f"{side}^{{tree}}")
    assert (tree, readme, "dir", "cnt", b"README") in edges
    assert (git(project, "rev-parse", "HEAD:src/deep"), readme, "dir", "cnt", b"copy") in edges
    assert (head, tree, "rev", "dir", None) in edges
    assert {edge[1] for edge in edges if edge[0] == head and edge[3] == "rev"} == {
        side,
        git(project, "rev-parse", "main^1"),
    }
    assert (tag, head, "rel", "rev", None) in edges
    assert any(edge[0] == latin and edge[4] == b"\xe9t\xe9" for edge in edges)
    branches = {edge[4]: edge[1] for edge in edges if edge[2] == "snp"}
    assert branches == {b"refs/heads/main": head, b"refs/heads/side": side, b"refs/tags/v1": tag}


def test_dates_are_those_of_author_committer_and_tagger(project: Path, tmp_path: Path, fs: PosixFileSystem) -> None:
    import_git(fs, project, tmp_path / "graph")
    dates = sorted(
        (row["author_ts"], row["committer_ts"]) for row in rows(tmp_path / "graph", "timestamps") if row["committer_ts"]
    )
    assert dates == [(1_600_000_000 + n, 1_600_000_060 + n) for n in (0, 100, 200, 300)]
    assert [row["author_ts"] for row in rows(tmp_path / "graph", "timestamps") if not row["committer_ts"]] == [
        1_600_000_460
    ]


ODD_PEOPLE = {
    "a zone of letters": b"A <a@example.org> 1600000500 UTC",
    "a zone with a colon": b"A <a@example.org> 1600000500 +02:00",
    "a zone without a sign": b"A <a@example.org> 1600000500 0000",
    "a zone that no clock has": b"A <a@example.org> 1600000500 +51800",
    "no zone": b"A <a@example.org> 1600000500",
    "no mail": b"A 1600000500 +0000",
    "no time": b"A <a@example.org>",
    "a time that is none": b"A <a@example.org> yesterday +0000",
    "nobody": b"",
    "a name that is no UTF-8": b"\xe9 <a@example.org> 1600000500 +0000",
}


@pytest.mark.parametrize("is_packed", [False, True])
@pytest.mark.parametrize("name", ODD_PEOPLE)
def test_a_commit_that_git_reads_is_taken_whatever_its_dates_are(
    project: Path, tmp_path: Path, fs: PosixFileSystem, name: str, *, is_packed: bool
) -> None:
    before = import_git(fs, project, tmp_path / "before")
    tree, parent, person = git(project, "write-tree"), git(project, "rev-parse", "main"), ODD_PEOPLE[name]
    odd = f"tree {tree}\nparent {parent}\n".encode() + b"author %b\ncommitter %b\n\nm\n" % (person, person)
    command = ["git", "hash-object", "-t", "commit", "-w", "--literally", "--stdin"]
    written = subprocess.run(command, input=odd, cwd=project, check=True, capture_output=True).stdout.strip().decode()
    git(project, "update-ref", "refs/heads/main", written)
    if is_packed:
        git(project, "repack", "-adq")
    imported = import_git(fs, project, tmp_path / "graph")
    assert (imported.nodes, imported.absent) == (before.nodes + 1, 0)
    [node] = [row["id"] for row in rows(tmp_path / "graph", "nodes") if row["sha1_git"] == bytes.fromhex(written)]
    [dates] = [row for row in rows(tmp_path / "graph", "timestamps") if row["id"] == node]
    expected = 1_600_000_500 if b"> 16" in person else None
    assert (dates["author_ts"], dates["committer_ts"]) == (expected, expected)


def test_objects_that_a_repository_borrows_are_found(project: Path, tmp_path: Path, fs: PosixFileSystem) -> None:
    git(tmp_path, "clone", "-q", "--shared", project.as_uri().removeprefix("file://"), "borrower")
    whole = import_git(fs, project, tmp_path / "whole")
    borrowed = import_git(fs, tmp_path / "borrower", tmp_path / "graph")
    assert borrowed.absent == 0
    hashes = [{row["sha1_git"] for row in rows(tmp_path / name, "nodes")} for name in ("whole", "graph")]
    assert len(hashes[0] - hashes[1]) <= 2, "the origin and the snapshot differ, and nothing else"
    assert whole.nodes > 5


def test_a_shallow_clone_is_a_graph_without_its_absent_commits(
    project: Path, tmp_path: Path, fs: PosixFileSystem
) -> None:
    git(tmp_path, "clone", "-q", "--depth", "1", "--branch", "main", project.as_uri(), "shallow")
    imported = import_git(fs, tmp_path / "shallow", tmp_path / "graph")
    assert imported.absent == 2
    assert sum(node["type"] == "rev" for node in rows(tmp_path / "graph", "nodes")) == 1


def test_submodules_are_counted_and_left_out(project: Path, tmp_path: Path, fs: PosixFileSystem) -> None:
    git(tmp_path, "init", "-q", "-b", "main", "outer")
    git(tmp_path / "outer", "submodule", "--quiet", "add", project.as_uri(), "inner")
    git(tmp_path / "outer", "commit", "-qm", "with a submodule")
    assert import_git(fs, tmp_path / "outer", tmp_path / "graph").submodules == 1


def test_a_folder_that_is_there_is_left_as_it_is(project: Path, tmp_path: Path, fs: PosixFileSystem) -> None:
    (tmp_path / "graph").mkdir()
    with pytest.raises(ConflictError, match="does not exist yet"):
        import_git(fs, project, tmp_path / "graph")
    assert list((tmp_path / "graph").iterdir()) == []


def test_what_is_no_repository_or_damaged_leaves_nothing_behind(
    project: Path, tmp_path: Path, fs: PosixFileSystem
) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidInputError, match="expected a git repository"):
        import_git(fs, tmp_path / "empty", tmp_path / "graph")
    damaged = subprocess.run(
        ["git", "hash-object", "-t", "commit", "-w", "--literally", "--stdin"],
        input=b"tree nothing\n\n",
        cwd=project,
        check=True,
        capture_output=True,
    )
    broken = project / ".git" / "refs" / "heads" / "broken"
    broken.write_bytes(damaged.stdout)
    with pytest.raises(InvalidInputError, match="expected a whole object, got"):
        import_git(fs, project, tmp_path / "graph")
    broken.unlink()
    head = git(project, "rev-parse", "main")
    loose = project / ".git" / "objects" / head[:2] / head[2:]
    loose.chmod(0o600)
    for content in (b"", b"no zlib", zlib.compress(b"commit 5\0four"), zlib.compress(b"thing 4\0four")):
        loose.write_bytes(content)
        with pytest.raises(InvalidInputError, match=f"git object {head}: expected a whole object, got"):
            import_git(fs, project, tmp_path / "graph")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "project"]


def test_the_command_says_what_it_wrote(project: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["swh", "import-git", str(project), str(tmp_path / "graph")])
    assert done.exit_code == 0, done.output
    assert f"origin {project.as_uri()}" in done.stderr
    assert (tmp_path / "graph" / "edges.parquet").is_file()
