"""`custody swh serve`: questions to the provenance tables of software over HTTP and gRPC."""

from __future__ import annotations

import logging
import sys
from contextlib import ExitStack
from pathlib import Path
from threading import Lock

import click

from custody.cli.output import clean, stderr
from custody.clock import SystemClock
from custody.errors import ConfigurationError
from custody.repository import Repository
from custody.swh import Swhid, content_swhid
from custody.vfs import PosixFileSystem


@click.command()
@click.option("--host", help="Address to listen on, instead of swh.host.")
@click.option("--port", type=click.IntRange(0, 65_535), help="Port of the REST service, instead of swh.port.")
@click.option("--grpc-port", type=click.IntRange(0, 65_535), help="Port of the gRPC service, instead of swh.grpc_port.")
@click.option("--quiet", "-q", is_flag=True, help="Write no line a request to stderr.")
@click.pass_obj
def serve(repository: Path, host: str | None, port: int | None, grpc_port: int | None, quiet: bool) -> None:
    """Answer where contents and directories were, over HTTP until SIGTERM.

    With a port for it also over gRPC, as the service of Software Heritage does (its clients use 50141). A
    build that is published meanwhile is answered from within half a minute.

    \b
    Example:
      custody -r demo swh serve --port 5060 --grpc-port 50141
    """
    # What serves takes a second to import, and only this command needs it.
    try:
        from custody.serving import checked_tokens
        from custody.serving import serve as serve_app
        from custody.serving.published_database import PublishedDatabase
        from custody.serving.swh_rest import swh_app
    except ModuleNotFoundError as error:
        raise ConfigurationError(f"{error}. The service needs FastAPI and uvicorn: install custody[swh].") from None

    at = Repository.open(repository)
    given = {
        name: value for name, value in (("host", host), ("port", port), ("grpc_port", grpc_port)) if value is not None
    }
    chosen = at.settings.model_copy(update={"swh": at.settings.swh.model_copy(update=given)})
    tokens = checked_tokens(chosen.root, "swh", chosen.swh)
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING if quiet else logging.INFO, format="%(message)s")
    questions = PublishedDatabase(chosen, PosixFileSystem(), SystemClock(), _Contents(at).swhid)
    talk = stderr()
    with ExitStack() as open_:
        if chosen.swh.grpc_port is not None:
            try:
                from custody.serving.swh_grpc import serving_rpc
            except ModuleNotFoundError as error:
                raise ConfigurationError(f"{error}. gRPC is not installed: install custody[grpc].") from None
            address = open_.enter_context(serving_rpc(questions, chosen, tokens))
            talk.print(clean(f"custody: gRPC is answered at {address}"))
        app = swh_app(questions, chosen, tokens)
        serve_app(
            app,
            chosen.root,
            chosen.swh,
            "/whereis",
            lambda url: talk.print(clean(f"custody: questions are answered at {url}")),
        )


class _Contents:
    """Contents of events, asked for by one thread at a time."""

    def __init__(self, at: Repository) -> None:
        self._at = at
        self._lock = Lock()

    def swhid(self, event_id: int, writer: str | None) -> Swhid:
        """Return the identifier of the content of an event."""
        with self._lock:
            return content_swhid(self._at.content(self._at.get(event_id, writer)))
