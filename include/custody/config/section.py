"""What all sections of the settings have in common."""

from __future__ import annotations

from pydantic import BaseModel, BeforeValidator, ConfigDict

Unset = BeforeValidator(lambda value: None if value == "" else value)
"""TOML has no word for it: an empty text is no value."""


class Section(BaseModel):
    """One table of `custody.toml`: frozen, unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)
