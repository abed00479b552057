"""Room `serving`: how a program of custody listens: addresses, tokens, TLS, and an end on SIGTERM."""

from custody.serving.http_requests import Tokens
from custody.serving.http_server import checked_tokens, file_of, is_loopback, serve

__all__ = ["Tokens", "checked_tokens", "file_of", "is_loopback", "serve"]
