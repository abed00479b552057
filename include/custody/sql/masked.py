"""Data sets whose scans give masked values: what is masked never reaches the engine, whatever its query asks.

A condition that the engine leaves to the scan is answered by masked values as well. Otherwise rows would tell by being
there what the values were.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from custody.model.masking import MASKED_COLUMNS, AttributeMask
from custody.sql.stand_in import StandIn


class MaskedDataset(StandIn):
    """A table of events of which the values of some attributes are masked.

    Args:
        whole: all rows.
        mask: the attributes.
    """

    def __init__(self, whole: ds.Dataset, mask: AttributeMask) -> None:
        super().__init__(whole)
        self._mask = mask

    def scanner(
        self,
        columns: list[str] | None = None,
        filter: pc.Expression | None = None,
        **options: Any,  # noqa: ANN401 - Arrow's
    ) -> ds.Scanner:
        """Return a scan of the rows that meet a condition."""
        names = self.schema.names if columns is None else columns
        # By its text, since Arrow does not say which columns a condition is about; a constant that looks like the name
        # of one costs time alone.
        asks = filter is not None and any(name in str(filter) for name in MASKED_COLUMNS)
        if not asks and not set(names) & set(MASKED_COLUMNS):
            return self._whole.scanner(columns=columns, filter=filter, **options)
        read = self.schema.names if asks else names
        schema = pa.schema([self.schema.field(name) for name in read])
        scan = self._whole.scanner(columns=read, filter=None if asks else filter, **options)

        def batches() -> Iterator[pa.RecordBatch]:
            for batch in scan.to_batches():
                yield self._mask.rows(batch)

        masked = pa.RecordBatchReader.from_batches(schema, batches())
        return ds.Scanner.from_batches(masked, columns=names, filter=filter if asks else None)
