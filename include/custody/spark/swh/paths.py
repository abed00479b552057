"""The steps that list what is where, with paths: directories and contents below roots, and below frontier directories.

Roots that share a directory share the walk below it. Of several paths to one thing the one with the fewest names is
kept, and of these the smallest in bytes; as all ways to a directory are known at its turn, only the best one goes on.

Kept: `expanded` (top, dir, depth, path), the directories below each root directory that no frontier lies above.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from custody.spark.swh.graph import all_directory_arcs, directory_arcs
from custody.spark.swh.levels import LEVEL, SETTLED, Arcs, Walk
from custody.spark.swh.spread import with_levels
from custody.spark.swh.tables import write_table
from custody.spark.swh.work import Work
from custody.swh.build import FRONTIER_STEP, LEAVES_STEP, NODES_STEP
from custody.swh.tables import CONTENTS_IN_DIRECTORIES, CONTENTS_IN_REVISIONS, DIRECTORIES_IN_REVISIONS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DIRECTORIES_STEP = "swh_frontier_directories_in_revisions"


def list_frontier_directories_in_revisions(work: Work) -> None:
    """List the frontier directories of each dated root, as far as no other frontier directory lies above them."""
    roots = _dated_roots(work)
    tops = roots.select("top").distinct()
    frontier = work.read(FRONTIER_STEP, "directory_frontier")
    walk = _expand(work, tops, frontier)
    work.keep("expanded", _best(walk.walked(), "dir"))
    met = _best(walk.settled(), "dir").join(roots, "top", "inner")
    leaves = work.read(LEAVES_STEP, "max_leaf_timestamps").withColumnRenamed("max_leaf", "dir_max_author_date")
    rows = met.join(leaves, "dir", "inner").withColumnRenamed("author_date", "revrel_author_date")
    write_table(work, DIRECTORIES_IN_REVISIONS, rows)


def list_contents_in_revisions(work: Work) -> None:
    """List the contents of each dated root that are reached without a frontier directory."""
    found = _contents(work, work.read(DIRECTORIES_STEP, "expanded"))
    rows = found.join(_dated_roots(work), "top", "inner").select("cnt", "revrel", "author_date", "path")
    released = work.read(NODES_STEP, "release_contents").where("author_date is not null")
    rows = rows.unionByName(released.withColumn("path", F.lit(b"")))
    write_table(work, CONTENTS_IN_REVISIONS, rows.withColumnRenamed("author_date", "revrel_author_date"))


def list_contents_in_frontier_directories(work: Work) -> None:
    """List all contents of each frontier directory, at any depth, also below other frontier directories."""
    frontier = work.read(FRONTIER_STEP, "directory_frontier").select(F.col("dir").alias("top"))
    walked = _best(_expand(work, frontier, None).walked(), "dir")
    rows = _contents(work, walked).withColumnRenamed("top", "dir")
    write_table(work, CONTENTS_IN_DIRECTORIES, rows)


def _dated_roots(work: Work) -> DataFrame:
    roots = work.read(NODES_STEP, "roots").where("author_date is not null and top is not null")
    return roots.select("revrel", "author_date", "top")


def _expand(work: Work, tops: DataFrame, barrier: DataFrame | None) -> Walk:
    """Walk down from each top: (top, dir, depth, path). What lies below a barrier is not entered, it is settled."""
    levels, arcs = work.read(NODES_STEP, "levels"), directory_arcs(work)
    start = tops.select("top", F.col("top").alias("dir"), F.lit(0).alias("depth"), F.lit(b"").alias("path"))
    start = with_levels(start, "dir", levels)
    if barrier is not None:
        start = _stopped(start, "dir", LEVEL, barrier)
        arcs = Arcs.of(work, _stopped(all_directory_arcs(work), "dst", "below", barrier))
    walk = Walk(work, start)
    for level, rows in walk.turns(arcs.levels()):
        below = _best(rows, "dir").join(arcs.at(level), F.col("dir") == F.col("src"), "inner")
        path = F.concat("path", "name").alias("path")
        depth = (F.col("depth") + 1).alias("depth")
        walk.send(below.select("top", F.col("dst").alias("dir"), depth, path, F.col("below").alias(LEVEL)))
    return walk


def _stopped(rows: DataFrame, directory: str, level: str, barrier: DataFrame) -> DataFrame:
    """Settle what leads to a barrier, whatever its level."""
    listed = barrier.select(F.col("dir").alias(directory), F.lit(True).alias("is_listed"))
    rows = rows.join(listed, directory, "left")
    settled = F.when(F.col("is_listed"), F.lit(SETTLED)).otherwise(F.col(level))
    return rows.withColumn(level, settled).drop("is_listed")


def _best(rows: DataFrame, thing: str) -> DataFrame:
    """Of several paths from a top to a thing the one with the fewest names, and of these the smallest."""
    best = rows.groupBy("top", thing).agg(F.min(F.struct("depth", "path")).alias("best"))
    return best.select("top", thing, "best.depth", "best.path")


def _contents(work: Work, walked: DataFrame) -> DataFrame:
    """The contents in directories that were walked: (top, cnt, depth, path), the best path of each."""
    inside = walked.join(work.read(NODES_STEP, "contents"), F.col("dir") == F.col("src"), "inner")
    return _best(
        inside.select("top", F.col("dst").alias("cnt"), "depth", F.concat("path", "name").alias("path")), "cnt"
    )
