"""Parameters: the documented defaults, rules from files, and errors that say what is allowed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from custody.config import NgsiSection, Settings
from custody.errors import ConfigurationError
from custody.ngsi.parameters import SEED_NAMES, Parameters
from custody.ngsi.rules import Names

# The table of NGSIToHDFS's administration guide, column by column.
DOCUMENTED: dict[str, object] = {
    "HDFS Host": "localhost",
    "HDFS Port": 14000,
    "HDFS password": None,
    "NGSI version": "v2",
    "Data Model": "dm-by-entity",
    "Attribute persistence": "row",
    "Default Service": "test",
    "Default Service path": "/path",
    "enable_encoding": False,
    "enable_lowercase": False,
    "data_model": "dm-by-entity",
    "file_format": "json-row",
    "backend.impl": "rest",
    "backend.max_conns": 500,
    "backend.max_conns_per_route": 100,
    "oauth2_token": None,
    "service_as_namespace": False,
    "csv_separator": ",",
    "batch_size": 1,
    "batch_timeout": 30,
    "batch_ttl": 10,
    "batch_retry_intervals": "5000",
    "hive": True,
    "hive.server_version": "2",
    "hive.host": "localhost",
    "hive.port": 10000,
    "hive.db_type": "default-db",
    "krb5_auth": False,
    "krb5_user": None,
    "krb5_password": None,
    "krb5_login_conf_file": "krb5_login.conf",
    "krb5_conf_file": "krb5.conf",
}


def test_every_documented_parameter_has_its_documented_default() -> None:
    values = Parameters.from_names({"hdfs_username": "u"}).values
    assert {name: getattr(values, SEED_NAMES.get(name, name)) for name in DOCUMENTED} == DOCUMENTED


def test_every_documented_name_is_taken() -> None:
    made = Parameters.from_names(
        {name: value for name, value in DOCUMENTED.items() if name != "data_model"} | {"HDFS username": "u"}
    )
    # Who names HDFS wants it; without any name files go to a folder.
    assert made == Parameters.from_names({"hdfs_username": "u", "backend": "rest"})
    assert set(SEED_NAMES.values()) <= set(NgsiSection.model_fields)


def test_what_is_read_from_texts() -> None:
    made = Parameters.from_names({"hdfs_username": "u", "hdfs_host": " nn1 ,nn2", "batch_retry_intervals": "1, 2,3"})
    assert (made.hosts, made.retry_intervals_ms) == (("nn1", "nn2"), (1, 2, 3))


def test_all_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(ConfigurationError) as caught:
        Parameters.from_names({"hive.port": 0, "file_format": "xml", "colour": "green"})
    message = str(caught.value)
    assert message.startswith("invalid configuration: ")
    assert (
        "file_format: Input should be 'json-row', 'json-column', 'csv-row', 'csv-column' or 'parquet', got 'xml'"
        in message
    )
    assert "hive.port: Input should be greater than or equal to 1, got 0" in message
    assert "colour: unknown; expected one of attr_metadata_store, " in message


def test_secrets_are_in_no_representation() -> None:
    made = Parameters.from_names({"hdfs_username": "u", "hdfs_password": "hush", "oauth2_token": "hush"})
    assert "hush" not in repr(made)
    with pytest.raises(ConfigurationError) as caught:
        Parameters.from_names({"hdfs_username": "u", "krb5_password": ["hush"]})
    assert "hush" not in str(caught.value)


def section(**values: object) -> NgsiSection:
    return NgsiSection.model_validate({"hdfs_username": "u", **values})


def test_rules_come_from_files_in_the_repositorys_folder(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rule = {"id": 1, "fields": ["entityId"], "regex": "a.*", "destination": "d", "fiware_service_path": "/p"}
    (tmp_path / "rules.json").write_text(json.dumps({"grouping_rules": [rule, {"id": 7}]}))
    (tmp_path / "names.json").write_text(json.dumps({"serviceMappings": [{"newService": "t"}]}))
    made = Parameters.from_section(
        section(
            enable_grouping=True,
            grouping_rules_file="rules.json",
            enable_name_mappings=True,
            name_mappings_file=str(tmp_path / "names.json"),
        ),
        tmp_path,
    )
    assert "rule 7: fields: expected some of entityId, entityType, servicePath; it is discarded" in caplog.text
    grouped = made.grouping.apply(Names("s", "/", "abc", "T"))
    assert grouped == Names("s", "/p", "abc", "T", destination="d")
    assert made.grouping.discarded == ("rule 7: fields: expected some of entityId, entityType, servicePath",)
    assert made.mappings.apply(Names("s", "/", "x", "T")).names.service == "t"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "ngsi.grouping_rules_file: expected a JSON file, got none"),
        ("", "rules.json: expected a JSON file"),
        ("[]", "rules.json: expected a JSON object"),
        ('{"grouping_rules": 5}', "ngsi.grouping_rules: grouping_rules: expected an array of objects"),
        (
            '{"grouping_rules": [{"fields": ["entityId"], "regex": "[", "destination": "d", "fiware_service_path": "/"}'
            "]}",
            "grouping_rules[0].regex: expected a regular expression, got '['",
        ),
    ],
)
def test_rules_that_cannot_be_read_are_refused_at_start(tmp_path: Path, content: str | None, says: str) -> None:
    if content is not None:
        (tmp_path / "rules.json").write_text(content)
    name = "" if content is None else "rules.json"
    with pytest.raises(ConfigurationError) as caught:
        Parameters.from_section(section(enable_grouping=True, grouping_rules_file=name), tmp_path)
    assert says in str(caught.value)


def test_the_sink_needs_a_user(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"ngsi\.hdfs_username: expected the user"):
        Parameters.from_section(NgsiSection.model_validate({}), tmp_path)


def test_settings_that_go_to_a_worker_and_back_mean_the_same(tmp_path: Path) -> None:
    """Everything is set explicitly then, also what another parameter chose."""
    for given in ({"attribute_persistence": "column"}, {"file_format": "csv-column"}, {"file_format": "parquet"}, {}):
        made = Settings(root=tmp_path, ngsi=NgsiSection.model_validate(given))
        assert Settings.from_json(made.to_json()).ngsi == made.ngsi
    assert NgsiSection.model_validate({"attribute_persistence": "column"}).file_format == "json-column"
