"""The steps about dates: when each content first appeared, how young the youngest content of a directory is, and which
directories are frontier because of that.

Kept: `earliest_timestamps` (node, author_date), `max_leaf_timestamps` (dir, max_leaf), `directory_frontier` (dir).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from custody.spark.swh.graph import STEP as NODES_STEP
from custody.spark.swh.spread import earliest, latest_below
from custody.spark.swh.tables import write_table
from custody.spark.swh.work import Work, Written
from custody.swh.tables import EARLIEST

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TIMESTAMPS_STEP = "swh_earliest_timestamps"
LEAVES_STEP = "swh_max_leaf_timestamps"
FRONTIER_STEP = "swh_directory_frontier"


def compute_earliest_timestamps(work: Work) -> None:
    """Find the earliest date of each content and directory, and the revision or release that it comes from.

    A release of a revision adds nothing to the dates: it is counted only when the earliest revision is asked for.
    """
    directories = work.read(NODES_STEP, "directories")
    roots = work.read(NODES_STEP, "roots").where("author_date is not null")
    seeds = roots.where("top is not null").select(F.col("top").alias("node"), "author_date", "revrel", "is_direct")
    direct = earliest(work, seeds.where("is_direct").drop("is_direct"), directories)
    dated = _with_contents(work, direct)
    work.keep("earliest_timestamps", dated.frame.select("node", "author_date"))
    others = work.checkpoint(seeds.where("not is_direct").drop("is_direct"))
    whole = _with_contents(work, earliest(work, others.frame, directories, direct.frame)) if others.rows else dated
    write_table(work, EARLIEST, whole)


def _with_contents(work: Work, directories: Written) -> Written:
    """Add the contents in directories with the earliest of their dates, and those of releases."""
    inside = directories.frame.join(work.read(NODES_STEP, "contents"), F.col("node") == F.col("src"), "inner")
    rows = inside.select(F.col("dst").alias("node"), "author_date", "revrel")
    released = work.read(NODES_STEP, "release_contents").where("author_date is not null")
    rows = rows.unionByName(released.select(F.col("cnt").alias("node"), "author_date", "revrel"))
    best = rows.groupBy("node").agg(F.min(F.struct("author_date", "revrel")).alias("best"))
    return work.checkpoint(directories.frame.unionByName(best.select("node", "best.author_date", "best.revrel")))


def list_max_leaf_timestamps(work: Work) -> None:
    """Find the latest of the earliest dates of the contents in each directory, at any depth."""
    directories, contents = work.read(NODES_STEP, "directories"), work.read(NODES_STEP, "contents")
    if work.build.description.node_filter == "heads":
        reachable = work.read(NODES_STEP, "reachable").select(F.col("node").alias("src"))
        directories = work.checkpoint(directories.join(reachable, "src", "left_semi")).frame
        contents = contents.join(reachable, "src", "left_semi")
    dates = work.read(TIMESTAMPS_STEP, "earliest_timestamps")
    leaves = contents.join(dates, F.col("dst") == F.col("node"), "inner").groupBy("src")
    direct = leaves.agg(F.max("author_date").alias("max_leaf")).select(F.col("src").alias("dir"), "max_leaf")
    work.keep("max_leaf_timestamps", latest_below(work, direct, directories))


def compute_directory_frontier(work: Work) -> None:
    """Find the frontier: the topmost directories below a root that hold contents, all of them older than the root.

    All roots walk at once. What matters of a root is its date, so that a directory is entered once for each date.
    """
    roots = work.read(NODES_STEP, "roots").where("author_date is not null and top is not null")
    directories = work.read(NODES_STEP, "directories").select("src", "dst")
    holding = work.read(NODES_STEP, "contents").select(F.col("src").alias("dir")).distinct()
    leaves = work.read(LEAVES_STEP, "max_leaf_timestamps")
    known = work.checkpoint(
        leaves.join(holding.withColumn("holds", F.lit(True)), "dir", "left").select(
            "dir", "max_leaf", F.coalesce("holds", F.lit(False)).alias("holds")
        )
    ).frame
    start = roots.select(F.col("top").alias("dir"), "author_date", F.lit(False).alias("is_frontier")).distinct()
    found = [work.checkpoint(start)]
    while found[-1].rows:
        entered = found[-1].frame.where("not is_frontier")
        children = entered.join(directories, F.col("dir") == F.col("src"), "inner")
        children = children.select(F.col("dst").alias("dir"), "author_date").distinct()
        is_frontier = F.col("holds") & (F.col("max_leaf") < F.col("author_date"))
        judged = children.join(known, "dir", "inner").withColumn("is_frontier", is_frontier)
        # Of a frontier directory it does not matter which dates made it one.
        date = F.when(~F.col("is_frontier"), F.col("author_date"))
        judged = judged.select("dir", date.alias("author_date"), "is_frontier").distinct()
        found.append(work.checkpoint(_not_yet(judged, work.several(found))))
    frontier = work.several(found).where("is_frontier").select("dir").distinct()
    work.keep("directory_frontier", frontier)


def _not_yet(rows: DataFrame, known: DataFrame) -> DataFrame:
    same = (F.col("new.dir") == F.col("old.dir")) & F.col("new.author_date").eqNullSafe(F.col("old.author_date"))
    return rows.alias("new").join(known.alias("old"), same, "left_anti")
