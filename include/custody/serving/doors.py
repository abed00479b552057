"""The doors by their names in the settings; the module of each is imported when it is opened."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module

from custody.config.sections import DoorName
from custody.errors import ConfigurationError
from custody.serving.door import Door, Services

_CLASSES: dict[DoorName, tuple[str, str]] = {
    "api": ("custody.serving.api_door", "ApiDoor"),
    "openlineage": ("custody.serving.openlineage_door", "OpenLineageDoor"),
    "site-to-site": ("custody.serving.site_to_site_door", "open_site_to_site"),
    "events": ("custody.serving.events_door", "EventsDoor"),
    "ngsi": ("custody.serving.ngsi_door", "NgsiDoor"),
    "pages": ("custody.serving.pages_door", "PagesDoor"),
    "swh": ("custody.serving.swh_door", "SwhDoor"),
}


@contextmanager
def open_doors(names: Sequence[DoorName], services: Services) -> Iterator[Sequence[Door]]:
    """Open some doors; at the end of the block each finishes what it has begun.

    Raises:
        ConfigurationError: a door is named twice, or this installation has no such door.
        LockedError: live processes hold all writer slots.
    """
    if len(set(names)) < len(names):
        raise ConfigurationError(f"serve.doors: expected each door once, got {', '.join(names)}.")
    with ExitStack() as stack:
        doors: list[Door] = []
        for name in with_needed(names):
            door = _class_of(name)(services)
            stack.callback(door.close)
            doors.append(door)
        yield doors


def with_needed(names: Sequence[DoorName]) -> Sequence[DoorName]:
    """Return the doors with those that they ask: the pages are a client of the API."""
    return [*names, "api"] if "pages" in names and "api" not in names else names


def _class_of(name: DoorName) -> Callable[[Services], Door]:
    module, attribute = _CLASSES[name]
    door: Callable[[Services], Door] = getattr(import_module(module), attribute)
    return door
