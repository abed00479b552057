"""Questions, and the machines that work: sections of the settings."""

from __future__ import annotations

from pydantic import Field

from custody.config.section import Section


class QuerySection(Section):
    """Bounds of questions."""

    results_default: int = Field(1000, ge=1, description="Results of a search that names no limit.")
    lineage_events_max: int = Field(
        10_000, ge=1, description="Events of one lineage; a larger one is cut there and says so."
    )
    open_shards_max: int = Field(
        256, ge=1, description="Index shards that a process keeps open between searches; each maps up to ten files."
    )
    cache_bytes: int = Field(
        256 << 20, ge=0, description="Bytes of decoded blocks and journals that a process keeps between reads."
    )
    open_logs_max: int = Field(64, ge=1, description="Event logs that a process keeps open between reads.")
    sql_memory_bytes: int = Field(
        1 << 30,
        ge=64 << 20,
        description="Memory of one SQL query, in bytes; what does not fit goes to a temporary folder.",
    )
    sql_process_bytes_max: int = Field(
        2 << 30,
        ge=256 << 20,
        description="Memory of the process that answers one SQL query, in bytes; a query that needs more is ended.",
    )
    sql_row_bytes_max: int = Field(64 << 20, ge=1 << 10, description="Bytes of one row of the result of a SQL query.")
    sql_spill_bytes_max: int = Field(
        4 << 30, ge=0, description="Bytes that one SQL query may put into its temporary folder."
    )
    sql_seconds_max: float = Field(
        300.0, gt=0, allow_inf_nan=False, description="Seconds after which a SQL query is stopped."
    )


class SparkSection(Section):
    """How `custody run` submits jobs. Under Airflow the connection `spark_default` decides instead."""

    master: str = Field("local[*]", description="Spark master: local[*], spark://host:7077, yarn or k8s://…")
