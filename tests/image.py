"""The Dockerfile's commands and variables, read without a container engine."""

from __future__ import annotations

import shlex
from pathlib import Path

ROOT = Path(__file__).parents[1]


def instructions_of(dockerfile: Path) -> list[tuple[str, str]]:
    """The instructions with their arguments, in order; continued lines are joined, comments left out."""
    lines = [line for line in dockerfile.read_text(encoding="utf-8").splitlines() if not line.lstrip().startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    words = [line.partition(" ") for line in joined.splitlines() if line.strip()]
    return [(word.upper(), rest.strip()) for word, _, rest in words]


def run_steps_of(dockerfile: Path) -> list[str]:
    """The shell commands of its RUN instructions."""
    return [rest for word, rest in instructions_of(dockerfile) if word == "RUN"]


def variables_of(dockerfile: Path) -> dict[str, str]:
    """What its ENV instructions set."""
    found = [shlex.split(rest) for word, rest in instructions_of(dockerfile) if word == "ENV"]
    return {name: value for pairs in found for name, _, value in (pair.partition("=") for pair in pairs)}
