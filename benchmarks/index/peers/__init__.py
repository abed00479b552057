"""The indexes that are compared. Each gets the same events, made into its input outside the clock."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from benchmarks.index.peers.base import Peer
from benchmarks.index.peers.custody_peer import Custody
from benchmarks.index.peers.duckdb_peer import DuckDbLogs, DuckDbValues
from benchmarks.index.peers.nifi_peer import Nifi
from benchmarks.index.peers.sqlite_peer import SqliteTrees, SqliteWords
from benchmarks.index.peers.tantivy_peer import Tantivy
from benchmarks.index.peers.whoosh_peer import StockWhoosh

PEERS: dict[str, Callable[[Path], Peer]] = {
    "custody": Custody,
    "nifi": Nifi,
    "tantivy": Tantivy,
    "sqlite": SqliteTrees,
    "fts5": SqliteWords,
    "duckdb": DuckDbLogs,
    "values": DuckDbValues,
    "whoosh": StockWhoosh,
}
