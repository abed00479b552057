"""Questions to a whole database beside other systems on the same files: `python -m benchmarks.swh query`.

The database is made up, or with `--build` that of a build (its folder, below `builds`). Wall times and CPU times of one
question after the other, of one identifier and of many; warm, and cold: files dropped from the page cache and
everything opened anew for each question. All systems have to give the same answers.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.environment import LOCAL, peers_python
from benchmarks.swh.asker import SYSTEMS, WARM_UP
from benchmarks.swh.made import Sizes, hashes_of, kinds_of, make_database
from custody.swh.tables import hash_keys

ROOT = Path(__file__).resolve().parents[2]
REQUIREMENTS = Path(__file__).with_name("requirements.txt")
Questions = list[list[tuple[int, str, str]]]


def database_of(rows: int, folder: Path | None = None) -> Path:
    """Return the folder of a made-up database of so many nodes; it is made when it is not there."""
    target = (LOCAL / "swh" if folder is None else folder) / str(rows)
    if not (target / "made").exists():
        make_database(target, rows)
        (target / "made").touch()
    return target


def tables_of(build: Path, folder: Path) -> Path:
    """Link the tables of a build into a folder, each table a folder of it, as a made-up database lies."""
    for path in build.glob("*/tables/*/*"):
        target = folder / path.parent.name / path.name
        target.parent.mkdir(exist_ok=True)
        target.symlink_to(path.resolve())
    return folder


def questions_in(database: Path, count: int, many: int, seed: int) -> Questions:
    """The same as `questions_of` for a database whose hashes are not made up."""
    rng = np.random.default_rng(seed)
    rows = pa.concat_tables(pq.read_table(path) for path in sorted((database / "node_ids").glob("*.parquet")))
    rows = rows.filter(pc.is_in(rows["type"], pa.array(["cnt", "dir"])))
    rows = rows.take(pa.array(rng.integers(0, rows.num_rows, count * many)))
    texts = [sha1.hex() for sha1 in rows["sha1_git"].to_pylist()]
    flat = list(zip(rows["hash_key"].to_pylist(), rows["type"].to_pylist(), texts, strict=True))
    return [flat[start : start + many] for start in range(0, len(flat), many)]


def questions_of(rows: int, count: int, many: int, seed: int) -> Questions:
    """Identifiers of contents and directories, drawn at random: `count` questions of `many`."""
    sizes, rng = Sizes(rows), np.random.default_rng(seed)
    ids = rng.integers(0, sizes.directories_end, count * many)
    hashes = hashes_of(ids)
    keys = hash_keys(pa.FixedSizeBinaryArray.from_buffers(pa.binary(20), len(ids), [None, pa.py_buffer(hashes)]))
    texts = [row.tobytes().hex() for row in hashes]
    flat = list(zip(keys.tolist(), kinds_of(sizes, ids).tolist(), texts, strict=True))
    return [flat[start : start + many] for start in range(0, len(flat), many)]


def measured(system: str, folder: Path, questions: Questions, mode: str) -> dict[str, Any]:
    """Let a system answer in a process of its own.

    Raises:
        subprocess.CalledProcessError: it failed.
    """
    is_peer = system == "DataFusion"
    python = str(peers_python(REQUIREMENTS)) if is_peer else sys.executable
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(questions, file)
        file.flush()
        command = [python, str(Path(__file__).with_name("asker.py")), system, str(folder), file.name, mode]
        environment = {**os.environ, "PYTHONPATH": "" if is_peer else str(ROOT / "include")}
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment)
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def compare(
    database: Path,
    questions_for: Callable[[int, int, int], Questions],
    *,
    count: int,
    many: list[int],
    cold: int,
    systems: list[str],
    modes: list[str],
) -> None:
    """Print one line a system and kind of question.

    Raises:
        AssertionError: a system gives another answer.
    """
    rows = sum(pq.read_metadata(path).num_rows for path in (database / "node_ids").glob("*.parquet"))
    size = sum(path.stat().st_size for path in database.rglob("*") if path.is_file())
    machine = f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    sys.stdout.write(f"{rows} nodes, {size >> 20} MiB of tables and indexes; {machine}\n")
    batches = [(f"whereis_many {keys}", "warm", keys, max(count * 10 // keys, 3)) for keys in many]
    for name, mode, keys, asked in (("whereis", "warm", 1, count), *batches, ("whereis", "cold", 1, cold)):
        if mode not in modes:
            continue
        questions = questions_for(asked + (WARM_UP if mode == "warm" else 0), keys, keys)
        expected: list[Any] | None = None
        for system in systems:
            results = measured(system, database, questions, mode)
            assert expected in (None, results["answers"]), f"{system} answers otherwise"
            expected = results["answers"]
            walls = np.array(results["walls"]) * 1e3
            sys.stdout.write(
                f"  {name}, {mode}, {system}: p50 {np.median(walls):.2f} ms, p99 {np.percentile(walls, 99):.2f} ms, "
                f"CPU {results['cpu'] * 1e3:.2f} ms, read {results['read'] / 1024:.0f} KiB\n"
            )
            sys.stdout.flush()


def main(arguments: Any) -> int:
    """Compare for the build, or for each size."""
    systems = arguments.systems or list(SYSTEMS)
    given = {
        "count": arguments.questions,
        "many": arguments.many,
        "cold": arguments.cold,
        "systems": systems,
        "modes": arguments.modes,
    }
    if arguments.build is not None:
        with tempfile.TemporaryDirectory() as scratch:
            database = tables_of(arguments.build, Path(scratch))
            compare(database, partial(questions_in, database), **given)
        return 0
    for rows in arguments.rows:
        compare(database_of(rows, arguments.folder), partial(questions_of, rows), **given)
    return 0
