"""One Spark in the process of the tests, for all files whose tests need a session and no job of their own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.swh.on_spark import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def one_spark() -> Iterator[SparkSession]:
    """A session to derive others from, with `newSession`: settings, views and sources are each one's own.

    To start a Spark takes longer than most tests with it; tests/conftest.py keeps these files on one worker.
    """
    with spark_session() as opened:
        yield opened
