"""How each column of an event log is encoded: what was smallest on sample events and is no slower (docs/design/011).

Columns of few values get a dictionary in each block. Ids and times that go up are differences. Addresses that begin
as their predecessor does share that beginning. All others are plain and left to the codec, which finds repeated texts
in them better than a dictionary of mostly different ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

DICTIONARY = (
    "event_type",
    "component_id",
    "component_type",
    "component_name",
    "process_group_id",
    "process_group_name",
    "transit_uri",
    "details",
    "previous_attributes.key_value.key",
    "updated_attributes.key_value.key",
    "entity_type",
    "platform",
    "application",
    "source_format",
    "source_node",
    "source_host",
)
ENCODINGS: Mapping[str, str] = {
    "event_id": "DELTA_BINARY_PACKED",
    "event_time": "DELTA_BINARY_PACKED",
    "source_ordinal": "DELTA_BINARY_PACKED",
    "flowfile_uuid": "DELTA_LENGTH_BYTE_ARRAY",
    "source_event_id": "DELTA_LENGTH_BYTE_ARRAY",
    "parent_uuids.list.element": "DELTA_LENGTH_BYTE_ARRAY",
    "child_uuids.list.element": "DELTA_LENGTH_BYTE_ARRAY",
    "content_uri": "DELTA_BYTE_ARRAY",
    "previous_content_uri": "DELTA_BYTE_ARRAY",
}
# What is left of a text before compression, to tell how many events fill a block: a dictionary stands once in a block,
# and addresses share more than half of their length with the one before.
SHARES: Mapping[str, float] = {
    **dict.fromkeys(DICTIONARY, 0.0),
    **{name: 0.5 for name, kind in ENCODINGS.items() if kind == "DELTA_BYTE_ARRAY"},
}
# Bounds are kept where a block can be passed over by them. Those of a uuid or a type span nearly everything in every
# block; a bound of a long text would stand in the footer at its full length, twice a block.
STATISTICS = ("event_id", "event_time", "file_size", "lineage_start_date", "source_node", "source_ordinal")
# Whoever looks for one FlowFile with SQL passes over nearly all blocks but its own. The number of distinct values is
# the most that a block may have: Arrow folds a filter to the size that its values need.
BLOOM_FILTERS: Mapping[str, Mapping[str, float]] = {"flowfile_uuid": {"ndv": 5000, "fpp": 0.01}}


@dataclass(frozen=True, slots=True)
class LogOptions:
    """How a log is written; sizes in bytes, `level` None for the codec's default."""

    block_bytes_max: int = 1 << 20
    compression: str = "zstd"
    level: int | None = None

    def parquet(self) -> dict[str, object]:
        """Return the options of a ParquetWriter."""
        return {
            "compression": self.compression,
            "compression_level": self.level,
            "use_dictionary": list(DICTIONARY),
            "column_encoding": dict(ENCODINGS),
            "write_statistics": list(STATISTICS),
            "bloom_filter_options": {name: dict(options) for name, options in BLOOM_FILTERS.items()},
            "write_page_checksum": True,
            "store_schema": True,
        }
