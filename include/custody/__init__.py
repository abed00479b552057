"""custody: a provenance repository for data pipelines."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from custody.repository.shared_session import session

__all__ = ["session"]


if not TYPE_CHECKING:  # a checker would take every name for one that is here

    def __getattr__(name: str) -> object:
        """Import `session` when it is used: a command that needs none of it starts without it."""
        if name == "session":
            from custody.repository.shared_session import session

            return session
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
