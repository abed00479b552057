"""The service of Software Heritage as a peer: its own programs, on the tables that custody wrote.

Nothing of it is part of this project or needed by it; it is only run. Its programs come from crates.io; to build them
takes Rust, a C++ compiler, libclang and protoc:

    cargo install swh-provenance --version 0.5.0 --locked --root FOLDER
    cargo install swh-graph --version 12.1.2 --locked --features compression --root FOLDER

The tables are read as they are, by names, columns and types. What the service needs besides are its own indexes of
keys, and of the compressed graph those files that tell ids from identifiers and URLs from ids: they are made by its
programs too, in such an order that the ids are those of the tables.
"""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import grpc
import numpy as np
import psutil  # type: ignore[import-untyped]
import pyarrow as pa
import pyarrow.dataset as ds

from custody.swh.tables import NODE_IDS, ORIGINS

PROGRAMS = ("swh-provenance-grpc-serve", "swh-provenance-index", "swh-graph-compress", "swh-graph-hash")
_NO_TEXT = np.iinfo(np.uint64).max
_START_SECONDS = 120


def missing(programs: Path) -> list[str]:
    """Return the names of the programs that the folder does not have."""
    return [name for name in PROGRAMS if not (programs / name).is_file()]


def files_of(tables: Path, name: str) -> list[str]:
    """Return the Parquet files of a table."""
    return sorted(str(path) for path in (tables / name).glob("*.parquet"))


def swhid_lines(kinds: pa.Array, hashes: np.ndarray) -> np.ndarray:
    """Return one line of text a node, as bytes: 51 a row, the line's end included.

    Args:
        kinds: the type of each node, `cnt` and so on.
        hashes: 20 bytes a row.
    """
    named = kinds.dictionary_encode()
    heads = np.array([list(f"swh:1:{kind}:".encode()) for kind in named.dictionary.to_pylist()], np.uint8)
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)
    lines = np.empty((len(hashes), 51), np.uint8)
    lines[:, :10] = heads[named.indices.to_numpy()]
    lines[:, 10:50:2] = digits[hashes >> 4]
    lines[:, 11:50:2] = digits[hashes & 15]
    lines[:, 50] = ord("\n")
    return lines


def prepare(programs: Path, tables: Path, folder: Path) -> None:
    """Make what the service needs besides the tables; it is made once.

    Raises:
        ValueError: the ids of the tables are not 0, 1, 2 and so on, as the service expects them.
        subprocess.CalledProcessError: a program of the service failed.
    """
    if (folder / "made").exists():
        return
    (folder / "graph.nodes").mkdir(parents=True)
    nodes = ds.dataset(files_of(tables, NODE_IDS)).to_table(columns=["id", "type", "sha1_git"]).combine_chunks()
    ids = nodes.column("id").to_numpy()
    if not np.array_equal(np.bincount(ids.astype(np.int64), minlength=len(ids)), np.ones(len(ids))):
        raise ValueError(f"{tables}: expected the ids 0 to {len(ids) - 1}.")
    hashes = nodes.column("sha1_git").chunk(0)
    rows = np.frombuffer(hashes.buffers()[1], np.uint8)[hashes.offset * 20 :][: len(ids) * 20].reshape(-1, 20)
    write_maps(programs, folder, ids, swhid_lines(nodes.column("type").chunk(0), rows))
    _write_texts(tables, folder, len(ids))
    run(programs, "swh-provenance-index", "--database", tables.as_uri(), "--indexes", folder / "indexes")
    (folder / "made").touch()


def write_maps(programs: Path, folder: Path, ids: np.ndarray, lines: np.ndarray) -> None:
    """Make the files that tell ids from identifiers, by a perfect hash and the id of each of its values, and back.

    Args:
        ids: the nodes, 0, 1, 2 and so on in any order.
        lines: their identifiers, as `swhid_lines` makes them.
    """
    text, count = folder / "identifiers", len(ids)
    lines.tofile(text)
    with pa.CompressedOutputStream(str(folder / "graph.nodes" / "00000.zst"), "zstd") as out:
        out.write(lines.tobytes())
    (folder / "graph.nodes.count.txt").write_text(f"{count}\n")
    function, order, number = folder / "graph.fmphgo", folder / "graph.fmphgo.order", ("--num-nodes", count)
    run(programs, "swh-graph-compress", "fmphgo-swhids", *number, folder / "graph.nodes", function)
    unchanged = folder / "unchanged"
    np.arange(count, dtype=">u8").tofile(unchanged)
    algorithm = ("--mph-algo", "fmphgo")
    hashing = ("swhids", *number, *algorithm, "--mph", folder / "graph", "--permutation", unchanged)
    values = run(programs, "swh-graph-hash", *hashing, given=text)
    node_of = np.empty(count, ">u8")
    node_of[np.fromstring(values, np.int64, sep="\n")] = ids
    node_of.tofile(order)
    outputs = ("--node2swhid", folder / "graph.node2swhid.bin", "--node2type", folder / "graph.node2type.bin")
    given = ("--swhids-dir", folder / "graph.nodes", *algorithm, "--function", function, "--order", order)
    run(programs, "swh-graph-compress", "maps", *number, *given, *outputs)
    text.unlink()
    unchanged.unlink()


def _write_texts(tables: Path, folder: Path, count: int) -> None:
    """URLs of origins, which the service has where messages of revisions are; there are no names of releases."""
    origins = ds.dataset(files_of(tables, ORIGINS)).to_table(columns=["id", "url"])
    texts = [base64.b64encode(url.encode()) + b"\n" for url in origins.column("url").to_pylist()]
    starts = np.full(count, _NO_TEXT, ">u8")
    lengths = np.array([len(text) for text in texts], np.uint64)
    starts[origins.column("id").to_numpy()] = np.cumsum(lengths) - lengths
    (folder / "graph.property.message.bin").write_bytes(b"".join(texts))
    starts.tofile(folder / "graph.property.message.offset.bin")
    (folder / "graph.property.tag_name.bin").write_bytes(b"\n")
    np.full(count, _NO_TEXT, ">u8").tofile(folder / "graph.property.tag_name.offset.bin")


def run(programs: Path, name: str, *arguments: object, given: Path | None = None) -> str:
    """Run a program and return what it prints.

    Raises:
        subprocess.CalledProcessError: it failed.
    """
    with Path("/dev/null" if given is None else given).open() as lines:
        command = [str(programs / name), *map(str, arguments)]
        return subprocess.run(command, check=True, text=True, stdin=lines, stdout=subprocess.PIPE).stdout


def command(programs: Path, tables: Path, folder: Path, address: str) -> list[str]:
    """Return what starts the service."""
    given = {
        "--graph": str(folder / "graph"),
        "--database": tables.as_uri(),
        "--indexes": str(folder / "indexes"),
        "--bind": address,
    }
    return [str(programs / PROGRAMS[0]), *(word for pair in given.items() for word in pair)]


@contextmanager
def serving(command: Sequence[str], address: str, log: Path) -> Iterator[psutil.Process]:
    """Run a service for the block, from when it can be asked.

    Raises:
        RuntimeError: it ended, or cannot be asked after two minutes; the log says why.
    """
    with log.open("w") as lines, psutil.Popen(command, stdout=lines, stderr=lines) as process:
        try:
            _wait(process, address, log)
            yield process
        finally:
            process.terminate()


def _wait(process: psutil.Popen, address: str, log: Path) -> None:
    with grpc.insecure_channel(address, options=[("grpc.initial_reconnect_backoff_ms", 50)]) as channel:
        ready = grpc.channel_ready_future(channel)
        for _ in range(_START_SECONDS * 20):
            try:
                return ready.result(timeout=0.05)  # type: ignore[no-any-return]
            except grpc.FutureTimeoutError:
                if process.poll() is not None:
                    break
    raise RuntimeError(f"{process.args[0]} does not answer; see {log}.")
