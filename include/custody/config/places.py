"""How the repository, its writers and its contents are laid out: sections of the settings."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from custody.config.section import Section

_Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$")]
_NAME_PATTERN = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_NAME_CHARACTERS_MAX = 63
_SLOTS_MAX = 256


class RepositorySection(Section):
    """Where the repository keeps what."""

    writer: _Name = Field(
        "main",
        description="Namespace of new events: one id sequence, one catalog timeline. One live process a writer.",
    )
    writer_slots: int = Field(
        1,
        ge=1,
        le=_SLOTS_MAX,
        description="Processes that may write at once: each takes the first free of the names WRITER, WRITER-2, … "
        "One slot is the plain name.",
    )
    writer_wait_seconds: float = Field(
        0.0,
        ge=0,
        description="How long a process waits for a slot when all are taken, before it fails with an error.",
    )
    database: _Name = Field("provenance", description="The database inside a writer's store that events go to.")
    containers: tuple[Path, ...] = Field(
        (Path("containers/1"),),
        min_length=1,
        description="Folders for journals and index shards, one a disk; relative ones lie in the repository's folder.",
    )
    store: str = Field(
        "store",
        min_length=1,
        description="Where event logs and catalog lie: a folder (a relative one lies in the repository's folder), "
        "file://, or s3://, gs://, az:// with bucket and prefix. On an object store only the commands of the catalog "
        "work so far; writing event logs needs a folder.",
    )
    quarantine_bytes_max: int = Field(
        1 << 30,
        ge=1 << 16,
        description="Most bytes of rejected input that are kept; when it is full, more is refused and nothing is lost.",
    )

    @property
    def slots(self) -> tuple[str, ...]:
        """The writer names that processes take, in the order in which they are tried."""
        return (self.writer, *(f"{self.writer}-{number}" for number in range(2, self.writer_slots + 1)))

    @field_validator("database")
    @classmethod
    def _database_leaves_room_for_its_neighbours(cls, name: str) -> str:
        if name in ("content", "flowfiles", "swh"):
            raise ValueError("content, flowfiles and swh are folders beside databases; choose another name")
        return name

    @model_validator(mode="after")
    def _slot_names_fit(self) -> Self:
        longest = self.slots[-1]
        if len(longest) > _NAME_CHARACTERS_MAX:
            raise ValueError(
                f"writer_slots: the name of slot {self.writer_slots} would be {longest!r}; expected at most "
                f"{_NAME_CHARACTERS_MAX} characters, got {len(longest)}. Choose a shorter writer or fewer slots"
            )
        return self


class JournalSection(Section):
    """How acknowledged events are kept until they are rolled over."""

    journals: int = Field(
        16, ge=1, le=256, description="Journals that one container may have open: as many as threads append at once."
    )
    sync: Literal["always", "interval", "never"] = Field(
        "always",
        description="What an acknowledgement promises. always: it survives power loss. interval: it survives the end "
        "of the process, power loss may cost the last interval. never: the operating system decides.",
    )
    sync_interval_ms: int = Field(1000, ge=10, description="Milliseconds between syncs with the policy interval.")
    seal_seconds: float = Field(
        30.0, gt=0, allow_inf_nan=False, description="Age at which a group is sealed and can be rolled over."
    )
    seal_bytes: int = Field(100 << 20, ge=4096, description="Size at which a group is sealed, in bytes.")
    waiting_bytes_max: int = Field(
        4 << 30,
        ge=4096,
        description="Bytes of sealed journals at which writers are held back until a rollover ran. A search decodes "
        "all of them: 1.6 GB of memory for 1.1 GB of journals.",
    )
    backpressure_seconds: float = Field(
        30.0, ge=0, description="How long an append is held back before it fails with an error that says why."
    )


class ContentSection(Section):
    """How contents are kept."""

    containers: tuple[str, ...] = Field(
        ("1",),
        min_length=1,
        description="Names of the folders, below a writer's content on the store, that contents are spread over. "
        "Mount a disk there to use several.",
    )
    claim_bytes: int = Field(
        1 << 20,
        ge=4096,
        le=64 << 20,
        description="Size of a file that holds several contents; a larger content gets a file of its own. Larger "
        "files are fewer, and go later: when no event speaks of any of their contents.",
    )
    unused_minutes: float = Field(
        1440.0,
        ge=0,
        allow_inf_nan=False,
        description="How long a content that no event speaks of is kept, since its file was written last: longer than "
        "a producer needs between a content and the event about it.",
    )

    @field_validator("containers")
    @classmethod
    def _containers_are_names(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if not _NAME_PATTERN.fullmatch(name):
                raise ValueError(f"expected names of a-z, 0-9, _ and -, got {name!r}")
        return names
