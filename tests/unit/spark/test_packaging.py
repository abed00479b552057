"""The library as one file: executors that have nothing else import it from there."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
from importlib.util import cache_from_source
from pathlib import Path

import pytest

from custody.errors import ConfigurationError, InvalidInputError
from custody.repository import Repository
from custody.spark.own_disk import own_disk, relocated
from custody.spark.packaging import UNPACKED, main, make_package, submit_options
from custody.spark.session import executor_variables

# What Spark's workers import to do a unit.
PROGRAM = "import custody.spark.executor as e, custody; print(custody.__file__); e.ALL_STEPS['rollover']"


def imported_from(*path: Path) -> str:
    """Where a Python that has no site packages of its own finds custody."""
    done = subprocess.run(
        [sys.executable, "-S", "-c", PROGRAM],
        env={"PYTHONPATH": os.pathsep.join(map(str, path)), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_zip_has_the_library_and_equal_input_gives_an_equal_file(tmp_path: Path) -> None:
    assert main([str(tmp_path / "a.zip")]) == 0
    make_package(tmp_path / "b.zip")
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()
    dependencies = Path(sysconfig.get_paths()["purelib"])
    assert imported_from(tmp_path / "a.zip", dependencies).startswith(str(tmp_path / "a.zip"))
    assert submit_options(tmp_path / "a.zip") == {"spark.submit.pyFiles": str(tmp_path / "a.zip")}


@pytest.mark.slow
def test_the_archive_has_all_that_the_library_needs(tmp_path: Path) -> None:
    make_package(tmp_path / "a.tar.gz")
    with tarfile.open(tmp_path / "a.tar.gz") as package:
        package.extractall(tmp_path / UNPACKED, filter="data")
    # An executor that may not write bytecode compiles nothing: a source that was touched later is still not looked at.
    for name in ("custody/__init__.py", "pyarrow/__init__.py"):
        compiled = Path(cache_from_source(str(tmp_path / UNPACKED / name)))
        assert int.from_bytes(compiled.read_bytes()[4:8], "little") == 0b01, "by a hash that nobody checks"
    assert imported_from(tmp_path / UNPACKED).startswith(str(tmp_path / UNPACKED))
    assert submit_options(tmp_path / "a.tar.gz")["spark.archives"].endswith(f"a.tar.gz#{UNPACKED}")


def test_other_names_and_a_file_that_is_missing_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert submit_options(None) == {}
    with pytest.raises(ConfigurationError, match=r"python -m custody\.spark\.packaging"):
        submit_options(tmp_path / "custody.zip")
    (tmp_path / "custody.egg").touch()
    with pytest.raises(ConfigurationError, match=r"ends in \.zip or \.tar\.gz"):
        submit_options(tmp_path / "custody.egg")
    assert main([str(tmp_path / "custody.egg")]) == InvalidInputError.exit_code
    assert "expected a name that ends in" in capsys.readouterr().err


def test_executors_get_the_variables_that_are_named_and_spark_hides_them() -> None:
    environ = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "HOME": "/root", "PAWS_X": "c"}
    options = executor_variables(("AWS_*",), environ)
    hidden = options.pop("spark.redaction.regex")
    assert options == {"spark.executorEnv.AWS_ACCESS_KEY_ID": "a", "spark.executorEnv.AWS_SECRET_ACCESS_KEY": "b"}
    assert "access[._]?key" in hidden
    assert list(executor_variables((), environ)) == ["spark.redaction.regex"]


def test_an_executor_has_folders_of_its_own_which_go(repository: Repository, tmp_path: Path) -> None:
    settings = repository.settings
    own = relocated(settings, tmp_path / "unit")
    assert {own.root, *own.containers} == {tmp_path / "unit", tmp_path / "unit" / "containers" / "0"}
    with own_disk(settings) as same:
        assert same is settings, "where staged units lie on a disk, executors share it"
