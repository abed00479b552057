"""The access that the section `serve` asks for: tokens, certificates, or this machine alone."""

from __future__ import annotations

from custody.config import Settings
from custody.config.sections import ListenerSection
from custody.serving.access import Scope, Tokens
from custody.serving.application import Access
from custody.serving.http_server import check_certificates, check_openness
from custody.serving.rights import Rights

APPENDING = frozenset({Scope.APPEND})
"""What a token without scopes may do."""


def access_of(settings: Settings) -> Access:
    """Return who may do what, after a check that strangers stay out.

    Raises:
        ConfigurationError: the server would be open to other machines, or a file is missing or unfit.
    """
    options = settings.serve
    check_certificates(settings.root, "serve", options)
    check_openness("serve", options)
    tokens = None if options.token_file is None else Tokens.read(settings.root / options.token_file, APPENDING)
    scopes = frozenset(Scope(name) for name in options.certificate_scopes)
    by_certificate = None if options.tls_client_ca is None else scopes
    return Access(tokens, by_certificate, rights=rights_of(settings), allowed_hosts=hosts_of(settings))


def hosts_of(settings: Settings) -> frozenset[str]:
    """Return the names that `Host` may have besides those of this machine."""
    return frozenset(name.lower() for name in settings.serve.allowed_hosts)


def access_alone(options: ListenerSection, tokens: Tokens | None) -> Access:
    """Return the access of a server with one door, which asks for tokens itself: it is open without certificates too.

    Args:
        options: its section.
        tokens: None where none are asked for.
    """
    return Access(tokens, None if options.tls_client_ca is None else APPENDING)


def rights_of(settings: Settings) -> Rights | None:
    """Return which events each asker may see; None where the settings name no file of rules.

    Raises:
        ConfigurationError: the file is missing or unfit.
    """
    path = settings.serve.rights_file
    return None if path is None else Rights(settings.root / path)
