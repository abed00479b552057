"""The first step of a build for a graph that fits into memory: it is taken apart into what the other steps walk.

The same as `custody.spark.swh.nodes_step` does by joins of Spark, with the same files as result: `roots` (revisions and
releases with their date and root directory, either may be missing), `release_contents` (releases of a content),
`history` (arcs from origins down to revisions), `origins`, and the edges from directories.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from custody.errors import InvalidInputError
from custody.swh.graph import Graph
from custody.swh.tables import DATE_MAX, DATE_MIN, NODE_IDS, NODES, ORIGINS
from custody.swh.walks.sorted_runs import write_parts, write_run
from custody.swh.walks.tasks import fresh, read_rows
from custody.vfs import PosixFileSystem

_HISTORY = ("snp", "rel", "rev")


def split_graph(
    fs: PosixFileSystem, graph: Graph, node_filter: str, kept: Path, from_directories: Path
) -> dict[str, int]:
    """Write what later steps read, and the edges from directories; return how many rows of each are kept.

    Raises:
        InvalidInputError: a revision or release has several root directories, or an id does not fit 63 bits.
    """
    edges, nodes = _edges(graph), _table(graph, "nodes", "id", "type")
    dated = _table(graph, "timestamps", "id", "author_ts")
    time = pc.field("author_ts")
    dated = (
        dated.filter((time >= DATE_MIN) & (time <= DATE_MAX))
        .group_by("id", use_threads=False)
        .aggregate([("author_ts", "min")])
    )
    roots = _roots(edges, nodes, dated.rename_columns(["dated", "author_date"]), node_filter)
    _check_roots(roots)
    released = _between(edges, "rel", "cnt").rename_columns(["revrel", "cnt"])
    released = released.join(roots.select(["revrel", "author_date"]), "revrel", join_type="inner")
    is_history = _is("src_type", "ori", *_HISTORY) & _is("dst_type", *_HISTORY)
    rows = {
        "roots": roots,
        "release_contents": _distinct(released.select(["revrel", "author_date", "cnt"])),
        "history": _distinct(edges.filter(is_history).select(["src", "dst"])),
        "origins": nodes.filter(_is("type", "ori")).select(["id"]).rename_columns(["node"]),
    }
    for name, table in rows.items():
        _write(fs, kept / name, table)
    _write(fs, from_directories, edges.filter(_is("src_type", "dir")).drop_columns(["src_type"]))
    return {name: table.num_rows for name, table in rows.items()}


def write_node_runs(fs: PosixFileSystem, graph: Graph, kept: Path, runs: Path) -> dict[str, Path]:
    """Write the rows of the tables of nodes as runs; return the folder of each table's runs."""
    nodes = _table(graph, "nodes", "id", "type", "sha1_git")
    members = pa.concat_arrays(
        [
            *read_rows(kept / "reachable", "node")["node"].chunks,
            *read_rows(kept / "roots", "revrel")["revrel"].chunks,
            pa.array([], pa.int64()),
        ]
    )
    inside = pc.field("id").isin(members) | _is("type", "ori")
    tables = {
        NODES: nodes.filter(inside).sort_by("id"),
        # All nodes can be asked for; one that is in no revision then has an answer too: nowhere.
        NODE_IDS: nodes.select(["sha1_git", "type", "id"]).sort_by([("sha1_git", "ascending"), ("type", "ascending")]),
        ORIGINS: _table(graph, "origins", "id", "url").sort_by([("id", "ascending"), ("url", "ascending")]),
    }
    for name, table in tables.items():
        fresh(fs, runs / name)
        if table.num_rows:
            write_run(fs, runs / name / "00000.parquet", table)
    return {name: runs / name for name in tables}


def _roots(edges: pa.Table, nodes: pa.Table, dates: pa.Table, node_filter: str) -> pa.Table:
    """The roots of the filter: (revrel, author_date, top, is_direct); one row each, unless a root has several tops."""
    is_root = _is("type", "rev", "rel")
    if node_filter == "heads":
        pointed = edges.filter(_is("src_type", "snp", "rel") & _is("dst_type", "rev"))
        is_root &= _is("type", "rel") | pc.field("id").isin(pointed["dst"].combine_chunks())
    candidates = nodes.filter(is_root).select(["id"]).rename_columns(["revrel"])
    direct = edges.filter(_is("src_type", "rev", "rel") & _is("dst_type", "dir"))
    of_revision = _between(edges, "rev", "dir").rename_columns(["rev", "top"])
    through = _between(edges, "rel", "rev").rename_columns(["root", "rev"])
    through = through.join(of_revision, "rev", join_type="inner").select(["root", "top"])
    tops = [
        rows.append_column("is_direct", pa.repeat(pa.scalar(is_direct), rows.num_rows))
        for rows, is_direct in (
            (direct.select(["src", "dst"]).rename_columns(["root", "top"]), True),
            (through, False),
        )
    ]
    roots = candidates.join(dates, "revrel", "dated", join_type="left outer")
    roots = roots.join(_distinct(pa.concat_tables(tops)), "revrel", "root", join_type="left outer")
    return roots.select(["revrel", "author_date", "top", "is_direct"]).sort_by("revrel")


def _check_roots(roots: pa.Table) -> None:
    counts = (
        roots.group_by("revrel", use_threads=False).aggregate([([], "count_all")]).filter(pc.field("count_all") > 1)
    )
    if counts.num_rows:
        first = counts.slice(0, 1).to_pylist()[0]
        raise InvalidInputError(
            f"graph: node {first['revrel']}: expected one root directory of a revision, got {first['count_all']}."
        )


def _edges(graph: Graph) -> pa.Table:
    edges = _table(graph, "edges", "src", "dst", "src_type", "dst_type", "name")
    names = pc.fill_null(edges["name"].cast(pa.binary()), b"")
    return edges.set_column(edges.schema.get_field_index("name"), "name", names)


def _table(graph: Graph, name: str, *columns: str) -> pa.Table:
    """Return columns of a table of the graph; ids as signed numbers, as Spark has them."""
    rows = graph.tables[name].dataset().to_table(list(columns), use_threads=False)
    for place, field in enumerate(rows.schema):
        wanted = field.type
        if field.type == pa.uint64():
            wanted = pa.int64()
        elif pa.types.is_large_string(field.type):
            wanted = pa.string()
        elif pa.types.is_fixed_size_binary(field.type) or pa.types.is_large_binary(field.type):
            wanted = pa.binary()
        if wanted != field.type:
            try:
                rows = rows.set_column(place, field.name, rows.column(place).cast(wanted))
            except pa.ArrowInvalid as error:
                raise InvalidInputError(f"graph: table {name}, column {field.name}: {error}.") from error
    return rows


def _between(edges: pa.Table, source: str, target: str) -> pa.Table:
    return edges.filter(_is("src_type", source) & _is("dst_type", target)).select(["src", "dst"])


def _is(column: str, *kinds: str) -> pc.Expression:
    return pc.field(column).isin(list(kinds))


def _distinct(rows: pa.Table) -> pa.Table:
    return rows.group_by(rows.column_names, use_threads=False).aggregate([])


def _write(fs: PosixFileSystem, folder: Path, rows: pa.Table) -> None:
    """Write rows that no order is asked of as the one file of a folder."""
    fresh(fs, folder)
    write_parts(fs, folder / "00000.parquet", [rows])
