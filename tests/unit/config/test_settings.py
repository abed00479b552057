"""Settings: every bound is kept, every mistake is named with its place, the environment wins over the file."""

from __future__ import annotations

import re
import tomllib
import traceback
from pathlib import Path

import pytest

from custody.config import SETTINGS_FILE, Settings, default_settings_file, load_settings
from custody.errors import ConfigurationError, NotFoundError
from custody.format.names import check_name
from custody.index import STANDARD_FIELDS

# Section, key, values at and inside the bounds, values outside.
BOUNDS: list[tuple[str, str, list[object], list[object]]] = [
    ("repository", "implementation", ["custody", "other-one"], ["", 1]),
    ("repository", "writer", ["a", "0", "a-b_c", "x" * 63], ["", "A", "-a", "a/b", "../a", "x" * 64, 1]),
    ("repository", "writer_slots", [1, 2, 256], [0, -1, 257, 1.5, "many"]),
    ("repository", "writer_wait_seconds", [0, 0.5, 86_400], [-1, float("nan"), "long"]),
    ("repository", "database", ["a", "x" * 63], ["", "A", "..", "x" * 64, "content", "flowfiles"]),
    ("repository", "containers", [["a"], ["/a", "b"]], [[], "a", [1]]),
    ("repository", "store", ["s", "/s", "file:///s", "s3://bucket/prefix"], [1, [], ""]),
    ("repository", "work_folder", ["w", "/w"], [1, []]),
    ("repository", "work_copies_bytes_max", [1 << 20, 1 << 40], [0, (1 << 20) - 1, "much"]),
    ("repository", "multipart_bytes", [4096, 5 << 30], [4095, (5 << 30) + 1]),
    ("repository", "staging", ["work_folder"], ["disk", 1]),
    (
        "repository",
        "stripes",
        [["a=disk", "b-2=/mnt/b=c"], []],
        [["a"], ["=x"], ["a="], ["A=x"], ["../a=x"], ["a=x", "a=y"], ["a=x", "b=x"], "a=x", [1]],
    ),
    ("repository", "stripes_retired", [[]], [["a"], "a", [1]]),
    ("repository", "quarantine_bytes_max", [1 << 16, 1 << 40], [0, (1 << 16) - 1, "much"]),
    ("capture", "file_bytes_max", [1024, 1 << 40], [1023, 0, -1, "x", 1.5]),
    ("capture", "event_bytes_max", [4096, 1 << 30], [4095, 0]),
    ("capture", "body_bytes_max", [4096, 1 << 30], [4095, (1 << 30) + 1]),
    ("capture", "body_events_max", [1, 1_000_000], [0, 1_000_001]),
    ("capture", "batch_events", [1, 1_000_000], [0, 1_000_001]),
    ("capture", "source_wait_seconds", [0, 0.5, 3600], [-1, float("nan")]),
    ("capture", "mask_attributes", [[], ["*password*", "a b"], ["*"]], [[""], ["a", ""], "*password*", [1]]),
    ("capture", "nifi_zone", ["Europe/Paris", "America/Chicago", "UTC"], ["CEST2", "../x", 7]),
    ("landing", "folder", ["spool", "/mnt/drop/%Y/%m/%d", "a/%Y-%j/%H/%M"], ["", "%H", "../up", "a/%Y/%x", [], 1]),
    ("landing", "suffixes", [[".json"], [".json", ".gz"]], [[], ".json", [1]]),
    ("landing", "quiet_seconds", [0, 0.5, 3600], [-1, float("nan"), float("inf")]),
    ("landing", "late_minutes", [0, 1440], [-1, 0.5, "late"]),
    ("landing", "node", ["node-1", ""], [1, []]),
    ("landing", "writer_wait_seconds", [0, 0.5, 3600], [-1, float("nan")]),
    ("journal", "journals", [1, 256], [0, 257]),
    ("journal", "sync", ["always", "interval", "never"], ["", "ALWAYS", "sometimes", 1]),
    ("journal", "sync_interval_ms", [10, 60_000], [9, 0, 10.5]),
    ("journal", "seal_seconds", [0.1, 30, 86_400], [0, -1, float("nan"), float("inf"), "x"]),
    ("journal", "seal_bytes", [4096, 1 << 40], [4095]),
    ("journal", "waiting_bytes_max", [4096, 1 << 50], [4095]),
    ("journal", "backpressure_seconds", [0, 0.5, 3600, float("inf")], [-1, float("nan")]),
    ("journal", "handoff", ["off", "store"], ["", "OFF", "s3", 1]),
    ("content", "containers", [["a"], ["1", "disk-2"]], [[], "a", ["A"], ["../x"], [1]]),
    ("content", "claim_bytes", [4096, 64 << 20], [4095, (64 << 20) + 1]),
    ("content", "unused_minutes", [0, 0.5, 10_000], [-1, float("nan"), float("inf")]),
    ("content", "handoff", ["off", "store"], ["", "OFF", "s3", 1]),
    ("content", "archive_age", ["7 days", "1 hour", ""], ["7", "days", "-1 days", 7]),
    ("content", "archive_share", [0.06, 0.5, 0.99, ""], [0.05, 1, -1, "half", float("nan")]),
    ("flowfiles", "swap_threshold", [500, 1_000_000], [499, 0, "x"]),
    ("flowfiles", "checkpoint_seconds", [0.1, 3600], [0, -1, float("nan"), float("inf")]),
    ("eventlog", "block_bytes_max", [4096, 64 << 20], [4095, (64 << 20) + 1]),
    ("eventlog", "log_bytes_target", [4096, 16 << 30], [4095, (16 << 30) + 1]),
    ("eventlog", "merge_bytes_max", [4096, 1 << 40], [4095, (1 << 40) + 1]),
    ("eventlog", "compression", ["zstd", "gzip", "none"], ["", "ZSTD", "lz4", 1]),
    ("eventlog", "compression_level", [1, 22, ""], [0, 23, "high"]),
    ("eventlog", "row_copies", [True, False], ["maybe", 2, []]),
    ("index", "fields", [["flowfile_uuid"], ["details", "flowfile_uuid"]], [[], ["details"], "a"]),
    ("index", "attributes", [[], ["a", "b.c", "ä:*"]], ["a", [1], [""], ["a b"]]),
    ("index", "layout", ["packed", "whoosh"], ["", "WHOOSH", "lucene", 1]),
    ("index", "ranges", [[], ["event_time", "file_size"]], ["event_time", ["details"]]),
    ("index", "backfill_shards_max", [0, 1, 10_000], [-1, 1.5]),
    ("catalog", "checkpoint_every", [1, 10_000], [0]),
    ("catalog", "put_if_absent", [True, False], ["maybe", 2, []]),
    ("catalog", "history_age_max", ["90 days", "1 hour", ""], ["90", "days", "-1 days", 90]),
    ("catalog", "history_revisions_max", [1, 1_000_000, ""], [0, -1, "many"]),
    ("catalog", "history_bytes_max", [1 << 16, 1 << 50, ""], [(1 << 16) - 1, -1]),
    ("catalog", "attestations", ["attested", "/mnt/audit", ""], [1, []]),
    ("iceberg", "publish", [True, False], ["maybe", 2, []]),
    ("iceberg", "snapshots_max", [1, 10_000], [0, 10_001, "many"]),
    ("maintenance", "scrub_days", [0.5, 7, 365], [0, -1, float("nan"), float("inf"), "week"]),
    ("maintenance", "scrub_bytes_per_run", [1, 1 << 50], [0, -1]),
    ("retention", "age_max", ["30 days", "1 hour", ""], ["30", "days", "-1 days", 30]),
    (
        "retention",
        "rules",
        [[], ["event_type:DROP keep 7 days", "attribute:customer=acme and event_type:SEND keep 5 years"]],
        ["event_type:DROP keep 7 days", ["DROP: 7 days"], ["event_type:DROP keep long"]],
    ),
    ("retention", "bytes_max", [1 << 20, 1 << 50, ""], [(1 << 20) - 1, -1]),
    ("retention", "purge_percent", [1, 90, 100], [0, 101]),
    ("retention", "grace", ["0 seconds", "2 hours"], ["", "soon", 5]),
    ("receiver", "host", ["127.0.0.1", "::1"], ["", 1]),
    ("receiver", "port", [0, 65_535], [-1, 65_536]),
    ("receiver", "header_bytes_max", [1024, 1 << 20], [1023, (1 << 20) + 1]),
    ("receiver", "head_seconds", [0.1, 3600], [0, -1, float("nan"), float("inf")]),
    ("receiver", "body_seconds", [0.1, 3600], [0, -1, float("nan"), float("inf")]),
    ("receiver", "idle_seconds", [1, 3600], [0, 3601, 1.5]),
    ("receiver", "connections_max", [1, 65_536], [0, 65_537]),
    ("receiver", "connections_per_address_max", [1, 65_536], [0, 65_537]),
    ("receiver", "requests_max", [1, 65_536], [0, 65_537]),
    ("receiver", "stop_seconds", [1, 3600], [0, 1.5]),
    ("receiver", "token_file", ["tokens", "/etc/tokens", ""], [1, []]),
    ("receiver", "tls_certificate", ["cert.pem", ""], [1, []]),
    ("receiver", "tls_key", ["key.pem", ""], [1, []]),
    ("receiver", "tls_client_ca", ["ca.pem", ""], [1, []]),
    ("serve", "host", ["127.0.0.1", "::1"], ["", 1]),
    ("serve", "port", [0, 65_535], [-1, 65_536]),
    ("serve", "header_bytes_max", [1024, 1 << 20], [1023, (1 << 20) + 1]),
    ("serve", "head_seconds", [0.1, 3600], [0, -1, float("nan"), float("inf")]),
    ("serve", "body_seconds", [0.1, 3600], [0, -1, float("nan"), float("inf")]),
    ("serve", "idle_seconds", [1, 3600], [0, 3601, 1.5]),
    ("serve", "connections_max", [1, 65_536], [0, 65_537]),
    ("serve", "connections_per_address_max", [1, 65_536], [0, 65_537]),
    ("serve", "requests_max", [1, 65_536], [0, 65_537]),
    ("serve", "stop_seconds", [1, 3600], [0, 1.5]),
    ("serve", "token_file", ["tokens", "/etc/tokens", ""], [1, []]),
    ("serve", "tls_certificate", ["cert.pem", ""], [1, []]),
    ("serve", "tls_key", ["key.pem", ""], [1, []]),
    ("serve", "tls_client_ca", ["ca.pem", ""], [1, []]),
    ("serve", "doors", [["openlineage"], ["ngsi", "swh"]], [[], ["window"], "openlineage"]),
    ("serve", "workers", [1, 64], [0, 65, 1.5]),
    ("serve", "client_certificates", ["required", "optional"], ["", "maybe", 1]),
    ("serve", "certificate_scopes", [[], ["append", "read"]], ["append", ["write"]]),
    ("serve", "allowed_hosts", [[], ["custody.example"]], ["custody.example", [1]]),
    ("serve", "rights_file", ["rights.toml", "/etc/rights.toml", ""], [1, []]),
    ("serve", "log_format", ["text", "json"], ["", "xml"]),
    ("serve", "waiting_bytes_max", [1 << 20, 1 << 40], [(1 << 20) - 1]),
    ("serve", "content_bytes_max", [4096, 1 << 40], [4095]),
    ("serve", "uploads_bytes_max", [4096, 1 << 50], [4095]),
    ("serve", "upload_hours", [0.1, 24, 8760], [0, -1, 8761, float("nan")]),
    ("site_to_site", "host", ["127.0.0.1", "::1"], ["", 1]),
    ("site_to_site", "port", [0, 65_535], [-1, 65_536]),
    ("site_to_site", "header_bytes_max", [1024, 1 << 20], [1023, (1 << 20) + 1]),
    ("site_to_site", "head_seconds", [0.1, 3600], [0, -1, float("nan"), float("inf")]),
    ("site_to_site", "body_seconds", [0.1, 3600], [0, -1, float("nan"), float("inf")]),
    ("site_to_site", "idle_seconds", [1, 3600], [0, 3601, 1.5]),
    ("site_to_site", "connections_max", [1, 65_536], [0, 65_537]),
    ("site_to_site", "connections_per_address_max", [1, 65_536], [0, 65_537]),
    ("site_to_site", "requests_max", [1, 65_536], [0, 65_537]),
    ("site_to_site", "stop_seconds", [1, 3600], [0, 1.5]),
    ("site_to_site", "token_file", ["tokens", "/etc/tokens", ""], [1, []]),
    ("site_to_site", "tls_certificate", ["cert.pem", ""], [1, []]),
    ("site_to_site", "tls_key", ["key.pem", ""], [1, []]),
    ("site_to_site", "tls_client_ca", ["ca.pem", ""], [1, []]),
    ("site_to_site", "port_name", ["provenance", "a b"], ["", 1]),
    ("site_to_site", "raw_port", [0, 65_535, ""], [-1, 65_536]),
    ("site_to_site", "advertised_host", ["nifi.example", ""], [1, []]),
    ("site_to_site", "advertised_port", [1, 65_535, ""], [0, 65_536]),
    ("site_to_site", "advertised_tls", ["as-served", "yes", "no"], ["", "perhaps", 2]),
    ("site_to_site", "transactions_max", [1, 10_000], [0, 10_001]),
    ("site_to_site", "transaction_seconds", [2, 3600], [1, 3601]),
    ("lease", "wait_seconds", [0, 0.5, 3600], [-1, float("nan"), float("inf")]),
    ("lease", "dead_seconds", [0.5, 3600], [0, -1, float("nan"), float("inf")]),
    ("query", "results_default", [1, 10_000_000], [0]),
    ("query", "lineage_events_max", [1, 10_000_000], [0]),
    ("query", "attribute_characters_max", [64, 1 << 40], [0, 63]),
    ("query", "mask_attributes", [[], ["*password*", "a b"], ["*"]], [[""], ["a", ""], "*password*", [1]]),
    ("query", "open_shards_max", [1, 10_000], [0]),
    ("query", "search_threads", [1, 64], [0, 65]),
    ("query", "cache_bytes", [0, 1 << 40], [-1]),
    ("query", "open_logs_max", [1, 100_000], [0]),
    ("query", "sql_memory_bytes", [64 << 20, 1 << 40], [(64 << 20) - 1]),
    ("query", "sql_process_bytes_max", [256 << 20, 1 << 40], [(256 << 20) - 1]),
    ("query", "sql_row_bytes_max", [1 << 10, 1 << 40], [1023]),
    ("query", "sql_spill_bytes_max", [0, 1 << 40], [-1]),
    ("query", "sql_seconds_max", [0.1, 86_400], [0, -1, float("nan"), float("inf")]),
    ("spark", "master", ["local[2]", "yarn"], [1]),
    ("spark", "driver_bytes_max", [0, 1 << 40], [-1, "much"]),
    ("spark", "core_memory_bytes", [1 << 20, 1 << 40], [0, (1 << 20) - 1, "much"]),
    ("spark", "library", ["custody.zip"], [1]),
    ("spark", "executor_variables", [[], ["AWS_*"]], ["AWS_*", [1]]),
    ("ngsi", "hdfs_host", ["nn", "nn1,nn2", "10.0.0.1"], ["", "nn1,,nn2", "hdfs://nn", "a b", 1]),
    ("ngsi", "hdfs_port", [1, 8020, 65_535], [0, 65_536, "http"]),
    ("ngsi", "hdfs_username", ["myuser", "svc-hdfs.1", ""], ["a/b", "..", "-x", "a:b", 1]),
    ("ngsi", "hdfs_password", ["p", ""], [1]),
    ("ngsi", "ngsi_version", ["v2", "ld"], ["v1", "no", "", 2]),
    ("ngsi", "data_model", ["dm-by-entity", "db-by-entity"], ["db-by-service-path", ""]),
    ("ngsi", "attribute_persistence", ["row", "column"], ["", "rows"]),
    ("ngsi", "default_service", ["test", "a_1", "s" * 50], ["", "a-b", "s" * 51]),
    ("ngsi", "default_service_path", ["/", "/path", "/a/b_2", "/a" * 10], ["", "path", "/a/", "//", "/a" * 11]),
    ("ngsi", "enable_encoding", [True, False], ["maybe", 2]),
    ("ngsi", "enable_lowercase", [True, False], ["maybe", 2]),
    ("ngsi", "file_format", ["json-row", "json-column", "csv-row", "csv-column", "parquet"], ["", "json", "cvs-row"]),
    ("ngsi", "backend_impl", ["rest", "binary"], ["", "REST", "hdfs"]),
    ("ngsi", "backend_max_conns", [1, 500], [0]),
    ("ngsi", "backend_max_conns_per_route", [1, 100], [0]),
    ("ngsi", "oauth2_token", ["t", ""], [1]),
    ("ngsi", "service_as_namespace", [True, False], ["maybe", 2]),
    ("ngsi", "csv_separator", [",", ";", "|", "^"], ["", ",,", "a", " ", "'", "-", 1]),
    ("ngsi", "batch_size", [1, 10_000], [0, -1, 1.5]),
    ("ngsi", "batch_timeout", [1, 3600], [0, -1]),
    ("ngsi", "batch_ttl", [-1, 0, 10], [-2, "many"]),
    ("ngsi", "batch_retry_intervals", ["5000", "5000,10000,60000"], ["", "0", "-1", "5000,", "5s", "1.5"]),
    ("ngsi", "hive", [True, False], ["maybe", 2]),
    ("ngsi", "hive_server_version", ["1", "2"], ["3", "", 3]),
    ("ngsi", "hive_host", ["localhost"], ["", 1]),
    ("ngsi", "hive_port", [1, 10_000, 65_535], [0, 65_536]),
    ("ngsi", "hive_db_type", ["default-db", "namespace-db"], ["", "default"]),
    ("ngsi", "krb5_auth", [False], ["maybe", 2]),
    ("ngsi", "krb5_user", ["u", ""], [1]),
    ("ngsi", "krb5_password", ["p", ""], [1]),
    ("ngsi", "krb5_login_conf_file", ["a.conf"], ["", 1]),
    ("ngsi", "krb5_conf_file", ["a.conf"], ["", 1]),
    ("ngsi", "enable_grouping", [True, False], ["maybe", 2]),
    ("ngsi", "grouping_rules_file", ["rules.json", ""], [1]),
    ("ngsi", "enable_name_mappings", [True, False], ["maybe", 2]),
    ("ngsi", "name_mappings_file", ["names.json", ""], [1]),
    ("ngsi", "attr_metadata_store", [True, False], ["maybe", 2]),
    ("ngsi", "periodicity_of_file_separation", ["none", "hourly", "daily", "monthly", "yearly"], ["weekly", 1]),
    ("ngsi", "native_types", [True, False], ["maybe", 2]),
    ("ngsi", "keep_alteration_type", [True, False], ["maybe", 2]),
    ("ngsi", "recv_time_unit", ["ms", "s"], ["", "us"]),
    ("ngsi", "hive_dialect", ["hive", "spark"], ["", "impala"]),
    ("ngsi", "hive_json_serde", ["auto", "openx", "hcatalog", "hive"], ["json", ""]),
    ("ngsi", "hive_csv_serde", ["delimited", "opencsv"], ["", "csv"]),
    ("ngsi", "hive_auth", ["plain", "nosasl"], ["", "ldap"]),
    ("ngsi", "hive_metastore_uri", ["thrift://one:9083", "thrift://one:9083,thrift://two:1", ""], ["one:9083", 1]),
    ("ngsi", "hive_location", ["hdfs://one:8020", ""], [1]),
    ("ngsi", "backend", ["file", "rest", "binary"], ["", "hdfs"]),
    ("ngsi", "backend_folder", ["hdfs", "/disk"], [1]),
    ("ngsi", "krb5_keytab", ["robot.keytab", ""], [1]),
    ("ngsi", "hdfs_doas", ["warden", "svc-hdfs.1", ""], ["a/b", "..", "a&user.name=root", 1]),
    ("ngsi", "delegation_token_file", ["tokens", ""], [1]),
    ("ngsi", "backend_tls", [True, False], ["maybe", 2]),
    ("ngsi", "backend_timeout", [0.1, 60.0], [0, -1.0]),
    ("ngsi", "backend_files_at_once", [1, 64], [0, 65]),
    (
        "ngsi",
        "notification_target",
        ["/notify", "/", "/a/b-c", "/notify/"],
        ["", "notify", "/a?b", "/a b", "//", "/{id}", "/a%20b", "/health"],
    ),
    ("ngsi", "notification_bytes_max", [1024, 64 << 20], [1023, (64 << 20) + 1]),
    ("ngsi", "notification_entities_max", [1, 100_000], [0, 100_001]),
    ("ngsi", "strict_content_type", [True, False], ["maybe", 2]),
    ("ngsi", "attrs_formats", [["normalized"], ["normalized", "keyValues", "geoJson"]], [[], ["values"], "normalized"]),
    ("swh", "host", ["127.0.0.1", "::1"], ["", 1]),
    ("swh", "port", [0, 65_535], [-1, 65_536]),
    ("swh", "header_bytes_max", [1024, 1 << 20], [1023, (1 << 20) + 1]),
    ("swh", "head_seconds", [0.1, 3600], [0, -1, float("nan"), float("inf")]),
    ("swh", "body_seconds", [0.1, 3600], [0, -1, float("nan"), float("inf")]),
    ("swh", "idle_seconds", [1, 3600], [0, 3601, 1.5]),
    ("swh", "connections_max", [1, 65_536], [0, 65_537]),
    ("swh", "connections_per_address_max", [1, 65_536], [0, 65_537]),
    ("swh", "requests_max", [1, 65_536], [0, 65_537]),
    ("swh", "stop_seconds", [1, 3600], [0, 1.5]),
    ("swh", "token_file", ["tokens", "/etc/tokens", ""], [1, []]),
    ("swh", "tls_certificate", ["cert.pem", ""], [1, []]),
    ("swh", "tls_key", ["key.pem", ""], [1, []]),
    ("swh", "tls_client_ca", ["ca.pem", ""], [1, []]),
    ("swh", "grpc_port", [0, 65_535, ""], [-1, 65_536]),
    ("swh", "questions_max", [1, 100_000], [0, 100_001]),
    ("swh", "occurrences_max", [1, 100_000], [0, 100_001]),
    ("swh", "cache_bytes", [0, 1 << 40], [-1]),
    ("swh", "memory_bytes", [0, 1 << 50], [-1]),
    ("swh", "driver_edges_max", [0, 1 << 50], [-1]),
]
SECTIONS = [name for name in Settings.model_fields if name not in ("root", "exports")]
"""Tables with fixed keys: those of exports have names that users choose (tests of the room export)."""


def toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return f'"{value}"' if isinstance(value, str) else str(value)


def load(folder: Path, text: str) -> Settings:
    (folder / SETTINGS_FILE).write_text(text, encoding="utf-8")
    return load_settings(folder)


def value_of(settings: Settings, section: str, key: str) -> object:
    return getattr(getattr(settings, section), key)


def test_an_unknown_field_of_the_index_is_refused_with_those_that_are_known(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(tmp_path, '[index]\nfields = ["flowfile_uuid", "flowfile"]\n')
    assert "'flowfile'" in str(caught.value)
    assert all(f"'{name}'" in str(caught.value) for name in STANDARD_FIELDS)


def test_the_fields_of_the_setting_are_those_of_the_index() -> None:
    assert defaults().index.fields == STANDARD_FIELDS


def test_every_setting_has_its_bounds_here() -> None:
    keys = [(section, key) for section in SECTIONS for key in type(getattr(defaults(), section)).model_fields]
    assert keys == [(section, key) for section, key, _, _ in BOUNDS]


def defaults() -> Settings:
    return Settings.from_json('{"root": "/nowhere"}')


@pytest.mark.parametrize(("section", "key", "good", "bad"), BOUNDS, ids=[f"{b[0]}.{b[1]}" for b in BOUNDS])
def test_a_value_is_taken_within_its_bounds_and_refused_with_its_place_outside(
    tmp_path: Path, section: str, key: str, good: list[object], bad: list[object]
) -> None:
    for value in good:
        found = value_of(load(tmp_path, f"[{section}]\n{key} = {toml(value)}\n"), section, key)
        expected = None if value == "" else [str(item) for item in value] if isinstance(value, list) else value
        shown = [str(item) for item in found] if isinstance(found, tuple) else found
        assert (str(shown) if isinstance(found, Path) else shown) == expected
    for value in bad:
        with pytest.raises(ConfigurationError) as caught:
            load(tmp_path, f"[{section}]\n{key} = {toml(value)}\n")
        assert str(tmp_path / SETTINGS_FILE) in str(caught.value)
        assert f"[{section}.{key}" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("[query]\nresults_defualt = 5\n", "query.results_defualt"),
        ("[queries]\n", "queries"),
        ("top = 1\n", "top"),
        ("[repository.x]\ny = 1\n", "repository.x"),
    ],
)
def test_an_unknown_key_is_refused_with_file_and_key(tmp_path: Path, text: str, key: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(tmp_path, text)
    assert f"{tmp_path / SETTINGS_FILE} [{key}]" in str(caught.value)


@pytest.mark.parametrize("data", [b"[query", b"a = \n", b"[query]\n[query]\n", b"\xff\xfe"])
def test_a_file_that_is_no_toml_is_named(tmp_path: Path, data: bytes) -> None:
    (tmp_path / SETTINGS_FILE).write_bytes(data)
    with pytest.raises(ConfigurationError, match=re.escape(str(tmp_path / SETTINGS_FILE))):
        load_settings(tmp_path)


def test_a_folder_without_the_file_is_no_repository(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=f"custody init {tmp_path}"):
        load_settings(tmp_path)


def test_the_environment_wins_over_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = '[query]\nresults_default = 5\nlineage_events_max = 6\n[repository]\ncontainers = ["a"]\n'
    monkeypatch.setenv("CUSTODY__QUERY__RESULTS_DEFAULT", "7")
    monkeypatch.setenv("CUSTODY__REPOSITORY__CONTAINERS", '["x", "y"]')
    monkeypatch.setenv("CUSTODY__EVENTLOG__COMPRESSION_LEVEL", "")
    settings = load(tmp_path, text)
    assert (settings.query.results_default, settings.query.lineage_events_max) == (7, 6)
    assert settings.containers == (tmp_path / "x", tmp_path / "y")
    assert settings.eventlog.compression_level is None


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("CUSTODY__QUERY__RESULTS_DEFAULT", "0"),
        ("CUSTODY__QUERY__RESULTS_DEFAULT", "many"),
        ("CUSTODY__REPOSITORY__CONTAINERS", "not json"),
        ("CUSTODY__QUERY", "not json"),
    ],
)
def test_a_bad_value_of_the_environment_is_an_error_that_names_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigurationError, match="environment CUSTODY__"):
        load(tmp_path, "")


def test_an_empty_file_gives_the_defaults(tmp_path: Path) -> None:
    settings = load(tmp_path, "")
    assert settings.model_dump() == defaults().model_dump()
    assert settings.containers == (tmp_path / "containers/1",)
    assert (settings.store, settings.quarantine, settings.runs) == tuple(
        tmp_path / name for name in ("store", "quarantine", "runs")
    )


def test_the_file_of_a_new_repository_changes_nothing(tmp_path: Path) -> None:
    assert load(tmp_path, default_settings_file()).model_dump() == defaults().model_dump()


def test_the_file_of_a_new_repository_says_every_setting_with_its_default(tmp_path: Path) -> None:
    uncommented = re.sub(r"^# (\w+ = .*|\[\w+\])$", r"\1", default_settings_file(), flags=re.MULTILINE)
    document = tomllib.loads(uncommented)
    assert {section: list(keys) for section, keys in document.items()} == {
        section: [key for name, key, _, _ in BOUNDS if name == section] for section in SECTIONS
    }
    assert load(tmp_path, uncommented).model_dump() == defaults().model_dump()


def test_paths_are_taken_from_the_repository_s_folder_unless_they_are_absolute(tmp_path: Path) -> None:
    settings = load(tmp_path, '[repository]\ncontainers = ["/disk1", "two"]\nstore = "/store"\n')
    assert settings.containers == (Path("/disk1"), tmp_path / "two")
    assert settings.store == Path("/store")
    assert load(tmp_path, '[repository]\nstore = "file:///a%20disk"\n').store == Path("/a disk")


def test_beside_an_object_store_local_files_lie_in_the_work_folder(tmp_path: Path) -> None:
    settings = load(tmp_path, '[repository]\nstore = "s3://bucket/prefix"\nwork_folder = "/disk"\n')
    assert settings.store == Path("/disk")
    with pytest.raises(ConfigurationError, match="this one needs a store that is a folder"):
        settings.require_folder("this one")
    load(tmp_path, "").require_folder("this one")
    with pytest.raises(ConfigurationError, match="expected a folder of this machine"):
        _ = load(tmp_path, '[repository]\nstore = "file://elsewhere/disk"\n').store


def test_settings_travel_to_a_worker_whatever_its_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = load(tmp_path, '[query]\nresults_default = 5\n[index]\nattributes = ["a"]\n')
    text = settings.to_json()
    (tmp_path / SETTINGS_FILE).unlink()
    monkeypatch.setenv("CUSTODY__QUERY__RESULTS_DEFAULT", "7")
    assert Settings.from_json(text) == settings
    assert Settings.from_json(text).root == tmp_path


def test_slots_are_the_writer_and_its_numbered_names(tmp_path: Path) -> None:
    assert load(tmp_path, "").repository.slots == ("main",)
    settings = load(tmp_path, '[repository]\nwriter = "node-7"\nwriter_slots = 3\n')
    assert settings.repository.slots == ("node-7", "node-7-2", "node-7-3")
    assert settings.model_dump()["repository"]["writer_slots"] == 3


@pytest.mark.parametrize(
    ("characters", "slots", "fits"), [(63, 1, True), (63, 2, False), (61, 9, True), (61, 10, False), (60, 99, True)]
)
def test_the_name_of_every_slot_has_to_be_a_name(tmp_path: Path, characters: int, slots: int, fits: bool) -> None:
    text = f'[repository]\nwriter = "{"w" * characters}"\nwriter_slots = {slots}\n'
    if fits:
        for name in load(tmp_path, text).repository.slots:
            assert check_name("writer", name) == name
    else:
        with pytest.raises(
            ConfigurationError, match=rf"slot {slots}.*at most 63 characters, got 6[45].*shorter writer"
        ):
            load(tmp_path, text)


def test_settings_do_not_change(tmp_path: Path) -> None:
    settings = load(tmp_path, "")
    with pytest.raises(ValueError, match="frozen"):
        settings.query.results_default = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('krb5_auth = true\nkrb5_password = "hush"', r"krb5_user: needed where krb5_auth is true\."),
        ('krb5_pasword = "hush"', r"ngsi.krb5_pasword\]: Extra inputs are not permitted\."),
        ('krb5_password = ["hush"]', r"ngsi.krb5_password\]: .*, got a value that is not shown"),
        ('oauth2_token = {a = "hush"}', r"ngsi.oauth2_token\]: Input should be a valid string"),
        ('hdfs_port = 0\nhdfs_password = "hush"', r"ngsi.hdfs_port\]: .*, got 0"),
    ],
)
def test_what_is_wrong_shows_no_secret(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / SETTINGS_FILE).write_text(f"[ngsi]\n{text}\n")
    with pytest.raises(ConfigurationError, match=says) as raised:
        load_settings(tmp_path)
    shown = "".join(traceback.format_exception(raised.value))
    assert "hush" not in shown


def test_settings_are_shown_without_their_secrets(tmp_path: Path) -> None:
    secrets = 'krb5_password = "hush"\noauth2_token = "hush"\nhdfs_password = "hush"\n'
    (tmp_path / SETTINGS_FILE).write_text(f"[ngsi]\n{secrets}")
    settings = load_settings(tmp_path)
    assert settings.ngsi.krb5_password == "hush"  # noqa: S105
    assert "hush" not in f"{settings!r} {settings}"


def test_where_no_repository_is_needed_the_environment_alone_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUSTODY__NGSI__KRB5_USER", "clerk")
    assert load_settings(tmp_path, is_needed=False).ngsi.krb5_user == "clerk"
    (tmp_path / SETTINGS_FILE).write_text("[ngsi]\nhdfs_port = 1\n")
    assert load_settings(tmp_path, is_needed=False).ngsi.hdfs_port == 1


def test_what_changed_since_the_last_load_counts_at_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / SETTINGS_FILE
    file.write_text("[query]\nresults_default = 7\n")
    assert load_settings(tmp_path).query.results_default == 7
    assert load_settings(tmp_path) is load_settings(tmp_path)
    # Of one length, and in the same tick of the file system's clock.
    file.write_text("[query]\nresults_default = 8\n")
    assert load_settings(tmp_path).query.results_default == 8
    monkeypatch.setenv("custody__query__results_default", "9")
    assert load_settings(tmp_path).query.results_default == 9
    monkeypatch.delenv("custody__query__results_default")
    file.write_text("[query]\nresults_defualt = 8\n")
    with pytest.raises(ConfigurationError, match="results_defualt"):
        load_settings(tmp_path)
