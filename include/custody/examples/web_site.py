"""A small web site on the loopback interface, for the web crawler: links, repetitions, a redirect, a page that is gone.

Pages are fixed, so that every crawl meets the same. The site is called `site.example`, whatever its port is.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ORIGIN = "http://site.example"
_POLL_SECONDS = 0.02
LOOPBACK = "127.0.0.1"
PAGES = {
    "/": """<h1>A site about where data comes from</h1>
<p>Provenance is the history of a piece of data.</p>
<a href="/sources.html">Sources</a>
<a href="/steps.html">Steps</a>
<a href="/old-guide">The guide, where it once was</a>
<a href="/missing.html">A page that is gone</a>
<a href="/sources.html">Sources, once more</a>
<a href="https://elsewhere.example/">Another site</a>
""",
    "/sources.html": """<h1>Sources</h1>
<p>Data is received, or fetched.</p>
<p>Its provenance begins there.</p>
<a href="/">Home</a>
<a href="/archive.html">The archive</a>
<p>No provenance, no trust.</p>
""",
    "/steps.html": """<h1>Steps</h1>
<p>Data is routed, split, changed and merged.</p>
<a href="/sources.html">Sources</a>
<a href="/guide.html">The guide</a>
""",
    "/guide.html": """<h1>The guide</h1>
<p>Ask for the provenance of what you have.</p>
<a href="/">Home</a>
""",
    "/archive.html": """<h1>The archive</h1>
<p>What was sent stays known.</p>
<a href="/steps.html">Steps</a>
""",
}
REDIRECTS = {"/old-guide": "/guide.html"}


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        """Answer with a page, a redirect, or 404."""
        if self.path in REDIRECTS:
            self._answer(301, b"moved\n", Location=ORIGIN + REDIRECTS[self.path])
        elif self.path in PAGES:
            self._answer(200, PAGES[self.path].encode())
        else:
            self._answer(404, b"no such page\n")

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: the crawler's events tell what was asked for."""

    def _answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Type": "text/html", "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def web_site() -> Iterator[int]:
    """Serve the site as long as the block runs; yields its port."""
    with ThreadingHTTPServer((LOOPBACK, 0), _Handler) as server:
        serving = threading.Thread(
            target=server.serve_forever, args=(_POLL_SECONDS,), name="custody-web-site", daemon=True
        )
        serving.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            serving.join()
