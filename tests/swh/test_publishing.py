"""Builds become the database one after the other, each in one transaction; questions may go to a former one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from custody.cli.main import cli
from custody.clock import SystemClock
from custody.errors import ConfigurationError, NotFoundError
from custody.repository import Repository
from custody.swh import ProvenanceDatabase
from custody.swh.build import STEPS, Build, BuildDescription, StepOutput
from custody.swh.publishing import database_catalog, database_folder, publish, published_state
from custody.vfs import PosixFileSystem
from tests.swh.database import publish_reference, swhid
from tests.swh.graphs import Shape, random_graph
from tests.swh.reference import Reference
from tests.swh.test_database import UNKNOWN, expected_first

GRAPH = random_graph(Shape(5, 30, 25, 12, 4, 3, 3, 20, 0.1))
DESCRIPTION = BuildDescription(graph="/graph", fingerprint="f", node_filter="all")


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """A repository with two builds of one graph: of its heads, then of all its revisions."""
    repository = Repository.create(tmp_path_factory.mktemp("published") / "repository")
    for revision, node_filter in enumerate(("heads", "all")):
        done = publish_reference(repository.settings, node_filter, Reference(GRAPH, node_filter), node_filter)
        assert done.revision == revision
    return repository


def custody(repository: Repository, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["-r", str(repository.settings.root), "swh", *arguments])


@pytest.mark.parametrize(("revision", "node_filter"), [(None, "all"), (1, "all"), (0, "heads")])
def test_the_newest_build_answers_and_a_former_one_when_it_is_asked(
    published: Repository, fs: PosixFileSystem, revision: int | None, node_filter: str
) -> None:
    catalog = database_catalog(published.settings, fs, SystemClock())
    state = published_state(catalog, revision)
    assert {file.partition for file in state.files.values()} == {node_filter}
    database = ProvenanceDatabase.open(fs, catalog.objects.files, state)
    expected = expected_first(Reference(GRAPH, node_filter))
    assert database.whereis_many([place.swhid for place in expected.values()]) == list(expected.values())


def test_the_build_of_a_time_is_the_one_that_was_published_by_then(published: Repository, fs: PosixFileSystem) -> None:
    catalog = database_catalog(published.settings, fs, SystemClock())
    first, second = (transaction.commit_time_ms for transaction in catalog.timeline())
    assert published_state(catalog, at_ms=second - 1).revision == 0
    assert published_state(catalog, at_ms=second).revision == 1
    with pytest.raises(NotFoundError):
        published_state(catalog, at_ms=first - 1)


def test_publishing_a_build_again_changes_nothing(published: Repository, fs: PosixFileSystem) -> None:
    catalog = database_catalog(published.settings, fs, SystemClock())
    build = Build.open(fs, database_folder(published.settings), "all")
    assert publish(catalog, build).revision == 1
    assert not any(path.name == "kept" or path.name.startswith("attempt") for path in build.folder.rglob("*"))


def test_a_build_whose_steps_did_not_all_finish_is_not_published(tmp_path: Path, fs: PosixFileSystem) -> None:
    settings = Repository.create(tmp_path / "repository").settings
    catalog = database_catalog(settings, fs, SystemClock())
    build = Build.begin(fs, database_folder(settings), "b", DESCRIPTION)
    build.finish(build.attempt(STEPS[0]), StepOutput(step=STEPS[0], files=(), kept={}, rounds=0, seconds=0.0))
    with pytest.raises(NotFoundError, match=f"the step {STEPS[1]} did not finish"):
        publish(catalog, build)
    with pytest.raises(NotFoundError, match="custody swh build"):
        published_state(catalog)


def test_of_two_attempts_at_a_step_the_first_one_counts(tmp_path: Path, fs: PosixFileSystem) -> None:
    build = Build.begin(fs, tmp_path, "b", DESCRIPTION)
    first, second = build.attempt(STEPS[0]), build.attempt(STEPS[0])
    outputs = [StepOutput(step=STEPS[0], files=(), kept={}, rounds=rounds, seconds=0.0) for rounds in (1, 2)]
    assert build.finish(first, outputs[0]) == outputs[0]
    assert build.finish(second, outputs[1]) == outputs[0]
    assert sorted(path.name for path in build.folder.iterdir()) == ["build.json", STEPS[0]]


def test_a_build_goes_on_for_the_same_graph_and_filter_only(tmp_path: Path, fs: PosixFileSystem) -> None:
    Build.begin(fs, tmp_path, "b", DESCRIPTION)
    Build.begin(fs, tmp_path, "b", DESCRIPTION)
    other = BuildDescription(graph="/graph", fingerprint="another", node_filter="all")
    with pytest.raises(ConfigurationError, match="Choose another name"):
        Build.begin(fs, tmp_path, "b", other)


def test_the_command_prints_where_a_content_was_first(published: Repository) -> None:
    expected = expected_first(Reference(GRAPH, "all"))
    placed = next(place for place in expected.values() if place.origin is not None)
    done = custody(published, "whereis", str(placed.swhid), "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == {
        "swhid": str(placed.swhid),
        "is_known": True,
        "anchor": str(placed.anchor),
        "author_date": placed.author_date,
        "origin": placed.origin,
    }
    table = custody(published, "whereis", str(placed.swhid), str(UNKNOWN)).stdout
    assert str(placed.anchor) in table
    assert "unknown" in table
    assert custody(published, "whereis", str(UNKNOWN)).exit_code == NotFoundError.exit_code
    assert custody(published, "whereis", "swh:1:cnt:0").exit_code == 13


def test_the_command_prints_all_revisions_of_a_content_oldest_first(published: Repository) -> None:
    reference = Reference(GRAPH, "all")
    holding = reference.holding()
    content = max(GRAPH.of("cnt"), key=lambda node: len(holding.get(node, [])))
    done = custody(published, "whereis", "--all", "--json", str(swhid(reference, content)))
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(line["author_date"], line["anchor"]) for line in lines] == [
        (date, str(swhid(reference, revrel))) for date, revrel in holding[content]
    ]
    assert len(lines) > 1
    heads = custody(published, "whereis", "--all", "--json", "--revision", "0", str(swhid(reference, content)))
    assert len(heads.stdout.splitlines()) == len(Reference(GRAPH, "heads").holding().get(content, []))
    assert (
        str(swhid(reference, content)) in custody(published, "whereis", "--all", str(swhid(reference, content))).stdout
    )
