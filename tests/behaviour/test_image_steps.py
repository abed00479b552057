"""The commands of the Dockerfile in a plain environment: a folder in the image's place, a fresh Python environment.

The base image's part is not here: an environment that has the locked packages stands for it.
"""

from __future__ import annotations

import getpass
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from fnmatch import fnmatch
from pathlib import Path

import pytest

from custody.spark.java import find_java
from tests.image import ROOT, run_steps_of, variables_of

pytestmark = [pytest.mark.slow, pytest.mark.spark]

IMAGE = "/usr/local/airflow"


def left_out(folder: str, names: list[str]) -> set[str]:
    """What .dockerignore says of the names in a folder: `**/` stands for any folder, the rest for the project's own."""
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    patterns = [line for line in lines if line and not line.startswith("#")]
    anywhere = [pattern.removeprefix("**/") for pattern in patterns if pattern.startswith("**/")]
    here = [*anywhere, *patterns] if Path(folder) == ROOT else anywhere
    return {name for name in names if any(fnmatch(name, pattern) for pattern in here)}


def test_the_dockerfile_s_commands_make_a_working_custody(tmp_path: Path) -> None:
    project, environment = tmp_path / "airflow", tmp_path / "python"
    # As the base image does it: the whole project, but for what .dockerignore leaves out.
    shutil.copytree(ROOT, project, ignore=left_out)
    # Those of this checkout are not the image's: its own step builds them.
    shutil.rmtree(project / "include" / "custody_pages" / "built", ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(environment), "platbase": str(environment)}))
    # What requirements.txt would have installed; the project itself is not among it.
    (site / "image.pth").write_text(f"import sys; sys.path.append({sysconfig.get_path('purelib')!r})\n")
    environ = {
        name: value for name, value in os.environ.items() if not name.startswith(("CUSTODY", "PYTHON", "VIRTUAL"))
    }
    environ["PATH"] = os.pathsep.join([str(environment / "bin"), str(Path(sys.prefix) / "bin"), environ["PATH"]])

    def as_here(text: str) -> str:
        return text.replace(IMAGE, str(project)).replace("=astro", f"={getpass.getuser()}")

    for step in run_steps_of(ROOT / "Dockerfile"):
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", as_here(step)], cwd=project, env=environ, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{step}\n{done.stdout}{done.stderr}"
    # Node and npm's packages are gone with that step, and the pages stay.
    pages = project / "include" / "custody_pages" / "built"
    assert (pages / "search.html").is_file()
    assert list((pages / "assets").glob("search-*.js"))
    assert not Path("/tmp/custody-pages").exists()
    environ |= {name: as_here(value) for name, value in variables_of(ROOT / "Dockerfile").items()}
    process = subprocess.run(
        [environment / "bin" / "custody", "status", "--json"], cwd="/", env=environ, capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr
    assert json.loads(process.stdout)
    where = subprocess.run(
        [environment / "bin" / "python", "-c", "import custody, custody_local; print(custody.__file__)"],
        cwd="/",
        env=environ,
        capture_output=True,
        text=True,
        check=True,
    )
    assert where.stdout.startswith(str(project / "include"))
    if not find_java().packaged:
        assert list((environment / "var" / "custody").glob("*.jsa")), "no class archive was made"
