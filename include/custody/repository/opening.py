"""Opening a live log, which may expire, or be damaged, in the meantime."""

from __future__ import annotations

from custody.catalog import AddFile
from custody.errors import CorruptionError, NotFoundError
from custody.eventlog import Damage, EventLog, OnDamage
from custody.repository.caches import caches_of
from custody.repository.found import tell_newer
from custody.rollover import Workspace


def open_log(workspace: Workspace, file: AddFile, on_damage: OnDamage) -> EventLog | None:
    """Return a live log whose blocks can be found; None when it expired meanwhile, or is damaged and passed over."""
    try:
        log = caches_of(workspace).log(workspace, file)
    except NotFoundError:
        try:
            require_expired(workspace, file)
        except CorruptionError as error:
            problem = str(error)
        else:
            return None
    except CorruptionError as error:
        problem = str(error)
    else:
        tell_newer(on_damage, log.metadata.schema_version, log.unknown_columns)
        return log
    on_damage(Damage(workspace.paths.home / file.path, None, file.first_event_id, file.last_event_id, problem))
    return None


def require_expired(workspace: Workspace, file: AddFile) -> None:
    """Raise CorruptionError unless a log that is gone was expired since the catalog was read."""
    if file.path in caches_of(workspace).state(workspace).files:
        path = workspace.paths.home / file.path
        raise CorruptionError(f"{path}: expected a live event log, found no file. Bring it back from a backup.")
