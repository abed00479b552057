"""Jars of Maven Central for tests that start Java services, fetched once with the Ivy that Spark brings.

A list names each jar and its SHA-256, so that nothing is resolved and nothing else is run; or an archive of NiFi's
(`:nar`), for the jars that it bundles. What was fetched is kept in `.local/jars` of the project, or in
CUSTODY_TEST_JARS. As a program it prints the class path of a list.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from custody.spark.environment import spark_home
from custody.spark.java import find_java

_PROJECT = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("CUSTODY_TEST_JARS") or _PROJECT / ".local" / "jars")
_FETCH_SECONDS_MAX = 900
_BUNDLED = "META-INF/bundled-dependencies/"


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
    return [jar for name in wanted for jar in _class_path(CACHE / _file(name))]


def _class_path(path: Path) -> Iterator[Path]:
    """Yield a jar, or those of an archive, which are taken out of it once."""
    if path.suffix != ".nar":
        yield path
        return
    folder = path.with_suffix("")
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            if name.startswith(_BUNDLED) and name.endswith(".jar"):
                jar = folder / Path(name).name
                if not jar.exists():
                    folder.mkdir(exist_ok=True)
                    jar.write_bytes(archive.read(name))
                yield jar


def _file(name: str) -> str:
    _, artifact, version, *kind = name.split(":")
    return f"{artifact}-{version}.{kind[0] if kind else 'jar'}"


def _is(path: Path, digest: str) -> bool:
    return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == digest


def _fetch(names: list[str]) -> None:
    [ivy] = (spark_home() / "jars").glob("ivy-*.jar")
    asked = "".join(map(_dependency, names))
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        module = Path(folder, "ivy.xml")
        module.write_text(
            '<ivy-module version="2.0"><info organisation="custody" module="tests"/>'
            f"<configurations><conf name='default'/></configurations><dependencies>{asked}</dependencies></ivy-module>"
        )
        command = [str(find_java(os.environ).executable), "-jar", str(ivy), "-ivy", str(module), "-cache"]
        command += [f"{folder}/cache", "-retrieve", f"{folder}/jars/[artifact]-[revision].[ext]"]
        command += ["-types", "jar", "bundle", "nar"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_FETCH_SECONDS_MAX, check=False)
        if done.returncode:
            raise RuntimeError(f"Ivy could not fetch {', '.join(names)}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        for name in names:
            shutil.move(Path(folder, "jars", _file(name)), CACHE / _file(name))


def _dependency(name: str) -> str:
    group, artifact, version, *kind = name.split(":")
    of_kind = f'<artifact name="{artifact}" type="{kind[0]}" ext="{kind[0]}"/>' if kind else ""
    return (
        f'<dependency org="{group}" name="{artifact}" rev="{version}" transitive="false" conf="default->master">'
        f"{of_kind}</dependency>"
    )


if __name__ == "__main__":
    sys.stdout.write(os.pathsep.join(map(str, jars(Path(sys.argv[1])))) + "\n")
