"""The step that lists the origins of each root, by the history of its revisions.

Histories are chains of thousands of revisions, so that a walk of one revision a round would never end. A node that one
other node leads to has the origins of that one: chains are drawn together by doubling (one back, two back, four back).
This is done again and again, because a branch that was merged becomes a chain once its own chain is drawn together.
What is left are the nodes where histories of different origins meet; these are walked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from custody.spark.swh.graph import STEP as NODES_STEP
from custody.spark.swh.tables import write_table
from custody.spark.swh.work import Work, Written, any_in
from custody.swh.tables import REVISIONS_IN_ORIGINS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def list_revisions_in_origins(work: Work) -> None:
    """List the origins that lead to each root, dated or not."""
    drawn: list[Written] = []
    arcs = work.checkpoint(work.read(NODES_STEP, "history"))
    while True:
        single = work.checkpoint(_single(arcs.frame))
        if not single.rows:
            break
        drawn.append(_ends(work, single))
        arcs = work.checkpoint(_shortened(arcs.frame, drawn[-1].frame))
    starts = work.read(NODES_STEP, "origins").select("node", F.col("node").alias("ori"))
    found = _walked(work, starts, arcs.frame)
    for ends in reversed(drawn):
        more = ends.frame.join(found.select(F.col("node").alias("up"), "ori"), "up", "inner").select("node", "ori")
        found = work.checkpoint(found.unionByName(more)).frame
    roots = work.read(NODES_STEP, "roots").select("revrel").distinct()
    write_table(
        work, REVISIONS_IN_ORIGINS, found.withColumnRenamed("node", "revrel").join(roots, "revrel", "left_semi")
    )


def _single(arcs: DataFrame) -> DataFrame:
    """The nodes that one other leads to, and which: (node, up)."""
    before = arcs.groupBy("dst").agg(F.min("src").alias("up"), F.max("src").alias("other"))
    return before.where("up = other").select(F.col("dst").alias("node"), "up")


def _ends(work: Work, single: Written) -> Written:
    """The end of the chain of each node: (node, up), where no `up` is a node any more."""
    now = single
    while True:
        ahead = now.frame.select(F.col("node").alias("up"), F.col("up").alias("further"))
        jumped = now.frame.join(ahead, "up", "left")
        moved = work.checkpoint(
            jumped.select("node", F.coalesce("further", "up").alias("up"), F.col("further").isNotNull().alias("moved"))
        )
        now = Written(moved.frame.select("node", "up"), moved.rows, moved.folder)
        if not any_in(moved.folder, "moved"):
            return now


def _shortened(arcs: DataFrame, ends: DataFrame) -> DataFrame:
    """The arcs without those into chains; those out of a chain begin at its end."""
    left = arcs.join(ends.select(F.col("node").alias("dst")), "dst", "left_anti")
    renamed = left.join(ends.select(F.col("node").alias("src"), "up"), "src", "left")
    return renamed.select(F.coalesce("up", "src").alias("src"), "dst").distinct()


def _walked(work: Work, starts: DataFrame, arcs: DataFrame) -> DataFrame:
    """Which origins lead to which of the nodes that are left: (node, ori)."""
    found = [work.checkpoint(starts)]
    while found[-1].rows:
        below = found[-1].frame.join(arcs, F.col("node") == F.col("src"), "inner")
        below = below.select(F.col("dst").alias("node"), "ori").distinct()
        found.append(work.checkpoint(below.join(work.several(found), ["node", "ori"], "left_anti")))
    return work.several(found)
