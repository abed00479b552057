"""A made-up graph in the form in which Software Heritage exports its archive: what its programs compress graphs from.

Tables of ORC files with hashes as text; several files a table, as the programs read files side by side. What the graph
does not say (lengths, messages) is left out or the same everywhere. There are a thousand persons, of which the export
has only digests, as theirs; branches are numbered within a snapshot; an origin's hash is that of its URL.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow import orc

_NAMES = {"cnt": "content", "dir": "directory", "rev": "revision", "rel": "release"}
_ENTRIES = {"cnt": "file", "dir": "dir", "rev": "rev"}
_VISITED = 1_700_000_000
_FILE_ROWS, _PERSONS = 500_000, 1000
_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)


def hex_of(hashes: np.ndarray) -> pa.Array:
    """Return hashes, 20 bytes a row, as text of 40 digits."""
    text = np.stack([_DIGITS[hashes >> 4], _DIGITS[hashes & 15]], axis=2).reshape(len(hashes), 40)
    offsets = np.arange(0, 40 * len(hashes) + 1, 40, dtype=np.int32)
    return pa.StringArray.from_buffers(len(hashes), pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(text)))


def origin_hashes(urls: list[str]) -> np.ndarray:
    """Return the hashes of origins, 20 bytes a row."""
    return np.array([list(hashlib.sha1(url.encode(), usedforsecurity=False).digest()) for url in urls], np.uint8)


def read_table(graph: Path, name: str) -> pa.Table:
    """Return a table of the graph."""
    return ds.dataset(graph / name, format="parquet").to_table().combine_chunks()


def hashes_by_id(graph: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return the hash of each node, 20 bytes a row, and its type; the graph's ids are 0, 1, 2 and so on."""
    nodes, origins = read_table(graph, "nodes"), read_table(graph, "origins")
    ids = nodes.column("id").to_numpy()
    given = nodes.column("sha1_git").chunk(0)
    hashes, kinds = np.empty((len(ids), 20), np.uint8), np.empty(len(ids), "U3")
    hashes[ids] = np.frombuffer(given.buffers()[1], np.uint8)[given.offset * 20 :][: len(ids) * 20].reshape(-1, 20)
    kinds[ids] = nodes.column("type").to_numpy()
    hashes[origins.column("id").to_numpy()] = origin_hashes(origins.column("url").to_pylist())
    return hashes, kinds


def write_export(graph: Path, folder: Path) -> None:
    """Write the export of a graph into a new folder."""
    hashes, kinds = hashes_by_id(graph)
    edges, origins, dates = read_table(graph, "edges"), read_table(graph, "origins"), read_table(graph, "timestamps")
    by_source = {kind: edges.filter(pc.equal(edges["src_type"], kind)) for kind in ("dir", "rev", "rel", "snp")}
    moments = {name: _dates_by_id(dates, name, len(kinds)) for name in ("author_ts", "committer_ts")}

    def text(ids: np.ndarray) -> pa.Array:
        return hex_of(hashes[ids])

    def ends(arcs: pa.Table) -> tuple[np.ndarray, np.ndarray]:
        return arcs.column("src").to_numpy(), arcs.column("dst").to_numpy()

    def named(arcs: pa.Table, names: Mapping[str, str]) -> pa.Array:
        return pa.array([names[kind] for kind in arcs.column("dst_type").to_pylist()], pa.string())

    persons = pa.array([hashlib.sha256(b"person %d" % number).digest() for number in range(_PERSONS)])

    def written(name: str, ids: np.ndarray) -> tuple[pa.Array, pa.Array, pa.Array]:
        """Date, its time zone, and who."""
        dates = moments[name][ids]
        zones = pa.array(np.zeros(len(ids), np.int16), mask=np.isnat(dates))
        return pa.array(dates, pa.timestamp("ns")), zones, persons.take(pa.array(ids % _PERSONS))

    contents, directories, snapshots = (text(np.flatnonzero(kinds == kind)) for kind in ("cnt", "dir", "snp"))
    lengths = pa.array(np.ones(len(contents), np.int64))
    inside, above = by_source["dir"], ends(by_source["dir"])
    _write(folder, "content", sha1_git=contents, length=lengths)
    _write(folder, "skipped_content", sha1_git=pa.array([], pa.string()), length=pa.array([], pa.int64()))
    _write(folder, "directory", id=directories)
    _write(
        folder,
        "directory_entry",
        directory_id=text(above[0]),
        name=inside.column("name").cast(pa.binary()),
        type=named(inside, _ENTRIES),
        target=text(above[1]),
        perms=pa.array(np.full(len(inside), 0o100644, np.int32)),
    )
    is_root = pc.equal(by_source["rev"]["dst_type"], "dir")
    revisions, roots = ends(by_source["rev"].filter(is_root))
    date, zone, author = written("author_ts", revisions)
    committed, committed_zone, committer = written("committer_ts", revisions)
    _write(
        folder,
        "revision",
        id=text(revisions),
        directory=text(roots),
        date=date,
        date_offset=zone,
        author=author,
        committer_date=committed,
        committer_offset=committed_zone,
        committer=committer,
        message=_same(None, len(revisions)),
    )
    later, earlier = ends(by_source["rev"].filter(pc.invert(is_root)))
    _write(folder, "revision_history", id=text(later), parent_id=text(earlier))
    releases, targets = ends(by_source["rel"])
    date, zone, author = written("author_ts", releases)
    _write(
        folder,
        "release",
        id=text(releases),
        target=text(targets),
        target_type=named(by_source["rel"], _NAMES),
        date=date,
        date_offset=zone,
        author=author,
        message=_same(None, len(releases)),
        name=_same(b"release", len(releases)),
    )
    branches = by_source["snp"].sort_by("src")
    holding, held = ends(branches)
    numbers = np.arange(len(held)) - np.searchsorted(holding, holding)
    _write(folder, "snapshot", id=snapshots)
    _write(
        folder,
        "snapshot_branch",
        snapshot_id=text(holding),
        name=pa.array([b"refs/heads/%d" % number for number in numbers], pa.binary()),
        target=text(held),
        target_type=named(branches, _NAMES),
    )
    visits = edges.filter(pc.equal(edges["src_type"], "ori"))
    url_of = dict(zip(origins.column("id").to_pylist(), origins.column("url").to_pylist(), strict=True))
    _write(folder, "origin", id=text(origins.column("id").to_numpy()), url=origins.column("url"))
    _write(
        folder,
        "origin_visit_status",
        origin=pa.array([url_of[one] for one in visits.column("src").to_pylist()], pa.string()),
        date=pa.array(np.full(len(visits), _VISITED, "datetime64[s]").astype("datetime64[ns]")),
        status=_same("full", len(visits)),
        snapshot=text(visits.column("dst").to_numpy()),
        type=_same("git", len(visits)),
    )


def _dates_by_id(dates: pa.Table, name: str, nodes: int) -> np.ndarray:
    """Return the date of each node, none where it has none."""
    known = dates.filter(dates[name].is_valid())
    dates_by_id = np.full(nodes, np.datetime64("NaT"), "datetime64[ns]")
    dates_by_id[known.column("id").to_numpy()] = known.column(name).to_numpy().astype("datetime64[s]")
    return dates_by_id


def _same(value: bytes | str | None, count: int) -> pa.Array:
    kind = pa.string() if isinstance(value, str) else pa.binary()
    return pa.repeat(pa.scalar(value, kind), count)


def _write(folder: Path, table: str, /, **columns: pa.Array) -> None:
    (folder / table).mkdir(parents=True)
    whole = pa.table(columns)
    for number, start in enumerate(range(0, max(len(whole), 1), _FILE_ROWS)):
        rows = whole.slice(start, _FILE_ROWS)
        orc.write_table(rows, folder / table / f"{number:04}.orc", compression="zstd")


if __name__ == "__main__":
    write_export(Path(sys.argv[1]), Path(sys.argv[2]))
