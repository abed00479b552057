"""Processors and process groups of the simulated instance.

Identifiers are derived from names, so they are the same in every sample, as the ids of a real flow
stay the same from one day to the next.
"""

import uuid
from dataclasses import dataclass

_NAMESPACE = uuid.UUID("5c0b7a4e-3d7e-5f0e-9b1d-6a1f0c2d8e47")


@dataclass(frozen=True, slots=True)
class Component:
    """Where an event happened: a processor, a port or, for downloads, the root group."""

    id: str
    kind: str
    name: str
    group_id: str | None
    group_name: str | None


@dataclass(frozen=True, slots=True)
class ProcessGroup:
    """A flow on the canvas."""

    name: str

    def component(self, kind: str, name: str) -> Component:
        """Return the processor of this simple class name and this label."""
        return Component(
            id=stable_id(f"{self.name}/{name}"),
            kind=kind,
            name=name,
            group_id=stable_id(self.name),
            group_name=self.name,
        )


def stable_id(name: str) -> str:
    """Return the uuid that this name always has."""
    return str(uuid.uuid5(_NAMESPACE, name))


ROOT_NAME = "NiFi Flow"
# Events of the root group carry its name as their component type, and no parent group.
ROOT = Component(id=stable_id(ROOT_NAME), kind=ROOT_NAME, name=ROOT_NAME, group_id=None, group_name=None)
