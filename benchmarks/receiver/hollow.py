"""A receiver that reads a notification, judges it and stores nothing: what HTTP alone costs, with the same server.

`python -m benchmarks.receiver.hollow REPOSITORY` serves it with the repository's settings on a free port.
"""

from __future__ import annotations

import sys
from pathlib import Path

from fastapi import FastAPI, Request, Response
from starlette.routing import Route

from custody.config import load_settings
from custody.ngsi.http_notification import Accepts, Refusal, judge_request
from custody.serving import serve


def main(root: Path) -> None:
    """Serve until SIGTERM."""
    loaded = load_settings(root)
    settings = loaded.model_copy(update={"receiver": loaded.receiver.model_copy(update={"port": 0})})
    accepts = Accepts.of(settings.ngsi)

    async def notify(request: Request) -> Response:
        body = await request.body()
        judgement = judge_request(request.method, request.url.path, request.headers, body, accepts)
        return Response(b'{"first_event_id":0}', judgement.status if isinstance(judgement, Refusal) else 200)

    async def health(_: Request) -> Response:
        return Response(b"{}")

    app = FastAPI()
    app.router.routes += [Route("/health", health), Route("/{target:path}", notify, methods=["POST"])]
    target = settings.ngsi.notification_target
    tell = lambda url: print(f"taken at {url}", file=sys.stderr, flush=True)  # noqa: E731, T201
    serve(app, settings.root, settings.receiver, target, tell)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
