"""What all sections of the settings have in common."""

from __future__ import annotations

from pydantic import BaseModel, BeforeValidator, ConfigDict

Unset = BeforeValidator(lambda value: None if value == "" else value)
"""TOML has no word for it: an empty text is no value."""


class Section(BaseModel):
    """One table of `custody.toml`: frozen, unknown keys are refused."""

    # What a value is wrong for is said by who reads the error: one of pydantic's would have the secrets beside it.
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


def is_secret(name: str) -> bool:
    """Whether a setting of this name is shown to nobody."""
    return "password" in name or "token" in name
