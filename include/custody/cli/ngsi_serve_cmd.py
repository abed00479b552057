"""`custody ngsi serve`: notifications of context brokers over HTTP."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import click

from custody.cli.output import clean, stderr
from custody.clock import SystemClock
from custody.errors import ConfigurationError
from custody.repository import Repository
from custody.serving.ngsi_intake import Intake


@click.command()
@click.option("--host", help="Address to listen on, instead of receiver.host.")
@click.option("--port", type=click.IntRange(0, 65_535), help="Port to listen on, instead of receiver.port.")
@click.option("--quiet", "-q", is_flag=True, help="Write no line a request to stderr.")
@click.pass_obj
def serve(repository: Path, host: str | None, port: int | None, quiet: bool) -> None:
    """Take notifications over HTTP until SIGTERM; each is answered with 200 once it is on disk.

    NGSIv2, NGSI-LD and NGSIv1 are posted to ngsi.notification_target. A notification becomes RECEIVE events, one an
    entity, with its body as their content. What cannot be read is answered with 400 and goes to the
    quarantine. The process holds a writer slot.

    \b
    Example:
      custody -r demo ngsi serve --port 5050
    """
    # FastAPI and uvicorn take a second to import, and only this command needs them.
    try:
        from custody import serving
        from custody.serving.ngsi_receiver import Receiver, receiver_app
    except ModuleNotFoundError as error:
        raise ConfigurationError(f"{error}. The receiver needs FastAPI and uvicorn: install custody[ngsi].") from None

    at = Repository.open(repository)
    given = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    chosen = at.settings.model_copy(update={"receiver": at.settings.receiver.model_copy(update=given)})
    tokens = serving.checked_tokens(chosen.root, "receiver", chosen.receiver)
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING if quiet else logging.INFO, format="%(message)s")
    with at.writer() as writer, Intake(writer, chosen.receiver.requests_max) as intake:
        receiver = Receiver(chosen, intake, at.quarantine, SystemClock(), tokens)
        app = receiver_app(receiver)
        serving.serve(
            app,
            chosen.root,
            chosen.receiver,
            chosen.ngsi.notification_target,
            lambda url: stderr().print(clean(f"custody: notifications are taken at {url}")),
        )
    stderr().print(clean(f"custody: {intake.stored} notifications were stored"))
