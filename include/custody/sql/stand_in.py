"""A data set that stands in for another one: DuckDB asks it for its columns and for scans, and for nothing else."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds


class StandIn(ds.Dataset):  # type: ignore[misc]
    """The rows of another data set, scanned in another way."""

    def __init__(self, whole: ds.Dataset) -> None:
        # Not the base's constructor: Arrow's data sets have none, and DuckDB calls the two members below only.
        self._whole = whole

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self._whole.schema

    @abstractmethod
    def scanner(
        self,
        columns: list[str] | None = None,
        filter: pc.Expression | None = None,
        **options: Any,  # noqa: ANN401 - Arrow's
    ) -> ds.Scanner:
        """Return a scan of the rows that meet a condition."""
