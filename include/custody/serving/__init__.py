"""Room `serving`: the server of custody and its doors, tokens, and the services of software over HTTP and gRPC."""

from typing import TYPE_CHECKING

from custody.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from custody.serving.access import Tokens
    from custody.serving.http_requests import is_loopback
    from custody.serving.http_server import checked_tokens, file_of, serve

# Tokens are made and listed without the libraries of a server.
_MODULES = {
    "custody.serving.access": ("Tokens",),
    "custody.serving.http_requests": ("is_loopback",),
    "custody.serving.http_server": ("checked_tokens", "file_of", "serve"),
}

__all__ = ["Tokens", "checked_tokens", "file_of", "is_loopback", "serve"]

if not TYPE_CHECKING:
    __getattr__ = lazy_exports(__name__, _MODULES)
