"""The step that lists the origins of each root, by the history of its revisions.

Histories are chains of thousands of revisions, so that a walk of one revision a round would never end. What leads to a
node is all that matters for it: its origins are those of the nodes that lead to it. So nodes are taken out of the
graph, many at once, and their neighbours joined over the gap, until little is left to walk; then they come back in
reverse order, each with the origins of what led to it.

First go chains, where one node alone leads to each: these are drawn together by doubling (one back, two back, four
back). What is left are histories that branch and merge. Of these go nodes that are no neighbours of each other and
would leave few new arcs: a share of all of them a round, so that rounds grow with the logarithm of a history.
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

_CHAIN_PASSES = 2
"""A branch that was merged becomes part of a chain once its own chain is drawn together."""
_GROWTH = 2
"""A node goes when it leaves at most so many times as many arcs as it had."""
_WORTH = 50
"""A round is worth it when at least one in so many arcs goes to or from the nodes that it takes out."""


def list_revisions_in_origins(work: Work) -> None:
    """List the origins that lead to each root, dated or not."""
    origins = work.read(NODES_STEP, "origins")
    arcs = work.checkpoint(work.read(NODES_STEP, "history"))
    taken: list[DataFrame] = []
    for _ in range(_CHAIN_PASSES):
        single = work.checkpoint(_single(arcs.frame))
        if not single.rows:
            break
        ends = _ends(work, single).frame
        taken.append(ends)
        arcs = work.checkpoint(_shortened(arcs.frame, ends))
    while arcs.rows:
        led, left = _without_some(work, arcs, origins, seed=len(taken))
        if led is None:
            break
        taken.append(led)
        arcs = left
    found = _walked(work, origins.select("node", F.col("node").alias("ori")), arcs.frame)
    for led in reversed(taken):
        more = led.join(found.select(F.col("node").alias("up"), "ori"), "up", "inner").select("node", "ori").distinct()
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


def _without_some(work: Work, arcs: Written, origins: DataFrame, seed: int) -> tuple[DataFrame | None, Written]:
    """Take out nodes of which no two are neighbours.

    Returns:
        What led to them (node, up), and the arcs that are left; None and the same arcs when it is not worth it.
    """
    ins = arcs.frame.select(F.col("dst").alias("node"), F.lit(1).alias("ins"), F.lit(0).alias("outs"))
    outs = arcs.frame.select(F.col("src").alias("node"), F.lit(0).alias("ins"), F.lit(1).alias("outs"))
    degrees = ins.unionByName(outs).groupBy("node").agg(F.sum("ins").alias("ins"), F.sum("outs").alias("outs"))
    small = degrees.where(F.col("ins") * F.col("outs") <= _GROWTH * (F.col("ins") + F.col("outs")))
    small = small.join(origins, "node", "left_anti")
    # A number of chance decides between neighbours, another one each round.
    chance = F.xxhash64("node", F.lit(seed)).alias("chance")
    candidates = work.checkpoint(small.select("node", chance)).frame
    above = candidates.select(F.col("node").alias("src"), F.struct("chance", F.col("node")).alias("first"))
    below = candidates.select(F.col("node").alias("dst"), F.struct("chance", F.col("node")).alias("second"))
    pairs = arcs.frame.join(above, "src", "inner").join(below, "dst", "inner")
    losing = F.when(F.col("first") < F.col("second"), F.col("dst")).otherwise(F.col("src"))
    chosen = candidates.select("node").join(pairs.select(losing.alias("node")), "node", "left_anti")
    is_above = chosen.select(F.col("node").alias("src"), F.lit(True).alias("from_taken"))
    is_below = chosen.select(F.col("node").alias("dst"), F.lit(True).alias("to_taken"))
    marked = work.checkpoint(arcs.frame.join(is_above, "src", "left").join(is_below, "dst", "left"))
    into = marked.frame.where("to_taken")
    led = work.checkpoint(into.select(F.col("dst").alias("node"), F.col("src").alias("up")))
    onward = marked.frame.where("from_taken").select(F.col("src").alias("node"), "dst")
    bridges = led.frame.join(onward, "node", "inner").select(F.col("up").alias("src"), "dst")
    kept = marked.frame.where("from_taken is null and to_taken is null").select("src", "dst")
    gone = marked.rows - kept.count()
    if gone * _WORTH < marked.rows:
        return None, arcs
    return led.frame, work.checkpoint(kept.unionByName(bridges).distinct())


def _walked(work: Work, starts: DataFrame, arcs: DataFrame) -> DataFrame:
    """Which origins lead to which of the nodes that are left: (node, ori)."""
    found = [work.checkpoint(starts)]
    while found[-1].rows:
        below = found[-1].frame.join(arcs, F.col("node") == F.col("src"), "inner")
        below = below.select(F.col("dst").alias("node"), "ori").distinct()
        found.append(work.checkpoint(below.join(work.several(found), ["node", "ori"], "left_anti")))
    return work.several(found)
