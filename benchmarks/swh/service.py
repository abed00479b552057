"""Questions over gRPC beside the service of Software Heritage: `python -m benchmarks.swh service`.

Both services answer from the same files, each in a process of its own, to the same client: where a content is, one
after the other and a hundred at once, and from a cold start, that is from starting the service with its files dropped
from the page cache to its first answer. custody without a service, DuckDB and DataFusion answer the same. The service
of Software Heritage gives any revision, custody's the earliest: each answer of a service is looked up in the tables.
Without the programs of Software Heritage (`heritage.py` says where they come from) the others are measured alone.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import psutil  # type: ignore[import-untyped]
import pyarrow as pa
import pyarrow.dataset as ds

from benchmarks.environment import LOCAL
from benchmarks.swh import heritage
from benchmarks.swh.asker import WARM_UP, Asked, drop_cached
from benchmarks.swh.build import BUILD
from benchmarks.swh.query import database_of, measured
from custody.serving.provenance_pb2 import WhereAreOneRequest, WhereIsOneRequest, WhereIsOneResult
from custody.swh import ObjectType, ProvenanceDatabase, Swhid
from custody.swh.tables import EARLIEST, NODES, TABLES, hash_keys
from custody.vfs import PosixFileSystem

SERVICE = "/swh.provenance.ProvenanceService/"
MANY = 100
CUSTODY, HERITAGE = "custody over gRPC", "Software Heritage over gRPC"
IN_PROCESS = ("custody", "custody, nothing cached", "DuckDB", "DataFusion")
Answer = tuple[str, str]
"""SWHID of the revision and URL of the origin, empty where there is none."""


def linked(built: Path, folder: Path) -> Path:
    """Return a folder of tables, as links into a build of `python -m benchmarks.swh build`."""
    steps = built / "repository" / "store" / "main" / "swh" / "builds" / BUILD
    folder.mkdir(parents=True, exist_ok=True)
    for table in steps.glob("*/tables/*"):
        if table.name in TABLES and not (folder / table.name).exists():
            (folder / table.name).symlink_to(table.resolve())
    return folder


def opened(tables: Path) -> ProvenanceDatabase:
    """Return a folder of tables as a database."""
    return ProvenanceDatabase(
        PosixFileSystem(), {name: dict.fromkeys((tables / name).glob("*.parquet")) for name in TABLES}
    )


def drawn(tables: Path, count: int, seed: int = 5) -> list[tuple[int, str, str]]:
    """Return random contents that are in a revision, as hash key, type and hash."""
    rng = np.random.default_rng(seed)
    dated = ds.dataset(heritage.files_of(tables, EARLIEST)).to_table(columns=["node"]).column("node").to_numpy()
    wanted = pa.array(np.unique(rng.choice(dated, min(count * 4, len(dated)), replace=False)))
    is_wanted = (ds.field("type") == "cnt") & ds.field("id").isin(wanted)
    hashes = ds.dataset(heritage.files_of(tables, NODES)).to_table(columns=["sha1_git"], filter=is_wanted).column(0)
    shuffled = rng.permutation(np.array(hashes.to_pylist(), "V20"))
    keys = hash_keys(pa.array([bytes(one) for one in shuffled], pa.binary(20)))
    return [(int(key), "cnt", bytes(one).hex()) for key, one in zip(keys, shuffled, strict=True)]


def swhid_of(asked: tuple[int, str, str]) -> Swhid:
    """Return the identifier that is asked for."""
    return Swhid(ObjectType(asked[1]), bytes.fromhex(asked[2]))


def free_address() -> str:
    """Return an address of this machine that nobody listens at."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


class Client:
    """Asks a service; both have the same definition."""

    def __init__(self, channel: grpc.Channel) -> None:
        parts = {"response_deserializer": WhereIsOneResult.FromString}
        one, many = WhereIsOneRequest.SerializeToString, WhereAreOneRequest.SerializeToString
        self._one = channel.unary_unary(f"{SERVICE}WhereIsOne", request_serializer=one, **parts)
        self._many = channel.unary_stream(f"{SERVICE}WhereAreOne", request_serializer=many, **parts)

    def ask(self, asked: Asked) -> dict[str, Answer]:
        """Return the answers by identifier."""
        swhids = [f"swh:1:{kind}:{sha1}" for _, kind, sha1 in asked]
        if len(swhids) == 1:
            answers = [self._one(WhereIsOneRequest(swhid=swhids[0]))]
        else:
            answers = list(self._many(WhereAreOneRequest(swhid=swhids)))
        return {answer.swhid: (answer.anchor, answer.origin) for answer in answers}


@contextmanager
def client_of(command: Sequence[str], address: str, log: Path) -> Iterator[tuple[Client, psutil.Process]]:
    """Start a service and give a client of it, and its process."""
    with heritage.serving(command, address, log) as process, grpc.insecure_channel(address) as channel:
        yield Client(channel), process


def spent(process: psutil.Process) -> float:
    """Return the CPU time of a process so far, in seconds."""
    times = process.cpu_times()
    return float(times.user + times.system)


def ask_warm(commands: Callable[[str], list[str]], questions: Sequence[Asked], log: Path) -> dict[str, Any]:
    """Ask one after the other, as `asker.ask_warm`; CPU time is the service's."""
    address = free_address()
    with client_of(commands(address), address, log) as (client, process):
        for asked in questions[:WARM_UP]:
            client.ask(asked)
        walls, answers, started = [], [], spent(process)
        for asked in questions[WARM_UP:]:
            before = time.perf_counter()
            answers.append(client.ask(asked))
            walls.append(time.perf_counter() - before)
        cpu = (spent(process) - started) / len(walls)
        return {"walls": walls, "cpu": cpu, "answers": answers, "rss": process.memory_info().rss}


def ask_cold(
    commands: Callable[[str], list[str]], questions: Sequence[Asked], log: Path, folders: Sequence[Path]
) -> dict[str, Any]:
    """Before each question the service's files are dropped and it is started; its start counts."""
    walls, answers, cpu = [], [], 0.0
    for asked in questions:
        for folder in folders:
            drop_cached(folder)
        address, before = free_address(), time.perf_counter()
        with client_of(commands(address), address, log) as (client, process):
            answers.append(client.ask(asked))
            walls.append(time.perf_counter() - before)
            cpu += spent(process)
    return {"walls": walls, "cpu": cpu / len(walls), "answers": answers, "rss": 0}


def check(database: ProvenanceDatabase, answers: Sequence[dict[str, Answer]], exact: bool) -> tuple[int, int, int]:
    """Look answers up; return how many there are, how many have no revision, how many have the earliest.

    Args:
        exact: whether each has to be the earliest; otherwise any revision that holds the content will do.

    Raises:
        AssertionError: one names another revision, or another origin than that revision's first.
    """
    none = first = 0
    flat = {text: answer for one in answers for text, answer in one.items()}
    for text, (anchor, origin) in flat.items():
        best = database.whereis(Swhid.parse(text))
        held = {str(best.anchor): best.origin or ""}
        none += not anchor
        first += anchor in held
        if not exact:
            held = {str(place.anchor): place.origin or "" for place in database.occurrences(Swhid.parse(text))}
        assert not anchor or held.get(anchor) == origin, f"{text}: {anchor} {origin}"
    return len(flat), none, first


def answering(tables: Path, address: str) -> None:
    """Be custody's service over a folder of tables, until SIGTERM: what `custody swh serve` serves of a repository."""
    from custody.config import Settings
    from custody.serving.swh_grpc import serving_rpc

    port = int(address.rpartition(":")[2])
    settings = Settings(root=tables)
    settings = settings.model_copy(update={"swh": settings.swh.model_copy(update={"grpc_port": port})})
    questions: Any = opened(tables)
    questions.check()
    with serving_rpc(questions, settings):
        time.sleep(1e9)


def compare(tables: Path, work: Path, arguments: argparse.Namespace) -> None:
    """Print one line a system and kind of question.

    Raises:
        AssertionError: an answer is wrong.
    """
    systems: dict[str, Callable[[str], list[str]]] = {
        CUSTODY: lambda address: [sys.executable, "-m", "benchmarks.swh.service", str(tables), address]
    }
    lacking = list(heritage.PROGRAMS) if arguments.programs is None else heritage.missing(arguments.programs)
    if lacking:
        sys.stdout.write(f"skipped: the service of Software Heritage, for want of {', '.join(lacking)} (--programs)\n")
    else:
        heritage.prepare(arguments.programs, tables, work)
        systems[HERITAGE] = lambda address: heritage.command(arguments.programs, tables, work, address)
    database, logs = opened(tables), work.parent
    logs.mkdir(parents=True, exist_ok=True)
    count, many = arguments.questions + WARM_UP, max(arguments.questions // 10, 3) + WARM_UP
    wanted = count + many * MANY
    held = (one for one in drawn(tables, wanted) if database.occurrences(swhid_of(one), 1))
    pool = list(islice(held, wanted))
    single = [[one] for one in pool[:count]]
    hundreds = [pool[start : start + MANY] for start in range(count, len(pool), MANY)]
    kinds = {"whereis, warm": single, f"whereis_many {MANY}, warm": hundreds, "whereis, cold": single[: arguments.cold]}
    for name, questions in kinds.items():
        is_cold = name.endswith("cold")
        for system in arguments.systems or (*IN_PROCESS, *systems):
            if system in IN_PROCESS:
                _line(name, system, measured(system, tables, questions, name.rpartition(" ")[2]))
                continue
            if system not in systems:
                continue
            log = logs / f"{system.partition(' ')[0]}.log"
            if is_cold:
                results = ask_cold(systems[system], questions, log, [tables, work])
            else:
                results = ask_warm(systems[system], questions, log)
            _line(name, system, results)
            total, none, first = check(database, results["answers"], exact=system == CUSTODY)
            share = f", {first} the earliest one" if arguments.built else ""
            sys.stdout.write(f"    {total} contents asked: {none} have no revision in the answer{share}\n")
            sys.stdout.flush()


def _line(name: str, system: str, results: dict[str, Any]) -> None:
    walls = np.array(results["walls"]) * 1e3
    rss = f", {results['rss'] >> 20} MiB resident" if results.get("rss") else ""
    sys.stdout.write(
        f"  {name}, {system}: p50 {np.median(walls):.2f} ms, p99 {np.percentile(walls, 99):.2f} ms, "
        f"CPU {results['cpu'] * 1e3:.2f} ms{rss}\n"
    )
    sys.stdout.flush()


def main(argv: Sequence[str] | None = None) -> int:
    """Compare on made-up databases, or on one that was built."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.swh service", description=__doc__)
    parser.add_argument("--programs", type=Path, help="folder of the programs of Software Heritage")
    parser.add_argument("--built", type=Path, help="folder that `build` wrote, instead of made-up databases")
    parser.add_argument("--rows", type=int, nargs="*", default=[1_000_000], help="nodes of made-up databases")
    parser.add_argument("--questions", type=int, default=500)
    parser.add_argument("--cold", type=int, default=10, help="how many questions are asked cold")
    parser.add_argument("--systems", nargs="*", choices=[*IN_PROCESS, CUSTODY, HERITAGE], help="all when left out")
    parser.add_argument("--folder", type=Path, default=LOCAL / "swh", help="where databases are made")
    arguments = parser.parse_args(argv)
    folder = arguments.folder.resolve()
    if arguments.built:
        databases = [("built", linked(arguments.built.resolve(), folder / "built"))]
    else:
        databases = [(str(rows), database_of(rows, folder)) for rows in arguments.rows]
    for name, tables in databases:
        work = folder / f"{name}-heritage" / "graph"
        sys.stdout.write(f"{tables}: {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n")
        compare(tables, work, arguments)
    return 0


if __name__ == "__main__":
    answering(Path(sys.argv[1]), sys.argv[2])
