"""The parameters of the sink: one frozen value, complete and checked before the first notification.

They come from the section `ngsi` of a repository's settings, or under the names of NGSIToHDFS (`hive.db_type`).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from custody.config import NgsiSection, is_secret
from custody.config.ngsi import FileFormat, retry_intervals_ms
from custody.errors import ConfigurationError
from custody.ngsi.rules import GroupingRules, NameMappings

_LOGGER = logging.getLogger(__name__)
SEED_NAMES: dict[str, str] = {
    "backend.impl": "backend_impl",
    "backend.max_conns": "backend_max_conns",
    "backend.max_conns_per_route": "backend_max_conns_per_route",
    "hive.server_version": "hive_server_version",
    "hive.host": "hive_host",
    "hive.port": "hive_port",
    "hive.db_type": "hive_db_type",
    "hive.dialect": "hive_dialect",
    "krb5_auth.krb5_user": "krb5_user",
    "krb5_auth.krb5_password": "krb5_password",
    "krb5_auth.krb5_login_conf_file": "krb5_login_conf_file",
    "krb5_auth.krb5_conf_file": "krb5_conf_file",
    "HDFS Host": "hdfs_host",
    "HDFS Port": "hdfs_port",
    "HDFS username": "hdfs_username",
    "HDFS password": "hdfs_password",
    "NGSI version": "ngsi_version",
    "Data Model": "data_model",
    "Attribute persistence": "attribute_persistence",
    "Default Service": "default_service",
    "Default Service path": "default_service_path",
}
"""The names of NGSIToHDFS that differ from those of the settings, and the settings that they mean."""


@dataclass(frozen=True, slots=True)
class InvalidParameter:
    """A parameter that cannot be used: its name as it was given, and what is allowed."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Parameters:
    """All parameters of the sink; `values` holds every one, the other fields are derived from them."""

    # Not in the repr: it holds a password and a token.
    values: NgsiSection = field(repr=False)
    username: str
    grouping: GroupingRules
    mappings: NameMappings

    @property
    def format(self) -> FileFormat:
        """What files hold."""
        return self.values.file_format

    @property
    def hosts(self) -> tuple[str, ...]:
        """The NameNodes in the order in which they are tried at first."""
        return tuple(host.strip() for host in self.values.hdfs_host.split(","))

    @property
    def retry_intervals_ms(self) -> tuple[int, ...]:
        """How long to wait before each retry."""
        return retry_intervals_ms(self.values.batch_retry_intervals)

    @classmethod
    def from_section(cls, section: NgsiSection, folder: Path) -> Parameters:
        """Return the parameters of a repository; its rules are files, relative ones in its folder.

        Raises:
            ConfigurationError: one is missing or cannot be used; the message names it and what is allowed.
        """
        rules = _file(folder, "grouping_rules_file", section.grouping_rules_file) if section.enable_grouping else {}
        mappings = (
            _file(folder, "name_mappings_file", section.name_mappings_file) if section.enable_name_mappings else {}
        )
        parameters = _with_rules(section, rules, mappings)
        if isinstance(parameters, InvalidParameter):
            raise ConfigurationError(f"ngsi.{parameters.name}: {parameters.reason}. See docs/ngsi.md.")
        for reason in parameters.grouping.discarded:
            _LOGGER.warning("ngsi.grouping_rules_file: %s; it is discarded", reason)
        return parameters

    @classmethod
    def from_names(
        cls,
        names: Mapping[str, object],
        *,
        grouping_rules: Mapping[str, object] | None = None,
        name_mappings: Mapping[str, object] | None = None,
    ) -> Parameters:
        """Return the parameters under the names of NGSIToHDFS or of the settings, with defaults for the rest.

        Raises:
            ConfigurationError: one is unknown, missing or cannot be used; the message names it and what is allowed.
        """
        parameters = read_names(names, grouping_rules=grouping_rules, name_mappings=name_mappings)
        if isinstance(parameters, Parameters):
            return parameters
        problems = "; ".join(f"{wrong.name}: {wrong.reason}" for wrong in parameters)
        raise ConfigurationError(f"invalid configuration: {problems}. See docs/ngsi.md.")


def read_names(
    names: Mapping[str, object],
    *,
    grouping_rules: Mapping[str, object] | None = None,
    name_mappings: Mapping[str, object] | None = None,
) -> Parameters | tuple[InvalidParameter, ...]:
    """Return the parameters, or what is wrong with them."""
    # Messages name a parameter as it was given, not as the settings call it.
    original_names = {SEED_NAMES.get(name, name): name for name in names}
    try:
        section = NgsiSection.model_validate({SEED_NAMES.get(name, name): value for name, value in names.items()})
    except ValidationError as error:
        return tuple(_invalid(item["loc"], item["msg"], item.get("input"), original_names) for item in error.errors())
    parameters = _with_rules(section, grouping_rules or {}, name_mappings or {})
    return parameters if isinstance(parameters, Parameters) else (parameters,)


def _invalid(
    place: tuple[int | str, ...], message: str, value: object, original_names: Mapping[str, str]
) -> InvalidParameter:
    message = message.removeprefix("Value error, ")
    if not place:  # a rule about several parameters; its message begins with the one to change
        name, _, reason = message.partition(": ")
        return InvalidParameter(original_names.get(name, name), reason)
    name = str(place[0])
    if name not in NgsiSection.model_fields:
        return InvalidParameter(
            original_names.get(name, name), f"unknown; expected one of {', '.join(sorted(NgsiSection.model_fields))}"
        )
    return InvalidParameter(original_names.get(name, name), f"{message}, got {_shown(name, value)}")


def _shown(name: str, value: object) -> str:
    return "a value that is not shown" if is_secret(name) else repr(value)


def _with_rules(
    section: NgsiSection, rules: Mapping[str, object], mappings: Mapping[str, object]
) -> Parameters | InvalidParameter:
    if section.hdfs_username is None:
        return InvalidParameter("hdfs_username", "expected the user whose folder on HDFS is written to, got none")
    try:
        grouping = GroupingRules.read(rules if section.enable_grouping else {})
    except ValueError as error:
        return InvalidParameter("grouping_rules", str(error))
    try:
        names = NameMappings.read(mappings if section.enable_name_mappings else {})
    except ValueError as error:
        return InvalidParameter("name_mappings", str(error))
    return Parameters(section, section.hdfs_username, grouping, names)


def _file(folder: Path, name: str, path: Path | None) -> Mapping[str, object]:
    if path is None:
        raise ConfigurationError(f"ngsi.{name}: expected a JSON file, got none. See docs/ngsi.md.")
    file = folder / path
    try:
        document = json.loads(file.read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"ngsi.{name}: {file}: expected a JSON file ({error}). See docs/ngsi.md.") from error
    if not isinstance(document, dict):
        raise ConfigurationError(f"ngsi.{name}: {file}: expected a JSON object. See docs/ngsi.md.")
    return document
