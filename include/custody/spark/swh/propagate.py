"""Walks that carry values along the arcs between directories by joins, one level a round.

A directory's level is the length of the longest way down to it from a directory that lies in none. Every arc leads to a
greater level. So a walk that goes level by level has met everything that leads to a directory when its turn comes: each
directory is entered once, each arc is joined once, and nothing has to be compared with earlier results. Values on their
way to a directory wait in a folder of its level.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from custody.spark.swh.work import Work, Written, rows_in, url_of
from custody.swh.walks import graph_arrays as limits

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


LEVEL = "level"
SETTLED = -1
"""The level of what waits for no turn any more."""


def level_arcs(work: Work, arcs: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Find the level of each directory that arcs (src, dst, ...) lead from or to.

    Returns:
        The levels (node, level), and the arcs with the levels of both ends (level, below).

    Raises:
        InvalidInputError: directories lie in each other.
    """
    pairs = arcs.select("src", "dst")
    inside = pairs.select(F.col("dst").alias("src"))
    tops = pairs.join(inside, "src", "left_anti").select(F.col("src").alias("node")).distinct()
    by_level = [work.checkpoint(tops.withColumn(LEVEL, F.lit(0)))]
    while by_level[-1].rows:
        # Directories that lie in each other would go on for ever.
        if len(by_level) > limits.LEVELS_MAX:
            raise limits.too_deep()
        below = by_level[-1].frame.join(pairs, F.col("node") == F.col("src"), "inner")
        nodes = below.select(F.col("dst").alias("node")).distinct()
        by_level.append(work.checkpoint(nodes.withColumn(LEVEL, F.lit(len(by_level)))))
    # A directory is found once for each length of a way to it; the longest one is its level.
    levels = work.keep("levels", work.several(by_level).groupBy("node").agg(F.max(LEVEL).alias(LEVEL))).frame
    above = levels.select(F.col("node").alias("src"), LEVEL)
    below = levels.select(F.col("node").alias("dst"), F.col(LEVEL).alias("below"))
    # An arc of a circle that nothing leads to has no level.
    return levels, arcs.join(above, "src", "left").join(below, "dst", "left")


def check_levels(arcs: Written) -> None:
    """Check that every arc has levels, and leads down.

    Raises:
        InvalidInputError: directories lie in each other.
    """
    if arcs.frame.where("level is null or below is null or below <= level").limit(1).collect():
        raise limits.too_deep()


class Arcs:
    """Arcs by the level at which they are joined."""

    def __init__(self, work: Work, folder: Path, schema: str) -> None:
        self._work = work
        self._folder = folder
        self._schema = schema

    @classmethod
    def of(cls, work: Work, arcs: DataFrame) -> Arcs:
        """Write arcs with a column `level`, each level into a folder of its own."""
        written = work.checkpoint(arcs, by=LEVEL)
        return cls(work, written.folder, schema_of(arcs.drop(LEVEL)))

    def levels(self) -> list[int]:
        """Return the levels that have arcs, the highest first."""
        # Read off the names of folders: Spark made one for each level that has rows.
        return sorted(int(path.name.partition("=")[2]) for path in self._folder.glob(f"{LEVEL}=*"))

    def at(self, level: int) -> DataFrame:
        """Return the arcs of a level."""
        # The schema is given: to let Spark look for it would cost a job each round.
        return self._work.session.read.schema(self._schema).parquet(url_of(self._folder / f"{LEVEL}={level}"))


def schema_of(frame: DataFrame) -> str:
    """Return the columns of a DataFrame as text for a reader."""
    return ", ".join(f"{name} {kind}" for name, kind in frame.dtypes)


class Walk:
    """Values on their way to directories, by the level of each directory."""

    def __init__(self, work: Work, starts: DataFrame) -> None:
        """Begin with rows that have a column `level`."""
        self._work = work
        self._sent = [work.checkpoint(starts, by=LEVEL)]
        self._schema = schema_of(starts.drop(LEVEL))

    def send(self, rows: DataFrame) -> None:
        """Let rows wait for the turn of their level; columns as those of the start."""
        self._sent.append(self._work.checkpoint(rows, by=LEVEL))

    def turns(self, levels: list[int]) -> Iterator[tuple[int, DataFrame]]:
        """Yield each level, in the order given, with what waits for it; levels that nothing waits for are left out."""
        for level in levels:
            rows = self.waiting(level)
            if rows is not None:
                yield level, rows

    def waiting(self, level: int) -> DataFrame | None:
        """Return what waits at a level; None if nothing does."""
        folders = [part.folder / f"{LEVEL}={level}" for part in self._sent]
        held = [folder for folder in folders if folder.is_dir() and rows_in(folder)]
        return self._read(held) if held else None

    def settled(self) -> DataFrame:
        """Return what waits for no turn."""
        rows = self.waiting(SETTLED)
        return self._read([]) if rows is None else rows

    def walked(self) -> DataFrame:
        """Return all that ever waited for a turn."""
        folders = [
            folder
            for part in self._sent
            for folder in sorted(part.folder.glob(f"{LEVEL}=*"))
            if folder.name != f"{LEVEL}={SETTLED}"
        ]
        return self._read(folders)

    def _read(self, folders: list[Path]) -> DataFrame:
        session = self._work.session
        if not folders:
            return session.createDataFrame([], self._schema)
        return session.read.schema(self._schema).parquet(*map(url_of, folders))


def with_levels(rows: DataFrame, column: str, levels: DataFrame) -> DataFrame:
    """Add the level of the directory in a column; one that no arc touches is at the top."""
    renamed = levels.select(F.col("node").alias(column), F.col(LEVEL))
    return rows.join(renamed, column, "left").withColumn(LEVEL, F.coalesce(LEVEL, F.lit(0)))


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
        seeds: (node, direct, whole): two pairs (author_date, revrel), the first one may be missing. Both go down apart.
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
