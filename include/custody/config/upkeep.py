"""What is looked after, and for how long things are kept: sections of the settings."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator

from custody.config.durations import span_ms
from custody.config.keeping import KeepRule, keep_rule
from custody.config.section import Section, Unset


class MaintenanceSection(Section):
    """How the repository is looked after."""

    scrub_days: float = Field(
        7.0,
        gt=0,
        allow_inf_nan=False,
        description="Days in which the scrub reads everything once. A run does what is due since the one before it.",
    )
    scrub_bytes_per_run: int = Field(
        64 << 30,
        ge=1,
        description="Most bytes that one run of the scrub reads, beyond the piece that it is at. With too few of them "
        "a round takes longer than scrub_days, which the report says.",
    )


class RetentionSection(Section):
    """How long events are kept, and in how much room."""

    age_max: Annotated[str | None, Unset] = Field(
        None,
        description="How long events are kept, by their own time, such as 30 days; unset keeps them for ever. An event "
        "log goes when all its events are older.",
    )
    rules: tuple[str, ...] = Field(
        (),
        description="How long some events are kept, longer or shorter than the others: event_type:DROP keep 7 days, "
        "attribute:customer=acme keep 5 years. Of several rules for an event the longest counts.",
    )
    bytes_max: Annotated[int | None, Unset] = Field(
        None,
        ge=1 << 20,
        description="Room on disk for containers and store together, all files counted, in bytes; unset sets no limit. "
        "When it is used up the oldest event logs go.",
    )
    purge_percent: int = Field(
        90, ge=1, le=100, description="Down to how many percent of bytes_max is freed when the limit is reached."
    )
    grace: str = Field(
        "10 minutes",
        description="How long the files of expired events stay on disk for readers that have begun.",
    )

    @field_validator("age_max", "grace")
    @classmethod
    def _is_span(cls, text: str | None) -> str | None:
        if text is not None:
            span_ms(text)
        return text

    @field_validator("rules")
    @classmethod
    def _are_rules(cls, texts: tuple[str, ...]) -> tuple[str, ...]:
        for text in texts:
            keep_rule(text)
        return texts

    @property
    def age_max_ms(self) -> int | None:
        """How long events are kept for which no rule says otherwise; None for ever."""
        return None if self.age_max is None else span_ms(self.age_max)

    @property
    def keep_rules(self) -> tuple[KeepRule, ...]:
        """The rules, read."""
        return tuple(keep_rule(text) for text in self.rules)

    @property
    def grace_ms(self) -> int:
        """How long marked files stay."""
        return span_ms(self.grace)


class LeaseSection(Section):
    """How attempts at one piece of work make way for each other."""

    wait_seconds: float = Field(
        30.0,
        ge=0,
        allow_inf_nan=False,
        description="How long a step waits for another attempt that lives and holds its lease, before it fails with an "
        "error. A later try of the same Airflow task takes over at once.",
    )
    dead_seconds: float = Field(
        120.0,
        gt=0,
        allow_inf_nan=False,
        description="Age of the last sign of life after which a holder on another machine counts as dead. "
        "On the same machine the process itself is looked for.",
    )
