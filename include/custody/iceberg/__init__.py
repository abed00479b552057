"""What is live as an Apache Iceberg table, for engines that know nothing of custody; event logs are listed, not copied.

This package itself imports no pyiceberg, which is an extra: `publishing` does, once something is to be published.
"""

from __future__ import annotations

from importlib import util
from typing import TYPE_CHECKING

from custody.errors import ConfigurationError
from custody.extras import install_command
from custody.iceberg.table_folder import has_table

if TYPE_CHECKING:
    from custody.iceberg.publishing import Published
    from custody.workspace import Workspace

__all__ = ["check_ready", "collect_former", "erase_former", "has_table", "is_behind", "publish", "republish"]


def publish(workspace: Workspace) -> Published:
    """Publish a writer's live events: one snapshot a revision of its catalog, up to the newest.

    Durability: on return the table survives power loss. Done again, or by several at once, the table is the same.

    Raises:
        ConfigurationError: pyiceberg is not installed, or the store cannot put if absent.
        ConflictError: the table is not custody's, or others publish without end.
        CorruptionError: the catalog is damaged.
    """
    _require_pyiceberg(workspace)
    from custody.iceberg.publishing import publish_table

    return publish_table(workspace)


def republish(workspace: Workspace) -> Published | None:
    """Publish a writer that was published before; None for others.

    For those who make events or files go: afterwards no snapshot of the table names them.
    """
    return publish(workspace) if has_table(workspace.catalog.objects) else None


def check_ready(workspace: Workspace) -> None:
    """Raise ConfigurationError where `republish` would: before something is done that the table has to follow."""
    if has_table(workspace.catalog.objects):
        _require_pyiceberg(workspace)


def collect_former(workspace: Workspace) -> int:
    """Delete the files of a published table, not the logs, that no version of it needs any more; return how many."""
    from custody.iceberg.publishing import collect_former as collect

    return len(collect(workspace))


def erase_former(workspace: Workspace, older_than_ms: int) -> tuple[list[str], int]:
    """Delete all versions of a published table but the newest, and their files, not the logs.

    Returns the keys that were deleted, and how many files are younger and stay for now: a publisher may be about to
    name them.
    """
    if not has_table(workspace.catalog.objects):
        return [], 0
    from custody.iceberg.publishing import collect_former as collect
    from custody.iceberg.publishing import former_parts, remove_former_versions

    deleted = [*remove_former_versions(workspace), *collect(workspace, older_than_ms)]
    return deleted, len(former_parts(workspace, workspace.clock.now_ms() + older_than_ms))


def is_behind(workspace: Workspace) -> bool:
    """Whether a writer is to be published with each commit, and its table is not at the newest revision."""
    if not workspace.settings.iceberg.publish:
        return False
    from custody.iceberg.table_folder import published_revision

    revision = workspace.catalog.load().revision
    return revision >= 0 and published_revision(workspace.catalog.objects) != revision


def _require_pyiceberg(workspace: Workspace) -> None:
    if util.find_spec("pyiceberg") is None:
        raise ConfigurationError(
            f"writer {workspace.writer!r}: its events are published as an Iceberg table, and pyiceberg is not "
            f"installed. Run: {install_command('iceberg')}"
        )
