"""Delta Lake's log through deltalake: one add action a commit; what it writes is not synced.

Filling beyond a thousand commits copies the last commit's JSON under the next names: real ones would take hours.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, write_deltalake
from deltalake.transaction import AddAction

from benchmarks.catalog.peer import answer, best_ms, bytes_below, peak_rss_mib, timed

_SCHEMA = pa.schema([("event_id", pa.int64()), ("type", pa.string()), ("time", pa.int64())])


def main(root: Path, lengths: list[int], times: int) -> None:
    """Measure commits at log lengths, opening, bytes."""
    folder = root / "delta"
    write_deltalake(str(folder), pa.table({"event_id": [1], "type": ["SEND"], "time": [1]}, schema=_SCHEMA))
    schema = Schema.from_arrow(_SCHEMA)
    number = 0
    commits, opens = {}, {}
    for length in lengths:
        _fill(folder, length)
        table = DeltaTable(str(folder))

        def work(table: DeltaTable = table) -> None:
            nonlocal number
            number += 1
            statistics = json.dumps({"numRecords": 1000, "minValues": {"event_id": number}})
            name = f"part-{number}-{time.time_ns()}.parquet"
            action = AddAction(name, 1_000_000, {}, time.time_ns() // 1_000_000, True, statistics)
            table.create_write_transaction(
                [action],
                mode="append",
                schema=schema,
                commit_properties=CommitProperties(),
                post_commithook_properties=PostCommitHookProperties(create_checkpoint=False),
            )

        commits[str(length)] = timed(work, max(5, times if length < 1000 else times // 10))
        sys.stderr.write(f"deltalake, log length {length}: {commits[str(length)]}\n")
        if length >= 1000:
            without = best_ms(lambda: DeltaTable(str(folder)).version(), 3)
            DeltaTable(str(folder)).create_checkpoint()
            files, total = bytes_below(folder / "_delta_log", without=".none")
            opens[str(length)] = {
                "open_without_checkpoint_ms": without,
                "open_with_checkpoint_ms": best_ms(lambda: DeltaTable(str(folder)).version()),
                "metadata_files": files,
                "metadata_bytes": total,
            }
            for path in [
                *(folder / "_delta_log").glob("*.checkpoint*.parquet"),
                folder / "_delta_log/_last_checkpoint",
            ]:
                path.unlink()
            sys.stderr.write(f"deltalake, opening {length}: {opens[str(length)]}\n")
    answer({"commits": commits, "opening": opens, "peak_rss_mib": peak_rss_mib()})


def _fill(folder: Path, length: int) -> None:
    log = folder / "_delta_log"
    last = max(int(path.stem) for path in log.glob("*.json"))
    template = (log / f"{last:020d}.json").read_text()
    for number in range(last + 1, length):
        (log / f"{number:020d}.json").write_text(template.replace("part-", f"part-{number}-"))


if __name__ == "__main__":
    main(Path(sys.argv[1]), [int(number) for number in sys.argv[2].split(",")], int(sys.argv[3]))
