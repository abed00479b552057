"""Walks that carry something along the arcs between directories, all at once, one level a round.

Each round joins what changed in the last one with the arcs; what is better than before, or new, is the next round's
start. The loop ends after as many rounds as directories are deep.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from custody.spark.swh.work import Work, Written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def reached(work: Work, starts: DataFrame, directories: DataFrame) -> DataFrame:
    """Return all directories at or below some; `starts` has the column `node`, and so has the result."""
    found = [work.checkpoint(starts)]
    while found[-1].rows:
        below = found[-1].frame.join(directories, F.col("node") == F.col("src"), "inner")
        below = below.select(F.col("dst").alias("node")).distinct()
        found.append(work.checkpoint(below.join(work.several(found), "node", "left_anti")))
    return work.several(found)


def earliest(work: Work, seeds: DataFrame, directories: DataFrame, known: DataFrame | None = None) -> Written:
    """Return the earliest (author_date, revrel) of each directory at or below the seeds, `node` by `node`.

    Args:
        work: the step.
        seeds: (node, author_date, revrel).
        directories: arcs (src, dst).
        known: what an earlier walk found, which the seeds are added to.
    """
    better = _earliest(seeds) if known is None else _improving(_earliest(seeds), known)
    found = [work.checkpoint(better)]
    while found[-1].rows:
        below = found[-1].frame.join(directories, F.col("node") == F.col("src"), "inner")
        moved = _earliest(below.select(F.col("dst").alias("node"), "author_date", "revrel"))
        so_far = work.several(found)
        found.append(work.checkpoint(_improving(moved, so_far if known is None else so_far.unionByName(known))))
    whole = work.several(found)
    return work.checkpoint(_earliest(whole if known is None else whole.unionByName(known)))


def _earliest(rows: DataFrame) -> DataFrame:
    best = rows.groupBy("node").agg(F.min(F.struct("author_date", "revrel")).alias("best"))
    return best.select("node", "best.author_date", "best.revrel")


def _improving(rows: DataFrame, known: DataFrame) -> DataFrame:
    former = known.groupBy("node").agg(F.min(F.struct("author_date", "revrel")).alias("former"))
    is_better = F.col("former").isNull() | (F.struct("author_date", "revrel") < F.col("former"))
    return rows.join(former, "node", "left").where(is_better).select("node", "author_date", "revrel")


def latest_below(work: Work, leaves: DataFrame, directories: DataFrame) -> DataFrame:
    """Return the latest date at or below each directory: (dir, max_leaf); `leaves` has the dates of direct contents."""
    found = [work.checkpoint(leaves)]
    while found[-1].rows:
        above = found[-1].frame.join(directories, F.col("dir") == F.col("dst"), "inner")
        moved = above.groupBy("src").agg(F.max("max_leaf").alias("max_leaf"))
        former = work.several(found).groupBy("dir").agg(F.max("max_leaf").alias("former"))
        joined = moved.join(former, F.col("src") == F.col("dir"), "left")
        is_later = F.col("former").isNull() | (F.col("max_leaf") > F.col("former"))
        found.append(work.checkpoint(joined.where(is_later).select(F.col("src").alias("dir"), "max_leaf")))
    return work.several(found).groupBy("dir").agg(F.max("max_leaf").alias("max_leaf"))
