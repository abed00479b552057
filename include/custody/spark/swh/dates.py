"""The steps about dates: when each content first appeared, how young the youngest content of a directory is, and which
directories are frontier because of that.

Kept: `earliest_timestamps` (node, author_date), `max_leaf_timestamps` (dir, max_leaf), `directory_frontier` (dir).
"""

from __future__ import annotations

from pyspark.sql import functions as F

from custody.spark.swh.graph import all_directory_arcs, directory_arcs
from custody.spark.swh.levels import LEVEL, SETTLED, Arcs, Walk
from custody.spark.swh.spread import earliest, latest_below, least, with_levels
from custody.spark.swh.tables import write_table
from custody.spark.swh.work import Work, Written
from custody.swh.build import LEAVES_STEP, NODES_STEP, TIMESTAMPS_STEP
from custody.swh.tables import EARLIEST


def compute_earliest_timestamps(work: Work) -> None:
    """Find the earliest date of each content and directory, and the revision or release that it comes from.

    A release of a revision adds nothing to the dates: it is counted only when the earliest revision is asked for.
    """
    roots = work.read(NODES_STEP, "roots").where("author_date is not null and top is not null")
    pair = F.struct("author_date", "revrel")
    seeds = roots.select(
        F.col("top").alias("node"), F.when(F.col("is_direct"), pair).alias("direct"), pair.alias("whole")
    )
    levels = work.read(NODES_STEP, "levels")
    dated = _with_contents(work, earliest(work, seeds, directory_arcs(work), levels))
    direct = dated.frame.where("direct is not null").select("node", "direct.author_date")
    work.keep("earliest_timestamps", direct)
    write_table(work, EARLIEST, dated.frame.select("node", "whole.author_date", "whole.revrel"))


def _with_contents(work: Work, directories: Written) -> Written:
    """Add the contents in directories with the earliest of their dates, and those of releases."""
    inside = directories.frame.join(work.read(NODES_STEP, "contents"), F.col("node") == F.col("src"), "inner")
    rows = inside.select(F.col("dst").alias("node"), "direct", "whole")
    released = work.read(NODES_STEP, "release_contents").where("author_date is not null")
    pair = F.struct("author_date", "revrel")
    rows = rows.unionByName(released.select(F.col("cnt").alias("node"), pair.alias("direct"), pair.alias("whole")))
    return work.checkpoint(directories.frame.unionByName(least(rows)))


def list_max_leaf_timestamps(work: Work) -> None:
    """Find the latest of the earliest dates of the contents in each directory, at any depth."""
    directories, contents = all_directory_arcs(work), work.read(NODES_STEP, "contents")
    if work.build.description.node_filter == "heads":
        reachable = work.read(NODES_STEP, "reachable").select(F.col("node").alias("src"))
        directories = directories.join(reachable, "src", "left_semi")
        contents = contents.join(reachable, "src", "left_semi")
    dates = work.read(TIMESTAMPS_STEP, "earliest_timestamps")
    leaves = contents.join(dates, F.col("dst") == F.col("node"), "inner").groupBy("src")
    direct = leaves.agg(F.max("author_date").alias("max_leaf")).select(F.col("src").alias("dir"), "max_leaf")
    levels = work.read(NODES_STEP, "levels")
    work.keep("max_leaf_timestamps", latest_below(work, direct, directories, levels))


def compute_directory_frontier(work: Work) -> None:
    """Find the frontier: the topmost directories below a root that hold contents, all of them older than the root.

    All roots walk at once. What matters of a root is its date, so that a directory is entered once for each date.
    """
    roots = work.read(NODES_STEP, "roots").where("author_date is not null and top is not null")
    holding = work.read(NODES_STEP, "contents").select(F.col("src").alias("dst")).distinct()
    leaves = work.read(LEAVES_STEP, "max_leaf_timestamps").withColumnRenamed("dir", "dst")
    directories = all_directory_arcs(work).select("src", "dst", LEVEL, "below").join(leaves, "dst", "inner")
    holds = holding.withColumn("is_holding", F.lit(True))
    # No date is before the date of a directory that holds no content.
    older = F.when(F.col("is_holding"), F.col("max_leaf")).alias("older")
    arcs = Arcs.of(work, directories.join(holds, "dst", "left").select("src", "dst", older, LEVEL, "below"))
    starts = roots.select(F.col("top").alias("dir"), "author_date").distinct()
    walk = Walk(work, with_levels(starts, "dir", work.read(NODES_STEP, "levels")))
    for level, rows in walk.turns(arcs.levels()):
        children = rows.distinct().join(arcs.at(level), F.col("dir") == F.col("src"), "inner")
        is_frontier = F.coalesce(F.col("older") < F.col("author_date"), F.lit(False))
        goes_to = F.when(is_frontier, F.lit(SETTLED)).otherwise(F.col("below"))
        walk.send(children.select(F.col("dst").alias("dir"), "author_date", goes_to.alias(LEVEL)))
    work.keep("directory_frontier", walk.settled().select("dir").distinct())
