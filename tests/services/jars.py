"""Jars of Maven Central for tests that start Java services, fetched once with the Ivy that Spark brings.

A list names each jar and its SHA-256, so that nothing is resolved and nothing else is run. What was fetched is kept in
`.local/jars` of the project, or in CUSTODY_TEST_JARS. As a program it prints the class path of a list.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from custody.spark.environment import spark_home
from custody.spark.java import find_java

_PROJECT = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("CUSTODY_TEST_JARS") or _PROJECT / ".local" / "jars")
_FETCH_SECONDS_MAX = 900


def jars(listed: Path) -> list[Path]:
    """Return the jars of a list, fetched if they are not here yet.

    Raises:
        RuntimeError: one cannot be fetched, or is another one than the list says.
    """
    wanted = dict(line.split() for line in listed.read_text().splitlines() if line and not line.startswith("#"))
    if missing := [name for name, digest in wanted.items() if not _is(CACHE / _file(name), digest)]:
        _fetch(missing)
    for name, digest in wanted.items():
        if not _is(CACHE / _file(name), digest):
            raise RuntimeError(f"{CACHE / _file(name)}: expected SHA-256 {digest}, got another jar or none. Remove it.")
    return [CACHE / _file(name) for name in wanted]


def _file(name: str) -> str:
    _, artifact, version = name.split(":")
    return f"{artifact}-{version}.jar"


def _is(path: Path, digest: str) -> bool:
    return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == digest


def _fetch(names: list[str]) -> None:
    [ivy] = (spark_home() / "jars").glob("ivy-*.jar")
    parts = [name.split(":") for name in names]
    asked = "".join(
        f'<dependency org="{group}" name="{artifact}" rev="{version}" transitive="false" conf="default->master"/>'
        for group, artifact, version in parts
    )
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        module = Path(folder, "ivy.xml")
        module.write_text(
            '<ivy-module version="2.0"><info organisation="custody" module="tests"/>'
            f"<configurations><conf name='default'/></configurations><dependencies>{asked}</dependencies></ivy-module>"
        )
        command = [str(find_java(os.environ).executable), "-jar", str(ivy), "-ivy", str(module), "-cache"]
        command += [f"{folder}/cache", "-retrieve", f"{folder}/jars/[artifact]-[revision].[ext]"]
        command += ["-types", "jar", "bundle"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_FETCH_SECONDS_MAX, check=False)
        if done.returncode:
            raise RuntimeError(f"Ivy could not fetch {', '.join(names)}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        for name in names:
            shutil.move(Path(folder, "jars", _file(name)), CACHE / _file(name))


if __name__ == "__main__":
    sys.stdout.write(os.pathsep.join(map(str, jars(Path(sys.argv[1])))) + "\n")
