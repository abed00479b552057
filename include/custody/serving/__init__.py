"""Room `serving`: the servers of custody: receiver of notifications, provenance of software over HTTP and gRPC."""

from custody.serving.http_requests import Tokens
from custody.serving.http_server import checked_tokens, file_of, is_loopback, serve

__all__ = ["Tokens", "checked_tokens", "file_of", "is_loopback", "serve"]
