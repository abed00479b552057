"""The system's Chromium, driven by Playwright; for tests of Airflow's page and of custody's pages.

Playwright comes from PyPI into a folder of its own under `.local`, made by the first test that needs it: 150 MB that
nothing else needs. It brings no browser, and none is downloaded: `CUSTODY_CHROMIUM` names another one than the
system's.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import util
from pathlib import Path
from typing import Any

import pytest

from custody_pages import build

ROOT = Path(__file__).resolve().parents[2]
REQUIREMENTS = Path(__file__).with_name("ui-requirements.txt")
PACKAGES = ROOT / ".local" / "ui"
SIZE = {"width": 1280, "height": 800}
# Airflow's page for the login asks for its settings before anybody has logged in, is refused, and works without them.
# Not a status that is expected everywhere: custody's pages are below another path, and a refusal there is an error.
_OF_AIRFLOW = {("Failed to load resource: the server responded with a status of 401 (Unauthorized)", "/ui/config")}
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def chromium() -> str | None:
    """Return the browser's program, None when there is none."""
    return os.environ.get("CUSTODY_CHROMIUM") or next(filter(None, map(shutil.which, _NAMES)), None)


def missing() -> str | None:
    """Say what is missing to drive a browser; None when nothing is. Playwright is fetched here if it can be."""
    if chromium() is None:
        return f"Chromium: none of {', '.join(_NAMES)} on this machine (Debian: apt install chromium)"
    if util.find_spec("playwright") is not None:
        return None
    try:
        _install()
    except (OSError, subprocess.CalledProcessError) as error:
        return f"Playwright: neither installed nor to be had from PyPI: {error}"
    sys.path.append(str(PACKAGES))
    return None


def need_pages() -> None:
    """Build the pages as their sources are now; skip the test where they cannot be, or where no browser is."""
    if reason := missing():
        pytest.skip(reason)
    try:
        build.build()
    except build.BuildError as error:
        pytest.skip(str(error))


def _install() -> None:
    PACKAGES.parent.mkdir(parents=True, exist_ok=True)
    stamp = PACKAGES / "made-from"
    with (PACKAGES.parent / "ui.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (stamp.exists() and stamp.read_bytes() == REQUIREMENTS.read_bytes()):
            shutil.rmtree(PACKAGES, ignore_errors=True)
            command = [str(ROOT / ".ci" / "uv"), "pip", "install", "--quiet", "--require-hashes"]
            subprocess.run([*command, "--target", str(PACKAGES), "-r", str(REQUIREMENTS)], check=True)
            stamp.write_bytes(REQUIREMENTS.read_bytes())


def log_in(page: Any, url: str, user: str, password: str) -> None:
    """Open Airflow's page and log in through its form."""
    page.goto(url)
    page.fill("input[name=username]", user)
    page.fill("input[name=password]", password)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_test_id("nav-dags-link").wait_for()


@contextmanager
def page(url: str, *refusals: int, timeout_ms: int = 30_000, **options: Any) -> Iterator[Any]:
    """Open an empty page of a new browser, for a server at `url`; `options` are those of a context of Playwright.

    It fails at the end if the console has an error, if a script raised one, if a dialog of the browser came up, or if
    anything was asked of another server, by whatever frame of the page. What Chromium says of the sandbox of Airflow's
    frame is a warning, no error, and one error of Airflow's own page is known. `refusals` are the statuses that the
    server is expected to answer with; the browser notes each as an error.
    """
    from playwright.sync_api import sync_playwright

    wrong: list[str] = []
    expected = [f"status of {status} " for status in refusals]

    def said(message: Any) -> None:
        place = message.location.get("url", "")
        is_known = any(message.text == text and place == f"{url}{path}" for text, path in _OF_AIRFLOW)
        if message.type == "error" and not is_known and not any(one in message.text for one in expected):
            wrong.append(f"console: {message.text} {place}")

    def asked(request: Any) -> None:
        if not request.url.startswith((f"{url}/", "blob:", "data:")):
            wrong.append(f"asked: {request.url}")

    # Root may not use the sandbox; everything that is shown here is this project's own.
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=[*arguments, "--no-proxy-server"])
        try:
            settings = {"viewport": SIZE, "locale": "en-GB", "timezone_id": "UTC", "color_scheme": "light"}
            opened = browser.new_context(**{**settings, **options}).new_page()
            opened.set_default_timeout(timeout_ms)
            opened.on("pageerror", lambda error: wrong.append(f"error: {error}"))
            opened.on("console", said)
            opened.on("dialog", lambda dialog: wrong.append(f"dialog: {dialog.message}"))
            opened.on("request", asked)
            yield opened
        finally:
            browser.close()
    assert wrong == [], "\n".join(wrong)
