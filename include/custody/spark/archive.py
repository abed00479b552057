"""An archive of the Java classes that every Spark job loads: with it a job starts a quarter faster.

The archive (JVM class-data sharing) fits one Java build and one set of jars, so its name has both. A JVM that cannot
use it goes on without it; it never changes a result. `python -m custody.spark.archive` makes it once. The packaged Java
gets none: it comes without the base archive that this one builds on.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from custody.errors import ConfigurationError
from custody.spark.environment import QUICK_START_FLAGS, spark_home, submit_environment
from custody.spark.java import JavaRuntime, find_java, state_folder
from custody.spark.session import PLAIN_SQL

# A job like every other: a session, Python workers, a result. It leaves the class path behind.
_WARM_UP = """\
import sys
from pathlib import Path

from pyspark.sql import SparkSession

session = SparkSession.builder.appName("custody-warm-up").getOrCreate()
numbers = session.sparkContext.parallelize(range(4), 2)
if sorted(numbers.map(lambda number: number * number).collect()) != [0, 1, 4, 9]:
    sys.exit("Spark calculates wrongly")
Path(sys.argv[1]).write_text(session.sparkContext._jvm.System.getProperty("java.class.path"))
session.stop()
"""
_SECONDS_MAX = 300
# The JVM would complain about an unfit archive on standard output, where a job's report goes.
_QUIET_FLAG = "-Xlog:disable"


def archive_path(environ: Mapping[str, str] = os.environ, *, folder: Path | None = None) -> Path | None:
    """Return the path of the archive for this Java and this Spark; None where there can be none."""
    java = find_java(environ, folder=folder)
    return None if java.packaged else _path(java, state_folder() if folder is None else folder)


def archive_flags(environ: Mapping[str, str] = os.environ, *, folder: Path | None = None) -> list[str]:
    """Return the JVM flags for a quick start, with the archive if it has been made."""
    path = archive_path(environ, folder=folder)
    flags = [*QUICK_START_FLAGS, _QUIET_FLAG]
    if path is not None and path.is_file():
        flags.append(f"-XX:SharedArchiveFile={path}")
    return flags


def make_archive(environ: Mapping[str, str] = os.environ, *, folder: Path | None = None) -> Path | None:
    """Make the archive with one small Spark job, unless it is there; None if Java cannot use one.

    Raises:
        ConfigurationError: the job failed; its last lines are in the message.
    """
    folder = state_folder() if folder is None else folder
    java = find_java(environ, folder=folder)
    if java.packaged:
        return None
    path = _path(java, folder)
    if path.is_file():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    # In the same folder, for the rename; under a name of its own, as two processes may do this at once.
    with tempfile.TemporaryDirectory(dir=folder, prefix=".archive-") as scratch:
        draft = Path(scratch) / path.name
        class_path = _run_warm_up(environ, Path(scratch), draft)
        if not _is_usable(java, draft, class_path):
            return None
        # Only what the JVM accepted gets the name, and at once: no job finds half of an archive.
        draft.replace(path)
    return path


def option_string(flags: list[str]) -> str:
    """Join JVM flags so that Spark splits them again: a flag with a space is put in quotes."""
    return " ".join(f'"{flag}"' if " " in flag else flag for flag in flags)


def _path(java: JavaRuntime, folder: Path) -> Path:
    home = spark_home()
    spark = metadata.version("pyspark")
    # The JVM compares full paths: an environment that moved needs a new archive.
    places = hashlib.sha256(f"{java.home}\n{home}".encode()).hexdigest()[:8]
    version = "".join(char if char.isalnum() or char in ".-" else "_" for char in java.full_version)
    return folder / f"spark-{spark}-java-{version}-{places}.jsa"


def _run_warm_up(environ: Mapping[str, str], scratch: Path, draft: Path) -> str:
    """Run the job that leaves the archive, and return the class path it ran with."""
    job, seen = scratch / "warm_up.py", scratch / "class_path"
    job.write_text(_WARM_UP, encoding="utf-8")
    java_options = [*QUICK_START_FLAGS, _QUIET_FLAG, f"-XX:ArchiveClassesAtExit={draft}"]
    command = [
        *(str(spark_home() / "bin" / "spark-submit"), "--master", "local[2]"),
        *("--conf", "spark.ui.enabled=false", "--conf", "spark.driver.host=127.0.0.1"),
        *("--conf", f"spark.driver.extraJavaOptions={option_string(java_options)}"),
        *(part for key, value in PLAIN_SQL.items() for part in ("--conf", f"{key}={value}")),
        *(str(job), str(seen)),
    ]
    done = subprocess.run(  # noqa: S603 - our own job, by full path, without a shell
        command,
        env={**environ, **submit_environment(environ)},
        cwd=scratch,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        timeout=_SECONDS_MAX,
    )
    if done.returncode != 0:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-20:])
        raise ConfigurationError(
            f"the Spark job that makes the class archive failed: exit code {done.returncode}.\n"
            f"{tail}\nCheck that this Java and this Spark run a job at all."
        )
    return seen.read_text(encoding="utf-8")


def _is_usable(java: JavaRuntime, draft: Path, class_path: str) -> bool:
    """Ask the JVM whether it accepts the archive: some versions write one that they then refuse."""
    if not draft.is_file():
        return False
    # With `on` Java ends where it cannot use the archive; `auto` would go on without it and say nothing.
    flags = ["-Xshare:on", f"-XX:SharedArchiveFile={draft}", "-XX:+UseSerialGC"]
    done = subprocess.run(  # noqa: S603 - the Java found above, by full path, without a shell
        [java.executable, *flags, "-cp", class_path, "-version"],
        capture_output=True,
        check=False,
        timeout=_SECONDS_MAX,
    )
    return done.returncode == 0


def main() -> int:
    """Make the archive, say what was done, and return the exit code."""
    started = time.monotonic()
    try:
        java, expected = find_java(), archive_path()
        was_there = expected is not None and expected.is_file()
        path = make_archive()
    except ConfigurationError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    if path is None:
        text = f"no class archive for Java {java.full_version} in {java.home}: Spark starts slower"
    elif was_there:
        text = f"class archive is there: {path}"
    else:
        seconds = time.monotonic() - started
        text = f"class archive made in {seconds:.0f} s ({path.stat().st_size >> 20} MiB): {path}"
    sys.stdout.write(f"{text}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
