"""Finds the earliest revision of some contents and directories in the whole graph, by the committer's date.

This is a query of a graph and no part of a database: it needs no build and knows no filter. From all the objects at
once it walks up to the revisions around them. Revisions without a date, or of the date 0, count as occurrences and are
never the earliest.
"""

from __future__ import annotations

import argparse
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from custody.errors import CustodyError, InvalidInputError
from custody.spark.session import start_session
from custody.spark.swh.nodes_step import read_table
from custody.spark.swh.work import Rounds, url_of
from custody.swh import open_graph
from custody.swh.graph import Graph
from custody.vfs import PosixFileSystem
from custody.workspace import StepReport, UnitReport

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


STEP = "swh_find_earliest_revision"
_FORM = "^swh:1:(cnt|dir):[0-9a-f]{40}$"
_TYPE, _HASH = 7, 11
"""Where the type and the hash begin in an identifier, from 1."""


def find_earliest_revisions(rounds: Rounds, graph: Graph, identifiers: DataFrame) -> DataFrame:
    """Return (swhid, earliest_swhid, earliest_ts, rev_occurrences) of what is in a dated revision, once each.

    Args:
        rounds: where rounds are written.
        graph: with the column `committer_ts` (seconds since the epoch) in its timestamps.
        identifiers: those of contents and directories in the column `swhid`.

    Raises:
        InvalidInputError: the graph has no such dates, or an identifier has another form.
    """
    dates = read_table(rounds.session, graph, "timestamps")
    if dict(dates.dtypes).get("committer_ts") != "bigint":
        raise InvalidInputError(
            f"graph {graph.folder}: timestamps: expected a column 'committer_ts' (int64, seconds since the epoch), "
            f"found {dates.columns}."
        )
    _check(identifiers)
    nodes = read_table(rounds.session, graph, "nodes").select(F.col("id").cast("bigint"), "type", "sha1_git")
    kind = F.expr(f"substring(swhid, {_TYPE}, 3)").alias("kind")
    hashes = identifiers.distinct().select("swhid", kind, F.expr(f"unhex(substring(swhid, {_HASH}))").alias("hash"))
    objects = nodes.join(hashes, (F.col("sha1_git") == F.col("hash")) & (F.col("type") == F.col("kind")), "inner")
    starts = rounds.checkpoint(objects.select("swhid", F.col("id").alias("node")))
    edges = read_table(rounds.session, graph, "edges").where(F.col("dst_type").isin("cnt", "dir"))
    arcs = edges.select("src_type", F.col("src").cast("bigint"), F.col("dst").cast("bigint"))
    around = _above(rounds, starts.frame, arcs.where("src_type = 'dir'").select("src", "dst"))
    tops = arcs.where("src_type = 'rev'").select(F.col("src").alias("revision"), F.col("dst").alias("node"))
    held = around.join(tops, "node", "inner").select("swhid", "revision").distinct()
    dated = dates.select(F.col("id").cast("bigint").alias("revision"), "committer_ts")
    # NULL for the date 0 as for none, and `min` passes over NULL: such a revision is counted and never the earliest.
    date = F.when(F.col("committer_ts") != 0, F.struct("committer_ts", "revision"))
    revisions = held.join(dated, "revision", "left").groupBy("swhid")
    best = revisions.agg(F.min(date).alias("best"), F.countDistinct("revision").alias("rev_occurrences"))
    best = best.where("best is not null").select("swhid", "best.committer_ts", "best.revision", "rev_occurrences")
    named = nodes.where("type = 'rev'").select(
        F.col("id").alias("revision"), F.concat(F.lit("swh:1:rev:"), F.lower(F.hex("sha1_git"))).alias("earliest_swhid")
    )
    return best.join(named, "revision", "inner").select(
        "swhid", "earliest_swhid", F.col("committer_ts").alias("earliest_ts"), "rev_occurrences"
    )


def _check(identifiers: DataFrame) -> None:
    if "swhid" not in identifiers.columns:
        raise InvalidInputError(f"identifiers: expected a column 'swhid', found {identifiers.columns}.")
    wrong = identifiers.where(F.col("swhid").isNull() | ~F.col("swhid").rlike(_FORM)).limit(1).collect()
    if wrong:
        raise InvalidInputError(
            f"identifiers: expected swh:1:<cnt|dir>:<40 hexadecimal digits in lower case>, got {wrong[0]['swhid']!r}."
        )


def _above(rounds: Rounds, starts: DataFrame, arcs: DataFrame) -> DataFrame:
    """All that lies around each object, itself included: (swhid, node)."""
    rounds_above = [rounds.checkpoint(starts)]
    while rounds_above[-1].rows:
        above = rounds_above[-1].frame.join(arcs, F.col("node") == F.col("dst"), "inner")
        above = above.select("swhid", F.col("src").alias("node")).distinct()
        # Only what is new goes on: many ways lead to one directory.
        rounds_above.append(rounds.checkpoint(above.join(rounds.several(rounds_above), ["swhid", "node"], "left_anti")))
    return rounds.several(rounds_above)


def main(argv: Sequence[str] | None = None) -> int:
    """Answer a CSV file of identifiers with a folder of CSV files; return the process's exit code."""
    parser = argparse.ArgumentParser(prog=f"spark-submit {STEP}.py", description=__doc__)
    parser.add_argument("--graph", type=Path, required=True, help="folder of the graph's tables")
    parser.add_argument("--swhids", type=Path, required=True, help="CSV file with a column swhid")
    parser.add_argument("--out", type=Path, required=True, help="folder of CSV files to make, sorted by swhid")
    arguments = parser.parse_args(argv)
    started, fs = time.monotonic(), PosixFileSystem()
    # Beside the answer and under a name of its own, so that two runs never meet; a run that fails removes it, too.
    scratch = arguments.out.absolute().with_name(f"{arguments.out.name}.rounds-{uuid.uuid4().hex}")
    try:
        if fs.exists(arguments.out):
            raise InvalidInputError(f"{arguments.out}: expected a new folder, found one that is there.")
        graph = open_graph(fs, arguments.graph.resolve())
        session = start_session(STEP)
        try:
            identifiers = session.read.option("header", "true").csv(url_of(arguments.swhids))
            rounds = Rounds(started_session=session, attempt=scratch)
            earliest = rounds.checkpoint(find_earliest_revisions(rounds, graph, identifiers))
            earliest.frame.orderBy("swhid").write.option("header", "true").csv(url_of(arguments.out))
        finally:
            session.stop()
    except CustodyError as error:
        sys.stderr.write(f"custody: {error}\n")
        return error.exit_code
    finally:
        fs.remove_tree(scratch)
    details = [UnitReport(unit=str(arguments.swhids), events=earliest.rows, note=f"{rounds.rounds} rounds")]
    sys.stdout.write(StepReport.of(STEP, str(arguments.out), time.monotonic() - started, details).line() + "\n")
    return 0
