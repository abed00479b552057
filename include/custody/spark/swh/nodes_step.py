"""The first step of a build: splits a graph into what the other steps walk, and writes the tables of nodes.

Kept: `roots` (revisions and releases with their date and root directory, either may be missing); `release_contents`
(releases of a content); `history` (arcs from origins down to revisions); `origins`; `reachable` (contents and
directories below the roots). Of directories, each pair once with the smallest of its names: `arrays` where they or
numbers of nodes fit into memory, and otherwise `directories` (arcs from directory to directory, in folders by the level
of the one above, with that of the one `below`), `contents` (from directory to content) and `levels` (of directories).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from custody.errors import InvalidInputError
from custody.spark.swh.array_steps import IN_ARRAYS, REACHABLE, make_arrays, make_arrays_by_ranges
from custody.spark.swh.propagate import LEVEL, Arcs, check_levels, level_arcs, reached
from custody.spark.swh.work import HISTORY, Work, rows_in, url_of, write_table
from custody.swh.build import NODES_STEP
from custody.swh.graph import Graph
from custody.swh.tables import DATE_MAX, DATE_MIN, NODE_IDS, NODES, ORIGINS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


STEP = NODES_STEP
ARCS = "src bigint, dst bigint, name binary, below int"
IN_RANGES, BY_JOINS = "in arrays made by ranges", "by joins"
_HISTORY = ("snp", "rel", "rev")


def list_nodes(work: Work, graph: Graph) -> None:
    """Do the step.

    Raises:
        InvalidInputError: a revision or release has several root directories.
    """
    # By type, as all that follows reads edges between two types.
    written = work.checkpoint(_edges(work, graph), by="src_type")
    edges, dates = written.frame, _dates(work, graph)
    roots = work.keep("roots", _roots(work, graph, edges, dates))
    _check_roots(roots.frame)
    released = roots.frame.join(_between(edges, "rel", "cnt"), F.col("revrel") == F.col("src"), "inner")
    release_contents = work.keep(
        "release_contents", released.select("revrel", "author_date", F.col("dst").alias("cnt")).distinct()
    )
    from_origins = (F.col("src_type").isin("ori", *_HISTORY)) & F.col("dst_type").isin(*_HISTORY)
    work.keep(HISTORY, edges.where(from_origins).select("src", "dst").distinct())
    work.keep("origins", _nodes(work, graph).where("type = 'ori'").select(F.col("id").alias("node")))
    _keep_arcs(work, edges, written.folder / "src_type=dir", roots.frame, release_contents.frame)
    reachable = work.session.read.schema("node bigint").parquet(url_of(work.attempt / "kept" / REACHABLE))
    _write_nodes(work, graph, reachable, roots.frame)


def _keep_arcs(
    work: Work, edges: DataFrame, from_directories: Path, roots: DataFrame, release_contents: DataFrame
) -> None:
    """Keep arcs for the walks: in arrays if they fit into memory, made by ranges if numbers of nodes do, or by level.

    Decided once and by footers, without a job; the other steps follow what is kept.
    """
    kept, arcs = work.attempt / "kept", work.sizes.arcs_in_arrays
    files = (from_directories, kept / "roots", kept / "release_contents", kept / REACHABLE)
    count: int | None = None
    if rows_in(from_directories) <= arcs:
        work.walks, count = IN_ARRAYS, make_arrays(work, *files)
    elif arcs > 0:
        work.walks, count = IN_RANGES, make_arrays_by_ranges(work, *files)
    if count is None:
        work.walks = BY_JOINS
        _level(work, edges, roots, release_contents)
    else:
        work.rows_kept[REACHABLE] = count


def _level(work: Work, edges: DataFrame, roots: DataFrame, release_contents: DataFrame) -> None:
    """Find levels and what is below the roots by joins, and keep arcs by level."""
    levels, levelled = level_arcs(work, work.checkpoint(_arcs(edges, "dir")).frame)
    check_levels(work.keep("directories", levelled, by=LEVEL))
    contents = work.keep("contents", _arcs(edges, "cnt"))
    tops = roots.where("top is not null").select(F.col("top").alias("node")).distinct()
    arcs = Arcs(work, work.attempt / "kept" / "directories", ARCS)
    below = work.checkpoint(reached(work, tops, arcs, levels)).frame
    held = below.join(contents.frame, F.col("node") == F.col("src"), "inner").select(F.col("dst").alias("node"))
    alone = release_contents.select(F.col("cnt").alias("node"))
    work.keep(REACHABLE, below.unionByName(held).unionByName(alone).distinct())


def directory_arcs(work: Work) -> Arcs:
    """Return the arcs between directories that this step kept, to be joined level by level."""
    return Arcs(work, work.build.intermediate(STEP, "directories"), ARCS)


def all_directory_arcs(work: Work) -> DataFrame:
    """Return the same with the column `level`, that of the directory above."""
    folder = url_of(work.build.intermediate(STEP, "directories"))
    return work.session.read.schema(f"{ARCS}, {LEVEL} int").parquet(folder)


def read_table(session: SparkSession, graph: Graph, name: str) -> DataFrame:
    """Return a table of the graph as it is, other columns included."""
    table = graph.tables[name]
    return session.read.format(table.format).load([url_of(file) for file in table.files])


def _nodes(work: Work, graph: Graph) -> DataFrame:
    rows = read_table(work.session, graph, "nodes")
    return rows.select(F.col("id").cast("bigint"), "type", F.col("sha1_git").cast("binary"))


def _edges(work: Work, graph: Graph) -> DataFrame:
    return read_table(work.session, graph, "edges").select(
        F.col("src").cast("bigint"),
        F.col("dst").cast("bigint"),
        "src_type",
        "dst_type",
        F.coalesce(F.col("name").cast("binary"), F.lit(b"")).alias("name"),
    )


def _dates(work: Work, graph: Graph) -> DataFrame:
    rows = read_table(work.session, graph, "timestamps").select(F.col("id").cast("bigint").alias("dated"), "author_ts")
    rows = rows.where(F.col("author_ts").between(DATE_MIN, DATE_MAX))
    return rows.groupBy("dated").agg(F.min("author_ts").alias("author_date"))


def _between(edges: DataFrame, source: str, target: str) -> DataFrame:
    return edges.where((F.col("src_type") == source) & (F.col("dst_type") == target)).select("src", "dst")


def _arcs(edges: DataFrame, target: str) -> DataFrame:
    """Arcs from directories, each pair once with the smallest of its names: of directories with a slash behind it.

    With the slash, as "a/" is greater than "a-b/", although "a" is smaller than "a-b".
    """
    named = edges.where((F.col("src_type") == "dir") & (F.col("dst_type") == target))
    name = F.concat("name", F.lit(b"/")) if target == "dir" else F.col("name")
    return named.groupBy("src", "dst").agg(F.min(name).alias("name"))


def _roots(work: Work, graph: Graph, edges: DataFrame, dates: DataFrame) -> DataFrame:
    """The roots of the filter: (revrel, author_date, top, is_direct); one row each, unless a root has several tops."""
    nodes = _nodes(work, graph).select(F.col("id").alias("revrel"), "type")
    candidates = nodes.where(F.col("type").isin("rev", "rel"))
    if work.build.description.node_filter == "heads":
        pointed = edges.where(F.col("src_type").isin("snp", "rel") & (F.col("dst_type") == "rev"))
        heads = pointed.select(F.col("dst").alias("revrel")).distinct()
        releases = candidates.where("type = 'rel'")
        candidates = releases.unionByName(candidates.where("type = 'rev'").join(heads, "revrel", "left_semi"))
    direct = edges.where(F.col("src_type").isin("rev", "rel") & (F.col("dst_type") == "dir"))
    direct = direct.select(F.col("src").alias("root"), F.col("dst").alias("top"), F.lit(True).alias("is_direct"))
    of_revision = _between(edges, "rev", "dir").select(F.col("src").alias("dst"), F.col("dst").alias("top"))
    through = _between(edges, "rel", "rev").join(of_revision, "dst", "inner")
    through = through.select(F.col("src").alias("root"), "top", F.lit(False).alias("is_direct"))
    tops = direct.unionByName(through).distinct()
    dated = candidates.join(dates, F.col("revrel") == F.col("dated"), "left")
    return dated.join(tops, F.col("revrel") == F.col("root"), "left").select(
        "revrel", "author_date", "top", "is_direct"
    )


def _check_roots(roots: DataFrame) -> None:
    several = roots.groupBy("revrel").count().where("count > 1").limit(1).collect()
    if several:
        node, count = several[0]
        raise InvalidInputError(f"graph: node {node}: expected one root directory of a revision, got {count}.")


def _write_nodes(work: Work, graph: Graph, reachable: DataFrame, roots: DataFrame) -> None:
    nodes = _nodes(work, graph)
    members = reachable.unionByName(roots.select(F.col("revrel").alias("node")).distinct())
    inside = nodes.join(members, F.col("id") == F.col("node"), "left_semi")
    write_table(work, NODES, inside.unionByName(nodes.where("type = 'ori'")))
    # All nodes can be asked for; one that is in no revision then has an answer too: nowhere.
    write_table(work, NODE_IDS, nodes)
    write_table(work, ORIGINS, read_table(work.session, graph, "origins").select(F.col("id").cast("bigint"), "url"))
