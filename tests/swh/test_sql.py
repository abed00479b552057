"""The tables of a published build in SQL: the rows of the reference, lookups by key, former builds, damage."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from custody.cli.main import cli
from custody.errors import CorruptionError, InvalidInputError, NotFoundError
from custody.repository import Repository
from custody.sql.keyed import KEYS_MAX, allowed_keys
from custody.swh.sql_tables import SOFTWARE_TABLES, open_table
from custody.swh.tables import TABLES
from tests.support import flipped
from tests.swh.database import publish_reference, rows_of
from tests.swh.graphs import Shape, random_graph
from tests.swh.reference import Reference

GRAPH = random_graph(Shape(5, 30, 25, 12, 4, 3, 3, 20, 0.1))
KEY = pa.schema([("k", pa.uint64()), ("other", pa.int64())])
K, OTHER = ds.field("k"), ds.field("other")


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """A repository with two builds of one graph: of its heads, then of all its revisions."""
    repository = Repository.create(tmp_path_factory.mktemp("sql") / "it's ${odd} 100%")
    for node_filter in ("heads", "all"):
        publish_reference(repository.settings, node_filter, Reference(GRAPH, node_filter), node_filter)
    return repository


def rows(repository: Repository, text: str, revision: int | None = None) -> list[tuple[Any, ...]]:
    with repository.sql(text, software_revision=revision) as result:
        return [tuple(row.values()) for batch in result.batches() for row in batch.to_pylist()]


def expected(table: str, columns: str, node_filter: str = "all") -> list[tuple[Any, ...]]:
    names, found = rows_of(Reference(GRAPH, node_filter))[table]
    places = [names.split().index(name) for name in columns.split()]
    return sorted(tuple(row[place] for place in places) for row in found)


def selected(table: str) -> tuple[str, str]:
    """The columns of a table that the reference has, and how SQL gives them: dates as seconds."""
    names = rows_of(Reference(GRAPH, "all"))[table][0]
    texts = (f"epoch({name})::bigint" if name.endswith("_date") else name for name in names.split())
    return names, ", ".join(texts)


@pytest.mark.in_parts(2)
@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize(("revision", "node_filter"), [(None, "all"), (0, "heads")])
def test_each_table_has_the_rows_of_the_reference(
    published: Repository, table: str, revision: int | None, node_filter: str
) -> None:
    names, columns = selected(table)
    found = rows(published, f"select {columns} from software_{table}", revision)
    assert sorted(found) == expected(table, names, node_filter)
    assert found


@pytest.mark.in_parts(3)
@pytest.mark.parametrize("table", TABLES)
def test_a_condition_on_the_key_gives_the_rows_that_a_scan_gives(published: Repository, table: str) -> None:
    key = TABLES[table].key
    scan = rows(published, f"select {key}, count(*) from software_{table} group by 1")
    chosen = dict(scan[:3])
    listed = ", ".join(str(one) for one in chosen)
    several = f"select {key}, count(*) from software_{table} where {key} in ({listed}, 18446744073709551615) group by 1"
    assert dict(rows(published, several)) == chosen
    one, count = scan[-1]
    assert rows(published, f"select count(*) from software_{table} where {key} = {one}") == [(count,)]
    assert rows(published, f"select count(*) from software_{table} where {key} = {one} and {key} <> {one}") == [(0,)]


def test_tables_are_joined_with_each_other(published: Repository) -> None:
    text = (
        "select n.sha1_git, o.url from software_nodes n join software_revisions_in_origins r on r.revrel = n.id "
        "join software_origins o on o.id = r.ori where n.type = 'rev'"
    )
    names = dict(expected("nodes", "id sha1_git"))
    urls, kinds = dict(expected("origins", "id url")), dict(expected("nodes", "id type"))
    pairs = expected("revisions_in_origins", "revrel ori")
    assert sorted(rows(published, text)) == sorted(
        (names[revrel], urls[origin]) for revrel, origin in pairs if kinds[revrel] == "rev"
    )


def files(repository: Repository, table: str, pattern: str = "*.parquet") -> Iterator[Path]:
    yield from sorted(repository.settings.store.glob(f"*/swh/builds/all/*/tables/{table}/{pattern}"))


def test_a_lookup_by_the_index_needs_no_footer(tmp_path: Path) -> None:
    repository = Repository.create(tmp_path / "repository")
    publish_reference(repository.settings, "all", Reference(GRAPH, "all"), "all")
    of_files = [(bytes(path), hashlib.sha256(path.read_bytes()).digest()) for path in files(repository, "nodes")]
    node = expected("nodes", "id")[0][0]
    for path in files(repository, "nodes"):
        # The length of the footer, which everybody begins with who reads without the index.
        path.write_bytes(path.read_bytes()[:-8] + bytes(4) + b"PAR1")
    table = open_table("software_nodes", of_files)
    assert table.scanner(columns=["type"], filter=ds.field("id") == node).to_table().num_rows == 1
    with pytest.raises((OSError, pa.ArrowInvalid)):
        table.scanner(columns=["type"]).to_table()


@pytest.mark.in_parts(2)
@pytest.mark.parametrize("text", ["select * from software_origins", "select url from software_origins where id = {}"])
@pytest.mark.parametrize("suffix", ["*.parquet", "*.ef"])
def test_damage_is_an_error_that_names_the_file(tmp_path: Path, text: str, suffix: str) -> None:
    repository = Repository.create(tmp_path / "repository")
    publish_reference(repository.settings, "all", Reference(GRAPH, "all"), "all")
    origin = rows(repository, "select min(id) from software_origins")[0][0]
    path = next(files(repository, "origins", suffix))
    at = 60
    if suffix == "*.parquet":
        chunk = pq.read_metadata(path).row_group(0).column(1)
        # The last byte of the page that is read for both queries.
        at = chunk.data_page_offset + chunk.total_compressed_size - 1
    path.write_bytes(flipped(path.read_bytes(), at))
    with pytest.raises(CorruptionError, match=path.name):
        rows(repository, text.format(origin))


def test_without_a_published_build_only_its_tables_are_missing(tmp_path: Path) -> None:
    repository = Repository.create(tmp_path / "repository")
    assert rows(repository, "select count(*) from events") == [(0,)]
    with pytest.raises(NotFoundError, match="custody swh build"):
        rows(repository, "select * from software_nodes")


def test_a_hash_is_found_by_its_key(published: Repository) -> None:
    node, sha1_git = expected("nodes", "id sha1_git")[0]
    text = (
        f"select id from software_node_ids where hash_key = ('0x' || left('{sha1_git.hex()}', 16))::ubigint >> 1 "
        f"and sha1_git = unhex('{sha1_git.hex()}')"
    )
    assert rows(published, text) == [(node,)]


def test_nothing_else_of_the_build_can_be_named(published: Repository) -> None:
    path = next(files(published, "nodes"))
    for name in (f"'{path}'".replace("it's", "it''s"), "software_nodes_", "software.nodes", "swh"):
        with pytest.raises(InvalidInputError):
            rows(published, f"select * from {name}")


def test_the_command_takes_a_former_build(published: Repository) -> None:
    root = str(published.settings.root)
    text = "select count(*) n from software_earliest_revisions"
    counts = []
    for options in ([], ["--software-revision", "0"]):
        done = CliRunner().invoke(cli, ["-r", root, "sql", "--json", *options, text])
        assert done.exit_code == 0, done.output
        counts.append(done.stdout)
    assert counts == [
        f'{{"n":{len(expected("earliest_revisions", "node", node_filter))}}}\n' for node_filter in ("all", "heads")
    ]


def test_every_table_of_a_database_is_one_of_sql() -> None:
    assert sorted(SOFTWARE_TABLES) == sorted(f"software_{name}" for name in TABLES)


@pytest.mark.parametrize(
    ("condition", "keys"),
    [
        (K == 5, [5]),
        ((K == 5) & (OTHER > 3), [5]),
        ((K == 5) & (K == 6), []),
        (K.isin([7, 2, 1 << 40]), [2, 7, 1 << 40]),
        ((K == 5) | (K == 1 << 62), [5, 1 << 62]),
        ((K >= 5) & (K < 9), [5, 6, 7, 8]),
        (K == 100, []),
        ((K >= 5) & (K < 7 + KEYS_MAX), None),
        ((K == 5) | (OTHER == 3), None),
        (OTHER == 3, None),
        (~(K == 5), None),
    ],
)
def test_the_keys_that_a_condition_allows(condition: ds.Expression, keys: list[int] | None) -> None:
    assert allowed_keys(condition, KEY, "k", [(0, 99), (101, (1 << 63) - 1)]) == keys


def test_ids_of_the_upper_half_are_looked_up_too() -> None:
    top = (1 << 64) - 1
    condition = pa.scalar(top, pa.uint64()) == K
    assert allowed_keys(condition, KEY, "k", [(0, top)]) in ([top], None)
