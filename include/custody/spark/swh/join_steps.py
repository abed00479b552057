"""The steps of a build by joins of DataFrames, for graphs whose arcs do not fit into memory.

Dates first: when each content appeared, how young the youngest content of a directory is, and which directories are
frontier because of that. Then what is where, with paths: directories and contents below roots and below frontier
directories. Roots that share a directory share the walk below it. Of several paths to one thing the one with the fewest
names is kept, and of these the smallest in bytes; all ways to a directory are known at its turn, so only the best one
goes on. At last the origins of each root, by the history of its revisions.

Kept: `earliest_timestamps` (node, author_date), `max_leaf_timestamps` (dir, max_leaf), `directory_frontier` (dir), and
`expanded` (top, dir, depth, path), the directories below each root directory that no frontier lies above.

Histories are chains of thousands of revisions, so a walk of one revision a round would never end. All that matters of a
node is what leads to it: its origins are those of the nodes that lead to it. So nodes are taken out of the graph, many
at once, and their neighbours joined over the gap, until little is left to walk; then they come back in reverse order,
each with the origins of what led to it. Chains go first, where one node alone leads to each: they are drawn together by
doubling (one back, two back, four back). What is left are histories that branch and merge. Of these go nodes that are
no neighbours of each other and would leave few new arcs: a share of all nodes in each round, so the number of rounds
grows with the logarithm of a history.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from custody.spark.swh.nodes_step import all_directory_arcs, directory_arcs
from custody.spark.swh.propagate import LEVEL, SETTLED, Arcs, Walk, earliest, latest_below, least, with_levels
from custody.spark.swh.work import HISTORY, Work, Written, any_in, write_table
from custody.swh.build import FRONTIER_STEP, LEAVES_STEP, NODES_STEP, TIMESTAMPS_STEP
from custody.swh.tables import (
    CONTENTS_IN_DIRECTORIES,
    CONTENTS_IN_REVISIONS,
    DIRECTORIES_IN_REVISIONS,
    EARLIEST,
    REVISIONS_IN_ORIGINS,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


DIRECTORIES_STEP = "swh_frontier_directories_in_revisions"
_CHAIN_PASSES = 2
"""A branch that was merged becomes part of a chain once its own chain is drawn together."""
_GROWTH = 2
"""A node goes when it leaves at most so many times as many arcs as it had."""
_WORTH = 50
"""A round is worth it when at least one in so many arcs goes to or from the nodes that it takes out."""


def compute_earliest_timestamps(work: Work) -> None:
    """Find the earliest date of each content and directory, and the revision or release that it comes from.

    A release of a revision adds nothing to the dates: it is counted only when the earliest revision is asked for.
    """
    roots = work.read(NODES_STEP, "roots").where("author_date is not null and top is not null")
    # The least pair is the earliest date, and of equal dates the smallest node: each build gives the same rows.
    pair = F.struct("author_date", "revrel")
    seeds = roots.select(
        F.col("top").alias("node"), F.when(F.col("is_direct"), pair).alias("direct"), pair.alias("whole")
    )
    levels = work.read(NODES_STEP, "levels")
    dated = _with_contents(work, earliest(work, seeds, directory_arcs(work), levels))
    direct = dated.frame.where("direct is not null").select("node", "direct.author_date")
    work.keep("earliest_timestamps", direct)
    write_table(work, EARLIEST, dated.frame.select("node", "whole.author_date", "whole.revrel"))


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
    contents = _contents(work, work.read(DIRECTORIES_STEP, "expanded"))
    rows = contents.join(_dated_roots(work), "top", "inner").select("cnt", "revrel", "author_date", "path")
    released = work.read(NODES_STEP, "release_contents").where("author_date is not null")
    rows = rows.unionByName(released.withColumn("path", F.lit(b"")))
    write_table(work, CONTENTS_IN_REVISIONS, rows.withColumnRenamed("author_date", "revrel_author_date"))


def list_contents_in_frontier_directories(work: Work) -> None:
    """List all contents of each frontier directory, at any depth, also below other frontier directories."""
    frontier = work.read(FRONTIER_STEP, "directory_frontier").select(F.col("dir").alias("top"))
    walked = _best(_expand(work, frontier, None).walked(), "dir")
    rows = _contents(work, walked).withColumnRenamed("top", "dir")
    write_table(work, CONTENTS_IN_DIRECTORIES, rows)


def list_revisions_in_origins(work: Work) -> None:
    """List the origins that lead to each root, dated or not."""
    origins = work.read(NODES_STEP, "origins")
    arcs = work.checkpoint(work.read(NODES_STEP, HISTORY))
    taken: list[DataFrame] = []
    for _ in range(_CHAIN_PASSES):
        single = work.checkpoint(_single(arcs.frame))
        if not single.rows:
            break
        ends = _ends(work, single).frame
        taken.append(ends)
        arcs = work.checkpoint(_shortened(arcs.frame, ends))
    while arcs.rows:
        led, remaining = _without_some(work, arcs, origins, seed=len(taken))
        if led is None:
            break
        taken.append(led)
        arcs = remaining
    reached = _walked(work, origins.select("node", F.col("node").alias("ori")), arcs.frame)
    # In reverse order: what leads to a node may itself have been taken out in a later round, so that one comes first.
    for led in reversed(taken):
        more = (
            led.join(reached.select(F.col("node").alias("up"), "ori"), "up", "inner").select("node", "ori").distinct()
        )
        reached = work.checkpoint(reached.unionByName(more)).frame
    roots = work.read(NODES_STEP, "roots").select("revrel").distinct()
    write_table(
        work, REVISIONS_IN_ORIGINS, reached.withColumnRenamed("node", "revrel").join(roots, "revrel", "left_semi")
    )


def _with_contents(work: Work, directories: Written) -> Written:
    """Add the contents in directories with the earliest of their dates, and those of releases."""
    inside = directories.frame.join(work.read(NODES_STEP, "contents"), F.col("node") == F.col("src"), "inner")
    rows = inside.select(F.col("dst").alias("node"), "direct", "whole")
    released = work.read(NODES_STEP, "release_contents").where("author_date is not null")
    pair = F.struct("author_date", "revrel")
    rows = rows.unionByName(released.select(F.col("cnt").alias("node"), pair.alias("direct"), pair.alias("whole")))
    return work.checkpoint(directories.frame.unionByName(least(rows)))


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


def _single(arcs: DataFrame) -> DataFrame:
    """The nodes that one other leads to, and which: (node, up)."""
    before = arcs.groupBy("dst").agg(F.min("src").alias("up"), F.max("src").alias("other"))
    return before.where("up = other").select(F.col("dst").alias("node"), "up")


def _ends(work: Work, single: Written) -> Written:
    """The end of the chain of each node: (node, up), where no `up` is a node any more."""
    now = single
    while True:
        # Each pass doubles the step, so a chain takes as many passes as its length has binary digits.
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
    inner_arcs = arcs.join(ends.select(F.col("node").alias("dst")), "dst", "left_anti")
    renamed = inner_arcs.join(ends.select(F.col("node").alias("src"), "up"), "src", "left")
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
    # Origins stay to the end: the last walk starts at them.
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
    # Over the gap: what led to a node that was taken out now leads to what the node led to.
    bridges = led.frame.join(onward, "node", "inner").select(F.col("up").alias("src"), "dst")
    untouched = marked.frame.where("from_taken is null and to_taken is null").select("src", "dst")
    gone = marked.rows - untouched.count()
    if gone * _WORTH < marked.rows:
        return None, arcs
    return led.frame, work.checkpoint(untouched.unionByName(bridges).distinct())


def _walked(work: Work, starts: DataFrame, arcs: DataFrame) -> DataFrame:
    """Return (node, ori): the nodes that are left, each with the origins that lead to it."""
    levels = [work.checkpoint(starts)]
    while levels[-1].rows:
        below = levels[-1].frame.join(arcs, F.col("node") == F.col("src"), "inner")
        below = below.select(F.col("dst").alias("node"), "ori").distinct()
        levels.append(work.checkpoint(below.join(work.several(levels), ["node", "ori"], "left_anti")))
    return work.several(levels)
