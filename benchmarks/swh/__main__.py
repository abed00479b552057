"""`python -m benchmarks.swh`: how long a question to a table takes, by rows of a page and keys at once.

`query` compares questions to a whole database with other systems (`query.py`), `service` the same over gRPC with the
service of Software Heritage (`service.py`); `build` is what a build takes (`build.py`), `heritage` the same beside
the programs of Software Heritage (`heritage_build.py`).

Every question is a random key; files are warm. CPU time is of this process and hardly depends on what else runs.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.swh import query
from benchmarks.swh.asker import SYSTEMS
from custody.swh.table_file import GROUP_ROWS, IndexedTable, write_table_file
from custody.swh.tables import CONTENTS_IN_REVISIONS, TABLES
from custody.vfs import PosixFileSystem

SPEC = TABLES[CONTENTS_IN_REVISIONS]
_KEYS_OF_A_ROW = 4


def make_source(folder: Path, rows: int, seed: int = 7) -> Path:
    """Write sorted rows as Spark leaves them: four rows a content on average, ids out of ten times as many."""
    rng = np.random.default_rng(seed)
    contents = np.sort(rng.choice(np.unique(rng.integers(0, rows * 3, rows // _KEYS_OF_A_ROW)), rows))
    dates = rng.integers(1_000_000_000, 1_700_000_000, rows)
    paths = [b"src/module-%d/file-%d.c" % pair for pair in zip(rng.integers(0, 300, rows), range(rows), strict=True)]
    columns = {"cnt": contents, "revrel": rng.integers(0, rows, rows), "revrel_author_date": dates, "path": paths}
    path = folder / "source.parquet"
    pq.write_table(pa.table(columns), path)
    return path


def measure(ask: Callable[[np.ndarray], object], keys: Sequence[np.ndarray]) -> tuple[float, float, float]:
    """Return median and 99th percentile of the wall time and the mean CPU time of a question, in ms."""
    for key in keys[:20]:
        ask(key)
    walls = []
    started = time.process_time()
    for key in keys:
        before = time.perf_counter()
        ask(key)
        walls.append(time.perf_counter() - before)
    spent = time.process_time() - started
    return float(np.median(walls)) * 1e3, float(np.percentile(walls, 99)) * 1e3, spent / len(keys) * 1e3


def main(argv: Sequence[str] | None = None) -> int:
    """Print one line a case."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.swh", description=__doc__)
    commands = parser.add_subparsers()
    asking = commands.add_parser("query", description=query.__doc__)
    asking.set_defaults(run=query.main)
    asking.add_argument("--rows", type=int, nargs="*", default=[1_000_000, 5_000_000, 20_000_000])
    asking.add_argument("--questions", type=int, default=500)
    asking.add_argument("--many", type=int, nargs="*", default=[100], help="identifiers of questions about many")
    asking.add_argument("--cold", type=int, default=20, help="how many questions are asked cold")
    asking.add_argument("--systems", nargs="*", choices=list(SYSTEMS), help="which ones; all when left out")
    asking.add_argument("--modes", nargs="*", choices=["warm", "cold"], default=["warm", "cold"])
    asking.add_argument("--build", type=Path, help="folder of a build whose tables are asked instead of made-up ones")
    asking.add_argument("--folder", type=Path, help="where databases are made; .local/benchmarks/swh when left out")
    parser.set_defaults(run=measure_pages)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--questions", type=int, default=500)
    parser.add_argument("--pages", type=int, nargs="*", default=[256, 1024, 4096, 16384], help="rows of a page")
    arguments = parser.parse_args(argv)
    return int(arguments.run(arguments))


def measure_pages(arguments: argparse.Namespace) -> int:
    """Print one line a size of pages and kind of question."""
    rng = np.random.default_rng(1)
    out = sys.stdout
    machine = f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, pyarrow {pa.__version__}"
    out.write(f"{machine}; {arguments.rows} rows, {arguments.questions} questions\n")
    with tempfile.TemporaryDirectory() as scratch:
        folder, fs = Path(scratch), PosixFileSystem()
        source = make_source(folder, arguments.rows)
        for page_rows in arguments.pages:
            path = folder / f"{page_rows}.parquet"
            spec = dataclasses.replace(SPEC, page_rows=page_rows)
            written = write_table_file(fs, spec, [source], path, group_rows=max(page_rows, GROUP_ROWS))
            assert written is not None
            table = IndexedTable(fs, SPEC, {path: None})
            held = pq.read_table(path, columns=["cnt"]).column("cnt").unique().to_numpy()
            out.write(f"pages of {page_rows}: {written.bytes >> 10} KiB, index {written.index_bytes >> 10} KiB\n")
            missing = np.setdiff1d(rng.integers(0, arguments.rows * 3, arguments.questions, dtype=np.uint64), held)
            cases = {
                "one key": rng.choice(held, (arguments.questions, 1)),
                "one key, with dates and paths": rng.choice(held, (arguments.questions, 1)),
                "one key that is not there": missing.reshape(-1, 1),
                "a hundred keys": rng.choice(held, (max(arguments.questions // 20, 1), 100)),
            }
            for name, keys in cases.items():
                columns = None if "paths" in name else ["revrel"]
                median, late, cpu = measure(partial(table.rows, columns=columns), list(keys))
                out.write(f"  {name}: p50 {median:.2f} ms, p99 {late:.2f} ms, CPU {cpu:.2f} ms\n")
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["build"]:
        from benchmarks.swh.build import main as build

        sys.exit(build(sys.argv[2:]))
    if sys.argv[1:2] == ["arrays"]:
        from benchmarks.swh.arrays import main as arrays

        sys.exit(arrays(sys.argv[2:]))
    if sys.argv[1:2] == ["service"]:
        from benchmarks.swh.service import main as service

        sys.exit(service(sys.argv[2:]))
    if sys.argv[1:2] == ["heritage"]:
        from benchmarks.swh.heritage_build import main as heritage

        sys.exit(heritage(sys.argv[2:]))
    sys.exit(main())
