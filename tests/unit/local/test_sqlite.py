"""A transaction of SQLite that begins with a savepoint: it waits for other writers, and nobody sees its half."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session

from custody_local.sqlite import CONNECT_ARGUMENTS


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with closing(sqlite3.connect(tmp_path / "airflow.db")) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("CREATE TABLE runs (name TEXT)")
    return tmp_path / "airflow.db"


@pytest.fixture
def other(path: Path) -> Iterator[sqlite3.Connection]:
    """A writer that does not wait."""
    with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as connection:
        yield connection


def rows(connection: sqlite3.Connection) -> list[str]:
    return [name for (name,) in connection.execute("SELECT name FROM runs ORDER BY name")]


def test_sqlite_by_itself_fails_at_once_where_another_commits_before_the_first_change(
    path: Path, other: sqlite3.Connection
) -> None:
    # Why there is another connection at all; when this fails, Python or SQLite has mended it.
    with closing(sqlite3.connect(path, timeout=60)) as stock:
        stock.execute("SAVEPOINT first")
        assert rows(stock) == []
        other.execute("INSERT INTO runs VALUES ('other')")
        with pytest.raises(sqlite3.OperationalError, match="database is locked"):
            stock.execute("INSERT INTO runs VALUES ('mine')")


def test_savepoints_of_a_session_are_one_transaction_that_no_other_breaks(
    path: Path, other: sqlite3.Connection
) -> None:
    engine = create_engine(f"sqlite:///{path}", connect_args=CONNECT_ARGUMENTS)
    with Session(engine) as session:
        for name in ("a", "b"):
            with session.begin_nested():
                assert session.scalar(text("SELECT count(*) FROM runs")) == (0 if name == "a" else 1)
                with pytest.raises(sqlite3.OperationalError, match="database is locked"):
                    other.execute("INSERT INTO runs VALUES ('other')")
                session.execute(text("INSERT INTO runs VALUES (:name)"), {"name": name})
        with session.begin_nested() as nested:
            session.execute(text("INSERT INTO runs VALUES ('undone')"))
            nested.rollback()
        assert rows(other) == []
        session.commit()
    assert rows(other) == ["a", "b"]
    engine.dispose()


def test_a_savepoint_waits_for_the_writer_before_it(path: Path) -> None:
    begun, end = threading.Event(), threading.Event()

    def hold() -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as first:
            first.execute("BEGIN IMMEDIATE")
            first.execute("INSERT INTO runs VALUES ('first')")
            begun.set()
            end.wait(60)
            first.execute("COMMIT")

    holder = threading.Thread(target=hold)
    holder.start()
    assert begun.wait(60)
    engine = create_engine(f"sqlite:///{path}?timeout=60", connect_args=CONNECT_ARGUMENTS)
    threading.Timer(0.3, end.set).start()
    with Session(engine) as session, session.begin_nested():
        # It began after the other's commit, and sees it.
        assert session.scalar(text("SELECT name FROM runs")) == "first"
    holder.join()
    engine.dispose()
