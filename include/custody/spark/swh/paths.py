"""The steps that list what is where, with paths: directories and contents below roots, and below frontier directories.

Roots that share a directory share the walk below it. Of several paths to one thing the one with the fewest names is
kept, and of these the smallest in bytes: a walk goes level by level, and takes what it meets first.

Kept: `expanded` (top, dir, depth, path), the directories below each root directory that no frontier lies above.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from custody.spark.swh.dates import FRONTIER_STEP, LEAVES_STEP
from custody.spark.swh.graph import STEP as NODES_STEP
from custody.spark.swh.tables import write_table
from custody.spark.swh.work import Work
from custody.swh.tables import CONTENTS_IN_DIRECTORIES, CONTENTS_IN_REVISIONS, DIRECTORIES_IN_REVISIONS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

DIRECTORIES_STEP = "swh_frontier_directories_in_revisions"


def list_frontier_directories_in_revisions(work: Work) -> None:
    """List the frontier directories of each dated root, as far as no other frontier directory lies above them."""
    roots = _dated_roots(work)
    tops = roots.select("top").distinct()
    frontier = work.read(FRONTIER_STEP, "directory_frontier")
    walked = _expand(work, tops, work.read(NODES_STEP, "directories"), frontier)
    work.keep("expanded", walked.where("not is_barrier").drop("is_barrier"))
    met = walked.where("is_barrier").join(roots, "top", "inner")
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
    walked = _expand(work, frontier, work.read(NODES_STEP, "directories"), None)
    rows = _contents(work, walked).withColumnRenamed("top", "dir")
    write_table(work, CONTENTS_IN_DIRECTORIES, rows)


def _dated_roots(work: Work) -> DataFrame:
    roots = work.read(NODES_STEP, "roots").where("author_date is not null and top is not null")
    return roots.select("revrel", "author_date", "top")


def _expand(work: Work, tops: DataFrame, directories: DataFrame, barrier: DataFrame | None) -> DataFrame:
    """Walk down from each top: (top, dir, depth, path, is_barrier); what lies below a barrier is not entered."""
    start = tops.select("top", F.col("top").alias("dir"), F.lit(0).alias("depth"), F.lit(b"").alias("path"))
    found = [work.checkpoint(_marked(start, barrier))]
    while found[-1].rows:
        entered = found[-1].frame.where("not is_barrier")
        below = entered.join(directories, F.col("dir") == F.col("src"), "inner")
        below = below.groupBy("top", "dst").agg(F.min(F.concat("path", "name")).alias("path"))
        below = below.select("top", F.col("dst").alias("dir"), F.lit(len(found)).alias("depth"), "path")
        fresh = below.join(work.several(found), ["top", "dir"], "left_anti")
        found.append(work.checkpoint(_marked(fresh, barrier)))
    return work.several(found)


def _marked(rows: DataFrame, barrier: DataFrame | None) -> DataFrame:
    is_barrier: Column = F.lit(False)
    if barrier is not None:
        rows = rows.join(barrier.select("dir", F.lit(True).alias("is_listed")), "dir", "left")
        is_barrier = F.coalesce("is_listed", F.lit(False))
    return rows.select("top", "dir", "depth", "path", is_barrier.alias("is_barrier"))


def _contents(work: Work, walked: DataFrame) -> DataFrame:
    """The contents in directories that were walked: (top, cnt, path), the best path of each."""
    inside = walked.join(work.read(NODES_STEP, "contents"), F.col("dir") == F.col("src"), "inner")
    path = F.struct("depth", F.concat("path", "name").alias("path"))
    best = inside.groupBy("top", "dst").agg(F.min(path).alias("best"))
    return best.select("top", F.col("dst").alias("cnt"), "best.path")
