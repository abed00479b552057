"""Destinations: the folder, file and table of an entity's data, and the encodings that make names of them.

`place` is one pure function, the same for every backend. The old encoding writes `_` for every character that is no
letter, digit, point or minus. The new one keeps everything except `=`, `/` and text that looks like its own escapes,
and joins with `xffff`. Both keep the slashes of a path as levels.

Beyond NGSIToHDFS: HDFS takes no `:` in a name, and no component `.` or `..`, so the new encoding writes `x003a` and
`x002e`; the old one writes `_` for them. A NUL is `x0000`, which no file system takes.
"""

from __future__ import annotations

import hashlib
import re
from datetime import UTC, datetime, timedelta

import msgspec

from custody.errors import InvalidInputError
from custody.made_types import made_at_import
from custody.ngsi.parameters import Parameters
from custody.ngsi.rules import Mapped, Names

COMPONENT_BYTES_MAX = 255
"""Of one name on HDFS, in UTF-8."""
RELATIVE_CHARACTERS_MAX = 255
"""Of the folder, and of the file, below the user's folder: the limit of NGSIToHDFS, which counts characters."""
TABLE_BYTES_MAX = 256
"""Of a table's name in Hive's metastore; a longer one is cut and ends in a digest of the whole."""
# Part of the names of tables that exist: never change it.
_DIGEST_CHARACTERS = 16
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Part of the names of files that exist, as NGSIToHDFS has them: never change one.
_PERIODS = {"none": "", "hourly": "_%H%d%m%Y", "daily": "_%d%m%Y", "monthly": "_%m%Y", "yearly": "_%Y"}
_KINDS = {"json-row": "row", "json-column": "column", "csv-row": "row", "csv-column": "column", "parquet": "parquet"}
_OLD = re.compile(r"[^A-Za-z0-9.\-]")
_OLD_PATH = re.compile(r"[^A-Za-z0-9.\-/]")
_LOOKS_ESCAPED = re.compile(r"x(?=[0-9A-Fa-f]{4})")
_DOTS = re.compile(r"(?:^|(?<=/))(\.{1,2})(?=/|$)")
_NOT_ALPHANUMERIC = re.compile(r"[^A-Za-z0-9]")
_NEW = {"=": "xffff", ":": "x003a", "\0": "x0000"}
CONCATENATOR = "="
"""Joins id and type before they are encoded; brokers allow none in either."""


class Destination(msgspec.Struct, frozen=True, gc=False):
    """The place of one entity's data."""

    root: str
    """`/user/<hdfs_username>`, or `/user` with service_as_namespace."""
    folder: str
    """Below the root: `<service><path>/<destination>`."""
    name: str
    """Of the destination, encoded."""
    period: str
    """What separates files by time, `_042016`, or nothing."""
    database: str
    table: str

    @property
    def location(self) -> str:
        """The whole path of the folder."""
        return f"{self.root}/{self.folder}"

    @property
    def file(self) -> str:
        """The whole path of the file."""
        return f"{self.location}/{self.name}{self.period}.txt"


made_at_import(Destination)


class Placed(msgspec.Struct, frozen=True, gc=False):
    """An entity's destination, and the names of its attributes there."""

    destination: Destination
    mapped: Mapped
    raw_name: str
    """Of the destination before encoding; names of metadata files begin with it."""


def place(names: Names, received_ms: int, parameters: Parameters) -> Placed:
    """Return the destination of an entity that was received at a time.

    Raises:
        InvalidInputError: a name is longer than HDFS or NGSIToHDFS allows, or the path is not one.
    """
    mapped = parameters.mappings.apply(names)
    # A grouping rule sees names as they were notified, and wins over the mappings.
    used = parameters.grouping.apply(names) or mapped.names
    raw = used.destination or CONCATENATOR.join(part for part in (used.entity_id, used.entity_type) if part)
    if used.path != "/" and not (used.path.startswith("/") and all(used.path[1:].split("/"))):
        raise InvalidInputError(f"service path {used.path[:80]!r}: expected / or levels such as /a/b")
    values = parameters.values
    is_new = values.enable_encoding
    service, name = encode(used.service, is_new=is_new), encode(raw, is_new=is_new)
    path = encode_path(used.path.rstrip("/"), is_new=is_new)
    if values.enable_lowercase:
        service, name, path = service.lower(), name.lower(), path.lower()
    folder = f"{service}{path}/{name}"
    destination = Destination(
        root="/user" if values.service_as_namespace else f"/user/{parameters.username}",
        folder=folder,
        name=name,
        period=_period(received_ms, values.periodicity_of_file_separation),
        database=_database(parameters, service),
        table=_table(parameters, folder),
    )
    # Checked here and not by HDFS: such an entity is skipped for good, whereas a refusal of HDFS would be retried.
    _check_relative("folder", folder)
    _check_relative("file", f"{folder}/{name}{destination.period}.txt")
    return Placed(destination, mapped, raw)


def metadata_file(placed: Placed, attribute: str, type: str, parameters: Parameters) -> str:
    """Return the path of the file of an attribute's metadata, which the CSV modes have.

    Raises:
        InvalidInputError: a name is longer than HDFS allows.
    """
    values = parameters.values
    raw = CONCATENATOR.join(part for part in (placed.raw_name, attribute, type) if part)
    name = encode(raw, is_new=values.enable_encoding)
    if values.enable_lowercase:
        name = name.lower()
    size = len(f"{name}.txt".encode())
    if size > COMPONENT_BYTES_MAX:
        raise InvalidInputError(
            f"metadata file of {attribute[:80]}: expected a name of at most {COMPONENT_BYTES_MAX} bytes, got {size}"
        )
    above = placed.destination.location.removesuffix(placed.destination.name)
    return f"{above}{name}/{name}.txt"


def encode(name: str, *, is_new: bool) -> str:
    """Return one encoded component: a service, or a destination."""
    if not is_new:
        return _dots(_OLD.sub("_", name), "_")
    return _dots(_encode_new(name).replace("/", "x002f"), "x002e")


def encode_path(path: str, *, is_new: bool) -> str:
    """Return an encoded path; its slashes stay."""
    return _dots(_encode_new(path), "x002e") if is_new else _dots(_OLD_PATH.sub("_", path), "_")


def encode_table(name: str) -> str:
    """Return a name for Hive: `_` for what is no letter or digit, lower case."""
    return _NOT_ALPHANUMERIC.sub("_", name).lower()


def _period(received_ms: int, periodicity: str) -> str:
    form = _PERIODS[periodicity]
    return (_EPOCH + timedelta(milliseconds=received_ms)).strftime(form) if form else ""


def _database(parameters: Parameters, service: str) -> str:
    if parameters.values.hive_db_type == "default-db":
        return "default"
    return encode_table(service if parameters.values.service_as_namespace else parameters.username)


def _table(parameters: Parameters, folder: str) -> str:
    user = "" if parameters.values.service_as_namespace else f"{parameters.username}_"
    name = encode_table(f"{user}{folder}_{_KINDS[parameters.format]}")
    if len(name) <= TABLE_BYTES_MAX:
        return name
    # Long names often begin alike: the digest of the whole keeps them apart.
    digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGEST_CHARACTERS]
    return f"{name[: TABLE_BYTES_MAX - _DIGEST_CHARACTERS - 1]}_{digest}"


def _check_relative(what: str, path: str) -> None:
    if len(path) > RELATIVE_CHARACTERS_MAX:
        expected = f"expected at most {RELATIVE_CHARACTERS_MAX} characters, got {len(path)}"
        raise InvalidInputError(f"{what} {path[:80]}…: {expected}")
    # Of so few bytes in all no part has more.
    if path.isascii() and len(path) <= COMPONENT_BYTES_MAX:
        return
    # Characters are the limit of NGSIToHDFS, bytes that of HDFS: a name may keep to one and not to the other.
    longest = max(path.split("/"), key=lambda name: len(name.encode()))
    size = len(longest.encode())
    if size > COMPONENT_BYTES_MAX:
        expected = f"expected names of at most {COMPONENT_BYTES_MAX} bytes, got {size}"
        raise InvalidInputError(f"{what} {path[:80]}…: {expected} in {longest[:40]}…")


def _encode_new(text: str) -> str:
    # First, so that it doubles only text that looked like an escape before any was written.
    text = _LOOKS_ESCAPED.sub("xx", text) if "x" in text else text
    for character, escape in _NEW.items():
        text = text.replace(character, escape)
    return text


def _dots(text: str, escape: str) -> str:
    return _DOTS.sub(lambda dots: escape * len(dots[1]), text) if "." in text else text
