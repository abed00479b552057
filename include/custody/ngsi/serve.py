"""Serving the receiver on its own, as the section `receiver` of the settings says (`custody.serving`)."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import FastAPI

from custody import serving
from custody.config import Settings
from custody.serving import Tokens, is_loopback

__all__ = ["checked_tokens", "is_loopback", "serve"]


def checked_tokens(settings: Settings) -> Tokens | None:
    """Return the tokens that the settings name, None for none, once it is sure that strangers are kept out.

    Raises:
        ConfigurationError: the receiver would be open to other machines, or a file does not fit.
    """
    return serving.checked_tokens(settings.root, "receiver", settings.receiver)


def serve(app: FastAPI, settings: Settings, on_started: Callable[[str], None] = lambda url: None) -> None:
    """Serve until SIGTERM or SIGINT; requests that have begun are answered before it returns.

    Raises:
        StorageError: the address cannot be listened on.
    """
    serving.serve(app, settings.root, settings.receiver, settings.ngsi.notification_target, on_started)
