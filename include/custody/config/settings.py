"""The settings of a repository: `custody.toml` in its folder, overridden by `CUSTODY__SECTION__KEY`.

Every field is validated when the settings are loaded, unknown keys are refused. `docs/config.md` is this module's
documentation for users; a test holds the two together.
"""

from __future__ import annotations

import json
import os
import tomllib
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, ValidationError, model_validator
from pydantic_core import ErrorDetails
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    TomlConfigSettingsSource,
)

from custody.config.content_store import ContentStore
from custody.config.exports import ExportTarget
from custody.config.ngsi import NgsiSection
from custody.config.parsing import is_local, local_folder
from custody.config.sections import (
    NAME_PATTERN,
    CaptureSection,
    CatalogSection,
    ContentSection,
    EventLogSection,
    FlowFilesSection,
    IcebergSection,
    IndexSection,
    JournalSection,
    LandingSection,
    LeaseSection,
    MaintenanceSection,
    QuerySection,
    ReceiverSection,
    RepositorySection,
    RetentionSection,
    Section,
    ServeSection,
    SiteToSiteSection,
    SparkSection,
    SwhSection,
    is_secret,
)
from custody.errors import ConfigurationError, NotFoundError

SETTINGS_FILE = "custody.toml"
ENVIRONMENT_PREFIX = "CUSTODY__"


# A search asks for them several times for each writer.
@lru_cache(maxsize=64)
def _folders(root: Path, names: tuple[Path, ...]) -> tuple[Path, ...]:
    return tuple(root / name for name in names)


class Settings(BaseSettings):
    """All settings of one repository."""

    model_config = SettingsConfigDict(
        env_prefix=ENVIRONMENT_PREFIX,
        env_nested_delimiter="__",
        extra="forbid",
        frozen=True,
        # Messages of pydantic would show values, secrets too; `_explain` adds those that may be seen.
        hide_input_in_errors=True,
    )

    root: Path = Field(exclude=True, description="The repository's folder; not a setting of the file.")
    repository: RepositorySection = Field(default_factory=RepositorySection)
    capture: CaptureSection = Field(default_factory=CaptureSection)
    landing: LandingSection = Field(default_factory=LandingSection)
    journal: JournalSection = Field(default_factory=JournalSection)
    content: ContentSection = Field(default_factory=ContentSection)
    flowfiles: FlowFilesSection = Field(default_factory=FlowFilesSection)
    eventlog: EventLogSection = Field(default_factory=EventLogSection)
    index: IndexSection = Field(default_factory=IndexSection)
    catalog: CatalogSection = Field(default_factory=CatalogSection)
    iceberg: IcebergSection = Field(default_factory=IcebergSection)
    maintenance: MaintenanceSection = Field(default_factory=MaintenanceSection)
    retention: RetentionSection = Field(default_factory=RetentionSection)
    receiver: ReceiverSection = Field(default_factory=ReceiverSection)
    serve: ServeSection = Field(default_factory=ServeSection)
    site_to_site: SiteToSiteSection = Field(default_factory=SiteToSiteSection)
    lease: LeaseSection = Field(default_factory=LeaseSection)
    query: QuerySection = Field(default_factory=QuerySection)
    spark: SparkSection = Field(default_factory=SparkSection)
    ngsi: NgsiSection = Field(default_factory=NgsiSection)
    swh: SwhSection = Field(default_factory=SwhSection)
    exports: dict[Annotated[str, Field(pattern=NAME_PATTERN)], ExportTarget] = Field(default_factory=dict)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments win over the environment, the environment over the file."""
        root: Path = init_settings()["root"]
        return (
            init_settings,
            env_settings,
            # Last, so that the environment overrides the file.
            TomlConfigSettingsSource(settings_cls, root / SETTINGS_FILE),
        )

    @property
    def containers(self) -> tuple[Path, ...]:
        """The containers' folders, absolute."""
        return _folders(self.root, tuple(self.repository.containers))

    @property
    def store(self) -> Path:
        """The store's folder, absolute; of an object store, the work folder, which has copies of its files.

        Raises:
            ConfigurationError: the store is a folder of another machine.
        """
        if self.is_store_remote:
            return self.root / self.repository.work_folder
        return self.root / local_folder(self.repository.store)

    @property
    def content_store(self) -> ContentStore:
        """Where contents lie: the store's folder, and the folders of the containers that are elsewhere."""
        pairs = (container.split("=", 1) for container in self.content.containers if "=" in container)
        return ContentStore(
            self.store,
            {name: self.root / folder for name, folder in pairs},
            self.repository.store,
            self.root,
            self.catalog.put_if_absent,
            self.repository.work_copies_bytes_max,
            self.repository.multipart_bytes,
        )

    @property
    def is_store_remote(self) -> bool:
        """Whether the store is an object store."""
        return not is_local(self.repository.store)

    @property
    def is_staging_stored(self) -> bool:
        """Whether merged units and leases lie in the object store, so that a step needs no disk of another machine."""
        return self.repository.staging == "store"

    @model_validator(mode="after")
    def _staging_needs_a_store(self) -> Self:
        if self.is_staging_stored and not (self.is_store_remote and self.journal.handoff == "store"):
            raise ValueError(
                'repository.staging = "store": expected an object store as repository.store, and journal.handoff = '
                '"store". Set both, or leave repository.staging out'
            )
        return self

    @property
    def spark_library(self) -> Path | None:
        """The file with the library for Spark's executors, absolute; None where they have it."""
        return None if self.spark.library is None else self.root / self.spark.library

    def require_folder(self, what: str) -> None:
        """Raise ConfigurationError where the store is an object store; `what` says what needs a folder."""
        if self.is_store_remote:
            raise ConfigurationError(
                f"store {self.repository.store!r}: {what} needs a store that is a folder, and this is an object store."
            )

    @property
    def stripes(self) -> dict[str, Path]:
        """The folders of the stripes, absolute, by name."""
        pairs = (stripe.split("=", 1) for stripe in self.repository.stripes)
        return {name: self.root / folder for name, folder in pairs}

    @property
    def flowfiles_home(self) -> Path:
        """The folder of the FlowFile repository, on this machine."""
        return self.root / "flowfiles"

    @property
    def attestations(self) -> Path | None:
        """The folder of attestations that have to stay provable, absolute; None when none is named."""
        return None if self.catalog.attestations is None else self.root / self.catalog.attestations

    @property
    def quarantine(self) -> Path:
        """Where rejected input is kept."""
        return self.root / "quarantine"

    @property
    def landed(self) -> Path:
        """Where the ledger of the landing folders is: which files were taken."""
        return self.root / "landed"

    @property
    def witnesses(self) -> Path:
        """What was seen of each writer's parts, beside what its containers keep of it."""
        return self.root / "witness"

    @property
    def turns(self) -> Path:
        """Where ingests take turns: locks for the sources whose events they store."""
        return self.root / "turns"

    @property
    def maintenance_folder(self) -> Path:
        """Where the scrub keeps its progress and its findings."""
        return self.root / "maintenance"

    @property
    def watch_mark(self) -> Path:
        """Where a watcher notes the groups of journals that it has reported."""
        return self.root / "watch" / "groups.json"

    @property
    def exports_home(self) -> Path:
        """Where exports keep how far they are, a folder each."""
        return self.root / "exports"

    @property
    def uploads(self) -> Path:
        """Where contents wait that were delivered before the events that name them."""
        return self.root / "uploads"

    @property
    def site_to_site_home(self) -> Path:
        """Where transactions of Site-to-Site are until they end, and how they ended."""
        return self.root / "site-to-site"

    @property
    def runs(self) -> Path:
        """Where the steps write their reports."""
        return self.root / "runs"

    @property
    def jobs(self) -> Path:
        """Where the server keeps the state of long work."""
        return self.root / "jobs"

    @property
    def replays(self) -> Path:
        """Where replay plans are that nobody named a file for."""
        return self.root / "replays"

    def to_json(self) -> str:
        """Return everything, the folder included, for a worker on another machine."""
        return json.dumps({"root": str(self.root), **self.model_dump(mode="json")})

    @classmethod
    def from_json(cls, text: str) -> Settings:
        """Return the settings that `to_json` wrote, whatever this machine's environment says."""
        document = json.loads(text)
        # Arguments win over the environment: a worker takes the driver's settings and not its own machine's.
        return cls(**{**document, "root": Path(document["root"])})


def root_of(folder: Path) -> Path:
    """Return the absolute path of a repository's folder.

    Raises:
        ConfigurationError: it is no valid Unicode, so that neither settings nor reports could name it.
    """
    root = folder.expanduser().resolve()
    try:
        str(root).encode()
    except UnicodeEncodeError:
        shown = str(root).encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
        raise ConfigurationError(
            f"{shown}: expected a folder whose path is UTF-8, got other bytes. Rename it, or choose another one."
        ) from None
    return root


def load_settings(root: Path, *, is_needed: bool = True) -> Settings:
    """Load and validate the settings of the repository in a folder.

    If it is not needed and there is none, the environment alone overrides the defaults.

    Raises:
        NotFoundError: the folder holds no repository.
        ConfigurationError: a setting is unknown or out of its range; the message names file and key.
    """
    root = root_of(root)
    file = root / SETTINGS_FILE
    if is_needed and not file.is_file():
        raise NotFoundError(f"no repository in {root}: {SETTINGS_FILE} is missing. Make one: custody init {root}")
    source = _source(file)
    loaded = _LOADED.get(root)
    if loaded is not None and loaded[0] == source:
        return loaded[1]
    try:
        settings = Settings(root=root)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{file}: {error}. Correct the file, then try again.") from error
    except SettingsError as error:
        raise ConfigurationError(f"environment {ENVIRONMENT_PREFIX}…: {error}. See docs/config.md.") from error
    except ValidationError as error:
        raise ConfigurationError(_explain(error, file)) from error
    # What was read in between may be another file.
    if _source(file) == source:
        if len(_LOADED) >= _LOADED_MAX:
            _LOADED.clear()
        _LOADED[root] = source, settings
    return settings


def _source(file: Path) -> tuple[bytes | None, dict[str, str]]:
    """Return all that settings are made from: the bytes of the file, None without one, and the environment's part."""
    environment = {name: value for name, value in os.environ.items() if name.upper().startswith(ENVIRONMENT_PREFIX)}
    try:
        return file.read_bytes(), environment
    except OSError:
        return None, environment


# To read and validate some hundred settings takes longer than to read an event. They are frozen, so that all who open
# one repository in a process may share them.
_LOADED: dict[Path, tuple[tuple[bytes | None, dict[str, str]], Settings]] = {}
_LOADED_MAX = 64


def _explain(error: ValidationError, file: Path) -> str:
    lines = []
    for problem in error.errors():
        key = ".".join(str(part) for part in problem["loc"])
        # pydantic does not say where a value is from; the environment wins over the file, so it is looked at first.
        variable = ENVIRONMENT_PREFIX + "__".join(str(part).upper() for part in problem["loc"])
        place = f"environment {variable}" if variable in os.environ else f"{file} [{key}]"
        lines.append(f"{place}: {problem['msg']}{_value_text(problem)}")
    return "; ".join(lines) + ". See docs/config.md for every setting."


def _value_text(problem: ErrorDetails) -> str:
    """Return the value for a message, which people and logs read: no secret, and nothing that may hold one."""
    value = problem["input"]
    # An unknown key may be a misspelt secret, so its value is not shown.
    if isinstance(value, dict | Section) or problem["type"] == "extra_forbidden":
        return ""
    is_shown = not any(is_secret(str(part)) for part in problem["loc"])
    return f", got {value!r}" if is_shown else ", got a value that is not shown"


def default_settings_file() -> str:
    """Return the text of a new repository's `custody.toml`: every section and setting, commented out.

    The names of sections are comments, too: TOML allows each once, and blocks of the documentation are pasted below.
    """
    lines = [
        "# Settings of this custody repository. Uncomment a setting and the [section] above it, or add sections at the",
        "# end. docs/config.md explains each setting.",
        "",
    ]
    for name, section in Settings.model_fields.items():
        model = section.annotation
        if not (isinstance(model, type) and issubclass(model, Section)):
            continue
        lines.append(f"# [{name}]")
        for key, field in model.model_fields.items():
            lines.append(f"# {field.description}")
            lines.append(f"# {key} = {_toml_value(field.default)}")
        lines.append("")
    return "\n".join(lines)


def _toml_value(value: object) -> str:
    if value is None:
        return '""  # unset'
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return "[" + ", ".join(_toml_value(item) for item in value) + "]"
    return f'"{value}"' if isinstance(value, str | Path) else str(value)
