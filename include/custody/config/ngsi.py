"""The section `ngsi` of the settings: how notifications of context brokers become files on HDFS and Hive tables.

Names and defaults are those of NGSIToHDFS, with `_` for `.` (`hive.db_type` is `hive_db_type`). Settings that
NGSIToHDFS does not have stand at the end.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from custody.config.sections import Section, Unset

PORT_MAX = 65_535
SERVICE_CHARACTERS_MAX = 50
PATH_LEVELS_MAX = 10
LEVEL_CHARACTERS_MAX = 50
CORRELATOR_CHARACTERS_MAX = 256
"""Orion's correlators are a UUID, and a part that it appends for each hop."""
FileFormat = Literal["json-row", "json-column", "csv-row", "csv-column", "parquet"]
Periodicity = Literal["none", "hourly", "daily", "monthly", "yearly"]
HEALTH_TARGET = "/health"
"""Path of the receiver's health check."""
_TARGET = re.compile(r"(?=/)(?:/[A-Za-z0-9._~-]+)*/?")
_SERVICE = re.compile(rf"[A-Za-z0-9_]{{1,{SERVICE_CHARACTERS_MAX}}}")
_SERVICE_PATH = re.compile(rf"/|(?:/[A-Za-z0-9_]{{1,{LEVEL_CHARACTERS_MAX}}}){{1,{PATH_LEVELS_MAX}}}")
# TOML tells 2 from "2": both are accepted.
_Words = BeforeValidator(lambda value: str(value) if isinstance(value, int) and not isinstance(value, bool) else value)
_Never = BeforeValidator(lambda value: "none" if value == "" else value)
_User = Annotated[str | None, Unset]
_BETWEEN_FIELDS = "one character that is no letter, digit, blank, quote, backslash, slash, point, minus or underscore"

_SERVER_ONLY = {"hive_port", "hive_server_version", "hive_auth", "hdfs_password"}
_WITHOUT_EFFECT: dict[str, set[str]] = {
    "server": set(),
    "metastore": {"hive_auth", "hdfs_password"},
    "embedded": {*_SERVER_ONLY, "hive_dialect"},
}
_WHY_NOT = {
    "metastore": "Spark makes the tables in the metastore, and asks for no password",
    "embedded": "tables are in the repository's own database, in the form of Spark",
}


_NO_MODEL_BY_PATH = (
    "expected dm-by-entity or db-by-entity. The document of NGSIToHDFS calls db-by-service-path the default of its "
    "Data Model, but the same row allows db-by-entity alone, its data_model is always dm-by-entity, and its paths have "
    "a folder for each entity and none for a service path. One file for all entities of a path: a grouping rule with "
    "the field servicePath"
)


class NgsiSection(Section):
    """How NGSI notifications are taken and where their data go."""

    hdfs_host: str = Field(
        "localhost",
        min_length=1,
        description="Host of the HDFS NameNode; of several, with commas between them, each is tried in turn.",
    )
    hdfs_port: int = Field(
        14000, ge=1, le=PORT_MAX, description="14000 for HttpFS, 50070 or 9870 for WebHDFS, 8020 for Hadoop's RPC."
    )
    hdfs_username: _User = Field(
        None, description="User on HDFS; the sink needs one. A superuser where service_as_namespace is true."
    )
    hdfs_password: _User = Field(None, repr=False, description="Password of that user, which only Hive asks for.")
    ngsi_version: Literal["v2", "ld"] = Field(
        "v2", description="Language of a bare entity, which does not show it; whole notifications do."
    )
    data_model: Literal["dm-by-entity", "db-by-entity"] = Field(
        "dm-by-entity", description="One folder an entity, under both of its names; there is no other model."
    )
    attribute_persistence: Literal["row", "column"] = Field(
        "row", description="Another way to choose json-row or json-column; file_format says more."
    )
    default_service: str = Field("test", description="Fiware-Service of notifications that name none.")
    default_service_path: str = Field("/path", description="Fiware-ServicePath of notifications that name none.")
    enable_encoding: bool = Field(False, description="true applies the new encoding to names, false the old one.")
    enable_lowercase: bool = Field(False, description="true writes folders and files in lower case.")
    file_format: FileFormat = Field(
        "json-row", description="What a file holds: a line an attribute, a line an entity, or columns of Parquet."
    )
    backend_impl: Literal["rest", "binary"] = Field(
        "rest", description="How HDFS is reached: rest is WebHDFS or HttpFS, binary Hadoop's RPC."
    )
    backend_max_conns: int = Field(500, ge=1, description="Connections at once to a REST backend.")
    backend_max_conns_per_route: int = Field(100, ge=1, description="Connections at once to one host of it.")
    oauth2_token: _User = Field(None, repr=False, description="Token for HDFS, sent as X-Auth-Token.")
    service_as_namespace: bool = Field(
        False, description="true puts the Fiware-Service where hdfs_username would stand in paths and table names."
    )
    csv_separator: str = Field(",", description=f"Between the fields of a CSV line: {_BETWEEN_FIELDS}.")
    batch_size: int = Field(1, ge=1, description="Events that are written together.")
    batch_timeout: int = Field(30, ge=1, description="Seconds after which a batch is written that is not full.")
    batch_ttl: int = Field(
        10, ge=-1, description="Retries of a batch that cannot be written; 0 for none, -1 for no end of them."
    )
    batch_retry_intervals: Annotated[str, _Words] = Field(
        "5000", description="Milliseconds before each retry, with commas between them; the last one is repeated."
    )
    hive: bool = Field(True, description="Whether each destination gets a Hive table.")
    hive_server_version: Annotated[Literal["1", "2"], _Words] = Field("2", description="1 or 2, as in HiveServer2.")
    hive_host: str = Field(
        "localhost",
        min_length=1,
        description="Host of the HiveServer2 that makes the tables, where it is given and hive_metastore_uri is not.",
    )
    hive_port: int = Field(10000, ge=1, le=PORT_MAX, description="Port of the Hive server.")
    hive_db_type: Literal["default-db", "namespace-db"] = Field(
        "default-db", description="Database of the tables: default, or the one named as the namespace on HDFS."
    )
    krb5_auth: bool = Field(False, description="Whether HDFS wants Kerberos.")
    krb5_user: _User = Field(
        None, description="Kerberos user; needed with krb5_auth, unless Spark has logged in for backend binary."
    )
    krb5_password: _User = Field(
        None, repr=False, description="Its password; with krb5_auth this or krb5_keytab is needed."
    )
    krb5_login_conf_file: str = Field("krb5_login.conf", min_length=1, description="JAAS file; used with krb5_auth.")
    krb5_conf_file: str = Field("krb5.conf", min_length=1, description="Kerberos file; used with krb5_auth.")
    enable_grouping: bool = Field(False, description="Whether grouping rules choose destinations.")
    grouping_rules_file: Annotated[Path | None, Unset] = Field(None, description="JSON file of the grouping rules.")
    enable_name_mappings: bool = Field(False, description="Whether name mappings choose names.")
    name_mappings_file: Annotated[Path | None, Unset] = Field(None, description="JSON file of the name mappings.")
    attr_metadata_store: bool = Field(True, description="false leaves metadata out, with its fields and files.")
    periodicity_of_file_separation: Annotated[Periodicity, _Never] = Field(
        "none", description="How often a new file is begun; its name then has the hour, day, month or year (UTC)."
    )
    native_types: bool = Field(
        False, description="true writes numbers and booleans of JSON as such, false as the texts of the document."
    )
    keep_alteration_type: bool = Field(
        False, description="true keeps the attribute alterationType, and the rows of entities that were deleted."
    )
    recv_time_unit: Literal["ms", "s"] = Field("ms", description="Unit of recvTimeTs.")
    hive_dialect: Literal["hive", "spark"] = Field(
        "hive",
        description="Form of the tables: hive's as documented, or spark's. Where it is not given, tables that Spark "
        "makes have spark's.",
    )
    hive_json_serde: Literal["auto", "openx", "hcatalog", "hive"] = Field(
        "auto",
        description="SerDe of JSON in the dialect hive: openx, hcatalog, or hive's own of Hive 3 and later; auto: the "
        "last one where the server has it, else openx.",
    )
    hive_csv_serde: Literal["delimited", "opencsv"] = Field(
        "delimited",
        description="Form of CSV in the dialect hive: delimited as documented, or opencsv, which reads quotes back.",
    )
    hive_auth: Literal["plain", "nosasl"] = Field(
        "plain",
        description="How HiveServer2 wants to be greeted: plain for its authentications NONE, LDAP, PAM and CUSTOM, "
        "with hdfs_username and hdfs_password; nosasl for NOSASL.",
    )
    hive_metastore_uri: _User = Field(
        None,
        description="Metastore that Spark makes tables in, thrift://host:9083; unset: hive_host makes them, and "
        "without it one in the repository.",
    )
    hive_location: _User = Field(
        None, description="What stands before /user/… in the places of tables, hdfs://host:8020; unset: the backend's."
    )
    backend: Literal["file", "rest", "binary"] = Field(
        "file",
        description="Where files go: file is a folder; rest and binary are HDFS, as in backend_impl, which chooses "
        "where this is not given but that or hdfs_host is.",
    )
    backend_folder: Path = Field(
        Path("hdfs"), description="The folder of backend file, below which /user/… lies; relative to the repository."
    )
    krb5_keytab: Annotated[Path | None, Unset] = Field(
        None, description="File with the keys of krb5_user, in the place of krb5_password."
    )
    hdfs_doas: _User = Field(
        None,
        description="User whom the one that logged in acts for on HDFS (doas); HDFS has to allow it by "
        "hadoop.proxyuser.",
    )
    delegation_token_file: Annotated[Path | None, Unset] = Field(
        None,
        description="File of Hadoop's delegation tokens, in the place of a login; unset: what "
        "HADOOP_TOKEN_FILE_LOCATION names, if it is set.",
    )
    backend_tls: bool = Field(False, description="Whether a REST backend is asked by https.")
    backend_timeout: float = Field(60.0, gt=0, description="Seconds to wait for an answer of a REST backend.")
    backend_files_at_once: int = Field(
        8,
        ge=1,
        le=64,
        description="Files of a batch that are looked at or written at the same time; a batch follows the one before.",
    )
    notification_target: str = Field(
        "/notify",
        description="Path that notifications are posted to; what follows a question mark in a request is ignored.",
    )
    notification_bytes_max: int = Field(
        16 << 20,
        ge=1024,
        le=64 << 20,
        description="Largest body of a notification, in bytes; a larger one is answered with 413. A notification in a "
        "file is an event of capture.event_bytes_max.",
    )
    notification_entities_max: int = Field(
        1000,
        ge=1,
        le=100_000,
        description="Most entities of a notification; one with more is answered with 413. Each of them is an event.",
    )
    strict_content_type: bool = Field(
        False, description="true takes nothing but application/json; charset=utf-8, as Cygnus does."
    )
    attrs_formats: tuple[
        Literal["normalized", "legacy", "keyValues", "simplifiedNormalized", "simplifiedKeyValues", "geoJson"], ...
    ] = Field(
        ("normalized", "legacy"),
        min_length=1,
        description="Formats of attributes that are taken; another one is answered with 400, and kept in the "
        "quarantine.",
    )

    @property
    def hive_tables(self) -> Literal["server", "metastore", "embedded"]:
        """Where tables are made: at the HiveServer2 or in the metastore that is named, else in the repository."""
        if self.hive_metastore_uri is not None:
            return "metastore"
        return "server" if "hive_host" in self.model_fields_set else "embedded"

    @property
    def hive_dialect_used(self) -> Literal["hive", "spark"]:
        """The form of the tables that the job makes: a dialect that is not given follows from who makes them."""
        if "hive_dialect" in self.model_fields_set and self.hive_tables != "embedded":
            return self.hive_dialect
        return "hive" if self.hive_tables == "server" else "spark"

    def hive_warnings(self) -> tuple[str, ...]:
        """Return what of the settings for tables has no effect, and where tables go that nobody named a place for."""
        if not self.hive:
            return ()
        where = self.hive_tables
        warnings = []
        if where == "embedded":
            warnings.append(
                "ngsi.hive is true, and neither ngsi.hive_host nor ngsi.hive_metastore_uri is given: tables are made "
                "in the repository's own database, its folder hive, which no Hive reads. Name one of them, or set "
                "ngsi.hive to false."
            )
        if where == "metastore" and "hive_host" in self.model_fields_set:
            warnings.append(
                "ngsi.hive_host is only asked whether it answers, since ngsi.hive_metastore_uri has Spark make the "
                "tables. To have HiveServer2 make them, leave ngsi.hive_metastore_uri out."
            )
        unused = sorted(self.model_fields_set & _WITHOUT_EFFECT[where])
        warnings += [f"ngsi.{name} has no effect: {_WHY_NOT[where]}." for name in unused]
        if self.hive_dialect_used == "spark":
            unused = sorted(self.model_fields_set & {"hive_json_serde", "hive_csv_serde"})
            why = "it belongs to the dialect hive, and tables have spark's"
            warnings += [f"ngsi.{name} has no effect: {why}." for name in unused]
        return tuple(warnings)

    @field_validator("hdfs_host")
    @classmethod
    def _are_hosts(cls, text: str) -> str:
        if not all(host and not re.search(r"[\s/?#@]", host) for host in map(str.strip, text.split(","))):
            raise ValueError("expected host names or addresses with commas between them")
        return text

    @field_validator("hdfs_username", "hdfs_doas")
    @classmethod
    def _is_a_folder_name(cls, text: str | None) -> str | None:
        if text is not None and not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._$-]{0,254}", text):
            raise ValueError("expected letters, digits and . _ $ -, the first one no . or -")
        return text

    @field_validator("data_model", mode="before")
    @classmethod
    def _is_by_entity(cls, model: object) -> object:
        if str(model).removeprefix("dm-").removeprefix("db-") == "by-service-path":
            raise ValueError(_NO_MODEL_BY_PATH)
        return model

    @field_validator("default_service")
    @classmethod
    def _is_service(cls, text: str) -> str:
        if not _SERVICE.fullmatch(text):
            raise ValueError(f"expected 1 to {SERVICE_CHARACTERS_MAX} letters, digits and _")
        return text

    @field_validator("default_service_path")
    @classmethod
    def _is_service_path(cls, text: str) -> str:
        if not _SERVICE_PATH.fullmatch(text):
            raise ValueError(
                f"expected / or up to {PATH_LEVELS_MAX} levels such as /a/b, each of 1 to {LEVEL_CHARACTERS_MAX} "
                "letters, digits and _"
            )
        return text

    @field_validator("csv_separator")
    @classmethod
    def _is_separator(cls, text: str) -> str:
        if len(text) != 1 or text.isalnum() or text in " \"'\\/.-_\r\n\0":
            raise ValueError(f"expected {_BETWEEN_FIELDS}, such as , ; | or a tab")
        return text

    @field_validator("hive_metastore_uri")
    @classmethod
    def _are_metastores(cls, text: str | None) -> str | None:
        if text is not None and not all(re.fullmatch(r"thrift://[^\s/:,]+:[0-9]{1,5}", uri) for uri in text.split(",")):
            raise ValueError("expected thrift://host:port, of several with commas between them and no blanks")
        return text

    @field_validator("notification_target")
    @classmethod
    def _is_target(cls, text: str) -> str:
        if not _TARGET.fullmatch(text) or text == HEALTH_TARGET:
            raise ValueError(f"expected a path such as /notify of letters, digits and . _ ~ - /, not {HEALTH_TARGET}")
        return text

    @field_validator("batch_retry_intervals")
    @classmethod
    def _are_intervals(cls, text: str) -> str:
        retry_intervals_ms(text)
        return text

    @model_validator(mode="after")
    def _server_is_one_that_exists(self) -> Self:
        if self.hive and self.hive_tables == "server" and self.hive_server_version == "1":
            raise ValueError(
                "hive_server_version: expected 2 where hive_host is given, got 1, which Hive has not had since 1.0"
            )
        return self

    @model_validator(mode="after")
    def _kerberos_is_complete(self) -> Self:
        if self.krb5_password is not None and self.krb5_keytab is not None:
            raise ValueError("krb5_password: expected this or krb5_keytab, got both; leave one out")
        # Spark may have logged in by a keytab of its own, and a token needs no login.
        is_needed = self.krb5_auth and self.backend != "binary" and self.delegation_token_file is None
        if is_needed and self.krb5_user is None:
            raise ValueError("krb5_user: needed where krb5_auth is true")
        if is_needed and self.krb5_password is None and self.krb5_keytab is None:
            raise ValueError("krb5_password: needed where krb5_auth is true and there is no krb5_keytab")
        return self

    @model_validator(mode="after")
    def _a_token_is_of_one_user(self) -> Self:
        if self.delegation_token_file is not None and self.hdfs_doas is not None:
            raise ValueError("hdfs_doas: a delegation token acts as its owner; leave one of the two out")
        return self

    @model_validator(mode="before")
    @classmethod
    def _one_says_the_other(cls, values: object) -> object:
        """Let attribute_persistence choose the JSON mode where file_format is not given, and follow it where it is."""
        if not isinstance(values, dict) or len({"attribute_persistence", "file_format"} & values.keys()) != 1:
            return values
        if "file_format" in values:
            return {**values, "attribute_persistence": persistence_of(str(values["file_format"]))}
        return {**values, "file_format": f"json-{values['attribute_persistence']}"}

    @model_validator(mode="before")
    @classmethod
    def _backend_is_that_of_the_other_names(cls, values: object) -> object:
        """Let backend and backend_impl follow each other; who names a NameNode wants HDFS."""
        if not isinstance(values, dict):
            return values
        if "backend" not in values:
            is_hdfs = bool({"backend_impl", "hdfs_host"} & values.keys())
            return {**values, "backend": values.get("backend_impl", "rest") if is_hdfs else "file"}
        if "backend_impl" not in values and values["backend"] in ("rest", "binary"):
            return {**values, "backend_impl": values["backend"]}
        return values

    @model_validator(mode="after")
    def _one_backend(self) -> Self:
        if self.backend not in ("file", self.backend_impl):
            raise ValueError(
                f"backend: {self.backend} and backend_impl {self.backend_impl} contradict each other; "
                "leave the latter out"
            )
        return self

    @model_validator(mode="after")
    def _one_way_to_choose(self) -> Self:
        if self.attribute_persistence != persistence_of(self.file_format):
            raise ValueError(
                f"attribute_persistence: {self.attribute_persistence} and file_format {self.file_format} contradict "
                "each other; leave the former out"
            )
        return self


def persistence_of(file_format: str) -> str:
    """Return the attribute persistence of a format: whether each attribute has a row or a column."""
    return "column" if file_format.endswith("-column") else "row"


def retry_intervals_ms(text: str) -> tuple[int, ...]:
    """Return the intervals that a text lists.

    Raises:
        ValueError: one is no whole number above 0.
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(re.fullmatch(r"[0-9]{1,12}", part) and int(part) > 0 for part in parts):
        raise ValueError("expected milliseconds above 0 with commas between them, such as 5000,10000,60000")
    return tuple(map(int, parts))
