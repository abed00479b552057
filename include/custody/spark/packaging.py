"""The library as one file for the executors of a cluster, on whose machines it is not installed.

`python -m custody.spark.packaging FILE` makes it. A `.zip` has the library alone, for executors whose Python has its
dependencies; Spark takes it as `--py-files`. A `.tar.gz` has the dependencies as well, as they are installed here, for
executors that have nothing but the same version of Python on the same kind of machine; Spark unpacks it as an archive.
The setting `spark.library` names the file.
"""

from __future__ import annotations

import argparse
import py_compile
import re
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from importlib import metadata
from importlib.util import cache_from_source
from pathlib import Path
from py_compile import PycInvalidationMode

import custody
from custody.errors import ConfigurationError, InvalidInputError
from custody.vfs import PosixFileSystem

UNPACKED = "custody-library"
"""The folder, in Spark's folder of an executor, that an archive is unpacked to."""
ZIP, ARCHIVE = ".zip", ".tar.gz"
_DISTRIBUTION = "custody"
# A zip of earlier than 1980 cannot be; equal input gives an equal file.
_ZIP_TIME = (1980, 1, 1, 0, 0, 0)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def submit_options(library: Path | None) -> dict[str, str]:
    """Return the settings of Spark that bring the library to executors; none where they have it.

    Raises:
        ConfigurationError: there is no such file, or it is of another kind.
    """
    if library is None:
        return {}
    if not library.is_file():
        raise ConfigurationError(
            f"{library}: expected the library for executors (spark.library), found no file. Make it: "
            f"python -m custody.spark.packaging {library}"
        )
    if library.name.endswith(ZIP):
        return {"spark.submit.pyFiles": str(library)}
    if library.name.endswith(ARCHIVE):
        return {
            "spark.archives": f"{library}#{UNPACKED}",
            # Relative: Spark starts the Python of an executor in the folder in which it unpacked the archive.
            "spark.executorEnv.PYTHONPATH": UNPACKED,
        }
    raise ConfigurationError(f"{library}: expected a name that ends in {ZIP} or {ARCHIVE} (spark.library).")


def make_package(target: Path) -> int:
    """Write the library, and for an archive its dependencies, into a file; return its bytes.

    Durability: on return it survives power loss under its name; a crash leaves no part of it there.

    Raises:
        InvalidInputError: the name says neither kind.
        ConfigurationError: a dependency is not installed here.
    """
    if not target.name.endswith((ZIP, ARCHIVE)):
        raise InvalidInputError(f"{target}: expected a name that ends in {ZIP} or {ARCHIVE}.")
    fs = PosixFileSystem()
    fs.make_directory(target.parent)
    with tempfile.TemporaryDirectory() as scratch:
        draft = Path(scratch) / "draft"
        if target.name.endswith(ZIP):
            _write_zip(draft)
        else:
            _write_archive(draft, Path(scratch) / "bytecode")
        fs.write_durably(target, draft.read_bytes())
    return fs.size(target)


def _write_zip(draft: Path) -> None:
    with zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as package:
        for name, path in sorted(_library_files().items()):
            package.writestr(zipfile.ZipInfo(name, _ZIP_TIME), path.read_bytes(), zipfile.ZIP_DEFLATED)


def _write_archive(draft: Path, compiled: Path) -> None:
    with tarfile.open(draft, "w:gz", compresslevel=1) as package:
        for name, path in sorted({**_dependency_files(), **_library_files()}.items()):
            package.add(path, name, recursive=False)
            if name.endswith(".py") and _compile(path, name, compiled):
                package.add(compiled, cache_from_source(name), recursive=False)


def _compile(path: Path, name: str, compiled: Path) -> bool:
    """Compile a module into a file, whether it can be; executors may be forbidden to write bytecode.

    The bytecode is never compared with its source, whose time an executor's file system may change.
    """
    try:
        py_compile.compile(
            str(path), str(compiled), name, doraise=True, invalidation_mode=PycInvalidationMode.UNCHECKED_HASH
        )
    except py_compile.PyCompileError:
        # Templates and modules for other Pythons lie among those of dependencies.
        return False
    return True


def _library_files() -> dict[str, Path]:
    home = Path(custody.__file__).resolve().parent
    paths = (path for path in home.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {str(path.relative_to(home.parent)): path for path in paths}


def _dependency_files() -> Mapping[str, Path]:
    files: dict[str, Path] = {}
    for distribution in _dependencies():
        for file in distribution.files or ():
            path = Path(str(file.locate()))
            # Programs beside the packages, and what an installer left, are of no use on an executor.
            if ".." not in file.parts and "__pycache__" not in file.parts and path.is_file():
                files[str(file)] = path
    return files


def _dependencies() -> Iterator[metadata.Distribution]:
    """Yield what the library needs at run time, and what that needs; extras left out."""
    waiting, seen = [_DISTRIBUTION], {_DISTRIBUTION}
    while waiting:
        for requirement in _requirements(waiting.pop()):
            if requirement not in seen:
                seen.add(requirement)
                waiting.append(requirement)
                yield _installed(requirement)


def _requirements(name: str) -> Iterator[str]:
    """Yield the names of what a distribution needs, those aside that it needs elsewhere, or for an extra."""
    for text in _installed(name).requires or ():
        what, _, marker = text.partition(";")
        match = _NAME.match(what)
        if match is None or "extra" in marker:
            continue
        needed = re.sub(r"[-_.]+", "-", match[0]).lower()
        # A marker names systems or versions; what is not installed here is not needed here.
        if not marker or _is_installed(needed):
            yield needed


def _is_installed(name: str) -> bool:
    return any(metadata.distributions(name=name))


def _installed(name: str) -> metadata.Distribution:
    try:
        return metadata.distribution(name)
    except metadata.PackageNotFoundError as error:
        raise ConfigurationError(f"{name}: is needed on executors and not installed here. Install it.") from error


def main(argv: list[str] | None = None) -> int:
    """Make the file that the command line names, say so, and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m custody.spark.packaging",
        description="Make one file with the library for the executors of a Spark cluster.",
    )
    parser.add_argument("file", type=Path, help="a .zip for the library alone, a .tar.gz with its dependencies")
    target = parser.parse_args(argv).file
    try:
        size = make_package(target)
    except (ConfigurationError, InvalidInputError) as error:
        sys.stderr.write(f"custody: {error}\n")
        return error.exit_code
    sys.stdout.write(f"{target}: {size >> 10} KiB. Name it in the settings: [spark] library\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
