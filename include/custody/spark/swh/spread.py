"""Walks that carry something along the arcs between directories, all at once, one level a round."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from custody.spark.swh.levels import LEVEL, Arcs, Walk
from custody.spark.swh.work import Work, Written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def with_levels(rows: DataFrame, column: str, levels: DataFrame) -> DataFrame:
    """Add the level of the directory in a column; one that no arc touches is at the top."""
    found = levels.select(F.col("node").alias(column), F.col(LEVEL))
    return rows.join(found, column, "left").withColumn(LEVEL, F.coalesce(LEVEL, F.lit(0)))


def reached(work: Work, starts: DataFrame, arcs: Arcs, levels: DataFrame) -> DataFrame:
    """Return all directories at or below some; `starts` has the column `node`, and so has the result."""
    walk = Walk(work, with_levels(starts, "node", levels))
    for level, rows in walk.turns(arcs.levels()):
        below = rows.distinct().join(arcs.at(level), F.col("node") == F.col("src"), "inner")
        walk.send(below.select(F.col("dst").alias("node"), F.col("below").alias(LEVEL)))
    return walk.walked().distinct()


def earliest(work: Work, seeds: DataFrame, arcs: Arcs, levels: DataFrame) -> Written:
    """Return the earliest (author_date, revrel) of each directory at or below the seeds, `node` by `node`.

    Args:
        work: the step.
        seeds: (node, direct, whole): two pairs (author_date, revrel), the first one may be missing. Each goes its way.
        arcs: arcs between directories, by the level above.
        levels: of the directories.
    """
    walk = Walk(work, with_levels(seeds, "node", levels))
    for level, rows in walk.turns(arcs.levels()):
        below = least(rows).join(arcs.at(level), F.col("node") == F.col("src"), "inner")
        walk.send(below.select(F.col("dst").alias("node"), "direct", "whole", F.col("below").alias(LEVEL)))
    return work.checkpoint(least(walk.walked()))


def least(rows: DataFrame) -> DataFrame:
    """Return the earlier of the pairs of each node."""
    return rows.groupBy("node").agg(F.min("direct").alias("direct"), F.min("whole").alias("whole"))


def latest_below(work: Work, leaves: DataFrame, directories: DataFrame, levels: DataFrame) -> DataFrame:
    """Return the latest date at or below each directory: (dir, max_leaf); `leaves` has the dates of direct contents."""
    # Here the way is up: arcs are joined when it is the turn of the directory below.
    upward = Arcs.of(work, directories.select("src", "dst", F.col(LEVEL).alias("above"), F.col("below").alias(LEVEL)))
    walk = Walk(work, with_levels(leaves, "dir", levels))
    for level, rows in walk.turns(upward.levels()[::-1]):
        latest = rows.groupBy("dir").agg(F.max("max_leaf").alias("max_leaf"))
        above = latest.join(upward.at(level), F.col("dir") == F.col("dst"), "inner")
        walk.send(above.select(F.col("src").alias("dir"), "max_leaf", F.col("above").alias(LEVEL)))
    return walk.walked().groupBy("dir").agg(F.max("max_leaf").alias("max_leaf"))
